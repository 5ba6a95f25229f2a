"""Calls that a server's answer broke off in (C18, R29.3): whatever the server speaks, streamed or whole, a call that is
not whole is dropped, one that is stays, and nothing is asked again. The same of calls in text, and of the texts of
custom tools, which look whole wherever they are cut."""

from __future__ import annotations

from itertools import product
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, gateway_before, post, serving, upstream_config
from tests.e2e.meaning import BODIES, MESSAGES, RESPONSES, asking, meant, said
from tests.e2e.speaking import JSON, SSE
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Asked, Upstream, frame

KINDS = {CHAT: "openai_chat", MESSAGES: "anthropic_messages", RESPONSES: "openai_responses"}
WHOLE = '{"path": "a"}'
CUT = ["", "{", '{"path": "', '{"path": "a"', '{"path": {"a": 1}']

UNKNOWN = "brand_new_word"
ENDS = {
    CHAT: ["length", "max_tokens", "content_filter", "SAFETY", UNKNOWN],
    MESSAGES: ["max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "guardrail_intervened", UNKNOWN],
    RESPONSES: ["max_output_tokens", "content_filter", "sensitive", UNKNOWN],
}
"""By protocol of the server: words that end an answer in the middle, some of other servers, and one that nobody knows.
All words: `test_ends.py`."""
USAGE = {"input_tokens": 1, "output_tokens": 1}
CHAT_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\n".encode() + frame(value)


def chat(calls: list[str], end: str, stream: bool, stopped: bool) -> Answer:
    wire = [
        {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": "read", "arguments": given}}
        for at, given in enumerate(calls)
    ]
    head = {"id": "x", "object": "chat.completion.chunk" if stream else "chat.completion", "created": 1, "model": "m"}
    if not stream:
        message = {"role": "assistant", "content": "Now.", "tool_calls": wire}
        choice = {"index": 0, "message": message, "finish_reason": end}
        return Answer(
            [orjson.dumps({**head, "choices": [choice], "usage": CHAT_USAGE})], headers=JSON, framing="length"
        )
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": "Now."}, None)]
    for one in wire:
        deltas.append(({"tool_calls": [{**one, "function": {"name": "read", "arguments": ""}}]}, None))
        arguments = {"arguments": one["function"]["arguments"]}  # type: ignore[index]
        deltas.append(({"tool_calls": [{"index": one["index"], "function": arguments}]}, None))
    deltas.append(({}, end))
    chunks = [
        frame({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}) for delta, reason in deltas
    ]
    return Answer([*chunks, frame("[DONE]")], headers=SSE)


def messages(calls: list[str], end: str, stream: bool, stopped: bool) -> Answer:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "Now."}]
    for at, given in enumerate(calls):
        held = orjson.loads(given) if given == WHOLE else {}
        blocks.append({"type": "tool_use", "id": f"toolu_{at}", "name": "read", "input": held})
    if not stream:
        body = {**head, "content": blocks, "stop_reason": end, "stop_sequence": None, "usage": USAGE}
        return Answer([orjson.dumps(body)], headers=JSON, framing="length")
    start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE}
    steps = [event({"type": "message_start", "message": start})]
    for index, block in enumerate(blocks):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        steps.append(event({"type": "content_block_start", "index": index, "content_block": empty}))
        delta = {"type": "text_delta", "text": "Now."}
        if index:
            delta = {"type": "input_json_delta", "partial_json": calls[index - 1]}
        steps.append(event({"type": "content_block_delta", "index": index, "delta": delta}))
        if stopped or index < len(blocks) - 1:
            steps.append(event({"type": "content_block_stop", "index": index}))
    steps.append(event({"type": "message_delta", "delta": {"stop_reason": end, "stop_sequence": None}, "usage": USAGE}))
    return Answer([*steps, event({"type": "message_stop"})], headers=SSE)


def responses(calls: list[str], end: str, stream: bool, stopped: bool) -> Answer:
    text = {"type": "output_text", "text": "Now.", "annotations": []}
    items: list[dict[str, Any]] = [
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    ]
    for at, given in enumerate(calls):
        status = "completed" if given == WHOLE else "incomplete"
        named = {"id": f"fc_{at}", "type": "function_call", "call_id": f"call_{at}", "name": "read"}
        items.append({**named, "arguments": given, "status": status})
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None}
    over = {"status": "incomplete", "incomplete_details": {"reason": end}, "output": items, "usage": USAGE}
    if not stream:
        return Answer([orjson.dumps({**head, **over})], headers=JSON, framing="length")
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        began = {**item, "status": "in_progress", **({"content": []} if not index else {"arguments": ""})}
        events.append({"type": "response.output_item.added", "output_index": index, "item": began})
        if index:
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
        else:
            part = {**place, "content_index": 0}
            events.append({"type": "response.content_part.added", **part, "part": {**text, "text": ""}})
            events.append({"type": "response.output_text.delta", **part, "delta": "Now."})
            events.append({"type": "response.output_text.done", **part, "text": "Now."})
            events.append({"type": "response.content_part.done", **part, "part": text})
        if stopped or index < len(items) - 1:
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.incomplete", "response": {**head, **over}})
    return Answer([event({**one, "sequence_number": at}) for at, one in enumerate(events)], headers=SSE)


SERVERS = {CHAT: chat, MESSAGES: messages, RESPONSES: responses}


def behind(up: Upstream, kind: str) -> GatewayConfig:
    return upstream_config(up.url, backend={"kind": KINDS[kind], "api_key": "k1"}, defaults={"mode": "native"})


def end_of(path: str, answer: Any, stream: bool) -> str:
    if path == CHAT:
        shown = (
            [one for one in answer.frames() if isinstance(one, dict) and one["choices"]][-1]
            if stream
            else answer.json()
        )
        return str(shown["choices"][0]["finish_reason"])
    if path == MESSAGES:
        if not stream:
            return str(answer.json()["stop_reason"])
        return str(next(one for one in answer.frames() if one["type"] == "message_delta")["delta"]["stop_reason"])
    shown = answer.frames()[-1]["response"] if stream else answer.json()
    return str((shown["incomplete_details"] or {"reason": shown["status"]})["reason"])


AT_LENGTH = ("length", "max_tokens", "model_context_window_exceeded", "max_output_tokens")
LENGTH = {CHAT: "length", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}
CALLED = {CHAT: "tool_calls", MESSAGES: "tool_use"}


@pytest.mark.parametrize(
    ("kind", "path", "stream"), [(kind, path, n % 2 > 0) for n, (kind, path) in enumerate(product(SERVERS, BODIES))]
)
async def test_what_was_cut_is_no_call(kind: str, path: str, stream: bool) -> None:
    said = [
        (end, [*before, half], stopped or not stream)
        for at, end in enumerate(ENDS[kind])
        for n, half in enumerate(CUT, at)
        for before, stopped in (([], n % 2 > 0), ([WHOLE], n % 2 == 0))  # the other way round of the next end
    ]
    now = iter(said)

    def answer(asked: Asked) -> Answer:
        end, calls, stopped = next(now)
        return SERVERS[kind](calls, end, bool(asked.json.get("stream")), stopped)

    async with Upstream([answer] * len(said)) as up, serving(behind(up, kind)) as server:
        for number, (end, calls, stopped) in enumerate(said, 1):
            got = await post(server, asking(path, stream), path=path)
            where = (end, calls, stopped, got.body)
            assert len(up.requests) == number, where
            text, made, *_ = meant(path, got, stream)
            assert (text, made) == ("Now.", [("read", {"path": "a"})] * (len(calls) - 1)), where
            shown = end_of(path, got, stream)
            if made and path in CALLED:
                assert shown == CALLED[path], where
            elif end in AT_LENGTH and not made:
                assert shown in (LENGTH[path], end), where
            elif end == UNKNOWN and not made:
                assert shown == LENGTH[path], "a cut call under an unknown word is no success"


async def test_a_call_without_arguments_that_the_answer_ends_with_for_its_own_sake() -> None:
    def answer(asked: Asked) -> Answer:
        return messages([""], "tool_use", bool(asked.json.get("stream")), True)

    async with Upstream([answer]) as up, serving(behind(up, MESSAGES)) as server:
        for stream in (False, True):
            body = {**asking(CHAT, stream), "tools": [{"type": "function", "function": {"name": "read"}}]}
            assert said(CHAT, await post(server, body), stream)[1] == [("read", {})]


# --- in text, and texts ---------------------------------------------------------------------------------------------


@every("stream", [False, True])
@every("path", [CHAT, RESPONSES])
async def test_half_a_text_of_a_native_server_is_no_call(path: str, stream: bool) -> None:
    """The limit cuts what comes last."""
    texts = {"call_0": "*** whole", "call_1": "*** half"}
    calls = [
        {"id": ident, "index": n, "type": "custom", "custom": {"name": "patch", "input": text}}
        for n, (ident, text) in enumerate(texts.items())
    ]
    message = {"role": "assistant", "content": "So.", "tool_calls": calls}
    key, pieces = ("delta", [message, {}]) if stream else ("message", [message])
    chunks = [{"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, key: piece}]} for piece in pieces]
    chunks[-1]["choices"][0]["finish_reason"] = "length"  # type: ignore[index]
    answer = Answer([*map(frame, chunks), frame("[DONE]")], headers=SSE)
    if not stream:
        answer = Answer([orjson.dumps(chunks[0])], headers=JSON)
    tool = {"type": "custom", "name": "patch"} if path == RESPONSES else {"type": "custom", "custom": {"name": "patch"}}
    options: Any = {"backend": {"preset": "openai"}, "defaults": {"mode": "native"}}
    async with gateway_before([answer], **options) as (server, _):
        got = await post(server, {**asking(path, stream), "tools": [tool]}, path=path)
    assert (got.status, b"*** whole" in got.body, b"*** half" in got.body) == (200, True, False)
