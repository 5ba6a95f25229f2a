"""`mode: hybrid` and `auto` over real sockets (R24.1): servers of each kind that take tools or refuse them, clients of
each protocol, what is kept of it, and what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, get, post, read_config, serving, upstream_config
from tests.e2e.meaning import meant, says
from tests.e2e.test_cut_calls import asking
from tests.e2e.test_messages_backend import BODIES, JSON, SSE
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.cli import main
from toolwire.config import GatewayConfig
from toolwire.configuration.mistakes import Mistakes
from toolwire.model import Text, ToolUse
from toolwire.observability.metrics import SharedCounters
from toolwire.observability.telemetry import Metrics
from toolwire.registry import registries
from toolwire.startup.names import name_mistakes
from toolwire.support.conversion import ConfigError
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream
from toolwire.upstream.pool.verdicts import Verdicts

READ = function("read", path="string")
WRITE = function("write", path="string")
NAMED = {"type": "function", "function": {"name": "read"}}
WRITTEN = '<tool_call>{"name":"read","arguments":{"path":"a"}}</tool_call>'
NEAR = '<tool_call>{"name":"read","arguments":{"pth":"a"}}</tool_call>'
KINDS = ("openai_chat", "openai_responses", "anthropic_messages")
WAYS = [(path, stream) for path in BODIES for stream in (False, True)]

VLLM = {
    choice: {"object": "error", "type": "BadRequestError", "param": None, "code": 400, "message": message}
    for choice, message in {
        "auto": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "required": 'tool_choice="required" requires --tool-call-parser to be set',
        "named": "tool_choice=ChatCompletionNamedToolChoiceParam(type='function') requires --tool-call-parser to be set",
    }.items()
}
REFUSALS: dict[str, tuple[int, Any]] = {
    "vllm auto": (400, VLLM["auto"]),
    "vllm auto, nested": (400, {"error": VLLM["auto"]}),
    "vllm required": (400, VLLM["required"]),
    "vllm named": (400, VLLM["named"]),
    "ollama": (400, {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools", "code": None}}),
    "ollama, bare": (400, {"error": "gemma:2b does not support tools"}),
    "llama.cpp": (
        500,
        {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}},
    ),
    "llama.cpp choice": (500, {"error": {"code": 500, "message": "tool_choice param requires --jinja flag"}}),
    "whoever, 400": (400, {"detail": "Unexpected field: tools"}),
    "whoever, 501": (501, {"error": "tools are not implemented"}),
    "lm studio template": (400, {"error": 'Error rendering prompt with jinja template: "Cannot call something".'}),
    "llama.cpp schema": (
        400,
        {"error": {"code": 400, "message": "JSON schema conversion failed:\nUnrecognized schema: {}"}},
    ),
}
NO_OBJECT = {"error": "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"}


def refusing(status: int = 400, body: Any = REFUSALS["ollama"][1]) -> Answer:
    return Refuse(status, body=orjson.dumps(body))


def tools_or(refusal: Answer, otherwise: Any) -> Callable[[Asked], Answer]:
    """A server that refuses tools."""

    def answer(asked: Asked) -> Answer:
        if "tools" in asked.json:
            return refusal
        return otherwise(asked) if callable(otherwise) else otherwise  # type: ignore[no-any-return]

    return answer


def behind(
    up: Upstream, kind: str = "openai_chat", mode: str = "hybrid", *, verdict_s: float = 1000, **defaults: Any
) -> GatewayConfig:
    backend = {"kind": kind, "preset": "generic", "verdict_s": verdict_s}
    return upstream_config(up.url, backend=backend, defaults={"mode": mode, **defaults})


async def tools_shown(server: Any) -> Any:
    return (await get(server, "/ready")).json().get("tools")


async def decided(server: Any, model: str = "m") -> Any:
    """The verdict on the servers' tools, once a probe has shown that the gateway does those of this model."""
    async with asyncio.timeout(GUARD_S):
        while ((await tools_shown(server) or {}).get("up", {}).get(model) or {}).get("mode") != "prompt":  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
    return await tools_shown(server)


def with_tools(up: Upstream) -> list[bool]:
    """Which of the clients' requests had tools, without the gateway's own probes."""
    return ["tools" in asked.json for asked in up.posts if b"report_ready" not in asked.body]


def twice(path: str, stream: bool) -> list[dict[str, Any]]:
    """The same request twice, of a model of its own: what is known is known of a model."""
    return [{**asking(path, stream), "model": f"{path} {stream}"}] * 2


@every("kind", KINDS)
async def test_a_server_that_refuses_tools_is_asked_again_without(kind: str) -> None:
    up_says = tools_or(refusing(), says(kind, Text(WRITTEN)))
    async with Upstream([up_says]) as up, serving(behind(up, kind)) as server:
        for path, stream in WAYS:
            seen = len(with_tools(up))
            for body in twice(path, stream):
                answer = await post(server, body, path=path)
                assert (answer.status, meant(path, answer, stream)[:2]) == (200, ("", [("read", {"path": "a"})]))
                shown = (await decided(server, body["model"]))["up"][body["model"]]
            assert with_tools(up)[seen:] == [True, False, False], f"once is enough: {path}, {stream}"
            assert (shown["mode"], shown["cause"]) == ("prompt", "refused")
            assert 0 < shown["for_s"] <= 1000
        page = (await get(server, "/metrics")).body.decode()
    assert f'toolwire_mode_switches_total{{cause="refused"}} {len(WAYS)}.0' in page
    assert 'toolwire_tools_native{backend="up"} 0.0' in page


async def test_each_refusal_that_is_known() -> None:
    """Asked with the choice that it is about, and not learned: the verdict is over at once."""
    choice = {"vllm required": "required", "vllm named": NAMED}
    config: dict[str, Any] = {"retry": {"attempts": 3, "backoff_s": 0}}
    async with Upstream() as up, serving(behind(up, verdict_s=0, **config)) as server:
        for (name, (status, body)), stream in product(REFUSALS.items(), (False, True)):
            up.script, seen = [tools_or(refusing(status, body), Say(WRITTEN))], len(with_tools(up))
            answer = await post(server, {**asking(CHAT, stream), "tool_choice": choice.get(name, "auto")})
            assert meant(CHAT, answer, stream)[1] == [("read", {"path": "a"})], name
            assert with_tools(up)[seen:] == [True, False], f"a refusal is never retried as a fault: {name}"


@every("mode", ["native", "prompt"])
async def test_a_refusal_that_is_no_fault_is_none_in_any_mode(mode: str) -> None:
    """llama.cpp says it with 500: that is not tried again, and opens no breaker."""
    status, body = REFUSALS["llama.cpp"]
    async with (
        Upstream([refusing(status, body)]) as up,
        serving(behind(up, mode=mode, retry={"attempts": 3, "backoff_s": 0})) as server,
    ):
        answer = await post(server, asking(CHAT, False))
    assert (answer.status, answer.json()["error"]["code"], len(up.posts)) == (400, "upstream_rejected", 1)


@every("kind", KINDS)
async def test_a_server_that_takes_tools_keeps_them(kind: str) -> None:
    up_says = says(kind, Text("Reading."), ToolUse("call_1", "read", '{"path":"a"}'))
    async with Upstream([up_says]) as up, serving(behind(up, kind)) as server:
        for path, stream in WAYS:
            for body in twice(path, stream):
                answer = await post(server, body, path=path)
                assert meant(path, answer, stream)[:2] == ("Reading.", [("read", {"path": "a"})])
            shown = (await tools_shown(server))["up"][body["model"]]
            assert (shown["mode"], shown["cause"]) == ("native", "accepted")
    assert all("tools" in asked.json for asked in up.posts)
    assert len(up.posts) == 2 * len(WAYS)


async def test_what_a_server_refuses_at_the_beginning_of_its_answer() -> None:
    """With the status 200: as the first frame of a stream, or as the body."""

    def answer(asked: Asked) -> Answer:
        if "tools" not in asked.json:
            return Say(WRITTEN)(asked)
        said = b'{"error":"gemma:2b does not support tools"}'
        if asked.json.get("stream"):
            return Answer([b"data: " + said + b"\n\n"], headers=SSE)
        return Answer([said], headers=JSON, framing="length")

    async with Upstream([answer]) as up, serving(behind(up)) as server:
        for path, stream in WAYS:
            seen = len(with_tools(up))
            for body in twice(path, stream):
                got = await post(server, body, path=path)
                assert got.status == 200
                assert b"gemma" not in got.body
                assert meant(path, got, stream)[1] == [("read", {"path": "a"})]
            assert with_tools(up)[seen:][:2] == [True, False]


UNREAD = {
    "llama.cpp": {
        "error": {"code": 500, "message": "Failed to parse input at pos 12: </tool_call>", "type": "server_error"}
    },
    "ollama, gpt-oss": {
        "error": {"message": "error parsing tool call: raw='{\"path\": a}', err=invalid character 'a'"}
    },
    "ollama, qwen3-coder": {"error": "XML syntax error on line 4: element <parameter> closed by </function>"},
    "LM Studio": {"error": "Failed to parse tool call: Unexpected end of content"},
}
GROQ = {"error": {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}}


@every("status, said", [*((500, said) for said in UNREAD.values()), (400, GROQ)])
async def test_a_call_that_the_server_cannot_read(status: int, said: Any) -> None:
    """By its status or as the first frame of a stream. The gateway asks for the call itself, only this time."""

    def answer(asked: Asked) -> Answer:
        if "tools" not in asked.json:
            return Say(WRITTEN)(asked)
        if asked.json["model"] == "framed":
            return Answer([b"data: " + orjson.dumps(said) + b"\n\n"], headers=SSE)
        return refusing(status, said)

    async with Upstream([answer]) as up, serving(behind(up, retry={"attempts": 2, "backoff_s": 0})) as server:
        for model, path, stream in [("framed", CHAT, True), *(("plain", *way) for way in WAYS)]:
            got = await post(server, {**asking(path, stream), "model": model}, path=path)
            assert meant(path, got, stream)[:2] == ("", [("read", {"path": "a"})])
        assert not await tools_shown(server)
        page = (await get(server, "/metrics")).body.decode()
    assert f'toolwire_mode_switches_total{{cause="near_miss"}} {len(WAYS) + 1}.0' in page


async def test_a_near_miss_goes_on_in_the_other_way() -> None:
    async with (
        Upstream([lambda asked: Say(NEAR if "tools" in asked.json else WRITTEN)(asked)]) as up,
        serving(behind(up)) as server,
    ):
        for path, stream in WAYS:
            seen = len(with_tools(up))
            for body in twice(path, stream):
                got = await post(server, body, path=path)
                assert meant(path, got, stream)[:2] == ("", [("read", {"path": "a"})])
                shown = await decided(server, body["model"])
            assert with_tools(up)[seen:] == [True, False, False]
            assert shown["up"][body["model"]]["cause"] == "near_miss"


OF_ONE_TOOL = refusing(body={"error": {"message": "Invalid schema: tools[0].function.parameters"}})


@every(
    "script, status, asked, shown",
    [
        (lambda asked: Say(NEAR if "tools" in asked.json else "No.")(asked), 200, [True, False], "native"),
        (refusing(), 400, [True, False], None),
        (tools_or(OF_ONE_TOOL, Say(WRITTEN)), 200, [True, False], None),
        (Refuse(400, "out of luck"), 400, [True], None),
        (Refuse(500, "out of luck"), 502, [True], None),
    ],
)
async def test_no_verdict(script: Any, status: int, asked: list[bool], shown: str | None) -> None:
    """A near miss that the other way does not mend, a refusal of both ways, one of one tool, and other errors."""
    async with Upstream([script]) as up, serving(behind(up)) as server:
        answers = [await post(server, asking(CHAT, False)) for _ in range(2)]
        told = await tools_shown(server)
    assert [answer.status for answer in answers] == [status] * 2
    assert ["tools" in one.json for one in up.posts] == asked * 2
    assert told == (shown and {"up": {"m": {**told["up"]["m"], "mode": shown}}})


async def test_workers_share_verdicts(tmp_path: Path) -> None:
    """Two applications that count in one folder, as workers do."""
    async with Upstream([tools_or(refusing(), Say(WRITTEN))]) as up:
        for worker in range(2):
            cells = SharedCounters(tmp_path / f"{worker}.cells")
            app = create_app(behind(up), metrics=Metrics(cells))
            server = TestServer(app)
            await server.start_server()
            await post(server, asking(CHAT, False))
            await decided(server)
            await server.close()
            cells.close()
    assert with_tools(up) == [True, False, False]


# --- `auto` ---------------------------------------------------------------------------------------------------------


def probed_server(asked: Asked) -> Answer:
    """Calls by itself."""
    tool = asked.json["tools"][0]["function"]["name"]
    arguments = '{"ready":true}' if tool == "report_ready" else '{"path":"a"}'
    return says("openai_chat", ToolUse("call_1", tool, arguments))(asked)


def silent_server(asked: Asked) -> Answer:
    return Say("No." if "tools" in asked.json else WRITTEN)(asked)


@every(
    "answer, mode, cause",
    [
        (probed_server, "native", "called"),
        (silent_server, "prompt", "silent"),
        (tools_or(refusing(), Say(WRITTEN)), "prompt", "refused"),
    ],
)
async def test_a_model_is_probed_once(answer: Any, mode: str, cause: str) -> None:
    async with Upstream([answer]) as up, serving(behind(up, mode="auto")) as server:
        several = await asyncio.gather(*(post(server, asking(CHAT, False)) for _ in range(3)))
        for got in several:
            made = got.json()["choices"][0]["message"]["tool_calls"]
            assert [call["function"]["name"] for call in made] == ["read"]
        shown = await tools_shown(server)
    assert (shown["up"]["m"]["mode"], shown["up"]["m"]["cause"]) == (mode, cause)
    probe, *others = up.posts
    assert (probe.json["tools"][0]["function"]["name"], probe.json["model"]) == ("report_ready", "m")
    assert ["tools" in asked.json for asked in others] == [mode == "native"] * 3


async def test_a_probe_that_fails_says_nothing() -> None:
    def answer(asked: Asked) -> Answer:
        if "report_ready" in asked.body.decode():
            return Refuse(503)
        return says("openai_chat", ToolUse("call_1", "read", '{"path":"a"}'))(asked)

    async with Upstream([answer]) as up, serving(behind(up, mode="auto")) as server:
        got = await post(server, asking(CHAT, False))
        assert got.json()["choices"][0]["message"]["tool_calls"]
    assert len(up.posts) == 2


@every("kind", KINDS)
async def test_servers_of_each_kind_are_probed(kind: str) -> None:
    call = ToolUse("call_1", "report_ready", '{"ready":true}')
    async with (
        Upstream([says(kind, call), says(kind, Text("Hi."))]) as up,
        serving(behind(up, kind, mode="auto")) as server,
    ):
        await post(server, asking(CHAT, False))
        assert (await tools_shown(server))["up"]["m"]["mode"] == "native"


async def test_check_shows_what_servers_would_do(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    async with Upstream([probed_server]) as up, Upstream([refusing()]) as other:
        backends = {"up": {"url": up.url}, "other": {"url": other.url}}
        routes = [{"model": "m", "backend": "up"}, {"model": "*", "backend": "other"}]
        file.write_bytes(orjson.dumps({"backends": backends, "routes": routes}))
        command = ["check", "--probe", str(file)]
        found = await asyncio.to_thread(CliRunner().invoke, main, command)
        without = await asyncio.to_thread(CliRunner().invoke, main, ["check", str(file)])
    assert found.exit_code == 0, found.output
    assert 'probe up "m": it called the tool by itself' in found.output
    assert 'probe other "m": it refuses tools' in found.output
    assert "does not support tools" in found.output
    assert "probe" not in without.output
    assert (len(up.posts), len(other.posts)) == (1, 1)


# --- `tool_choice` in words -----------------------------------------------------------------------------------------


def only_words(asked: Asked) -> Answer:
    if isinstance(asked.json.get("tool_choice"), dict):
        return refusing(body=NO_OBJECT)
    return says("openai_chat", ToolUse("call_1", "read", '{"path":"a"}'))(asked)


@every(
    "preset, mode, stream, choice",
    [
        ("generic", "native", False, NAMED),
        ("generic", "hybrid", True, NAMED),
        ("lmstudio", "native", True, NAMED),
        (
            "lmstudio",
            "hybrid",
            False,
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
        ),
    ],
)
async def test_a_choice_that_has_to_be_a_word(preset: str, mode: str, stream: bool, choice: Any) -> None:
    async with Upstream([only_words]) as up:
        config = upstream_config(up.url, backend={"preset": preset}, defaults={"mode": mode})
        async with serving(config) as server:
            for _ in range(2):
                body = {"messages": USER, "tools": [READ, WRITE], "tool_choice": choice, "stream": stream}
                answer = await post(server, body)
                assert (answer.status, b'"read"' in answer.body) == (200, True)
    sent = [
        (asked.json["tool_choice"], [tool["function"]["name"] for tool in asked.json["tools"]]) for asked in up.posts
    ]
    first = [] if preset == "lmstudio" else [(NAMED, ["read", "write"])]
    assert sent == [*first, *[("required", ["read"])] * 2]


# --- what is known ----------------------------------------------------------------------------------------------------


def test_verdicts_of_another_server_do_not_count() -> None:
    verdicts = Verdicts(clock=lambda: 0.0)
    verdicts.keep("up", "m", "prompt", "refused", 10, "ollama 1")
    assert verdicts.find("up", "m", "ollama 1") is not None
    assert verdicts.find("up", "m") is not None
    assert verdicts.find("up", "m", "ollama 2") is None


def test_verdicts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.upstream.pool.verdicts.MOST", 3)
    verdicts = Verdicts(tmp_path / "verdicts", clock=lambda: 0.0)
    for number in range(5):
        verdicts.keep("up", f"m{number}", "prompt", "refused", 10 + number)
    assert [*verdicts.shown()["up"]] == ["m2", "m3", "m4"]
    assert len(list((tmp_path / "verdicts").glob("*.json"))) == 3


def test_half_a_file_says_nothing(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path, clock=lambda: 0.0)
    verdicts.keep("up", "m", "native", "called", 10)
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(file.read_bytes()[:20])
    assert Verdicts(tmp_path, clock=lambda: 0.0).find("up", "m") is None


def test_a_chain_of_its_own_needs_the_middleware() -> None:
    chain = ["validation", "arguments", "transformation", "injection", "forwarding"]
    config = read_config(
        {"backends": {"up": {"url": "http://127.0.0.1:1"}}, "chain": chain, "defaults": {"mode": "hybrid"}}
    )
    mistakes = list(name_mistakes(config, registries(), Mistakes()))
    assert any("`tool_mode`" in line for line in mistakes), mistakes


@every("mode", ["hybrid", "auto"])
async def test_a_server_whose_protocol_has_no_tools_is_not_asked_for_them(mode: str) -> None:
    """Nor probed: they would be lost on the way to it."""
    said = {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}]}
    answer = Answer([orjson.dumps(said)], headers=JSON, framing="length")
    async with Upstream([answer] * 3) as up:
        config = upstream_config(up.url, backend={"kind": "openai_completions"}, defaults={"mode": mode})
        async with serving(config) as server:
            await post(server, {"messages": USER, "tools": [function("look_here")]})
    (asked,) = [one for one in up.requests if one.path == "/v1/completions"]
    assert "look_here" in asked.json["prompt"]


@every("mode", ["native", "template"])
def test_tools_cannot_be_left_to_a_server_that_has_no_place_for_them(mode: str) -> None:
    up = {"kind": "openai_completions", "url": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match=rf"defaults\.mode: '{mode}' sends tools to the server, but the kind"):
        read_config({"backends": {"up": up}, "defaults": {"mode": mode}})
    routes = [{"model": "m", "backend": "chat"}, {"model": "n", "backend": "up", "options": {"mode": mode}}]
    with pytest.raises(ConfigError, match=r"routes\[1\].options.mode"):
        read_config({"backends": {"up": up, "chat": {"url": "http://127.0.0.1:9"}}, "routes": routes})
