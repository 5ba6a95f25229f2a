"""Every error code that concerns Chat, reached over the wire: status, `code`, `param`, envelope, request id (R13,
SC-007).

One row for each code and kind of place. All rules of requests are in `tests/unit/test_validation.py`, all faults of
servers in `test_fault_table.py`. `LEFT_OUT` says which codes no test here reaches and why, so that a new code is either
tested or explained.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config, sdk
from tests.protocols.test_chat_request import BAD
from tests.waiting import GUARD_S
from toolwire.config import DEFAULT_CHAIN
from toolwire.errors import CODES
from toolwire.events import Event, Kind
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import Handler, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.sending.delivery import ALIVE, READY
from toolwire.registry import registries
from toolwire.testing import Refuse, Say, Upstream, WireAnswer

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


def bad_tool(definition: Any, param: str, **more: Any) -> Case:
    return Case(code="invalid_tool_schema", status=400, param=param, body=chat(tools=[definition]), **more)


PARAMETERS = "tools[0].function.parameters"
CASES: dict[str, Case] = {
    # the body
    "R2.1 no JSON": Case(code="invalid_json", status=400, body=b"{"),
    "R2.1 nothing": Case(code="invalid_json", status=400, body=b""),
    "R2.1 no object": Case(code="invalid_json", status=400, body=b"[1]"),
    "R2.1 no UTF-8": Case(code="invalid_json", status=400, body=b'{"model":"\xff"}'),
    "R2.1 half a character": Case(code="invalid_json", status=400, body=rb'{"model":"\ud83d"}'),
    "R2.1 media type": Case(
        code="unsupported_media_type", status=415, body=chat(), headers={"Content-Type": "text/plain"}
    ),
    "R13.4 size": Case(code="request_too_large", status=413, body=chat(), config={"limits": {"body_bytes": 20}}),
    # the model
    "R2.2 absent": Case(code="missing_required_parameter", status=400, param="model", body=b'{"messages":[]}'),
    "R2.2 type": Case(code="invalid_type", status=400, param="model", body=b'{"model":3}'),
    "R2.2 unknown": Case(
        code="model_not_found",
        status=404,
        param="model",
        body=chat(model="nobody"),
        config={"routes": [{"model": "somebody", "backend": "mock"}]},
    ),
    # messages
    "R2.3": Case(code="missing_required_parameter", status=400, param="messages"),
    "R2.4": Case(
        code="invalid_value", status=400, param="messages[1].role", body=chat({"role": "boss", "content": "x"})
    ),
    "R2.7 twice": Case(
        code="invalid_tool_call_id",
        status=400,
        param="messages[3].tool_calls[0].id",
        body=chat(CALLED, RESULT, CALLED, RESULT),
    ),
    "R2.8 unknown": Case(
        code="invalid_tool_call_id",
        status=400,
        param="messages[2].tool_call_id",
        body=chat(CALLED, {**RESULT, "tool_call_id": "call_2"}),
        options={"validation": "strict"},
    ),
    "R2.9": Case(
        code="invalid_message_order",
        status=400,
        param="messages[1]",
        body=chat(RESULT),
        options={"validation": "strict"},
    ),
    "C14 strict": Case(
        code="invalid_message_order",
        status=400,
        param="messages[3]",
        body=chat(CALLED, *USER, RESULT),
        options={"validation": "strict"},
    ),
    "R5.9": Case(
        code="unsupported_content",
        status=400,
        param="messages[1].content[0]",
        body=chat(IMAGE),
        backend={"images": "error"},
    ),
    # parameters
    "R2.21": Case(code="unsupported_parameter", status=400, param="n", body=chat(n=2)),
    "R2.24": Case(code="unsupported_parameter", status=400, param="logprobs", body=chat(logprobs=True)),
    # tools
    "R3.2 pattern": bad_tool(tool(None, name="a b"), "tools[0].function.name"),
    "R3.4 root": bad_tool(tool({"type": "array"}), f"{PARAMETERS}.type"),
    "R3.6 required": bad_tool(strict_tool(properties={"a": {}}, additionalProperties=False), PARAMETERS),
    "C7 strict": bad_tool(
        {"type": "function", "function": {"name": "f"}}, PARAMETERS, options={"validation": "strict"}
    ),
    "R2.18 form": Case(
        code="invalid_tool_choice", status=400, param="tool_choice", body=chat(tools=[READ], tool_choice="always")
    ),
    # who and where
    "R17.8 no key": Case(code="invalid_api_key", status=401, body=chat(), config={"auth": {"keys": ["right"]}}),
    "R17.8 wrong key": Case(
        code="invalid_api_key",
        status=401,
        body=chat(),
        config={"auth": {"keys": ["right"]}},
        headers={"Authorization": "Bearer wrong"},
    ),
    "R13.4 path": Case(code="not_found", status=404, body=chat(), path="/v1/nothing"),
    "R13.4 method": Case(code="method_not_allowed", status=405, body=chat(), path="/v1/models"),
    # what a model writes, strictly judged
    "R9.1 strict": Case(
        code="malformed_tool_arguments",
        status=500,
        body=chat(tools=[STRICT]),
        script=['<tool_call>{"name" "read_file"}</tool_call>'],
    ),
    "R9.2 strict": Case(
        code="unknown_tool_call", status=500, body=chat(tools=[STRICT]), script=[block("rm", {"path": "a"})]
    ),
    "R9.3 strict": Case(
        code="malformed_tool_arguments",
        status=500,
        body=chat(tools=[STRICT]),
        script=['<tool_call>{"name":"read_file","arguments":"{]"}</tool_call>'],
    ),
    "R9.4 strict": Case(
        code="invalid_tool_arguments", status=500, body=chat(tools=[STRICT]), script=[block("read_file", {})]
    ),
    "R9.9": Case(
        code="tool_choice_not_satisfied",
        status=500,
        body=chat(tools=[READ], tool_choice="required"),
        script=["I would rather not."],
        options={"choice_miss": "error"},
        late=True,
    ),
    # what a model server answers
    **{
        f"R10.8 {status}": Case(
            code=code, status=to, body=chat(), script=[{"error": {"status": status, "message": "said so"}}]
        )
        for status, to, code in [
            (400, 400, "upstream_rejected"),
            (401, 502, "upstream_auth"),
            (429, 429, "rate_limit_exceeded"),
            (500, 502, "upstream_error"),
            (504, 504, "upstream_timeout"),
        ]
    },
    "R10.8 too long": Case(
        code="context_length_exceeded",
        status=400,
        body=chat(),
        script=[{"error": {"status": 400, "code": "context_length_exceeded", "message": "said so"}}],
    ),
    "R10.8 gone": Case(
        code="upstream_disconnected",
        status=502,
        body=chat(),
        backend={"kind": "openai_chat", "url": "http://127.0.0.1:9"},
    ),
}

ELSEWHERE = {
    "internal_error": "test_a_broken_middleware_says_nothing_about_itself",
    "upstream_invalid_response": "test_fault_table.py",
    "client_closed_request": "test_a_client_that_went_is_in_the_log",
    "previous_response_not_found": "test_conversation.py",
    "response_cancelled": "test_conversation.py",
    "response_lost": "test_background_processes.py",
    "store_unavailable": "test_conversation.py",
    "output_format_not_satisfied": "test_output_format.py",
    "shutting_down": "test_stopping.py",
    "backend_loop": "test_circles.py",
    "tool_server_not_allowed": "tests/toolservers/test_answers.py",
}
"""Codes that need more than one request: the test that reaches them."""

LEFT_OUT = {
    "malformed_request": "not a request: tests/e2e/test_clients.py",
    "headers_too_large": "not a request: tests/e2e/test_clients.py",
    "expectation_failed": "not a request: tests/e2e/test_clients.py",
    "request_timeout": "in tests/e2e/test_clients.py, with the server's own limits",
    "tool_not_allowed": "of a middleware: tests/chain/test_tool_filter.py",
    "origin_not_allowed": "not a request of an exchange: tests/e2e/test_cors.py",
    "duplicate_tool_name": "of server-side tools: tests/chain/test_execution.py",
    "tool_loop_detected": "of the conversation before: tests/chain/test_loop_detection.py",
    "too_many_tool_calls": "of the conversation before: tests/chain/test_loop_detection.py",
    "model_not_allowed": "of a key with routes: tests/e2e/test_rate_limits.py",
    "overloaded": "of a gateway with too many connections: tests/e2e/test_clients.py",
    "websocket_not_served": "test_a_websocket_is_told_to_use_http",
    "websocket_stream_limit_reached": "of a WebSocket: tests/e2e/test_websocket_faults.py",
    "websocket_connection_limit_reached": "of a WebSocket: tests/e2e/test_websocket_faults.py",
    "no_backend_available": "of a route with several targets: tests/e2e/test_retries.py",
}
"""Codes that are tested in another place."""


def test_every_code_is_tested_or_explained() -> None:
    reached = {case.code for case in CASES.values()} | set(ELSEWHERE)
    assert reached | set(LEFT_OUT) == set(CODES)
    assert not reached & set(LEFT_OUT)


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
    assert answer.headers.get("x-should-retry") == ("false" if error["type"] == "model_error" else None)
    return error


@pytest.mark.parametrize("name", CASES)
async def test_codes(gateway: Gateway, name: str) -> None:
    """Streamed or not, an error before the first byte is a status."""
    case = CASES[name]
    server = await gateway(gateway_config(case))
    for stream in (False,) if case.late else (False, True):
        body = {**case.body, "stream": stream} if isinstance(case.body, Mapping) else case.body
        answer = await post(server, body, path=case.path, headers={"X-Request-Id": "asked.1", **case.headers})
        check(answer, case)


async def test_every_row_of_the_request_table(gateway: Gateway) -> None:
    """R2 and R3 as the protocol's own tests have them, through the whole gateway."""
    server = await gateway(script=["never asked"], validation="strict")
    for row, value, code, param in BAD:
        answer = await post(server, json.dumps(value).encode())
        assert (row, answer.status, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (
            row,
            400,
            code,
            param,
        )


async def test_the_path_without_a_prefix_is_the_same(gateway: Gateway) -> None:
    server = await gateway(script=["hello"])
    assert (await post(server, chat(), path="/chat/completions")).status == 200
    assert (await post(server, chat(), path="/models")).status == 405


async def test_a_wrong_method_names_the_right_one(gateway: Gateway) -> None:
    server = await gateway(script=["hello"])
    async with aiohttp.ClientSession() as session, session.put(server.make_url(CHAT)) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_a_websocket_is_told_to_use_http(gateway: Gateway) -> None:
    """R28.2: after any other refusal Codex tries again for seconds."""
    server = await gateway(script=["hello"])
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(server.make_url(CHAT))
        assert caught.value.status == 426
        headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with session.get(server.make_url(CHAT), headers=headers) as response:
            assert (await response.json())["error"]["code"] == "websocket_not_served"


async def test_parameters_of_the_media_type_are_fine(gateway: Gateway) -> None:
    server = await gateway(script=["hello"])
    answer = await post(server, chat(), headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status == 200


@pytest.mark.parametrize("header", [{"Authorization": "Bearer right"}, {"x-api-key": "right"}])
async def test_a_right_key_opens(gateway: Gateway, header: dict[str, str]) -> None:
    config = read_config({"backends": {"mock": {"kind": "mock", "script": ["hi"]}}, "auth": {"keys": ["right"]}})
    server = await gateway(config)
    assert (await post(server, chat(), headers=header)).status == 200
    assert (await post(server, chat())).status == 401
    async with aiohttp.ClientSession() as session:
        statuses = {}
        bodies = {}
        for path in (*ALIVE, *READY, "/metrics", "/version", "/v1/models"):
            async with session.get(server.make_url(path)) as response:
                statuses[path], bodies[path] = response.status, await response.read()
    assert statuses == {
        "/health": 200,
        "/healthz": 200,
        "/livez": 200,
        "/ready": 200,
        "/readyz": 200,
        "/metrics": 401,
        "/version": 401,
        "/v1/models": 401,
    }
    assert bodies["/healthz"] == bodies["/livez"] == bodies["/health"]
    assert bodies["/readyz"] == bodies["/ready"]


@pytest.mark.parametrize("given", ["ok-1.2_3", "bad id", "x" * 129, None])
async def test_the_request_id_is_taken_or_made(gateway: Gateway, given: str | None) -> None:
    server = await gateway(script=["hello"])
    answer = await post(server, chat(), headers={} if given is None else {"X-Request-Id": given})
    known = answer.headers["X-Request-Id"]
    assert known == given if given == "ok-1.2_3" else known.startswith("req_")


# --- after the first byte -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('<tool_call>{"name" "read_file"}</tool_call>', "malformed_tool_arguments"),
        (block("rm", {"path": "a"}), "unknown_tool_call"),
        (block("read_file", {}), "invalid_tool_arguments"),
    ],
)
async def test_a_strict_failure_in_a_stream(gateway: Gateway, text: str, code: str) -> None:
    server = await gateway(script=[{"text": f"Let me see. {text} There.", "chunk": 5}])
    answer = await post(server, chat(tools=[STRICT], stream=True))
    assert answer.status == 200
    *chunks, error, done = answer.frames()
    assert (error["error"]["type"], error["error"]["code"], done) == ("model_error", code, "[DONE]")
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
    assert "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"]) == "Let me see."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_strict_failure_as_text(gateway: Gateway, stream: bool) -> None:
    server = await gateway(script=[block("rm", {})], strict_failure="assistant_message")
    async with sdk(server) as client:
        if stream:
            async with client.chat.completions.stream(model="m", messages=USER, tools=[STRICT]) as events:
                choice = (await events.get_final_completion()).choices[0]
        else:
            choice = (await client.chat.completions.create(model="m", messages=USER, tools=[STRICT])).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content.startswith("[tool call rejected: unknown_tool_call: ")
    assert not choice.message.tool_calls


async def test_a_missed_choice_in_a_stream(gateway: Gateway) -> None:
    case = CASES["R9.9"]
    assert isinstance(case.body, Mapping)
    answer = await post(await gateway(gateway_config(case)), {**case.body, "stream": True})
    *chunks, error, done = answer.frames()
    assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
    assert (error["error"]["code"], done) == ("tool_choice_not_satisfied", "[DONE]")


# --- the SDK's view -------------------------------------------------------------------------------------------------

SDK_VIEW: list[tuple[str, type[openai.APIStatusError]]] = [
    ("R2.1 no JSON", openai.BadRequestError),
    ("R2.3", openai.BadRequestError),
    ("R17.8 wrong key", openai.AuthenticationError),
    ("R2.2 unknown", openai.NotFoundError),
    ("R10.8 429", openai.RateLimitError),
    ("R13.4 size", openai.APIStatusError),
    ("R9.4 strict", openai.InternalServerError),
    ("R10.8 500", openai.InternalServerError),
    ("R10.8 504", openai.InternalServerError),
]


@pytest.mark.parametrize(("name", "kind"), SDK_VIEW, ids=[row[0] for row in SDK_VIEW])
async def test_the_sdk_raises_the_right_class(gateway: Gateway, name: str, kind: type[openai.APIStatusError]) -> None:
    case = CASES[name]
    server = await gateway(gateway_config(case))
    async with sdk(server, api_key="wrong") as client:
        raw = case.body if isinstance(case.body, bytes) else json.dumps({"model": "m", **case.body}).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": "asked.1"}
        with pytest.raises(openai.APIStatusError) as caught:
            await client.post("/chat/completions", cast_to=object, content=raw, options={"headers": headers})
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.param, error.type) == (
        case.status,
        case.code,
        case.param,
        CODES[case.code].type,
    )
    assert error.request_id == "asked.1"


async def test_the_sdk_does_not_repeat_what_a_model_did_wrong(gateway: Gateway) -> None:
    async with Upstream([Say(block("read_file", {}))]) as upstream:
        server = await gateway(read_config({"backends": {"up": {"url": upstream.url}}}))
        async with sdk(server, max_retries=2) as client:
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="m", messages=USER, tools=[STRICT])
        assert len(upstream.requests) == 1


async def test_the_sdk_waits_as_long_as_the_model_server_says(gateway: Gateway) -> None:
    async with Upstream([Refuse(429, headers={"Retry-After": "0"}), Say("at last")]) as upstream:
        server = await gateway(read_config({"backends": {"up": {"url": upstream.url}}}))
        async with sdk(server, max_retries=1) as client:
            answer = await client.chat.completions.create(model="m", messages=USER)
    assert answer.choices[0].message.content == "at last"


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


async def broken_gateway(gateway: Gateway, kind: str, on_failure: str) -> Any:
    plugins = registries()
    plugins.middlewares.register("broken", BROKEN[kind])
    config = read_config(
        {
            "backends": {"mock": {"kind": "mock", "script": ["hello"]}},
            "chain": [{"use": "broken", "on_failure": on_failure}, *DEFAULT_CHAIN],
        }
    )
    return await gateway(config, plugins=plugins)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_middleware_says_nothing_about_itself(
    gateway: Gateway, kind: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R13.5, R16.4: the client gets the code and the request id, the log the name and the traceback."""
    server = await broken_gateway(gateway, kind, "fail")
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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_middleware_that_may_be_skipped_is(
    gateway: Gateway, kind: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = await broken_gateway(gateway, kind, "skip")
    answer = await post(server, chat(stream=stream))
    assert answer.status == 200
    if stream:
        chunks = [chunk for chunk in answer.frames() if chunk != "[DONE]"]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    else:
        text = answer.json()["choices"][0]["message"]["content"]
    assert text == "hello"
    assert "middleware 'broken' failed" in caplog.text
    async with aiohttp.ClientSession() as session, session.get(server.make_url("/metrics")) as response:
        metrics = await response.text()
    assert 'toolwire_middleware_errors_total{middleware="broken"} 1.0' in metrics


# --- the log --------------------------------------------------------------------------------------------------------


async def test_a_client_that_went_is_in_the_log(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """499 `client_closed_request` is for the log and the metrics only."""
    caplog.set_level(logging.INFO, logger="toolwire.access")
    async with Upstream([Say("a", hang=True)]) as upstream:
        server = await gateway(read_config({"backends": {"up": {"url": upstream.url}}}))
        with socket.create_connection((server.host, server.port)) as raw:
            body = json.dumps({"model": "m", **chat(stream=True)}).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            raw.sendall(head.encode() + body)
            asked = await upstream.next_request()
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
    await server.close()
    (record,) = (record for record in caplog.records if record.name == "toolwire.access")
    fields = record.__dict__["fields"]
    assert (fields["status"], fields["code"]) == (499, "client_closed_request")


async def test_a_client_that_goes_with_its_whole_answer_has_not_gone_away(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The model server has said all and keeps its connection: the gateway still waits for that one when the client
    goes."""
    caplog.set_level(logging.INFO, logger="toolwire.access")
    async with Upstream([Say("a", hang=True)]) as upstream:
        server = await gateway(read_config({"backends": {"up": {"url": upstream.url}}}))
        for _ in range(3):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            body = json.dumps({"model": "m", **chat(stream=True, tools=[function("look")])}).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            try:
                writer.write(head.encode() + body)
                async with asyncio.timeout(GUARD_S):
                    assert b"[DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
            finally:
                writer.close()
    await server.close()
    lines = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    assert [(line["status"], line.get("code")) for line in lines] == [(200, None)] * 3


async def test_neither_keys_nor_texts_are_logged(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="toolwire")
    config = read_config(
        {
            "backends": {
                "mock": {"kind": "mock", "script": [f"private-answer {block('read_file', {'path': 'private-path'})}"]}
            },
            "auth": {"keys": ["private-key"]},
        }
    )
    server = await gateway(config)
    body = {"messages": [{"role": "user", "content": "private-question"}], "tools": [READ]}
    assert (await post(server, body, headers={"Authorization": "Bearer private-key"})).status == 200
    assert (await post(server, body, headers={"Authorization": "Bearer private-typo"})).status == 401
    lines = [f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records]
    assert any("exchange" in line for line in lines)
    assert not [line for line in lines if "private" in line]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/chatcmpl-1"),
        ("GET", "/chatcmpl-1/messages"),
        ("POST", "/chatcmpl-1"),
        ("DELETE", "/chatcmpl-1"),
    ],
)
@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_stored_chat_completions_are_not_there(gateway: Gateway, method: str, path: str, prefix: str) -> None:
    """R28.7: 404, and why; other methods on the path are the wrong ones still."""
    server = await gateway(script=["Hello."])
    url = server.make_url(f"{prefix}/chat/completions")
    async with aiohttp.ClientSession() as session:
        async with session.request(method, f"{url}{path}", json={"metadata": {}}) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["code"]) == (404, "not_found")
            assert "does not store" in error["message"]
            assert "/v1/responses" in error["message"]
        async with session.put(url) as answer:
            assert answer.status == 405
