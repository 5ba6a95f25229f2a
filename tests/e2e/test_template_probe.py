"""Probing of chat templates: the facts that the gateway finds, when, and their effects (R31.2, docs/adr/0046)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, get, post, read_config, serving, wait_for_servers
from tests.e2e.engines import ollama
from tests.e2e.meaning import meant
from tests.e2e.template_servers import KINDS, QWEN, TemplateServer, upstream
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.cli import main
from toolwire.config import GatewayConfig
from toolwire.observability.metrics import SharedCounters
from toolwire.observability.telemetry import Metrics
from toolwire.testing import Answer, Asked, Refuse, Upstream
from toolwire.upstream.pool import template_probing

READ = function("read", path="string")
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
BODY: dict[str, Any] = {"messages": USER, "tools": [READ]}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no server that says nothing, and no probe that takes too long."""
    wait_for_servers(monkeypatch, 60)
    monkeypatch.setattr("toolwire.middlewares.tool_mode.WAIT_S", 60.0)


def asking(
    up: Upstream, mode: str = "text", *, backend: dict[str, Any] | None = None, **defaults: Any
) -> GatewayConfig:
    """A gateway that asks the server what it is."""
    return read_config({"backends": {"up": {"url": up.url, **(backend or {})}}, "defaults": {"mode": mode, **defaults}})


async def verdict(server: TestServer) -> dict[str, Any]:
    """The verdict of the template probe on the only model, waited for."""
    async with asyncio.timeout(GUARD_S):
        while not (shown := (await get(server, "/ready")).json().get("templates")):  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0.01)
    ((_, models),) = shown.items()
    ((_, one),) = models.items()
    return dict(one)


def probes(up: Upstream) -> list[Asked]:
    """The requests of the gateway's own that show a tool."""
    return [asked for asked in up.posts if asked.path == CHAT and b"report_ready" in asked.body]


def with_tools(up: Upstream) -> list[bool]:
    """Which of the clients' requests had tools."""
    return ["tools" in asked.json for asked in up.posts if b'"hi' in asked.body]


@every(("kind", "mode"), zip(KINDS, ("text", "auto", "template"), strict=True))
async def test_a_template_that_works_is_used_from_the_start(kind: str, mode: str) -> None:
    up = upstream(TemplateServer(kind, CALL))
    async with up, serving(asking(up, mode)) as server:
        shown = await verdict(server)
        assert (shown["mode"], shown["cause"]) == ("template", "called")
        answer = await post(server, BODY)
        assert meant(CHAT, answer, False)[1] == [("read", {"path": "a"})]
        page = (await get(server, "/metrics")).body.decode()
    assert with_tools(up) == [True]
    (probe,) = probes(up)
    assert b"report_ready" not in orjson.dumps(probe.json["messages"]), "only the template can say the tool's name"
    assert 'toolwire_tools_templated{backend="up"} 1.0' in page


@every(
    ("server", "mode", "cause"),
    [
        (TemplateServer("vllm", refuses=True), "prompt", "refused"),
        (TemplateServer("sglang", reads=True), "prompt", "read"),
        (TemplateServer("vllm", reads=True), "template", "called"),
        (TemplateServer("llamacpp", to_probe="I cannot.", ignores=True), "prompt", "unseen"),
        (TemplateServer("vllm", to_probe="I cannot.", ignores=True, counts=False), "prompt", "unseen"),
        (TemplateServer("vllm", to_probe="I cannot.", ignores=True, counts="with tools"), "prompt", "unseen"),
        (TemplateServer("vllm", to_probe="I cannot."), "template", "shown"),
        (TemplateServer("llamacpp", to_probe="I cannot."), "template", "shown"),
        (TemplateServer("vllm", to_probe="I cannot.", counts=False), "template", "shown"),
        (TemplateServer("sglang", to_probe="I cannot."), "prompt", "silent"),
        (TemplateServer("vllm", to_probe='{"name": "report_ready", "arguments": {}}'), "template", "called"),
    ],
)
async def test_what_a_probe_shows(server: TemplateServer, mode: str, cause: str) -> None:
    server.says, server.prompts = CALL, []
    up = upstream(server)
    async with up, serving(asking(up)) as gateway:
        shown = await verdict(gateway)
        answer = await post(gateway, BODY)
    assert (shown["mode"], shown["cause"]) == (mode, cause)
    assert meant(CHAT, answer, False)[1] == [("read", {"path": "a"})], "whichever mode follows"
    assert with_tools(up) == [mode == "template"]
    assert len(probes(up)) == 1


async def test_requests_that_arrive_together_and_under_other_names_lead_to_one_probe() -> None:
    """llama.cpp has one model, whatever it is called."""
    up = upstream(TemplateServer("llamacpp", CALL))
    async with up, serving(asking(up)) as gateway:
        several = await asyncio.gather(*(post(gateway, {**BODY, "model": f"m{n}"}) for n in range(4)))
        assert all(meant(CHAT, answer, False)[1] == [("read", {"path": "a"})] for answer in several)
    assert len(probes(up)) == 1
    assert with_tools(up) == [True] * 4


async def test_a_request_does_not_wait_long_for_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.middlewares.tool_mode.WAIT_S", 0.01)
    server, going = TemplateServer("vllm", CALL), asyncio.Event()

    def answer(asked: Asked) -> Answer:
        if b"report_ready" in asked.body:
            return replace(server(asked), wait=going)
        return server(asked)

    up = upstream(server)
    up.script = [answer]
    async with up, serving(asking(up)) as gateway:
        first = await post(gateway, BODY)
        going.set()
        await verdict(gateway)
        second = await post(gateway, BODY)
    for got in (first, second):
        assert meant(CHAT, got, False)[1] == [("read", {"path": "a"})]
    assert with_tools(up) == [False, True], "by the prompt at first, by the template when that is known"
    assert len(probes(up)) == 1


@every(
    "config, known, asked",
    [
        ({"mode": "text", "format": "sentinel"}, True, False),
        ({"mode": "prompt"}, True, False),
        ({"mode": "native"}, True, True),
        ({"mode": "hybrid"}, True, True),
        ({}, False, False),  # a model of no known family
    ],
)
async def test_where_nothing_would_follow_nothing_is_probed(config: dict[str, Any], known: bool, asked: bool) -> None:
    server = TemplateServer("vllm", CALL)
    up = upstream(server) if known else Upstream([server])
    async with up, serving(asking(up, **config)) as gateway:
        assert (await post(gateway, BODY)).status == 200
    assert (probes(up), with_tools(up)) == ([], [asked])


async def test_of_several_models_each_is_probed_when_it_is_asked_for() -> None:
    server = TemplateServer("vllm", CALL)
    up = Upstream([server])
    up.listing = ollama("qwen2.5:0.5b", "qwen3:8b")
    count = {"messages": USER, "tools": [{"name": "read", "input_schema": {"type": "object"}}]}
    async with up, serving(asking(up)) as gateway:
        await post(gateway, {**count, "model": "qwen3:8b"}, path="/v1/messages/count_tokens")
        assert probes(up) == [], "a count of tokens probes nothing"
        for model in ("qwen3:8b", "qwen3:8b", "qwen2.5:0.5b"):
            await post(gateway, {**BODY, "model": model})
    assert [asked.json["model"] for asked in probes(up)] == ["qwen3:8b", "qwen2.5:0.5b"]


async def test_auto_leaves_tools_to_a_server_that_reads_them() -> None:
    up = upstream(TemplateServer("sglang", CALL, reads=True))
    async with up, serving(asking(up, "auto")) as gateway:
        assert (await verdict(gateway))["cause"] == "read"
        answer = await post(gateway, BODY)
        shown = (await get(gateway, "/ready")).json()
    assert meant(CHAT, answer, False)[1] == [("read", {"path": "a"})]
    (native,) = shown["tools"]["up"].values()
    assert native["mode"] == "native"
    assert with_tools(up) == [True]


async def test_a_probe_that_fails_shows_nothing_and_is_not_repeated_at_once() -> None:
    server = TemplateServer("vllm", CALL)
    up = upstream(server)
    up.script = [lambda asked: Refuse(503) if b"report_ready" in asked.body else server(asked)]
    async with up, serving(asking(up)) as gateway:
        for _ in range(3):
            answer = await post(gateway, BODY)
            assert meant(CHAT, answer, False)[1] == [("read", {"path": "a"})]
        assert "templates" not in (await get(gateway, "/ready")).json()
    assert (len(probes(up)), with_tools(up)) == (1, [False] * 3)


async def test_a_server_that_refuses_tools_later_is_taught_in_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_probing, "AGAIN_S", 0.0)
    server = TemplateServer("vllm", CALL)
    up = upstream(server)
    async with up, serving(asking(up)) as gateway:
        await verdict(gateway)
        server.refuses = True
        answers = [await post(gateway, BODY)]
        async with asyncio.timeout(GUARD_S):
            for look in count(1):
                if (await verdict(gateway))["cause"] == "refused":
                    break
                if look % 500 == 0:  # a probe that showed nothing is made again for a later request only
                    answers.append(await post(gateway, BODY))
                await asyncio.sleep(0.01)
        again = len(answers) - 1
        answers.append(await post(gateway, BODY))
    for got in answers:
        assert meant(CHAT, got, False)[1] == [("read", {"path": "a"})]
    asked = with_tools(up)
    assert (asked[:2], asked[-1], len(asked) - 2 * again <= 3) == ([True, False], False, True)
    assert 2 <= len(probes(up)) <= 2 + again


async def test_workers_share_what_was_shown(tmp_path: Path) -> None:
    up = upstream(TemplateServer("vllm", CALL))
    async with up:
        for worker in range(2):
            cells = SharedCounters(tmp_path / f"{worker}.cells")
            server = TestServer(create_app(asking(up), metrics=Metrics(cells)))
            await server.start_server()
            await verdict(server)
            await post(server, BODY)
            await server.close()
            cells.close()
    assert (len(probes(up)), with_tools(up)) == (1, [True, True])


async def test_the_servers_of_a_route_have_to_agree() -> None:
    good, bad = upstream(TemplateServer("vllm", CALL)), upstream(TemplateServer("sglang", CALL, reads=True))
    async with good, bad:
        backends = {"up": {"url": good.url}, "other": {"url": bad.url}}
        routes = [{"model": "*", "backends": ["up", "other"]}]
        config = read_config({"backends": backends, "routes": routes, "defaults": {"mode": "text"}})
        async with serving(config) as gateway:
            for _ in range(4):
                answer = await post(gateway, BODY)
                assert meant(CHAT, answer, False)[1] == [("read", {"path": "a"})]
    assert set(with_tools(good) + with_tools(bad)) == {False}
    assert (len(probes(good)), len(probes(bad))) == (1, 1)


# --- what is said -----------------------------------------------------------------------------------------------------


@every(
    ("mode", "words"),
    [
        ("template", "described by the model's chat template (`mode: template`)"),
        ("text", "A test request shows whether the model's chat template can describe tools."),
    ],
)
async def test_the_start_up_line_says_who_teaches(mode: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    up = upstream(TemplateServer("vllm", CALL))
    async with up, serving(asking(up, mode)) as gateway:
        await verdict(gateway)
    lines = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in lines if "is vLLM" in line]
    assert words in line
    assert "in hermes" in line
    assert any("its chat template teaches the tools, and its text comes back as it wrote it" in line for line in lines)


async def test_check_and_doctor_show_it(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    up = upstream(TemplateServer("vllm", CALL))
    async with up:
        target = {"backend": "up", "upstream_model": QWEN}
        routes = [{"model": "m", "upstream_model": "of other servers", "backends": [target]}]
        file.write_bytes(orjson.dumps({"backends": {"up": {"url": up.url}}, "routes": routes}))
        checked = await asyncio.to_thread(CliRunner().invoke, main, ["check", "--probe", str(file)])
        looked = await asyncio.to_thread(CliRunner().invoke, main, ["doctor", "--probe", str(file)])
    assert f'probe up "{QWEN}": its chat template teaches the tools' in checked.output, checked.output
    assert "its chat template teaches the tools" in looked.output, looked.output
