"""A protocol that comes as a plug-in (`tests/protocols/tiny.py`) has all that the built-in ones have, and nothing in
the gateway knows of it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import aiohttp
import orjson
import pytest

from tests.cases import every
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, gateway_before, post, read_config, serving, upstream_config
from tests.e2e.edge import running
from tests.e2e.meaning import MESSAGES, RESPONSES, asking, ended, meant
from tests.e2e.speaking import JSON, speaking
from tests.protocols.tiny import TinyProtocol
from toolwire import registry
from toolwire.model import ModelReply, ReplyChoice, Text, ToolUse, Usage
from toolwire.registry import Registries, registries
from toolwire.support.conversion import ConfigError
from toolwire.testing import Refuse, Say, Upstream, WireAnswer

TINY = "/v1/tiny"
SAY = [{"who": "user", "text": "hi"}]
TOOL = {"name": "read", "takes": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
WIRE = TinyProtocol()
CALLING = ModelReply(
    "", "m", 1, (ReplyChoice((Text("Reading."), ToolUse("c1", "read", '{"path":"a"}')), "stop"),), Usage(3, 2)
)

both = every("stream", [False, True])


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in, as its package would be found."""
    found = registry._installed
    groups = ("toolwire.client_protocols", "toolwire.server_protocols")

    def entry_points(group: str) -> tuple[EntryPoint, ...]:
        mine = (EntryPoint("tiny", "tests.protocols.tiny:TinyProtocol", group),) if group in groups else ()
        return (*found(group), *mine)

    monkeypatch.setattr(registry, "_installed", entry_points)


def frames(answer: WireAnswer) -> list[Any]:
    return [orjson.loads(line[6:]) for line in answer.body.split(b"\n") if line.startswith(b"data: ")]


async def before_chat(turn: Any, body: dict[str, Any], **more: Any) -> tuple[WireAnswer, Upstream]:
    """What a tiny client gets in front of a server that speaks Chat."""
    async with gateway_before([turn]) as (server, up):
        return await post(server, body, path=TINY, **more), up


async def behind(turn: Any, body: dict[str, Any], path: str) -> tuple[WireAnswer, Upstream]:
    """What a client gets in front of a tiny server that does tools itself."""
    async with Upstream([turn]) as up:
        config = upstream_config(up.url, backend={"kind": "tiny", "api_key": "k1"}, defaults={"mode": "native"})
        async with serving(config) as server:
            return await post(server, body, path=path), up


# --- its clients ----------------------------------------------------------------------------------------------------


@both
async def test_a_client_gets_calls_out_of_text(stream: bool) -> None:
    turn = Say("Reading. ", block("read", {"path": "a"}), usage=(7, 5))
    answer, up = await before_chat(turn, {"say": SAY, "tools": [TOOL], "stream": stream})
    assert answer.status == 200
    assert answer.headers["X-Tiny-Id"] == answer.headers["X-Request-Id"]
    sent = up.requests[0].json
    assert "tools" not in sent
    assert "read" in sent["messages"][0]["content"]
    if stream:
        assert answer.headers["Content-Type"] == "text/event-stream"
        *said, call, end = frames(answer)
        text = "".join(frame["text"] for frame in said)
        calls = [call["call"]]
    else:
        end = answer.json()
        text, calls = end["text"], end["calls"]
    assert text.strip() == "Reading."
    assert [(call["name"], call["args"]) for call in calls] == [("read", {"path": "a"})]
    assert (end["end"], end["cost"]) == ("stop", [7, 5])


async def test_a_stream_that_breaks_off_says_so_in_its_words() -> None:
    answer, _ = await before_chat(Say("Hel", cut=True), {"say": SAY, "stream": True})
    text, fault = frames(answer)
    assert text == {"text": "Hel"}
    assert fault["error"]["code"] == "upstream_disconnected"


FAULTS: dict[str, tuple[str, str, dict[str, Any], int, str]] = {
    "no JSON": ("POST", TINY, {"data": b"{", "headers": JSON}, 400, "invalid_json"),
    "no model": ("POST", TINY, {"json": {"say": SAY}}, 400, "missing_required_parameter"),
    "shape": ("POST", TINY, {"json": {"model": "m", "say": 1}}, 400, "invalid_value"),
    "type": ("POST", TINY, {"data": b"x"}, 415, "unsupported_media_type"),
    "too large": ("POST", TINY, {"json": {"model": "m", "say": "x" * 9000}}, 413, "request_too_large"),
    "no such model": ("POST", TINY, {"json": {"model": "other", "say": SAY}}, 404, "model_not_found"),
    "method": ("GET", TINY, {}, 405, "method_not_allowed"),
    "below": ("POST", f"{TINY}/count", {}, 404, "not_found"),
    "without a version": ("DELETE", "/tiny", {}, 405, "method_not_allowed"),
    "by its header": ("GET", "/v1/nothing", {"headers": {"X-Tiny-Version": "1"}}, 404, "not_found"),
    "the name": ("POST", TINY, {"json": {"model": "m", "say": SAY, "tools": [{**TOOL, "name": "ü"}]}}, 400, "invalid_tool_schema"),
    "a wrong key": ("POST", TINY, {"json": {"model": "m", "say": SAY}, "headers": {"x-api-key": "wrong"}}, 401, "invalid_api_key"),
}  # fmt: skip


async def test_its_path_says_whose_words_an_error_has() -> None:
    config = read_config(
        {
            "backends": {"mock": {"kind": "mock", "script": ["hi"]}},
            "limits": {"body_bytes": 4096},
            "routes": [{"model": "m", "backend": "mock"}],
            "auth": {"keys": ["right"]},
        }
    )
    async with serving(config) as server, aiohttp.ClientSession(headers={"x-api-key": "right"}) as session:
        for case, (method, path, more, status, code) in FAULTS.items():
            async with session.request(method, server.make_url(path), **more) as response:
                told = orjson.loads(await response.read())["error"]
                assert (response.status, set(told), told["code"]) == (status, {"code", "said"}, code), case
                assert response.headers["X-Tiny-Id"] == response.headers["X-Request-Id"], case
            for headers in ({}, {"x-api-key": "wrong"}):
                async with session.get(server.make_url(CHAT), headers=headers) as response:
                    assert set((await response.json())["error"]) == {"message", "type", "param", "code"}, case


async def test_so_has_what_is_refused_before_there_is_a_handler() -> None:
    async with running(read_config({"backends": {"mock": {"kind": "mock"}}})) as gateway:
        for path, words in ((TINY, "said"), (RESPONSES, "message"), ("/", "message")):
            told = await gateway.said(b"POST %b HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n" % path.encode())
            assert told.startswith(b"HTTP/1.1 417"), path
            assert words in orjson.loads(told.partition(b"\r\n\r\n")[2])["error"], path


async def test_a_header_of_its_clients_says_whose_list_of_models_it_is() -> None:
    config = read_config({"backends": {"mock": {"kind": "mock"}}, "routes": [{"model": "m", "backend": "mock"}]})
    async with serving(config) as server, aiohttp.ClientSession(headers={"x-tiny-version": "1"}) as session:
        async with session.get(server.make_url("/v1/models")) as response:
            assert orjson.loads(await response.read()) == {"names": ["m"]}
        async with session.get(server.make_url("/v1/models/m")) as response:
            assert orjson.loads(await response.read()) == {"name": "m"}


# --- its servers ----------------------------------------------------------------------------------------------------


@both
@every("path, contrary", [(CHAT, False), (CHAT, True), (RESPONSES, False), (MESSAGES, True)])
async def test_other_clients_in_front_of_its_server(path: str, contrary: bool, stream: bool) -> None:
    answer, up = await behind(speaking(WIRE, CALLING, contrary=contrary), asking(path, stream), path)
    (asked,) = up.requests
    assert (asked.path, asked.headers["x-tiny-key"], asked.headers["x-tiny-version"]) == (TINY, "k1", "1")
    assert "authorization" not in asked.headers
    assert (asked.json["say"], [tool["name"] for tool in asked.json["tools"]]) == (SAY, ["read"])
    assert meant(path, answer, stream) == ("Reading.", [("read", {"path": "a"})], "", 3)
    assert ended(path, answer, stream) == "tool_calls"


@both
async def test_its_bytes_pass_to_its_own_client(stream: bool) -> None:
    body = {"say": SAY, "tools": [TOOL], "stream": stream, "odd": [1]}
    turn = speaking(WIRE, CALLING)
    answer, up = await behind(turn, body, TINY)
    (asked,) = up.requests
    assert asked.json == {"model": "m", **body}
    assert [answer.body] == list(turn(asked).steps)


@both
@every("path, body", [(CHAT, {"messages": USER}), (TINY, {"say": SAY}), (RESPONSES, {"input": "hi"})])
async def test_its_refusals_are_understood(path: str, body: dict[str, Any], stream: bool) -> None:
    refusal = Refuse(404, body=b'{"error":{"code":"who","said":"never heard of it"}}')
    answer, _ = await behind(refusal, {**body, "stream": stream}, path)
    told = answer.json()["error"]
    assert (answer.status, told["code"]) == (404, "model_not_found")
    assert "never heard of it" in told["said" if path == TINY else "message"]


# --- as a plug-in ---------------------------------------------------------------------------------------------------


async def test_a_program_may_register_it_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    plugins = registries()
    assert "tiny" not in plugins.clients.names()
    plugins.clients.register("tiny", TinyProtocol)
    plugins.servers.register("tiny", TinyProtocol)
    async with Upstream([speaking(WIRE, CALLING)]) as up:
        config = upstream_config(up.url, backend={"kind": "tiny"}, defaults={"mode": "native"})
        async with serving(config, plugins) as server:
            answer = await post(server, {"say": SAY}, path=TINY)
    assert answer.json()["text"] == "Reading."


def test_two_may_not_share_a_name_or_a_path() -> None:
    other = type("Other", (TinyProtocol,), {"name": "other", "path": "/chat/completions"})
    for side, told in ((TinyProtocol, "name"), (other, "path")):
        plugins = registries()
        plugins.clients.register("another", side)
        with pytest.raises(ConfigError, match=f"same {told}"):
            plugins.client_sides()


def test_a_kind_of_backend_is_one_thing() -> None:
    plugins: Registries = registries()
    assert "tiny" in plugins.backends.names()
    with pytest.raises(ConfigError, match="two backends are called 'tiny'"):
        plugins.backends.register("tiny", lambda name, config, limits: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="did you mean 'openai_chat'"):
        plugins.backends.get("openai_chap")
