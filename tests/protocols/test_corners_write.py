"""Corners of the writers of Chat, Messages and Responses: block x neighbour x way of coming x end.

The laws, for each protocol:

1. What a stream adds up to for a client is what `write_reply` writes for the same events.
2. Every field that the protocol can say is written, once, and no field of another protocol.
3. Neither where deltas are cut nor who writes plain text (`text_frame`) shows.
4. What was written is read again as what it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.protocols import messages_wires, responses_wires, wires
from tests.protocols.corners import Block, by_characters, by_kind, call, mark, marks, overlapping, prose, stream
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.folding import fold
from toolwire.model import EMPTY, OpaquePart, ToolSpec, ToolUse
from toolwire.protocols.responses.tool_servers import ResponsesToolServers
from toolwire.protocols.shared.tool_servers import ToolServerTool
from toolwire.protocols.streams import TextWriter, WriteOptions
from toolwire.stream_grammar import check

TEXT, THOUGHT, REFUSAL = BlockKind.TEXT, BlockKind.REASONING, BlockKind.REFUSAL


def unmodelled(protocol: str, payload: Callable[[int], Any]) -> Block:
    return lambda place: [Opaque(protocol, payload(place))]


def own_item(place: int) -> list[Event]:
    """A call that is an item of a type of its own (R28.5)."""
    fields = {"item_type": "shell_call", "created_by": mark(place, "field")}
    begins = Open(place, BlockKind.TOOL_CALL, name="shell", call_id=f"call_{place}", extra={"responses": fields})
    return [begins, Delta(place, '{"commands":["l'), Delta(place, 's"]}'), Close(place)]


COMMON: dict[str, Block] = {
    "text": prose(TEXT, "te", "xt #"),
    "blank": prose(TEXT, " ", "\n"),
    "blank_then_text": prose(TEXT, " \n", "then #"),
    "silent": prose(TEXT),
    "halves": prose(TEXT, "a\ud83d", "\ude00b\ude00#", "\ud83dy", "\ud83d"),
    "thought": prose(THOUGHT, "thou", "ght #"),
    "refusal": prose(REFUSAL, "n", "o #"),
    "call": call('{"a":', "1}"),
    "half_arguments": call('{"x":"\ud83d', '\ude00"}'),
    "no_arguments": call(),
    "blank_arguments": call(" "),
    "text_of_another": prose(TEXT, "other #", opened="x_foreign", protocol="alien"),
    "thought_of_another": prose(THOUGHT, "other #", late="x_foreign", protocol="alien"),
    "call_of_another": call("{}", opened="x_foreign", late="x_late", protocol="alien"),
    "unmodelled_of_another": unmodelled("alien", lambda n: {"type": "x", "x": mark(n, "foreign")}),
}
"""Blocks in which nothing is said that a protocol of its own has a place for."""

CHAT: dict[str, Block] = {
    "custom": call("raw", kind="custom"),
    "call_opened": call('{"a":1}', opened="x_field", protocol="chat"),
    "call_late": call('{"a":1}', late="x_late", protocol="chat"),
    "call_both": call('{"a":1}', opened="x_field", late="x_late", protocol="chat"),
}
MESSAGES: dict[str, Block] = {
    "cited": prose(TEXT, "cited #", opened="citations", protocol="messages"),
    "cited_late": prose(TEXT, "ci", "ted #", late="citations", protocol="messages"),
    "cached": prose(TEXT, "cached #", opened="cache_control", protocol="messages"),
    "blank_cited": prose(TEXT, " ", late="citations", protocol="messages"),
    "only_cited": prose(TEXT, opened="citations", protocol="messages"),
    "signed_late": prose(THOUGHT, "thou", "ght #", late="signature", protocol="messages"),
    "sealed": prose(THOUGHT, opened="signature", protocol="messages"),
    "redacted": prose(THOUGHT, opened="data", protocol="messages"),
    "data_beside": prose(THOUGHT, "thought #", opened="data", protocol="messages"),
    "refusal_beside": prose(REFUSAL, "no #", opened="x_field", protocol="messages"),
    "call_opened": call('{"a":1}', opened="caller", protocol="messages"),
    "list_arguments": call("[1,", "2]"),
    "custom": call("raw", kind="custom"),
    "unmodelled": unmodelled("messages", lambda n: {"type": "x", "x": mark(n, "field"), "input": {"a": 1}}),
}
SERVED = ResponsesToolServers()
ADD = ToolUse("call_a", "add", '{"a":1}', namespace="calc")
RESPONSES: dict[str, Block] = {
    "noted": prose(TEXT, "noted #", opened="annotations", protocol="responses"),
    "noted_late": prose(TEXT, "no", "ted #", late="annotations", protocol="responses"),
    "blank_noted": prose(TEXT, " ", late="annotations", protocol="responses"),
    "phase": prose(TEXT, "phase #", opened="item", protocol="responses"),
    "refusal_beside": prose(REFUSAL, "no #", opened="x_field", protocol="responses"),
    "sealed": prose(THOUGHT, opened="encrypted_content", protocol="responses"),
    "sealed_late": prose(THOUGHT, "thought #", late="encrypted_content", protocol="responses"),
    "call_opened": call('{"a":1}', opened="x_field", protocol="responses"),
    "call_late": call('{"a":1}', late="x_late", protocol="responses"),
    "custom": call("raw", kind="custom"),
    "own_item": own_item,
    "served": lambda n: [SERVED.began(ADD, None), SERVED.ran(ADD, f"said {n}", False, None)],
    "served_in_vain": lambda n: [SERVED.ran(ADD, f"no {n}", True, f"mcpr_{n}")],
    "listed": lambda n: [SERVED.listed(f"calc{n}", [ToolServerTool("add", ToolSpec("add"))], None)],
    "unmodelled": unmodelled("responses", lambda n: {"type": "web_search_call", "x": mark(n, "field")}),
}


@dataclass(frozen=True)
class Side:
    """One protocol: its blocks, and how its answers are written and added up."""

    name: str
    wires: Any
    blocks: dict[str, Block]
    ident: str
    added_up: Callable[[bytes], Any]
    """What a client has at the end of a stream."""
    whole: Callable[[bytes], Any]
    """The same of a whole answer."""

    def options(self, **given: Any) -> WriteOptions:
        opts: WriteOptions = self.wires.options(**({"usage": True} if self.name == "chat" else {}), **given)
        return opts

    def protocol(self) -> Any:
        return getattr(self.wires, self.name.upper())


def chat_sum(data: bytes) -> Any:
    """Of Chat: the answers by index, texts that are empty as none, and the counts."""
    total = {index: shown_chat(answer) for index, answer in wires.accumulate(data).items()}
    return total, wires.payloads(data)[-2]["usage"]


def chat_whole(body: bytes) -> Any:
    value = json.loads(body)
    answers = {
        choice["index"]: shown_chat({**choice["message"], "finish_reason": choice["finish_reason"]})
        for choice in value["choices"]
    }
    return answers, value["usage"]


def shown_chat(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty, and without the blanks that a stream has before the `{}` of a call without arguments."""
    for one in answer.get("tool_calls") or ():
        if one["type"] == "function":
            one["function"]["arguments"] = one["function"]["arguments"].strip()
    return {key: value for key, value in answer.items() if value and key != "role"}


def responses_sum(data: bytes) -> Any:
    events = responses_wires.payloads(data)
    last = events[-1]["response"]
    assert responses_wires.accumulate(events) == last["output"]
    return last


SIDES = [
    Side("chat", wires, {**COMMON, **CHAT}, "chatcmpl-1", chat_sum, chat_whole),
    Side("messages", messages_wires, {**COMMON, **MESSAGES}, "msg_1", messages_wires.accumulate, json.loads),
    Side("responses", responses_wires, {**COMMON, **RESPONSES}, f"resp_{'0a' * 16}", responses_sum, json.loads),
]


PAIRS = [pytest.param(side, name, id=f"{side.name}-{name}") for side in SIDES for name in side.blocks]
PLAIN = ("text", "thought", "refusal", "call")
CUT = call('{"a":', cut=True)
"""What a limit of length may leave at the end of an answer."""
BLANK = ("no_arguments", "blank_arguments")
"""Under a limit of length these would be cut off."""


def answers(side: Side, second: str, reason: str = "stop", *, plain: bool = False) -> Iterator[list[Event]]:
    """The block alone and behind each other one, in turn or overlapping. With `plain` behind plain ones only; so too
    under a limit of length, there in turn, and also before a call that was cut off, which Messages shows as it
    began."""
    if reason == "length":
        if second in BLANK:
            return
        if side.name != "messages":
            yield stream([side.blocks[second](0), CUT(1)], reason, side.ident)
    yield stream([side.blocks[second](0)], reason, side.ident)
    for first in PLAIN if plain or reason == "length" else side.blocks:
        blocks = [side.blocks[name](n) for n, name in enumerate((first, second))]
        yield stream(blocks, reason, side.ident)
        if reason != "length" and not any(isinstance(block[0], Opaque) for block in blocks):
            yield overlapping(blocks, reason, side.ident)


def between(side: Side, second: str) -> Iterator[list[Event]]:
    """The block between two of one kind, which run together if it says nothing."""
    for first in PLAIN:
        yield stream([side.blocks[name](n) for n, name in enumerate((first, second, first))], "stop", side.ident)


def runs_together(side: Side, events: list[Event], field: str = "") -> bool:
    """Whether a stream cannot keep two texts apart. In Chat, two of one kind that overlap. In the others, a text of
    which something is said at its end only, behind another text: when it begins it is more of that."""
    opens = [event for event in events if isinstance(event, Open | Opaque)]
    texts = (TEXT, THOUGHT) if field == "inline" else (TEXT,)
    if side.name == "chat":
        one, two = events[1:3]
        overlap = isinstance(one, Open) and isinstance(two, Open) and one.kind is not BlockKind.TOOL_CALL
        return overlap and (one.kind is two.kind or (one.kind in texts and two.kind in texts))
    late = {event.block for event in events if isinstance(event, Close) and side.name in event.extra}
    shown = [event for event in opens if says_something(side, event, events)]
    if field == "drop":
        shown = [event for event in shown if isinstance(event, Opaque) or event.kind is not THOUGHT]
    return any(
        isinstance(one, Open) and isinstance(two, Open) and two.block in late and one.kind in texts and two.kind is TEXT
        for one, two in pairwise(shown)
    )


def says_something(side: Side, opened: Open | Opaque, events: list[Event]) -> bool:
    """Whether anything of a block is written, so that it stands between its neighbours."""
    if isinstance(opened, Opaque):
        return opened.protocol == side.name
    own = any(side.name in event.extra for event in events if isinstance(event, Open | Close) and event.block == opened.block)  # fmt: skip
    said = any(event.text for event in events if isinstance(event, Delta) and event.block == opened.block)
    return own or said or opened.kind is BlockKind.TOOL_CALL


@every("field", ["reasoning_content", "inline", "drop"])
@every(("side", "second"), PAIRS)
def test_a_stream_adds_up_to_the_whole_answer(side: Side, second: str, field: str) -> None:
    opts = side.options(reasoning_field=field)
    others = chain(answers(side, second, "length"), between(side, second)) if field == "reasoning_content" else ()
    for events in chain(answers(side, second), others):
        if field != "reasoning_content" and not any(isinstance(one, Open) and one.kind is THOUGHT for one in events):
            continue  # the field is about thoughts
        check(events)
        if not runs_together(side, events, field):
            streamed = side.added_up(side.wires.write(events, opts))
            assert streamed == side.whole(side.protocol().write_reply(fold(events), opts)), events


@every(("side", "second"), PAIRS)
def test_neither_cuts_of_deltas_nor_who_writes_plain_text_is_seen(side: Side, second: str) -> None:
    opts = side.options()
    for events in answers(side, second, plain=True):
        data, pieces = side.wires.write(events, opts), by_characters(events)
        in_pieces = side.wires.write(pieces, opts)
        assert side.added_up(in_pieces) == side.added_up(data)
        writer = side.protocol().writer(opts)
        assert b"".join(writer.feed([event]) for event in events) == data
        assert written_by_another(side.protocol().writer(opts), pieces) == in_pieces


def written_by_another(writer: Any, events: list[Event]) -> bytes:
    """The bytes of a stream whose plain text is put between the bytes around a delta (`text_frame`)."""
    assert isinstance(writer, TextWriter)
    out = []
    prose_blocks = {event.block for event in events if isinstance(event, Open) and event.kind in (TEXT, THOUGHT)}
    for event in events:
        shape = None
        if isinstance(event, Delta) and event.block in prose_blocks and event.text.isprintable() and event.text:
            shape = writer.text_frame(event.block)
        if shape is None or not isinstance(event, Delta):
            out.append(writer.feed([event]))
            continue
        number = b"" if shape.number < 0 else b"%d" % shape.number
        out.append(shape.head + number + shape.middle + orjson.dumps(event.text)[1:-1] + shape.tail)
        writer.wrote(event.block, 1, event.text)
    return b"".join(out)


@every(("side", "second"), PAIRS)
def test_every_field_of_the_protocol_is_written_and_none_of_another(side: Side, second: str) -> None:
    opts = side.options()
    for events in answers(side, second, plain=True):
        own = [found for found in marks([repr(event) for event in events]) if found not in marked_by_others(events)]
        whole = side.protocol().write_reply(fold(events), opts)
        assert marks(whole.decode()) == sorted(own)
        assert {*marks(side.wires.write(events, opts).decode())} == {*own}


def marked_by_others(events: list[Event]) -> list[str]:
    return marks([repr(getattr(event, "extra", event)) for event in events if "alien" in repr(event)])


@every(("side", "second"), PAIRS)
def test_what_is_written_is_read_again(side: Side, second: str) -> None:
    """Streamed and whole, as one and the same answer. Under a limit of length alone and before a call that is cut."""
    opts = side.options()
    for events in chain(answers(side, second), islice(answers(side, second, "length"), 2)):
        if not runs_together(side, events):
            got = side.wires.read(side.wires.write(events, opts))
            check(got)
            again = side.protocol().read_reply(side.protocol().write_reply(fold(events), opts))
            assert one_form(side, fold(got)) == one_form(side, again)


def one_form(side: Side, reply: Any) -> Any:
    """A reply as the protocol can say it: Chat has no order of kinds."""
    if side.name == "chat":
        choices = [{**by_kind(choice), "extra": choice.extra} for choice in reply.choices]
        for choice in choices:
            choice["calls"] = [replace(use, arguments=use.arguments.strip()) for use in choice["calls"]]
        return choices, reply.usage
    (choice,) = reply.choices
    parts = tuple(part for part in choice.parts if not (isinstance(part, OpaquePart) and is_progress(part.payload)))
    return replace(reply, created=0, extra=EMPTY, choices=(replace(choice, parts=parts),))


def is_progress(payload: Any) -> bool:
    """True for an event that only says how an item goes on."""
    return str(payload.get("type")).startswith("response.")


@every("side", SIDES)
def test_nothing_is_written_after_the_end(side: Side) -> None:
    for end in (Finish(), Fault(BackendFault("no"))):
        writer = side.protocol().writer(side.options())
        assert writer.feed([Start(side.ident, "m", 1), end])
        assert writer.feed(side.blocks["text"](0)) == b""
        assert writer.keepalive().startswith(b":")


def test_an_item_of_reasoning_ends_under_the_id_that_it_began_with() -> None:
    """Also if its server's id is known at its end only: the client has seen another one."""
    late = {"responses": {"encrypted_content": "e", "id": "rs_late"}}
    for text in ("a", ""):
        block = [Open(0, THOUGHT), Delta(0, text), Close(0, extra=late)]
        (item,) = responses_wires.accumulate(responses_wires.payloads(responses_wires.write(stream([block]))))
        assert item["encrypted_content"] == "e"
        assert (item["id"] == "rs_late") == (not text)
