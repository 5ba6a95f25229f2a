"""Corners of what stands between readers and writers: folding, the stage of `Reply.map`, streams that pass unread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.cases import every
from toolwire.errors import Defect, GatewayError
from toolwire.events import MAX_CHOICES, BlockKind, Call, Close, Delta, Event, Fault, Finish, Kind, Open, Start
from toolwire.events import Opaque as OpaqueEvent
from toolwire.folding import finished, fold, unfold
from toolwire.model import ModelReply, OpaquePart, Part, Reasoning, Refusal, ReplyChoice, Text, ToolUse, replace
from toolwire.pipeline.answers import mapping
from toolwire.pipeline.answers.mapping import MERGED, MapStage
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.stream_grammar import StreamGrammarError, check, normalise

# --- folding --------------------------------------------------------------------------------------------------------


@every("choice", [0, 1, MAX_CHOICES - 1])
def test_a_block_of_every_choice_that_there_may_be(choice: int) -> None:
    opened = Open(0, BlockKind.TEXT, choice=choice)
    reply = fold([Start("id", "m", 1), opened, Delta(0, "a"), Close(0), Finish()])
    assert [answer.parts for answer in reply.choices] == [()] * choice + [(Text("a"),)]


@every("choice", [MAX_CHOICES, MAX_CHOICES + 1, 2**40])
def test_one_choice_too_many(choice: int) -> None:
    with pytest.raises(StreamGrammarError, match=f"choice {choice}; the last there may be is {MAX_CHOICES - 1}"):
        fold([Start("id", "m", 1), Open(0, BlockKind.TEXT, choice=choice), Close(0), Finish()])


PARTS: dict[str, Part] = {
    "text": Text("a"),
    "said_text": Text("b", {"messages": {"citations": [1]}}),
    "empty_but_said": Text("", {"messages": {"citations": [1]}}),
    "thought": Reasoning("c"),
    "sealed": Reasoning("", {"messages": {"signature": "s"}}),
    "refusal": Refusal("d"),
    "call": ToolUse("c1", "f", '{"a":1}'),
    "said_call": ToolUse("c2", "f", "{}", extra={"chat": {"x": 1}}),
    "written_call": ToolUse("c3", "f", "{}", extra={"source": "<call>", "chat": {"x": 1}}),
    "silent_source": ToolUse("c4", "f", "{}", extra={"source": ""}),
    "custom": ToolUse("c5", "g", "raw", "custom", "group"),
    "opaque": OpaquePart("responses", {"type": "web_search_call"}),
}


def reply_of(*names: str, reason: str = "stop") -> ModelReply:
    """A reply of two choices; the parts are those of the first."""
    choices = (ReplyChoice(tuple(PARTS[name] for name in names), reason), ReplyChoice((Text("z"),)))
    return ModelReply("id", "m", 1, choices)


# --- the stage of `Reply.map` ---------------------------------------------------------------------------------------


def same(event: Event) -> Any:
    return event


def renamed(event: Event) -> Any:
    """Another call in the place of this one."""
    assert isinstance(event, Call)
    use = replace(event.use, name=event.use.name + "_")
    return Call(event.block, use, choice=event.choice, status=event.status, source=event.source)


def as_text(event: Event) -> Any:
    """The text in which the model wrote it, or its name."""
    assert isinstance(event, Call)
    opened = Open(event.block, BlockKind.TEXT, choice=event.choice)
    return [opened, Delta(event.block, event.source or event.use.name), Close(event.block)]


def second_only(event: Event) -> Any:
    """Some calls change, the others stay."""
    assert isinstance(event, Call)
    return renamed(event) if event.block else event


FUNCTIONS: list[Callable[[Event], Any]] = [same, lambda event: None, renamed, as_text, second_only]


def staged(function: Callable[[Event], Any], events: list[Event], owner: Any = None, live: bool = False) -> list[Event]:
    """What the stage gives for a stream, one event at a time and all at once."""
    stage = MapStage(function, Kind.FINISHED_CALL, owner, live=live)
    at_once = stage.feed(list(events))
    stage = MapStage(function, Kind.FINISHED_CALL, owner, live=live)
    one_by_one = [given for event in events for given in stage.feed([event])]
    assert normalise(one_by_one) == normalise(at_once)
    return at_once


@every("function", FUNCTIONS)
@every("first", PARTS)
def test_a_whole_answer_is_mapped_as_its_stream(first: str, function: Callable[[Event], Any]) -> None:
    for second in PARTS:
        for reason in ("stop", "length"):
            reply = fold(unfold(reply_of(first, second, reason=reason)))
            reply = with_sources(reply, first, second)
            taken = MapStage(function, Kind.FINISHED_CALL, None).whole(reply)
            events = staged(function, unfold(reply))
            check(events)
            assert taken is not None
            assert finished(taken) == fold(events)


def with_sources(reply: ModelReply, *names: str) -> ModelReply:
    """A folded reply, its calls as the scanner gives them: with their source."""
    calls = {part.call_id: part for part in map(PARTS.__getitem__, names) if isinstance(part, ToolUse)}
    first, second = reply.choices
    parts = tuple(calls[part.call_id] if isinstance(part, ToolUse) else part for part in first.parts)
    return replace(reply, choices=(replace(first, parts=parts), second))


def test_a_call_shows_where_it_was_found_and_stays_what_it_was() -> None:
    seen: list[Any] = []

    def look(event: Event) -> Any:
        assert isinstance(event, Call)
        seen.append((event.use.call_id, event.source, dict(event.use.extra)))
        return event

    reply = reply_of("call", "written_call", "silent_source", "said_call")
    MapStage(look, Kind.FINISHED_CALL, None).whole(reply)
    streamed, seen = seen, []
    staged(look, unfold(reply))
    wanted = [("c1", None, {}), ("c3", "<call>", {"chat": {"x": 1}}), ("c4", "", {}), ("c2", None, {"chat": {"x": 1}})]
    assert streamed == wanted
    assert seen == wanted * 2


class Skips:
    """An owner whose stage is switched off when it breaks."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.reports = 0

    def report(self, error: Exception) -> None:
        self.reports += 1

    def defect(self) -> Defect:
        return Defect("broken")


def interleaved(*arguments: str) -> list[Event]:
    """Calls whose deltas come in turn, a text before and behind."""
    opens = [Open(n, BlockKind.TOOL_CALL, name="f", call_id=f"c{n}") for n in range(len(arguments))]
    longest = max(map(len, arguments))
    deltas = [Delta(n, text[at]) for at in range(longest) for n, text in enumerate(arguments) if at < len(text)]
    closes = [Close(n) for n in range(len(arguments))]
    text = [Open(9, BlockKind.TEXT), Delta(9, "t"), Close(9)]
    return [Start("id", "m", 1), *text, *opens, *deltas, *closes, OpaqueEvent("chat", {"x": 1}), Finish()]


@every("place", [0, 1, 2])
def test_calls_that_are_held_go_on_when_the_stage_breaks(place: int) -> None:
    """Nothing of them is lost, and nothing comes twice, whichever call the function breaks at."""
    events = interleaved('{"a":1}', "[]", '{"b":2}')

    def breaks(event: Event) -> Any:
        assert isinstance(event, Call)
        if event.block == place:
            raise ValueError("no")
        return event

    owner = Skips(skip=True)
    stage = MapStage(breaks, Kind.FINISHED_CALL, owner)
    given = [one for event in events for one in stage.feed([event])]
    check(given)
    assert fold(given) == fold(events)
    assert owner.reports == 1
    (*_, last) = MapStage(breaks, Kind.FINISHED_CALL, Skips(skip=False)).feed(events)
    assert isinstance(last, Fault)


def test_what_is_held_is_bounded_by_all_calls_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "HELD_CHARS", 20)

    def last(events: list[Event]) -> Event:
        return MapStage(same, Kind.FINISHED_CALL, Skips(skip=False)).feed(events)[-1]

    assert isinstance(last(interleaved("a" * 10, "b" * 10)), Finish)
    fault = last(interleaved("a" * 10, "b" * 11))
    assert isinstance(fault, Fault)
    assert fault.error.code == "upstream_invalid_response"
    one_by_one = [event for n in range(9) for event in Call(n, ToolUse("c", "f", "a" * 15)).events()]
    assert isinstance(last([Start("id", "m", 1), *one_by_one, Finish()]), Finish)  # each is let go when it is whole


@every("pieces", [0, 1, MERGED - 1, MERGED, MERGED + 1, 3 * MERGED + 7, 2000])
@every("at", [None, 0, 100, 1999])
def test_fragments_of_a_held_call_are_merged_and_keep_what_stands_beside(pieces: int, at: int | None) -> None:
    """Nobody has to wait for each of very many; a fragment that carries more than its text stays as it is."""
    opened = Open(0, BlockKind.TOOL_CALL, name="f", call_id="c")
    deltas = [Delta(0, f"{n},", {"logprobs": 1} if n == at else None) for n in range(pieces)]
    events = [Start("id", "m", 1), opened, *deltas, Close(0), Finish()]
    stage = MapStage(same, Kind.FINISHED_CALL, None)
    one_by_one = [one for event in events for one in stage.feed([event])]
    for given in (MapStage(same, Kind.FINISHED_CALL, None).feed(events), one_by_one):
        check(given)
        got = [event for event in given if isinstance(event, Delta)]
        assert "".join(event.text for event in got) == "".join(event.text for event in deltas)
        assert [event.text for event in got if event.extra] == [event.text for event in deltas if event.extra]
        assert len(got) <= pieces // MERGED + 3 * MERGED
        if pieces < MERGED:
            assert got == deltas


# --- streams that pass unread ---------------------------------------------------------------------------------------

FIRST_WORDS = {
    "page": b"<html>busy</html>\n\n",
    "no JSON": b"data: hello\n\n",
    "half JSON": b"data: {broken\n\n",
    "named": b"event: message_start\ndata: nothing\n\n",
    "behind a comment": b": hi\n\ndata: Service Unavailable\n\n",
    "behind a name": b"event: x\n\ndata: no\n\n",
}


@every("words", FIRST_WORDS)
@every("protocol", [ChatProtocol(), MessagesProtocol(), ResponsesProtocol()])
def test_first_words_that_are_no_json_are_no_stream(protocol: Any, words: str) -> None:
    """They are a fault before anything went out, so that it can still become a status; however they come."""
    data = FIRST_WORDS[words]
    for size in (len(data), 1, 3):
        relay = Relay(protocol, frame_bytes=4096)
        out = b"".join(relay.feed(data[at : at + size]) for at in range(0, len(data), size)) + relay.finish()
        assert b"data" not in out
        assert b"<html>" not in out or words == "page"
        assert isinstance(relay.fault, GatewayError)
        assert relay.fault.code == ("upstream_disconnected" if words == "page" else "upstream_invalid_response")
        assert not relay.has_sent


def frames(*data: bytes) -> Iterable[bytes]:
    return [b"data: " + one + b"\n\n" for one in data]


@every("later", [b"hello", b"<html>", b"{", b"[1]", b'{"choices":[{"index":0,"delta":{"content":"a"'])
def test_later_words_that_are_no_json_end_the_stream(later: bytes) -> None:
    """Clients break on them, in whatever reads they come."""
    first, *rest = frames(b'{"choices":[{"index":0,"delta":{"content":"data: x"}}]}', later)
    for reads in ([first, *rest], [b"".join([first, *rest])]):
        relay = Relay(ChatProtocol(), frame_bytes=4096)
        assert b"".join(map(relay.feed, reads)) == first
        assert relay.fault is not None
        assert relay.fault.code == "upstream_invalid_response"
