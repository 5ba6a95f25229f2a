"""Every error code that concerns Chat, reached over the wire: status, `code`, `param`, envelope, request id (R13,
SC-007).

One row for each code and kind of place. All rules of requests are in `tests/unit/test_validation.py`, all faults of
servers in `test_fault_table.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.cases import every
from tests.e2e.agent import block
from tests.e2e.conftest import (
    CHAT,
    USER,
    Gateway,
    function,
    get,
    lines_in,
    post,
    read_config,
    upstream_config,
)
from tests.e2e.edge import head
from tests.e2e.forking import ROOT
from tests.e2e.meaning import asking, ended, meant
from tests.unit.test_errors import FAILS_AGAIN
from tests.waiting import GUARD_S
from toolwire.config import DEFAULT_CHAIN
from toolwire.errors import CODES
from toolwire.events import BlockKind, Delta, Event, Finish, Kind, Open
from toolwire.model import ModelRequest
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import FinishFunction, Following
from toolwire.pipeline.chain.middleware import Handler, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.sending.delivery import ALIVE, READY
from toolwire.registry import registries
from toolwire.testing import Say, Upstream, WireAnswer

READ = function("read_file", path="string")
STRICT = function("read_file", strict=True, path="string")
CALL = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request and the error it gets. `config` is merged into that of a mock with `script`."""

    code: str
    status: int
    body: Mapping[str, Any] | bytes = field(default_factory=dict)
    param: str | None = None
    script: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    backend: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = CHAT
    late: bool = False
    """Known only at the answer's end: in a stream it comes in-band."""


def chat(*messages: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [*USER, *messages], **fields}


def tool(parameters: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **fields}}


def strict_tool(**schema: Any) -> dict[str, Any]:
    return tool({"type": "object", **schema}, strict=True)


def bad(code: str, param: str | None = None, body: Mapping[str, Any] | bytes = b"", **more: Any) -> Case:
    """A request that is wrong."""
    return Case(code=code, status=400, param=param, body=body, **more)


def bad_tool(definition: Any, param: str, **more: Any) -> Case:
    return bad("invalid_tool_schema", param, chat(tools=[definition]), **more)


def written(code: str, text: str) -> Case:
    """A case of a model that writes this text for a strict tool, so that the answer fails with `code`."""
    return Case(code=code, status=500, body=chat(tools=[STRICT]), script=[text])


def served(code: str, to: int, /, **error: Any) -> Case:
    """A case of a model server that answers with this error; `to` is the status for the client."""
    return Case(code=code, status=to, body=chat(), script=[{"error": {"message": "said so", **error}}])


PARAMETERS = "tools[0].function.parameters"

STRICTLY: Mapping[str, Any] = {"options": {"validation": "strict"}}
KEYS = {"auth": {"keys": ["right"]}}
CASES: dict[str, Case] = {
    # the body
    "R2.1 no JSON": bad("invalid_json", body=b"{"),
    "R2.1 media type": Case(
        code="unsupported_media_type", status=415, body=chat(), headers={"Content-Type": "text/plain"}
    ),
    "R13.4 size": Case(code="request_too_large", status=413, body=chat(), config={"limits": {"body_bytes": 20}}),
    # the model
    "R2.2 absent": bad("missing_required_parameter", "model", b'{"messages":[]}'),
    "R2.2 type": bad("invalid_type", "model", b'{"model":3}'),
    "R2.2 unknown": Case(
        code="model_not_found",
        status=404,
        param="model",
        body=chat(model="nobody"),
        config={"routes": [{"model": "somebody", "backend": "mock"}]},
    ),
    # messages
    "R2.3": bad("missing_required_parameter", "messages", {}),
    "R2.4": bad("invalid_value", "messages[1].role", chat({"role": "boss", "content": "x"})),
    "R2.8 unknown": bad(
        "invalid_tool_call_id",
        "messages[2].tool_call_id",
        chat(CALLED, {**RESULT, "tool_call_id": "call_2"}),
        **STRICTLY,
    ),
    "R2.9": bad("invalid_message_order", "messages[1]", chat(RESULT), **STRICTLY),
    "R5.9": bad("unsupported_content", "messages[1].content[0]", chat(IMAGE), backend={"images": "error"}),
    # parameters
    "R2.24": bad("unsupported_parameter", "logprobs", chat(logprobs=True)),
    # tools
    "R3.2 pattern": bad_tool(tool(None, name="a b"), "tools[0].function.name"),
    "R3.6 required": bad_tool(strict_tool(properties={"a": {}}, additionalProperties=False), PARAMETERS),
    "R2.18 form": bad("invalid_tool_choice", "tool_choice", chat(tools=[READ], tool_choice="always")),
    # who and where
    "R17.8 no key": Case(code="invalid_api_key", status=401, body=chat(), config=KEYS),
    "R17.8 wrong key": Case(
        code="invalid_api_key", status=401, body=chat(), config=KEYS, headers={"Authorization": "Bearer wrong"}
    ),
    "R13.4 path": Case(code="not_found", status=404, body=chat(), path="/v1/nothing"),
    "R13.4 slash": Case(code="not_found", status=404, body=chat(), path=CHAT + "/"),
    "R13.4 method": Case(code="method_not_allowed", status=405, body=chat(), path="/v1/models"),
    # the model
    "R9.1 strict": written("malformed_tool_arguments", '<tool_call>{"name" "read_file"}</tool_call>'),
    "R9.2 strict": written("unknown_tool_call", block("rm", {"path": "a"})),
    "R9.3 strict": written("malformed_tool_arguments", '<tool_call>{"name":"read_file","arguments":"{]"}</tool_call>'),
    "R9.4 strict": written("invalid_tool_arguments", block("read_file", {})),
    "R9.9": Case(
        code="tool_choice_not_satisfied",
        status=500,
        body=chat(tools=[READ], tool_choice="required"),
        script=["I would rather not."],
        options={"choice_miss": "error"},
        late=True,
    ),
    # the model server
    "R10.8 400": served("upstream_rejected", 400, status=400),
    "R10.8 401": served("upstream_auth", 502, status=401),
    "R10.8 429": served("rate_limit_exceeded", 429, status=429),
    "R10.8 500": served("upstream_error", 502, status=500),
    "R10.8 504": served("upstream_timeout", 504, status=504),
    "R10.8 too long": served("context_length_exceeded", 400, status=400, code="context_length_exceeded"),
    "R10.8 gone": Case(
        code="upstream_disconnected",
        status=502,
        body=chat(),
        backend={"kind": "openai_chat", "url": "http://127.0.0.1:9"},
    ),
}


def test_every_code_is_tested() -> None:
    """Some test names it. Those that one request on Chat can reach are in `CASES`."""
    tests = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert not CODES.keys() - {word for text in tests for word in re.findall(r"\w+", text)}


def gateway_config(case: Case) -> Any:
    backend = {"kind": "mock", **case.backend}
    if backend["kind"] == "mock":
        backend["script"] = case.script
    return read_config({"backends": {"mock": backend}, "defaults": case.options, **case.config})


def check(answer: WireAnswer, case: Case) -> dict[str, Any]:
    """The error object, after a look at everything that R13 says about its form."""
    assert (answer.status, answer.json()["error"]["code"]) == (case.status, case.code)
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.headers["X-Request-Id"] == "asked.1"
    assert set(answer.json()) == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == CODES[case.code].type
    assert error["param"] == case.param or (case.param == PARAMETERS and error["param"].startswith(PARAMETERS))
    assert error["message"].strip()
    assert len(error["message"]) < 1000
    fails_again = error["type"] == "model_error" or case.code in FAILS_AGAIN
    assert answer.headers.get("x-should-retry") == ("false" if fails_again else None)
    return error


@every("name", CASES)
async def test_codes(shared_gateway: Gateway, name: str) -> None:
    """Streamed or not, an error before the first byte is a status."""
    case = CASES[name]
    server = await shared_gateway(gateway_config(case))
    for stream in (False,) if case.late else (False, True):
        body = {**case.body, "stream": stream} if isinstance(case.body, Mapping) else case.body
        answer = await post(server, body, path=case.path, headers={"X-Request-Id": "asked.1", **case.headers})
        check(answer, case)


async def test_what_is_asked_in_another_way(gateway: Gateway) -> None:
    """Without the prefix, with a parameter of the media type, with an id or with a bad one; another method is told the
    right one, and a WebSocket to use HTTP (R28.2): after any other refusal Codex tries again for seconds."""
    server = await gateway(script=["hello"])
    assert (await post(server, chat(), path="/chat/completions")).status == 200
    assert (await post(server, chat(), path="/models")).status == 405
    assert (await post(server, chat(), headers={"Content-Type": "application/json; charset=utf-8"})).status == 200
    for given in ("ok-1.2_3", "bad id", "x" * 129, None):
        answer = await post(server, chat(), headers={} if given is None else {"X-Request-Id": given})
        known = answer.headers["X-Request-Id"]
        assert known == given if given == "ok-1.2_3" else known.startswith("req_"), given
    async with aiohttp.ClientSession() as session:
        async with session.put(server.make_url(CHAT)) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
            assert (await response.json())["error"]["code"] == "method_not_allowed"
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(server.make_url(CHAT))
        assert caught.value.status == 426
        headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with session.get(server.make_url(CHAT), headers=headers) as response:
            assert (await response.json())["error"]["code"] == "websocket_not_served"


async def test_a_right_key_opens(gateway: Gateway) -> None:
    config = read_config({"backends": {"mock": {"kind": "mock", "script": ["hi"]}}, "auth": {"keys": ["right"]}})
    server = await gateway(config)
    for headers, status in (({"Authorization": "Bearer right"}, 200), ({"x-api-key": "right"}, 200), ({}, 401)):
        assert (await post(server, chat(), headers=headers)).status == status
    found = {path: await get(server, path) for path in (*ALIVE, *READY, "/metrics", "/version", "/v1/models")}
    assert [answer.status for answer in found.values()] == [200] * 5 + [401] * 3
    assert found["/healthz"].body == found["/livez"].body == found["/health"].body
    assert found["/readyz"].body == found["/ready"].body


# --- middlewares that fail ------------------------------------------------------------------------------------------


class BreaksOnRequest(Middleware):
    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        raise RuntimeError("secret-in-request")


class BreaksOnEvent(Middleware):
    wants = Kind.TEXT

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        raise RuntimeError("secret-in-event")


@web.middleware
async def breaks_plainly(request: web.Request, handler: Handler) -> web.StreamResponse:
    await handler(request)
    raise RuntimeError("secret-in-function")


BROKEN = {"request": BreaksOnRequest, "event": BreaksOnEvent, "function": breaks_plainly}


def broken(kind: str, on_failure: str) -> tuple[Any, Any]:
    """The configuration and plug-ins of a gateway with such a middleware."""
    plugins = registries()
    plugins.middlewares.register("broken", BROKEN[kind])
    backends = {"mock": {"kind": "mock", "script": ["hello"]}}
    chain = [{"use": "broken", "on_failure": on_failure}, *DEFAULT_CHAIN]
    return read_config({"backends": backends, "chain": chain}), plugins


@every("stream", [False, True])
@every("kind", BROKEN)
async def test_a_broken_middleware_says_nothing_about_itself(
    gateway: Gateway, kind: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R13.5, R16.4: the client gets the code and the request id, the log the name and the traceback."""
    caplog.clear()
    config, plugins = broken(kind, "fail")
    server = await gateway(config, plugins=plugins)
    answer = await post(server, chat(stream=stream), headers={"X-Request-Id": "asked.1"})
    assert "secret" not in answer.body.decode()
    assert "Traceback" not in answer.body.decode()
    if stream and kind == "event" and answer.status == 200:
        error = answer.frames()[-2]["error"]
        assert (error["code"], answer.frames()[-1]) == ("internal_error", "[DONE]")
    else:
        check(answer, Case(code="internal_error", status=500))
    told = [record for record in caplog.records if record.name == "toolwire.middleware"]
    assert [record.getMessage() for record in told] == [f"middleware 'broken' failed: secret-in-{kind}"]
    assert told[0].exc_info is not None


@every("stream", [False, True])
@every("kind", BROKEN)
async def test_a_broken_middleware_that_may_be_skipped_is(
    gateway: Gateway, kind: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    config, plugins = broken(kind, "skip")
    server = await gateway(config, plugins=plugins)
    answer = await post(server, asking(CHAT, stream))
    assert answer.status == 200
    assert (meant(CHAT, answer, stream)[0], ended(CHAT, answer, stream)) == ("hello", "stop")
    assert "middleware 'broken' failed" in caplog.text
    assert b'toolwire_middleware_errors_total{middleware="broken"} 1.0' in (await get(server, "/metrics")).body


class AwaitsItsOwn(Middleware):
    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        own = asyncio.ensure_future(asyncio.sleep(0))
        own.cancel()
        await own
        return request


class AsksItsOwn(Middleware):
    wants = Kind.FINISHED_CALL

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        own = asyncio.get_running_loop().create_future()
        own.cancel()
        own.result()
        return event


@every("stream", [False, True])
@every("kind", [AwaitsItsOwn, AsksItsOwn])
async def test_a_middleware_whose_own_task_was_cancelled_has_failed(
    gateway: Gateway, kind: type[Middleware], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The client has not gone: it gets an error, also within a stream, and the log has the traceback."""
    plugins = registries()
    plugins.middlewares.register("own", kind)
    backends = {"mock": {"kind": "mock", "script": [f"Well. {block('read_file', {'path': 'a'})}"]}}
    config = read_config({"backends": backends, "chain": ["own", *DEFAULT_CHAIN]})
    server = await gateway(config, plugins=plugins)
    answer = await post(server, chat(stream=stream, tools=[READ]), headers={"X-Request-Id": "asked.1"})
    if stream and kind is AsksItsOwn:
        error = answer.frames()[-2]["error"]
        assert (error["code"], answer.frames()[-1]) == ("internal_error", "[DONE]")
    else:
        check(answer, Case(code="internal_error", status=500))
    assert any(record.exc_info for record in caplog.records if record.name == "toolwire")


async def wait_for_own() -> None:
    own = asyncio.ensure_future(asyncio.sleep(0))
    own.cancel()
    await own


async def wait_at_the_end(last: Event) -> Event:
    await wait_for_own()
    return last


async def wait_behind_the_end(last: Event) -> Following:
    async def following() -> Following:
        yield [Open(7, BlockKind.TEXT), Delta(7, "More.")]
        await wait_for_own()

    return following()


@every("finish", [wait_at_the_end, wait_behind_the_end])
async def test_a_streams_end_that_waits_for_a_cancelled_task_has_failed(
    gateway: Gateway, finish: FinishFunction, caplog: pytest.LogCaptureFixture
) -> None:
    """The gateway has failed, not the client or the model server, and the log shows where."""

    class Finishes(Middleware):
        def declare(self, exchange: Exchange, reply: Reply) -> None:
            reply.finish(finish)

    caplog.clear()
    caplog.set_level(logging.INFO, logger="toolwire.access")
    plugins = registries()
    plugins.middlewares.register("own", Finishes)
    async with Upstream([Say("Well.")]) as upstream:
        server = await gateway(upstream_config(upstream.url, chain=["own", *DEFAULT_CHAIN]), plugins=plugins)
        answer = await post(server, chat(stream=True))
    await server.close()
    assert "Well." in answer.body.decode()
    assert (answer.frames()[-2]["error"]["code"], answer.frames()[-1]) == ("internal_error", "[DONE]")
    assert lines_in(caplog) == [(200, "internal_error")]
    assert "in wait_for_own" in caplog.text


@every("dropped", [Event, Finish])
async def test_a_stream_whose_end_a_middleware_drops_does_not_just_stop(gateway: Gateway, dropped: type[Event]) -> None:
    class Drops(Middleware):
        wants = Kind.ALL

        def on_event(self, exchange: Exchange, event: Event) -> Event | None:
            return None if isinstance(event, dropped) else event

    plugins = registries()
    plugins.middlewares.register("drops", Drops)
    async with Upstream([Say("Well.")]) as upstream:
        server = await gateway(upstream_config(upstream.url, chain=["drops", *DEFAULT_CHAIN]), plugins=plugins)
        answer = await post(server, chat(stream=True), headers={"X-Request-Id": "asked.1"})
    if dropped is Event:
        check(answer, Case(code="internal_error", status=500))
    else:
        assert (answer.frames()[-2]["error"]["code"], answer.frames()[-1]) == ("internal_error", "[DONE]")


# --- the log --------------------------------------------------------------------------------------------------------


async def test_a_client_that_goes_with_its_whole_answer_has_not_gone_away(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The model server has said all and keeps its connection: the gateway still waits for that one when the client
    goes."""
    caplog.set_level(logging.INFO, logger="toolwire.access")
    body = json.dumps({"model": "m", **chat(stream=True, tools=[function("look")])}).encode()
    async with Upstream([Say("a", hang=True)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        for _ in range(3):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            try:
                writer.write(head(len(body)) + body)
                async with asyncio.timeout(GUARD_S):
                    assert b"[DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
            finally:
                writer.close()
    await server.close()
    assert lines_in(caplog) == [(200, None)] * 3


async def test_neither_keys_nor_texts_are_logged(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="toolwire")
    script = [f"private-answer {block('read_file', {'path': 'private-path'})}"]
    config = {"backends": {"mock": {"kind": "mock", "script": script}}, "auth": {"keys": ["private-key"]}}
    server = await gateway(read_config(config))
    body = {"messages": [{"role": "user", "content": "private-question"}], "tools": [READ]}
    for key, status in (("private-key", 200), ("private-typo", 401)):
        assert (await post(server, body, headers={"Authorization": f"Bearer {key}"})).status == status
    lines = [f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records]
    assert any("exchange" in line for line in lines)
    assert not [line for line in lines if "private" in line]


async def test_stored_chat_completions_are_not_there(gateway: Gateway) -> None:
    """R28.7: 404, and why; other methods on the path are the wrong ones still."""
    server = await gateway(script=["Hello."])
    stored = [("GET", ""), ("GET", "/c-1"), ("GET", "/c-1/messages"), ("POST", "/c-1"), ("DELETE", "/c-1")]
    async with aiohttp.ClientSession() as session:
        for prefix, (method, path) in product(("/v1", ""), stored):
            url = server.make_url(f"{prefix}/chat/completions")
            async with session.request(method, f"{url}{path}", json={"metadata": {}}) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (404, "not_found"), (method, path)
                assert "does not store" in error["message"]
                assert "/v1/responses" in error["message"]
            async with session.put(url) as answer:
                assert answer.status == 405
            async with session.post(f"{url}/", json={}) as answer:  # nothing stored is meant
                assert "slash at the end" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/v1/messages", "Leave out `/v1` at the end of the base URL."),
        ("/v1/v1/chat/completions", "Leave out `/v1` at the end of the base URL."),
        ("/v1//chat/completions", "Leave out the slash at the end of the base URL."),
        ("/v1/v1x", "Nothing is served at /v1/v1x."),
    ],
)
async def test_a_wrong_base_url_is_told(gateway: Gateway, path: str, hint: str) -> None:
    answer = await post(await gateway(script=["no"]), chat(), path=path)
    assert answer.status == 404
    assert answer.json()["error"]["message"].endswith(hint)
