"""Laws of what is kept of a conversation: messages come back as they were, and items as the client saw them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.protocols.published import captured_responses_requests
from tests.protocols.responses_wires import input_items
from tests.strategies import every_extra, every_message, every_part, json_objects, rich_replies, texts
from toolwire.model import (
    Message,
    ModelReply,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    ReplyChoice,
    Text,
    ToolResult,
    ToolUse,
)
from toolwire.protocols.responses.items import read_items
from toolwire.protocols.responses.reply import broken_off, finished
from toolwire.protocols.responses.turns import ResponsesTurns
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.protocols.shared.wire import dump, load
from toolwire.protocols.stored.json_form import (
    _KINDS,
    FORM,
    UnknownForm,
    read_messages,
    read_turn,
    write_messages,
    write_turn,
)
from toolwire.protocols.streams import WriteOptions
from toolwire.store.encoding import MAX_TURN_BYTES, decode, encode

FORM_OF = ResponsesTurns()
IDENT = f"resp_{'1' * 29}000"


def turn(**fields: Any) -> StoredTurn:
    return StoredTurn(**{"id": IDENT, "owner": "", "status": "in_progress", "created": 1.0, "expires": 2.0, **fields})


def again(kept: StoredTurn) -> StoredTurn:
    """As it comes back from a store."""
    return decode(encode(kept, MAX_TURN_BYTES))


# --- messages -------------------------------------------------------------------------------------------------------


@examples(0.4)
@given(st.lists(every_message, max_size=3).map(tuple))
def test_messages_come_back_as_they_were(messages: tuple[Message, ...]) -> None:
    """Field for field, and the same bytes when they are written once more."""
    kept = dump(write_messages(messages))
    back = read_messages(load(kept))
    assert back == messages
    assert [type(part) for message in back for part in message.parts] == [
        type(part) for message in messages for part in message.parts
    ]
    assert dump(write_messages(back)) == kept


some = st.lists(every_message, max_size=2).map(tuple)


@examples(0.2)
@given(some, some, some, every_extra, texts)
def test_turns_come_back_as_they_were(one: Any, other: Any, third: Any, extra: Any, text: str) -> None:
    kept = turn(input=one, output=other, rounds=third, extra=extra, ancestors=(text, "resp_1"), model=text, owner=text)
    assert again(kept) == kept
    assert encode(again(kept), MAX_TURN_BYTES) == encode(kept, MAX_TURN_BYTES)


def test_every_part_of_the_model_has_a_name() -> None:
    """`Attempt` is no member of `Part`, being a `Text`, and all the same another part."""
    parts = {kind.__name__ for part in get_args(Part) for kind in (part, *part.__subclasses__())}
    assert {kind.__name__ for kind in _KINDS.values()} == parts


@settings(max_examples=20)
@given(every_part)
def test_half_a_character_is_what_the_client_saw(part: Part) -> None:
    kept = dump(write_messages([Message("user", (part, Text("a\ud83d\ude00 \ud800")))]))
    (back,) = read_messages(load(kept))
    assert back.parts[-1] == Text("a\U0001f600 \ufffd")


@pytest.mark.parametrize(
    "kept",
    [
        {"role": "user", "parts": [{"type": "hologram", "text": "x"}]},
        {"role": "user", "parts": [{"type": "text", "text": "x", "colour": "red"}]},
        {"role": "user", "parts": [{"type": "result", "call_id": "a", "parts": [{"type": "text", "text": "", "b": 1}]}]},
        {"role": "user", "parts": [], "mood": "good"},
    ],
)  # fmt: skip
def test_what_another_version_wrote_is_refused(kept: dict[str, Any]) -> None:
    """Not read without it: the conversation would be another one. What it holds is not said."""
    with pytest.raises(UnknownForm, match=r"does not know: empty the store, or run the version that wrote it$"):
        read_messages([kept])


@pytest.mark.parametrize("form", [FORM - 1, FORM + 1])
def test_another_form_is_refused(form: int) -> None:
    with pytest.raises(
        UnknownForm, match=rf"^a stored response has form {form}, and .* reads only form {FORM}: empty the store"
    ):
        read_turn({**write_turn(turn()), "form": form})


def test_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownForm):
        read_turn({**write_turn(turn()), "mood": "good"})


@pytest.mark.parametrize("kept", [{"role": "user"}, {"parts": []}, {"role": "user", "parts": [{"type": "text"}]}])
def test_what_nobody_wrote_is_no_message(kept: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        read_messages([kept])


# --- items ----------------------------------------------------------------------------------------------------------

INPUTS: list[Any] = [
    "hi",
    "",
    [{"role": "user", "content": ""}],
    [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": ""}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y", "detail": "low"}}]}],
    [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}], "status": None, "colour": None}],
    [{"role": "assistant", "content": "a", "id": "msg_mine"}, {"role": "assistant", "content": "b", "phase": "x"}],
    [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}],
    [{"role": "assistant", "content": [{"type": "new"}, {"type": "output_text", "text": "a", "annotations": [1]}]}],
    [{"role": "assistant", "content": []}, {"role": "user", "content": "x"}],
    [{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "x"}],
    [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}],
    [{"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "a"}], "encrypted_content": "e",
      "content": [{"type": "reasoning_text", "text": "hm"}], "status": "incomplete"}],
    [{"type": "function_call", "call_id": "a", "name": "f", "arguments": " ", "namespace": "n"},
     {"type": "function_call_output", "call_id": "a", "output": {"a": [1.5, None]}, "status": "incomplete"},
     {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "", "id": "ctc_mine"},
     {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_file", "file_id": "f"}]}],
    [{"type": "item_reference", "id": "msg_0"}, {"type": "web_search_call", "action": None, "id": "ws_1"}],
    [{"type": None, "role": "user", "content": "a"}, {"type": "brand_new", "x": 1}],
]  # fmt: skip


def listed_again(body: dict[str, Any]) -> None:
    items = [] if isinstance(body["input"], str) else body["input"]
    messages = read_items(body["input"])
    options = WriteOptions(request=ModelRequest("m", messages), created=1, body=body)
    kept = again(FORM_OF.begun(turn(input=messages), options))
    listed = FORM_OF.listed(kept)
    assert [*listed] == list(input_items(body, IDENT)), items
    assert [listed[place] for place in range(-len(listed), 0)] == listed[:]
    assert kept.input == messages
    assert FORM_OF.shown(kept)["status"] == "in_progress"


@every("given_input", INPUTS)
def test_input_is_listed_as_it_came(given_input: Any) -> None:
    listed_again({"input": given_input})


@given(st.lists(st.sampled_from([item for items in INPUTS if isinstance(items, list) for item in items]), max_size=6))
def test_input_is_listed_as_it_came_in_any_order(items: Any) -> None:
    listed_again({"input": items})


CAPTURED = captured_responses_requests()


@every("path", CAPTURED)
def test_captured_input_is_listed_as_it_came(path: Path) -> None:
    value = json.loads(path.read_bytes())
    body = value.get("body", value)
    listed_again(body)


# --- answers --------------------------------------------------------------------------------------------------------

SHOWN = {
    "id": "msg_x", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": None},
}  # fmt: skip
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3", "status": "completed"}
PARTS: list[tuple[Part, ...]] = [
    (),
    (Text(" \n"),),
    (Reasoning("hm"), Text("\n\n"), ToolUse("c1", "f", "{}"), Text("b", {"chat": {"x": 1}})),
    (Text("a"), Text("b", {"chat": {"x": 1}}), Text("c", {"responses": {"item": {"phase": "y"}}}), Text("d")),
    (ToolUse("c1", "add", "{}"), OpaquePart("responses", RESULT), Text("Three."), OpaquePart("responses", SHOWN)),
    (Reasoning("s", {"responses": {"summary": True, "encrypted_content": "e"}}), Reasoning("t", {"responses": {"continues": True}})),
    (Text("a"), ToolUse("c1", "f", '{"a"', "function"), ToolUse("c2", "p", "half", "custom", "ns")),
]  # fmt: skip


def shown_again(reply: ModelReply, **options: Any) -> None:
    """Whole, or broken off with it: the resource is made again byte for byte."""
    asked = WriteOptions(
        request=ModelRequest("m", ()), created=7, body={"metadata": {"a": "b"}, "user": "u"}, **options
    )
    begun = FORM_OF.begun(turn(), asked)
    reply = dataclasses.replace(reply, id=IDENT, extra={**reply.extra, "completed_at": 5})
    done = again(FORM_OF.finished(begun, reply, asked))
    assert dump(FORM_OF.shown(done)) == dump(finished(reply, asked))
    failed = again(FORM_OF.broken_off(begun, reply, asked, "cancelled"))
    assert dump(FORM_OF.shown(failed)) == dump(broken_off(reply, asked, "cancelled"))


@every("reason", ["stop", "length", "content_filter"])
@every("field", ["reasoning_content", "inline", "drop"])
@every("parts", PARTS)
def test_an_answer_is_shown_as_it_was(parts: tuple[Part, ...], field: str, reason: str) -> None:
    shown_again(ModelReply("", "m", 1, (ReplyChoice(parts, reason),)), reasoning_field=field)


@examples(0.3)
@given(rich_replies)
def test_any_answer_is_shown_as_it_was(reply: ModelReply) -> None:
    shown_again(reply)


@examples(0.5)
@given(rich_replies)
def test_what_goes_on_is_what_the_client_saw_and_what_others_say_of_it(reply: ModelReply) -> None:
    """The messages are those that the items amount to, each part with the fields of every protocol."""
    asked = WriteOptions(request=ModelRequest("m", ()), created=7)
    kept = again(FORM_OF.finished(turn(), reply, asked))
    items = FORM_OF.shown(kept)["output"]
    said = ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in kept.output]
    assert said == [message.text for message in read_items(items)]
    assert [p.call_id for m in kept.output for p in m.parts if isinstance(p, ToolUse | ToolResult)] == [
        item["call_id"] for item in items if "call_id" in item
    ]
    given_parts = reply.choices[0].parts
    there = [part for message in kept.output for part in message.parts]
    for part in given_parts:
        if not isinstance(part, ToolUse | OpaquePart) and part.text and part.extra.get("messages"):
            blank = isinstance(part, Text) and not part.text.strip()
            assert blank or any(
                p.extra.get("messages") == part.extra["messages"] for p in there if not isinstance(p, OpaquePart)
            )


@every("first", INPUTS)
def test_going_on_is_reading_all_items_at_once(first: Any) -> None:
    """Turn by turn, or as one input: the same messages, but for the marks of where an item ends."""
    given_items = list(input_items({"input": first}, IDENT))
    calls = [{"type": "function_call", "call_id": "z", "name": "f", "arguments": "{}", "id": "fc_1"}]
    results = [{"type": "function_call_output", "call_id": "z", "output": "x"}, {"role": "assistant", "content": "y"}]
    turns = [read_items(given_items), read_items(calls), read_items(results), read_items([*results[1:]])]
    body = {"instructions": "Be brief."}
    joined = FORM_OF.full_conversation(body, [m for t in turns[:-1] for m in t], turns[-1], None)
    at_once = read_items([*given_items, *calls, *results, *results[1:]])
    assert joined == (Message("system", (Text("Be brief."),)), *at_once)


@settings(max_examples=20)
@given(json_objects)
def test_what_another_protocol_kept_is_shown_as_far_as_messages_say_it(fields: Any) -> None:
    said = (Message("assistant", (Text("a", {"tiny": fields}), ToolUse("c", "f", "{}"))),)
    kept = turn(id="tiny_1", status="completed", model="m", input=(Message("user", (Text("hi"),)),), output=said)
    shown = FORM_OF.shown(again(kept))
    assert (shown["id"], shown["status"], shown["model"], shown["created_at"]) == ("tiny_1", "completed", "m", 1)
    assert [item["type"] for item in shown["output"]] == ["message", "function_call"]
    (listed,) = FORM_OF.listed(kept)
    assert listed["content"] == [{"type": "input_text", "text": "hi"}]


# --- what is sent again ---------------------------------------------------------------------------------------------


def said(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **fields}


def call(ident: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": "f", "arguments": "{}"}


def result(ident: str, output: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": output}


def earlier(*turns: tuple[Any, list[Any]]) -> list[StoredTurn]:
    return [turn(wire_form={"input": sent, "resource": {"output": made}}, status="completed") for sent, made in turns]


OLD, FIX, BRIEF = said("continue"), said("fix it"), said("Be brief.", "developer")
DONE = said("Done.", "assistant", type="message", id="msg_1", status="completed")
TURNS = earlier(("continue", [DONE]), ([FIX], [call("a"), call("b")]), ([result("a")], [call("c")]))
WHOLE = [OLD, said("Done.", "assistant"), FIX, call("a"), call("b"), result("a"), call("c"), result("c")]
PARTED = said([{"type": "input_text", "text": "continue"}], id="msg_2")


@every(
    ("items", "new"),
    [
        # The inputs of the latest turns, all or some, in any form.
        ([result("a"), result("c")], [result("c")]),
        ([FIX, result("a"), result("c")], [result("c")]),
        ([PARTED, FIX, result("a"), BRIEF, OLD, result("c"), OLD], [BRIEF, OLD, result("c"), OLD]),
        # New items, although an older turn has its equal, or it is a part of the last input.
        ([OLD, result("c")], None),
        ([FIX, result("c")], None),
        ([OLD, result("a"), result("c")], None),
        ([OLD, FIX], None),
        ([result("c"), OLD, FIX], None),
        # The whole conversation, and new messages and results in it.
        (WHOLE, [result("c")]),
        ([call("c"), result("c")], [result("c")]),
        ([BRIEF, *WHOLE, OLD], [BRIEF, result("c"), OLD]),
        ([*WHOLE[:6], result("b"), *WHOLE[6:]], [result("b"), result("c")]),
        ([*WHOLE[:6], result("a", "more"), *WHOLE[6:]], [result("a", "more"), result("c")]),
        ([call("x"), result("x"), *WHOLE], [call("x"), result("x"), result("c")]),
    ],
)  # fmt: skip
def test_what_is_new_in_an_input(items: list[Any], new: list[Any] | None) -> None:
    shorter = FORM_OF.without_repeated({"input": items}, TURNS)
    if new is None or shorter is None:
        assert shorter is new
        return
    body, messages = shorter
    assert body["input"] == [{"type": "message", **item} for item in new]
    assert messages == read_items(new)
