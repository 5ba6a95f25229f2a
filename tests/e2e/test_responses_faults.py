"""Faults of servers, models and the gateway as a client of Responses sees them: a status before the first byte, and
after it `error`, then `response.failed`. No call that was cut off is in the answer. The stored response is the same."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer
from openai.types.responses import ResponseErrorEvent

from tests.cases import every, first_and_in_turn
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, get, read_config, upstream_config
from tests.e2e.responses_answers import RESPONSES, Streamed, ask, of_stream, outline, tool
from tests.e2e.test_fault_table import FAULTS, SHORT_S
from tests.e2e.test_faults import CALL, ERROR, SSE, check_envelope
from tests.waiting import GUARD_S
from toolwire.errors import CODES
from toolwire.events import Event, Kind
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.registry import registries
from toolwire.testing import Answer, Refuse, Say, Script, Upstream, WireAnswer, chunk, frame

READ = tool("read_file", path="string")
STRICT = tool("read_file", strict=True, path="string")
WAYS = every("stream", [False, True])
TELLS = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
"""`response.error.code` by status, where it is not `server_error`."""


async def stored(server: TestServer, ident: str) -> Any:
    """The response as it was kept."""
    answer = await get(server, f"{RESPONSES}/{ident}")
    assert answer.status == 200
    return answer.json()


def check_failed(answer: WireAnswer, code: str) -> Streamed:
    """A stream that ends as R9.6 and C33 say. Nothing of a call that was not whole is in it."""
    got = of_stream(answer)
    *_, error, failed = got.events
    assert got.kinds.count("error") == 1
    assert list(error) == ["type", "sequence_number", "code", "message", "param", "error"]
    assert error["error"] == {"type": CODES[code].type, **{key: error[key] for key in ("code", "message", "param")}}
    read = ResponseErrorEvent.model_validate(error, strict=True)  # as it is published: flat
    assert (read.code, read.sequence_number) == (code, error["sequence_number"])
    assert list(error["error"]) == ["type", "code", "message", "param"]
    assert (error["error"]["code"], error["error"]["type"]) == (code, CODES[code].type)
    assert failed["response"]["error"] == {
        "code": "context_length_exceeded"
        if code == "context_length_exceeded"
        else TELLS.get(CODES[code].status, "server_error"),
        "message": f"{code}: {error['error']['message']}",
    }
    assert (failed["response"]["completed_at"], failed["response"]["incomplete_details"]) == (None, None)
    return got


# --- faults of servers -----------------------------------------------------------------------------------------------


def calling(index: int, name: str, arguments: str) -> list[dict[str, Any]]:
    """The deltas of a call, its arguments cut."""
    opening = {
        "index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""},
    }  # fmt: skip
    rest = [{"index": index, "function": {"arguments": arguments[i : i + 4]}} for i in range(0, len(arguments), 4)]
    return [{"tool_calls": [call]} for call in (opening, *rest)]


def _cut_native(*steps: Any, **more: Any) -> Answer:
    """Text, then a native call that does not get to its end."""
    half = [
        frame(chunk(delta)) for delta in ({"role": "assistant", "content": "Hel"}, *calling(0, "read_file", CALL)[:4])
    ]

    return Answer([*half, *steps], headers=SSE, **more)


LATER: dict[str, tuple[Script, str]] = {
    "a native call, cut": (_cut_native(cut=True), "upstream_disconnected"),
    "a call in text, cut": (FAULTS["reset inside a call"].script, "upstream_disconnected"),
    "a native call, silence": (_cut_native(hang=True), "upstream_timeout"),
    "a native call, an error": (_cut_native(frame(ERROR)), "upstream_error"),
    "a native call, it just ends": (_cut_native(), "upstream_disconnected"),
}
LANES: tuple[tuple[list[Any], str], ...] = (([READ], "native"), ([READ], "prompt"), ([], "prompt"))


@every(("name", "lane"), first_and_in_turn(list(LATER), LANES))
async def test_a_fault_in_the_stream_is_a_failed_response(
    gateway: Gateway, name: str, lane: tuple[list[Any], str]
) -> None:
    (turn, code), (tools, mode) = LATER[name], lane
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        short = {"timeouts": {"idle_s": SHORT_S}} if code == "upstream_timeout" else {}
        server = await gateway(upstream_config(upstream.url, backend=short, defaults={"mode": mode}))
        got = check_failed(await ask(server, tools=tools, stream=True), code)
        assert await stored(server, got.resource["id"]) == got.resource
    if tools:
        check_no_call(got)
    if tools and mode == "prompt":
        assert "<tool_call>" not in str(got.events)
    text = "".join(event["delta"] for event in got.events if event["type"] == "response.output_text.delta")
    assert text.startswith("Hel")
    assert got.resource["output"][0]["content"][0]["text"] == text
    # The message is cut off, unless a call began after it.
    ended = "native call" in name and not tools
    assert [item["status"] for item in got.resource["output"]] == ["completed" if ended else "incomplete"]


def check_no_call(got: Streamed) -> None:
    """A call that was cut off may have begun to stream, but it is nowhere whole, and not in the answer."""
    assert not [item for item in got.resource["output"] if "call" in item["type"]]
    assert "function_call_arguments.done" not in got.kinds
    done = [event["item"] for event in got.events if event["type"] == "response.output_item.done"]
    assert not [item for item in done if item["type"] == "function_call"]


LATE_REFUSALS = {
    "too long": (400, "This model's maximum context length is 4096 tokens", "context_length_exceeded", 400),
    "too many": (429, "slow down", "rate_limit_exceeded", 429),
}


@every("name", LATE_REFUSALS)
async def test_codes_that_clients_act_on(gateway: Gateway, name: str) -> None:
    """Codex reads `response.error.code`: the same words before the first byte and after it."""
    status, message, code, seen = LATE_REFUSALS[name]
    async with Upstream([Refuse(status, message)]) as upstream:
        check_envelope(await ask(await gateway(upstream_config(upstream.url)), stream=True), seen, code)
    script = [{"text": "Hello there", "error": {"status": status, "code": code, "message": message, "after": 8}}]
    got = check_failed(await ask(await gateway(script=script), stream=True), code)
    assert got.resource["error"]["code"] == code
    assert message in got.resource["error"]["message"]


@WAYS
@every("name", LATE_REFUSALS)
async def test_an_overflow_is_an_event_for_codex(gateway: Gateway, name: str, stream: bool) -> None:
    """Codex compacts a conversation after `response.failed` with this code. After a status 0.163 sends the whole
    conversation again and again; 0.171 knows both."""
    status, message, code, seen = LATE_REFUSALS[name]
    async with Upstream([Refuse(status, message)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        answer = await ask(server, headers={"originator": "codex_exec"}, stream=stream)
    if not stream or code != "context_length_exceeded":
        check_envelope(answer, seen, code)
        return
    got = check_failed(answer, code)
    assert got.kinds == ["created", "in_progress", "error", "failed"]
    assert got.resource["error"]["code"] == code


@WAYS
@every("background", [False, True])
async def test_an_overflow_that_the_gateway_finds_is_an_event_for_codex(
    gateway: Gateway, stream: bool, background: bool
) -> None:
    """Not for a background response, which has not begun."""
    guard = {"use": "prompt_guard", "options": {"characters": 1}}
    chain = [guard, "validation", "conversation", "injection", "transformation", "arguments"]
    server = await gateway(read_config({"backends": {"up": {"kind": "mock"}}, "chain": chain}))
    answer = await ask(server, headers={"originator": "codex_exec"}, stream=stream, background=background)
    if stream and not background:
        check_failed(answer, "context_length_exceeded")
    else:
        check_envelope(answer, 400, "context_length_exceeded")


# --- faults of models ------------------------------------------------------------------------------------------------

REJECTED = {
    "malformed_tool_arguments": '<tool_call>{"name":"read_file","arguments":"{]"}</tool_call>',
    "invalid_tool_arguments": block("read_file", {}),
    "unknown_tool_call": block("rm", {"path": "a"}),
}
"""R9.1 to R9.4: what a model writes that a strict tool does not allow, by code."""


@WAYS
@every("code", REJECTED)
async def test_a_strict_failure(gateway: Gateway, code: str, stream: bool) -> None:
    """R9.6: what was good before it stays, the call is not there in any form."""
    good = block("read_file", {"path": "a"})
    server = await gateway(script=[{"text": f"Hm. {good}{REJECTED[code]} bye", "chunk": 5}])
    answer = await ask(server, tools=[STRICT], stream=stream)
    if not stream:
        check_envelope(answer, 500, code)
        assert answer.headers["x-should-retry"] == "false"
        return
    got = check_failed(answer, code)
    assert outline(got.resource) == [("text", "Hm."), ("call", "read_file", '{"path": "a"}')]
    assert got.resource["error"]["code"] == "server_error"
    assert await stored(server, got.resource["id"]) == got.resource


@every("text", ["I would rather not.", " \n"])
async def test_a_missed_choice(gateway: Gateway, text: str) -> None:
    """R9.9 as an error: known only at the end, so in a stream the text stands before it; white space is none."""
    server = await gateway(script=[text], choice_miss="error")
    got = check_failed(
        await ask(server, tools=[READ], tool_choice="required", stream=True), "tool_choice_not_satisfied"
    )
    assert outline(got.resource) == ([("text", text)] if text.strip() else [])
    assert await stored(server, got.resource["id"]) == got.resource


# --- faults of the gateway -------------------------------------------------------------------------------------------


class BreaksOnText(Middleware):
    """Lets the first text pass and breaks on the second."""

    wants = Kind.TEXT

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        seen = exchange.state.setdefault(BreaksOnText, [])
        seen.append(event)
        if len(seen) > 2:
            raise RuntimeError("secret-in-event")
        return event


@every("place", ["inside", "outside"])
async def test_a_middleware_that_breaks_in_the_stream(gateway: Gateway, place: str) -> None:
    """R13.5, wherever it stands: one terminal event. What is kept is what `conversation` saw, so what breaks outside of
    it, where nothing should change an answer, may be kept as an answer."""
    plugins = registries()
    plugins.middlewares.register("broken", BreaksOnText)
    chain = ["conversation", "transformation", "injection", "forwarding"]
    chain.insert(0 if place == "outside" else 1, "broken")
    async with Upstream([Say("Hel", "lo", " there")]) as upstream:
        config = read_config({"backends": {"up": {"url": upstream.url}}, "chain": chain})
        server = await gateway(config, plugins=plugins)
        answer = await ask(server, stream=True)
        assert "secret" not in answer.body.decode()
        got = check_failed(answer, "internal_error")
        kept = await stored(server, got.resource["id"])
    if place == "inside":
        assert kept == got.resource
    assert kept["status"] != "in_progress"
    assert not server.app[CONVERSATIONS].running


# --- signs of life ---------------------------------------------------------------------------------------------------


@every("kind", ["comment", "event", "event, later"])
async def test_signs_of_life_while_a_block_is_held_back(gateway: Gateway, kind: str) -> None:
    """R6.14: a comment, or `response.in_progress` again for clients that count events; nothing of the answer is
    lost."""
    keepalive = {"keepalive": kind.partition(",")[0], "event_s": 0.05 if kind == "event" else 60.0}
    sign = b"event: response.in_progress\n" if kind == "event" else b": keep-alive\n\n"
    gate = asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say("Hm. ", CALL[:30], gate, CALL[30:])]) as upstream:
        config = upstream_config(upstream.url, server={"keepalive_s": 0.05}, defaults={"responses": keepalive})
        server = await gateway(config)
        body = {"model": "m", "input": "hi", "tools": [READ], "stream": True}
        async with aiohttp.ClientSession() as session, session.post(server.make_url(RESPONSES), json=body) as response:
            read = b""
            while read.partition(b"output_text.delta")[2].count(sign) < 2:
                read += await response.content.readany()
            assert b"function_call" not in read
            gate.set()
            read += await response.read()
            headers = response.headers.copy()
    got = of_stream(WireAnswer(status=200, headers=headers, body=read))
    assert outline(got.resource) == [("text", "Hm."), ("call", "read_file", '{"path":"a"}')]
    assert (got.kinds.count("in_progress") > 2) == (kind == "event")
    assert (b": keep-alive" in read) == (kind != "event")


@every("kind", ["comment", "event"])
async def test_a_server_that_never_begins(gateway: Gateway, kind: str) -> None:
    """A sign of life sends the status line, so the error comes in-band, of a response that begins for its sake."""
    async with asyncio.timeout(GUARD_S), Upstream([Answer(headers=SSE, hang=True)]) as upstream:
        config = upstream_config(
            upstream.url,
            backend={"timeouts": {"first_byte_s": 1.0}},
            server={"keepalive_s": 0.05},
            defaults={"responses": {"keepalive": kind, "event_s": 0.05}},
        )
        server = await gateway(config)
        answer = await ask(server, stream=True)
    assert answer.body.startswith(b": keep-alive\n\n")
    got = check_failed(answer, "upstream_timeout")
    assert got.kinds == ["created", "in_progress", "error", "failed"]
