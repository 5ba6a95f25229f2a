"""Servers are asked at the start what they are: preset, model and format follow, and the log says so (R23.6, R24.1)."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config, sdk, wait_for_servers
from tests.e2e.engines import EVERY, Engine, llamacpp, lmstudio, models, ollama, page, sglang, tgi, vllm
from tests.e2e.processes import running
from tests.waiting import GUARD_S
from toolwire.pipeline.exchange.routing import ROUTER
from toolwire.testing import Answer, Asked, Raw, Refuse, Say, Upstream
from toolwire.upstream.servers.identity import MOST_NAMES, read_listed

WEATHER = function("get_weather", city="string")
CALL: dict[str, Any] = {"messages": USER, "tools": [WEATHER], "tool_choice": "required"}
ENFORCED = {"llamacpp": "grammar", "vllm": "structured_outputs", "sglang": "ebnf"}


def config(url: str, *, backend: dict[str, Any] | None = None, **sections: Any) -> Any:
    return read_config({"backends": {"gpu": {"url": url, **(backend or {})}}, **sections})


async def lines(caplog: pytest.LogCaptureFixture, number: int) -> list[str]:
    """So many lines about servers, waited for."""
    found: list[str] = []
    async with asyncio.timeout(GUARD_S):
        while len(found) < number:
            found = [record.getMessage() for record in caplog.records if record.name == "toolwire.health"]
            await asyncio.sleep(0.01)
    return found


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.health")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that pauses is no server that says nothing."""
    wait_for_servers(monkeypatch, 2 * GUARD_S)


async def sent(gateway: Gateway, server: Upstream, configured: Any, body: dict[str, Any] = CALL, **more: Any) -> Any:
    """What the server was asked when a client asked `body`, right after the start."""
    server.script = [Say("Hello.")]
    await post(await gateway(configured), {"model": "gpt-4o", **body, **more})
    return server.posts[-1].json


# --- what it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sglang", "vllm", "llamacpp", "ollama"])
async def test_a_server_that_is_too_busy_to_say_it_again_is_what_it_was(gateway: Gateway, name: str) -> None:
    """SGLang under load does not answer all of its paths in time. Its version is not another one for that, and what was
    learned of it stays; another list of models is another server."""
    (engine,) = (engine() for engine in EVERY.values() if engine().preset == name)
    silent: list[str] = []

    def listing(asked: Asked) -> Answer:
        return Raw(b"") if asked.path in silent else engine(asked)

    async with Upstream() as server:
        server.listing = listing
        (route,) = (await gateway(config(server.url, backend={"identify_s": 0}))).app[ROUTER].routes
        backend = route.pool.every[0].endpoint.backend
        first = await backend.identify()
        assert (first.engine, bool(first.version)) == (name, True)
        silent.extend(path for path in engine.pages if path != "/v1/models")
        assert await backend.identify() == first
        engine.pages["/v1/models"]["data"][0]["id"] = "another"  # type: ignore[index]
        assert await backend.identify() != first


@pytest.mark.parametrize("name", EVERY)
async def test_an_engine_is_recognised_and_gets_its_preset(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    engine = EVERY[name]()
    async with Upstream() as server:
        server.listing = engine
        body = await sent(gateway, server, config(server.url))
        (line,) = await lines(caplog, 1)
        assert f'Backend "gpu" at {server.url} is {name}' in line
        assert f"Preset: {engine.preset}." in line
        assert {field for field in ENFORCED.values() if field in body} == {ENFORCED.get(engine.preset)} - {None}
        assert all("authorization" not in asked.headers for asked in server.looks)
        assert len(server.looks) <= 10


@every(
    "engine, backend, enforced",
    [
        (llamacpp(), {"preset": "generic"}, None),
        (llamacpp(), {"preset": "vllm"}, "structured_outputs"),
        (ollama("a:1b"), {"preset": "vllm"}, "structured_outputs"),
        (vllm(), {"constrain": "none", "extra_parameters": []}, None),
        # a proxy in front that shows the list of models alone
        (Engine("vllm", {"/v1/models": vllm().pages["/v1/models"]}), {}, "structured_outputs"),
    ],
)
async def test_what_is_configured_wins(gateway: Gateway, engine: Engine, backend: Any, enforced: str | None) -> None:
    async with Upstream() as server:
        server.listing = engine
        body = await sent(gateway, server, config(server.url, backend=backend), top_k=3)
    assert {field for field in ENFORCED.values() if field in body} == {enforced} - {None}
    assert ("top_k" in body) is (enforced is not None)


@every(
    "nonsense",
    [
        page({"object": "list", "data": [{"id": 7}, None, "x", {"id": "m", "owned_by": ["vllm"]}]}),
        page([{"id": "m", "owned_by": {}, "meta": 3, "root": [1]}]),
        page({"data": [{"id": "m" * 100_000, "owned_by": "vllm"}, {"id": "m", "max_model_len": -5}]}),
        page({"data": [{"id": "m"}], "default_generation_settings": [], "version": 5, "model_id": None}),
        page({"data": None}),
        page({"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "sglang"}]}),
    ],
)  # fmt: skip
async def test_nonsense_says_nothing(gateway: Gateway, nonsense: Answer) -> None:
    """The same at every path."""
    async with Upstream() as server:
        server.listing = nonsense
        body = await sent(gateway, server, config(server.url))
        assert not set(ENFORCED.values()) & body.keys()


def test_so_many_models_are_kept() -> None:
    assert len(read_listed(models("vllm", *map(str, range(MOST_NAMES + 1)))).models) == MOST_NAMES


@pytest.mark.parametrize(
    "elsewhere",
    [
        Answer([b"<html>"]),
        page({"version": "1.2.3", "models": []}),
        page({"model_path": "x", "models": [{"name": "m", "digest": ""}], "default_generation_settings": {}}),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        Answer([b"[" * 100_000], framing="length"),
        Answer([b'{"chat_template": "' + b"x" * 2_000_000], framing="length"),
        Answer([], hang=True),
    ],
)  # fmt: skip
async def test_other_services_are_no_engine(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, elsewhere: Answer
) -> None:
    if elsewhere.hang:
        wait_for_servers(monkeypatch, 5.0)
    async with Upstream() as server:
        server.listing = Engine("generic", {"/v1/models": models(None, "m", "n")}, elsewhere)
        body = await sent(gateway, server, config(server.url))
        assert not set(ENFORCED.values()) & body.keys()
        (line,) = await lines(caplog, 1)
        assert "is an OpenAI-compatible server" in line


async def test_its_paths_are_beside_the_apis_on_the_same_server(gateway: Gateway) -> None:
    """Behind a prefix, with the key, and wherever it is led: nobody else is asked, and nobody else gets the key."""
    async with Upstream() as other, Upstream() as server:
        away = Answer([], status=307, headers={"Location": f"{other.url}/steal"}, framing="length")
        server.listing = Engine("generic", {"/llm/v1/models": models(None, "m", "n")}, away)
        await sent(gateway, server, config(f"{server.url}/llm/v1", backend={"api_key": "sk-very-secret"}))
        assert other.connections == 0
        assert {asked.path for asked in server.looks} == {
            "/llm/v1/models", "/llm/props", "/llm/version", "/llm/get_model_info", "/llm/api/tags", "/llm/api/version",
            "/llm/api/v0/models", "/llm/info", "/llm/server_info", "/llm/api/ps",
        }  # fmt: skip
        assert {asked.headers["authorization"] for asked in server.looks} == {"Bearer sk-very-secret"}


async def test_a_service_that_needs_no_asking_is_not_asked(gateway: Gateway) -> None:
    async with Upstream() as server:
        server.listing = Engine("generic", {"/v1/models": models("openai", "gpt-4o", "gpt-4o-mini")})
        await sent(gateway, server, config(server.url))
        assert {asked.path for asked in server.looks} == {"/v1/models"}


async def test_images_as_the_server_says(gateway: Gateway) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
    for vision, preset, seen in ((True, {}, True), (False, {}, False), (False, {"images": "true"}, True)):
        async with Upstream([Say("A cat.")]) as server:
            server.listing = llamacpp(modalities={"vision": vision})
            started = await gateway(config(server.url, backend=preset))
            assert (await post(started, {**CALL, "messages": image})).status == 200
            assert (b"base64,AAAA" in server.requests[-1].body) == seen


# --- which model ----------------------------------------------------------------------------------------------------


@every(
    ("engine", "asked", "named"),
    [
        (vllm("served"), "gpt-4o", "served"),
        (vllm("served"), "served", "served"),
        (vllm("one", "two"), "two", "two"),
        (vllm("one", "two"), "gpt-4o", "one"),
        (vllm("base", adapters=("fine",)), "gpt-4o", "base"),
        (vllm("base", adapters=("fine",)), "fine", "fine"),
        (sglang(), "gpt-4o", "meta-llama/Llama-3.1-8B-Instruct"),
        (ollama("qwen2.5:0.5b"), "gpt-4o", "qwen2.5:0.5b"),
        (ollama("qwen2.5:0.5b", "llama3.2:1b"), "gpt-4o", "gpt-4o"),
        (lmstudio(("a-7b",), ("b-7b", "c-embed")), "gpt-4o", "a-7b"),
        (lmstudio(("a-7b",), ("b-7b",)), "b-7b", "b-7b"),
        (lmstudio(("a-7b", "b-7b")), "gpt-4o", "gpt-4o"),
        (llamacpp(), "gpt-4o", "gpt-4o"),
        (tgi(), "gpt-4o", "gpt-4o"),
        (Engine("generic", {"/v1/models": models(None, "only")}), "gpt-4o", "only"),
        (Engine("generic", {"/v1/models": models("llamacpp", "a", "b"), "/props": {**llamacpp().pages["/props"], "role": "router"}}), "x", "x"),
    ],
)  # fmt: skip
async def test_a_single_model_answers_under_any_name(gateway: Gateway, engine: Engine, asked: str, named: str) -> None:
    async with Upstream([Say("Hello.")]) as server:
        server.listing = engine
        started = await gateway(config(server.url))
        for body in (CALL, {"messages": USER}):
            await post(started, {**body, "model": asked})
            assert server.posts[-1].json["model"] == named


@every(("route", "named"), [({"upstream_model": "mine"}, "mine"), ({"model": "fast"}, "served")])
async def test_a_configured_model_wins(gateway: Gateway, route: dict[str, Any], named: str) -> None:
    async with Upstream() as server:
        server.listing = vllm("served")
        configured = config(server.url, routes=[{"backend": "gpu", **route}])
        assert (await sent(gateway, server, configured, model="fast"))["model"] == named


async def test_or_the_names_are_listed(gateway: Gateway) -> None:
    """By option; for the routes' own names, and while the server has not said, nothing is refused."""
    routes = [{"model": "fast", "backend": "gpu"}, {"model": "*", "backend": "gpu"}]
    async with Upstream([Say("Hello.")]) as server:
        server.listing = vllm("one", "two")
        started = await gateway(config(server.url, routes=routes, defaults={"unknown_model": "error"}))
        refused = await post(started, {"messages": USER, "model": "gpt-4o"})
        error = refused.json()["error"]
        assert (refused.status, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert '"one"' in error["message"]
        assert '"two"' in error["message"]
        assert server.posts == []
        for model in ("one", "two", "fast"):
            assert (await post(started, {"messages": USER, "model": model})).status == 200
        async with sdk(started) as client:
            assert [entry.id async for entry in client.models.list()] == ["fast", "one", "two"]
    async with Upstream([Say("Hello.")]) as silent:
        silent.listing = Refuse(404)
        started = await gateway(config(silent.url, defaults={"unknown_model": "error"}))
        assert (await post(started, {"messages": USER, "model": "gpt-4o"})).status == 200


# --- which format ---------------------------------------------------------------------------------------------------

NAMELESS = "model-1"
PYTHON_TAG = '{{ "<|python_tag|>" }}{"name": ..., "parameters": ...}'


@pytest.mark.parametrize(
    ("engine", "asked", "name", "why"),
    [
        (llamacpp("qwen2.5-coder-7b"), "gpt-4o", "hermes", "the model's name says so"),
        (llamacpp("qwen2.5-coder-7b"), "mistral-large", "hermes", "the model's name says so"),
        (llamacpp(NAMELESS, model_path="C:\\m\\Mistral-Nemo-Q4.gguf"), "gpt-4o", "mistral_v3", '"Mistral-Nemo-Q4.gguf" says so'),
        (llamacpp(NAMELESS, chat_template=PYTHON_TAG), "gpt-4o", "llama3_json", "its chat template says so"),
        (vllm("prod", root="meta-llama/Llama-3.1-8B-Instruct"), "gpt-4o", "llama3_json", '"Llama-3.1-8B-Instruct" says so'),
        (ollama("qwen2.5:0.5b", "llama3.2:1b"), "llama3.2:1b", "llama3_json", None),
        (ollama("qwen2.5:0.5b", "llama3.2:1b"), "qwen2.5:0.5b", "hermes", None),
        (llamacpp(NAMELESS), "llama-3.1", "llama3_json", None),
        (llamacpp(NAMELESS), "gpt-4o", "hermes", "the model's family is unknown"),
        (llamacpp("qwen2.5-coder-7b"), "gpt-4o", "llama3_json", "as configured"),
    ],
)  # fmt: skip
async def test_the_format_follows_the_model_that_is_served(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, engine: Engine, asked: str, name: str, why: str | None
) -> None:
    async with Upstream() as server, Upstream() as told:
        server.listing = engine
        configured = name if why == "as configured" else "auto"
        found = await sent(gateway, server, config(server.url, defaults={"format": configured}), model=asked)
        wanted = await sent(gateway, told, config(told.url, defaults={"format": name}))
        assert found["messages"] == wanted["messages"]
        line = next(line for line in await lines(caplog, 1) if server.url in line)
        assert why is None or why in line
        assert why is None or f"Calls in {name} (" in line


# --- the log --------------------------------------------------------------------------------------------------------


async def test_the_line_is_whole(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    async with Upstream() as server:
        server.listing = llamacpp()
        url = server.url.replace("http://", "http://me:hunter2@")
        routes = [{"model": "*", "backend": "gpu", "options": {"format": "auto"}}]
        await sent(gateway, server, config(url, routes=routes))
        assert await lines(caplog, 1) == [
            f'Backend "gpu" at {server.url} is llama.cpp b6792-1ca87eb; it serves "qwen2.5-coder-0.5b-instruct" (context 8192), whatever '
            "model is asked for. Preset: llamacpp. Calls in hermes (the model's name says so), enforced (gbnf) in every call."
        ]


HOSTILE = 'x\n2026-11-22 ERROR toolwire: "all is lost"\x1b[2J\r\u2028\x00' + "y" * 150


async def test_nothing_that_a_server_says_looks_like_another_line(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{number}{HOSTILE}" for number in range(50)]
    for engine in (
        llamacpp(HOSTILE, build_info=HOSTILE, model_path=f"/m/qwen{HOSTILE}"),
        Engine("generic", {"/v1/models": models(HOSTILE, *names)}),
        Engine("vllm", {"/v1/models": models("vllm", *names), "/version": {"version": HOSTILE}}),
    ):
        caplog.clear()
        async with Upstream() as server:
            server.listing = engine
            await sent(gateway, server, config(server.url, defaults={"format": "auto"}))
            (line,) = await lines(caplog, 1)
            assert line.isprintable()
            assert len(line) < 2000


async def test_one_line_however_many_workers_and_a_reload_keeps_what_is_known(tmp_path: Path) -> None:
    """All workers know: whichever takes the request, it is enforced."""

    async def ask(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.post(f"{url}{CHAT}", json={"model": "m", **CALL}) as got:
            await got.read()

    async with Upstream([Say("Hello.")]) as server:
        server.listing = llamacpp()
        settings = {"backends": {"gpu": {"url": server.url}}, "server": {"port": 0, "workers": 2}}
        async with running(tmp_path, settings) as started:
            await started.logged("is llama.cpp")
            async with asyncio.timeout(GUARD_S):  # a worker that was held up asks again
                while sum("grammar" in asked.json for asked in server.posts[-8:]) < 8:
                    await ask(started.url)
            said = started.log.count("is llama.cpp")  # once more only behind a server that seemed to be gone
            assert 1 <= said <= 1 + started.log.count("Requests for it fail")
            server.listing = Answer([], hang=True)
            started.write({**settings, "defaults": {"format": "hermes"}})
            started.signal(signal.SIGHUP)
            await started.logged("reloaded the configuration")
            await ask(started.url)
        assert "grammar" in server.posts[-1].json


# --- servers that are down, slow, or others later --------------------------------------------------------------------


async def test_a_server_that_comes_up_is_introduced(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    async with Upstream() as server:
        up = asyncio.Event()
        engine: Callable[[Asked], Answer] = llamacpp()
        server.listing = lambda asked: engine(asked) if up.is_set() else Refuse(503, "Loading model")
        server.script = [Say("Hello.")]
        url = server.url.replace("http://", "http://me:hunter2@")
        started = await gateway(config(url, defaults={"bad_answers": {"choice_miss": "pass"}}))
        (line,) = await lines(caplog, 1)
        assert "503" in line
        assert f" Its address is {server.url}. " in line
        await post(started, {"model": "gpt-4o", **CALL})
        assert "grammar" not in server.posts[0].json
        up.set()
        assert "is llama.cpp" in (await lines(caplog, 2))[1]
        await post(started, {"model": "gpt-4o", **CALL})
        assert "grammar" in server.posts[1].json


@pytest.mark.parametrize(
    ("every_s", "answer"), [(0.05, Say("Hello.")), (3600.0, Refuse(404, "The model `one` does not exist."))]
)
async def test_a_server_that_becomes_another_is_noticed(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, every_s: float, answer: Any
) -> None:
    """By asking again, and at once when it does not know the model that it had."""
    async with Upstream([answer]) as server:
        server.listing = vllm("one")
        started = await gateway(config(server.url, backend={"identify_s": every_s}))
        assert '"one"' in (await lines(caplog, 1))[0]
        server.listing = sglang()
        await post(started, {"model": "one", **CALL})
        assert "is SGLang" in (await lines(caplog, 2))[1]
        server.script = [Say("Hello.")]
        await post(started, {"model": "one", **CALL})
        assert "ebnf" in server.posts[-1].json
        assert server.posts[-1].json["model"] == "meta-llama/Llama-3.1-8B-Instruct"


async def test_one_that_goes_is_named_and_what_it_was_is_kept(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    async with Upstream([Say("Hello.")]) as server:
        server.listing = llamacpp()
        started = await gateway(config(server.url, backend={"identify_s": 0.05}))
        await lines(caplog, 1)
        server.listing = Refuse(503)
        assert "Requests for it fail" in (await lines(caplog, 2))[1]
        await post(started, {"model": "gpt-4o", **CALL})
        assert "grammar" in server.posts[0].json
        server.listing = llamacpp()
        assert "is llama.cpp" in (await lines(caplog, 3))[2]


async def test_a_server_that_says_nothing_holds_up_the_first_requests_and_no_other(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_servers(monkeypatch, 0.3)
    async with Upstream([Say("Hello.")]) as server:
        server.listing = Answer([], hang=True)
        started = await gateway(config(server.url))
        async with asyncio.timeout(GUARD_S):
            assert (await post(started, {"model": "gpt-4o", **CALL})).status == 200
        assert len(await lines(caplog, 1)) == 1
        assert not any(route.pool.unsettled for route in started.app[ROUTER].routes)


async def test_what_is_configured_is_not_waited_for(gateway: Gateway) -> None:
    """The server says nothing before it was asked by the client."""
    asked = asyncio.Event()

    def answer(request: Asked) -> Answer:
        asked.set()
        return Say("Hello.")(request)

    async with Upstream([answer]) as server:
        server.listing = Answer([orjson.dumps(models("llamacpp", "m"))], wait=asked)
        routes = [{"backend": "gpu", "upstream_model": "m"}]
        started = await gateway(config(server.url, backend={"preset": "vllm"}, routes=routes))
        async with asyncio.timeout(GUARD_S):  # less than a look may take
            assert (await post(started, {"model": "gpt-4o", **CALL})).status == 200
