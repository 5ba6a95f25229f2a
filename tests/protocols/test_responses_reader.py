"""Streams and whole answers read: everything servers leave out, and how streams end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.cases import every
from tests.protocols.responses_wires import RESPONSES, frame, options, payloads, read, write
from tests.protocols.test_responses_stream import ALL_KINDS, TOOLS
from toolwire.events import Close, Delta, Finish, Opaque, Start
from toolwire.folding import fold
from toolwire.model import Reasoning, Text, ToolUse
from toolwire.stream_grammar import check

EVENTS = payloads(write(ALL_KINDS, options({"tools": TOOLS})))
WANTED = fold(ALL_KINDS).choices[0].parts
PARTS = tuple(
    p if not isinstance(p, ToolUse) or p.arguments else ToolUse(p.call_id, p.name, "{}", namespace="agents")
    for p in WANTED
)


def wire(events: list[dict[str, Any]]) -> bytes:
    return b"".join(map(frame, events))


def delta(kind: str, text: str, index: int = 0, **fields: Any) -> bytes:
    return frame(
        {"type": f"response.{kind}.delta", "output_index": index, "item_id": f"i{index}", "delta": text, **fields}
    )


def added(item: dict[str, Any], index: int = 0) -> bytes:
    return frame({"type": "response.output_item.added", "output_index": index, "item": item})


def done(item: dict[str, Any], index: int = 0) -> bytes:
    return frame({"type": "response.output_item.done", "output_index": index, "item": item})


def end(*output: dict[str, Any], status: str = "completed", **fields: Any) -> bytes:
    return frame(
        {"type": f"response.{status}", "response": {"id": "resp_1", "status": status, "output": list(output), **fields}}
    )


CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_a",
    "name": "f",
    "arguments": '{"x":1}',
    "status": "completed",
}


# --- what servers leave out -----------------------------------------------------------------------------------------


def drop(*kinds: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda event: None if any(event["type"].endswith(kind) for kind in kinds) else event


def strip(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda event: {key: value for key, value in event.items() if key not in keys}


def spoil(where: str, *keys: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    def change(event: dict[str, Any]) -> dict[str, Any]:
        if where == "output" and "response" in event:
            return {**event, "response": {k: v for k, v in event["response"].items() if k not in keys}}
        if where == "item" and "item" in event:
            return {**event, "item": {k: v for k, v in event["item"].items() if k not in keys}}
        return event

    return change


@every(
    "change",
    [
        strip("sequence_number"),
        strip("logprobs"),
        strip("content_index"),
        drop("created", "in_progress"),
        drop("content_part.added", "content_part.done"),
        drop("text.done", "arguments.done", "input.done"),
        drop("delta", "text.done", "arguments.done", "input.done", "part.added", "part.done", "item.added", "item.done"),
        drop("delta", "text.done", "arguments.done", "input.done", "part.added", "part.done", "item.added"),
        spoil("output", "output"),
        spoil("item", "status"),
        spoil("item", "id"),
    ],
)  # fmt: skip
def test_one_thing_left_out(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    got = read(wire([changed for event in EVENTS if (changed := change(event)) is not None]))
    check(got)
    assert fold(got).choices[0].parts == PARTS


def test_announcements_may_be_missing() -> None:
    rest = [event for event in EVENTS if not event["type"].endswith("output_item.added")]
    assert fold(read(wire(rest))).choices[0].parts == PARTS
    # Without any item only `.done` of the arguments of functions says who is called.
    bare = [event for event in rest if "item" not in event and "response" not in event]
    calls = fold(read(wire(bare) + end())).calls
    assert [(use.name, use.kind, use.arguments) for use in calls] == [
        ("read_file", "function", '{"path":"notes.txt"}'),
        ("stop", "function", "{}"),
    ]


def test_text_may_repeat_itself() -> None:
    raw = added({"type": "message", "id": "i0", "content": []})
    raw += delta("output_text", "{ha") + delta("output_text", "{ha") + delta("output_text", "{ha{ha")
    assert fold(read(raw + end())).text == "{ha{ha{ha{ha"


@every("kind", ["reasoning_text", "reasoning"])
def test_both_names_of_reasoning(kind: str) -> None:
    got = fold(read(added({"type": "reasoning", "id": "rs_1", "summary": []}) + delta(kind, "hm") + end()))
    assert got.choices[0].parts == (Reasoning("hm"),)


def test_a_thought_and_its_summary_are_two_parts() -> None:
    texts = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    both = {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "xyz",
        "summary": texts,
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    parts = (
        Reasoning("a\n\nb", {"responses": {"encrypted_content": "xyz", "id": "rs_1", "summary": True}}),
        Reasoning("hm", {"responses": {"continues": True}}),
    )
    assert fold(read(done(both) + end())).choices[0].parts == parts
    body = json.dumps({"output": [both]}).encode()
    assert RESPONSES.read_reply(body).choices[0].parts == parts


def test_what_is_not_known_is_kept() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    search = {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"}
    new = {"type": "response.brand_new", "x": 1}
    strange = {"type": "output_audio", "data": "x"}
    message = {"type": "message", "content": [strange]}
    begun = added({**item, "status": "in_progress"})
    announced = json.loads(begun.partition(b"data: ")[2])
    raw = begun + frame(search) + frame(search) + frame(new) + done(item) + done(message, 1)
    got = read(raw + end(item, message))
    wrapped = {"type": "message", "role": "assistant", "content": [strange]}
    assert [event.payload for event in got if isinstance(event, Opaque)] == [
        *(announced, search, search, new, item, wrapped)
    ]
    assert [event.payload for event in read(begun + done(item) + end(item)) if isinstance(event, Opaque)] == [item]
    body = json.dumps({"output": [item, message]}).encode()
    assert [part.payload for part in RESPONSES.read_reply(body).choices[0].parts if not isinstance(part, Text)] == [
        item,
        wrapped,
    ]


def test_fields_of_a_message_stay_with_its_first_unknown_part() -> None:
    first, second = {"type": "output_audio", "data": "x"}, {"type": "output_audio", "data": "y"}
    message = {"type": "message", "content": [first, second], "mood": "glad"}
    got = [event.payload for event in read(done(message) + end(message)) if isinstance(event, Opaque)]
    assert [(payload["content"], payload.get("mood")) for payload in got] == [([first], "glad"), ([second], None)]


# --- how streams end ------------------------------------------------------------------------------------------------


@every("arguments", ['{"x":', ""])
def test_what_was_cut_off_is_truncated(arguments: str) -> None:
    item = {**CALL, "arguments": arguments, "status": "incomplete"}
    raw = added({**CALL, "arguments": ""}) + delta("function_call_arguments", arguments) + done(item)
    got = read(raw + end(item, status="incomplete"))
    assert [event.status for event in got if isinstance(event, Close)] == ["truncated"]
    assert "".join(event.text for event in got if isinstance(event, Delta)) == arguments, "no call that looks whole"


def test_what_comes_before_the_answer_is_shown_when_it_has_begun() -> None:
    strange = {"type": "response.strange", "x": 1}
    events = list(read(frame(strange) + write([Start("resp_1", "m", 1), Finish("stop")])))
    check(events)
    assert [type(event) for event in events] == [Start, Opaque, Finish]
    assert events[0].response_id == "resp_1"
    assert events[1] == Opaque("responses", strange)
