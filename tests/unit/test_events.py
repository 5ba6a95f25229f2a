"""The laws of the event algebra."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.strategies import replies, rich_replies, rich_streams, streams
from toolwire.errors import BackendFault
from toolwire.events import (
    BlockKind,
    Call,
    Close,
    Delta,
    Event,
    Fault,
    Finish,
    Opaque,
    Open,
    Start,
    StreamGrammarError,
    text_block,
)
from toolwire.folding import fold, unfold
from toolwire.model import ModelReply, OpaquePart, ReplyChoice, ToolUse, Usage, merged
from toolwire.stream_grammar import check, normalise

START = Start("id", "m", 1)


@examples(0.5)
@given(replies | rich_replies)
def test_a_reply_survives_unfold_and_fold(reply: ModelReply) -> None:
    events = unfold(reply)
    check(events)
    assert fold(events) == reply
    assert fold(normalise(events)) == reply


@examples(0.5)
@given(rich_streams())
def test_what_is_said_beside_is_folded_whole(events: list[Event]) -> None:
    check(events)
    reply = fold(events)
    assert fold(normalise(events)) == reply
    assert fold(unfold(reply)) == reply
    start, finish = events[0], events[-1]
    assert isinstance(start, Start)
    assert isinstance(finish, Finish)
    assert reply.usage == (finish.usage or start.usage)
    assert reply.extra == merged(start.extra, finish.extra)
    said = [merged(a.extra, b.extra) for a, b in zip(_of(events, Open), _of(events, Close), strict=True)]
    kept = [part.extra for choice in reply.choices for part in choice.parts if not isinstance(part, OpaquePart)]
    assert sorted(map(repr, filter(None, said))) == sorted(map(repr, filter(None, kept)))


def _of(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_what_is_known_at_the_start_of_a_reply_is_what_was_read() -> None:
    usage = Usage(7, 3, 1, 2, 1)
    start = unfold(ModelReply("id", "m", 1, (), usage))[0]
    assert isinstance(start, Start)
    assert start.usage == Usage(7, 0, 1, 2, 0)


@given(streams())
def test_chunking_is_not_observable(events: list[Event]) -> None:
    check(events)
    assert fold(events) == fold(normalise(events))
    assert normalise(normalise(events)) == normalise(events)


@every(
    ("events", "said"),
    [
        ([], "without Finish or Fault"),
        ([START], "without Finish or Fault"),
        ([Finish()], "before Start"),
        ([START, START], "no place"),
        ([START, Finish(), Finish()], "after the end"),
        ([START, Delta(0, "x")], "not open"),
        ([START, Close(0)], "not open"),
        ([START, Open(0, BlockKind.TEXT), Finish()], "are open"),
        ([START, *text_block(0, "a"), *text_block(0, "b")], "opened twice"),
        ([START, Open(0, BlockKind.TOOL_CALL, name="f")], "belong to calls"),
        ([START, Open(0, BlockKind.TEXT, name="f", call_id="c")], "belong to calls"),
        ([START, Call(0, ToolUse("c", "f", "{}"))], "no place"),
    ],
)
def test_the_grammar_refuses(events: list[Event], said: str) -> None:
    with pytest.raises(StreamGrammarError, match=said):
        check(events)


def test_a_fault_may_end_a_stream_anywhere() -> None:
    fault = Fault(BackendFault("gone"))
    check([fault])
    check([START, fault])
    check([START, Open(0, BlockKind.TEXT), Delta(0, "x"), fault])


def test_fold_raises_the_fault() -> None:
    with pytest.raises(BackendFault, match="gone"):
        fold([START, Fault(BackendFault("gone"))])
    with pytest.raises(StreamGrammarError, match="no Start"):
        fold([Finish()])


@every("kind", [BlockKind.TEXT, BlockKind.REASONING, BlockKind.REFUSAL])
def test_a_block_that_has_only_fields_is_a_part(kind: BlockKind) -> None:
    for extra, parts in (({"chat": {"x": 1}}, 1), ({}, 0)):
        reply = fold([START, Open(0, kind, extra=extra), Close(0), Finish()])
        assert [part.extra for part in reply.choices[0].parts] == [extra] * parts


def test_every_event_can_be_changed_with_replace() -> None:
    """R35.2. Authors of middlewares know `dataclasses.replace` from requests, and use it for events too."""
    fault = BackendFault("x")
    for event, changes in (
        (Start("r", "m", 1), {"model": "n"}),
        (Open(1, BlockKind.TOOL_CALL, name="f", call_id="c", extra={"source": "s"}), {"block": 2}),
        (Delta(1, "a", {"logprobs": []}), {"text": "b"}),
        (Close(1, "truncated"), {"extra": {"chat": {}}}),
        (Finish("stop", Usage(), choices=({"stop_sequence": "x"},)), {"reason": "length"}),
        (Fault(fault), {"error": BackendFault("y")}),
        (Opaque("chat", {}), {"payload": {"a": 1}}),
        (Call(1, ToolUse("c", "f", "{}"), source="s"), {"use": ToolUse("c", "f", '{"a":1}')}),
    ):
        changed = replace(event, **changes)
        for name in event.__slots__:
            assert getattr(changed, name) == changes.get(name, getattr(event, name)), (event, name)
        with pytest.raises(TypeError, match="unhashable"):
            hash(changed)


@every(
    ("reason", "arguments", "status"),
    [
        ("length", '{"a":1}', "complete"),
        ("length", '{"a":', "truncated"),
        ("length", "", "truncated"),
        ("stop", '{"a":', "complete"),
    ],
)
def test_a_limit_cuts_calls_of_whole_answers_too(reason: str, arguments: str, status: str) -> None:
    """C18: as a stream's reader says it of the same answer."""
    reply = ModelReply("id", "m", 1, (ReplyChoice((ToolUse("call_1", "f", arguments),), reason),))
    assert [event.status for event in unfold(reply) if isinstance(event, Close)] == [status]
