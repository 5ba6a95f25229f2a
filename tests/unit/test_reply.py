"""Stages on an unsent reply: what a middleware sees, in which order, and what happens when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.cases import every
from tests.strategies import streams
from toolwire.errors import ClientFault, Defect
from toolwire.events import (
    BlockKind,
    BlockStatus,
    Call,
    Close,
    Delta,
    Event,
    Fault,
    Finish,
    Kind,
    Open,
    Start,
    text_block,
)
from toolwire.folding import Folding, fold, unfold
from toolwire.model import ModelReply, Reasoning, ReplyChoice, Text, ToolUse, Usage
from toolwire.pipeline.answers.mapping import MapStage
from toolwire.pipeline.answers.reply import Reply, StaticSource
from toolwire.pipeline.answers.stages import Batches, Following, RewriteFunction, Stage, collected
from toolwire.pipeline.chain.middleware import Layer
from toolwire.stream_grammar import check, normalise

START = Start("id", "m", 1)
SAID: list[Event] = [START, *text_block(0, "a")]
WHOLE: list[Event] = [*SAID, Finish()]


async def collect(reply: Reply) -> list[Event]:
    return [event async for batch in reply.events() for event in batch]


def runner(*, skip: bool) -> Layer:
    """Its name and its policy are used."""
    return Layer("bad", None, skip, lambda name: None)  # type: ignore[arg-type]


def is_defect(event: Event) -> bool:
    """Whether the stream ends under the name of the runner, and says no more."""
    assert isinstance(event, Fault)
    assert isinstance(event.error, Defect)
    return "'bad'" in event.error.message and "boom" not in event.error.message


def refuse(event: Event) -> Event:
    raise ClientFault("no")


def break_down(event: Event) -> Event:
    raise KeyError("boom")


async def same(batches: Batches) -> Batches:
    async for batch in batches:
        yield batch


def suffix(mark: str) -> Any:
    """Of every piece of text."""
    return lambda event: Delta(event.block, event.text + mark) if isinstance(event, Delta) else event


def chain_of(reply: Reply) -> Any:
    """The stages, which need not wait for anything."""
    chain = reply.chain()
    assert chain is not None
    return chain


@given(streams())
def test_a_stage_that_changes_nothing_changes_nothing(events: list[Event]) -> None:
    for wants in (Kind.ALL, Kind.FINISHED_CALL, Kind.FINISHED_CALL | Kind.TEXT, Kind.CALL):
        out = MapStage(lambda e: e, wants, None).feed(events)
        check(out)
        assert normalise_each(out) == normalise_each(events)


def normalise_each(events: list[Event]) -> dict[int, list[Event]]:
    """The events block by block: holding a call back may move it behind text that overlaps it."""
    out: dict[int, list[Event]] = {}
    for event in events:
        out.setdefault(getattr(event, "block", -1), []).append(event)
    return out


@every(
    ("wants", "at"),
    [(Kind.TEXT, [1, 2, 3]), (Kind.REASONING, [4, 5, 6]), (Kind.CALL, [7, 8, 9]), (Kind.EDGES, [0, 10])],
)
def test_only_the_wanted_kinds_are_seen(wants: Kind, at: list[int]) -> None:
    seen: list[Event] = []
    thought = [Open(1, BlockKind.REASONING), Delta(1, "r"), Close(1)]
    events = [*SAID, *thought, *Call(2, ToolUse("c", "f", "{}")).events(), Finish()]
    assert MapStage(lambda event: seen.append(event) or event, wants, None).feed(events) == events
    assert seen == [events[place] for place in at]


@every("skip", [True, False])
def test_what_breaks_at_a_call_of_a_whole_answer_breaks_as_in_its_events(skip: bool) -> None:
    def work(event: Event) -> Event:
        assert isinstance(event, Call)
        return break_down(event) if event.use.name == "bad" else Call(event.block, replace(event.use, name="other"))

    def answer(*names: str) -> ModelReply:
        parts = tuple(ToolUse(str(number), name, "{}") for number, name in enumerate(names))
        return ModelReply("id", "m", 1, (ReplyChoice((Text("a"), *parts)),))

    def stage() -> MapStage:
        return MapStage(work, Kind.FINISHED_CALL, runner(skip=skip))

    reply = answer("good", "bad", "good")
    events = stage().feed(unfold(reply))
    if skip:
        assert stage().whole(reply) == fold(events) == answer("other", "bad", "good"), "switched off from there on"
    else:
        assert is_defect(events[-1])
        with pytest.raises(Defect):
            stage().whole(reply)


async def test_stages_run_in_the_order_of_declaration() -> None:
    async def shout(batches: Batches) -> Batches:
        async for batch in batches:
            yield [Delta(e.block, e.text.upper()) if isinstance(e, Delta) else e for e in batch]

    reply = Reply.of([START, *text_block(0, "x"), Finish()])
    reply.map(suffix("a"), Kind.TEXT)
    reply.rewrite(shout)
    reply.map(suffix("b"), Kind.TEXT)
    reply.map(suffix("c"), Kind.TEXT)
    assert Delta(0, "XAbc") in await collect(reply)


async def test_the_whole_answer_may_be_rewritten() -> None:
    async def polite(whole: ModelReply) -> ModelReply:
        assert whole.text == "hello"
        return ModelReply(whole.id, whole.model, whole.created, (type(whole.choices[0])((Text("bye"),)),), None)

    reply = Reply.of([START, Open(0, BlockKind.TEXT), Delta(0, "hel"), Delta(0, "lo"), Close(0), Finish()])
    reply.rewrite(collected(polite))
    assert normalise(await collect(reply)) == [START, *text_block(0, "bye"), Finish()]
    fault = Fault(ClientFault("no"))
    reply = Reply.of([START, fault])
    reply.rewrite(collected(polite))
    assert await collect(reply) == [START, fault], "a fault is no whole answer"


async def test_nothing_comes_after_the_end() -> None:
    async def more(batches: Batches) -> Batches:
        async for batch in batches:
            yield batch
        yield [START]

    reply = Reply.of([START, Finish()])
    reply.rewrite(more)
    assert await collect(reply) == [START, Finish()]


@every("leaves", ["at the end", "when an outer stage breaks", "before the end"])
async def test_every_stage_is_over_when_the_answer_is(leaves: str) -> None:
    """A stage that keeps something puts it away now, not when memory is next collected."""
    closed: list[str] = []

    def keeping(name: str) -> RewriteFunction:
        async def stage(batches: Batches) -> Batches:
            try:
                async for batch in batches:
                    yield batch
            finally:
                closed.append(name)

        return stage

    reply = Reply.of(WHOLE)
    reply.owner = runner(skip=False)
    reply.rewrite(keeping("inner"))
    reply.rewrite(keeping("outer"))
    if leaves == "when an outer stage breaks":
        reply.map(refuse, Kind.TEXT)
    async with aclosing(reply.events()) as batches:
        async for _ in batches:
            if leaves == "before the end":
                break
    assert closed == ["outer", "inner"]


def test_a_broken_stage_ends_the_stream_under_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        first, last, *_ = MapStage(break_down, Kind.TEXT, runner(skip=False)).feed(WHOLE)
    assert first == START
    assert is_defect(last)
    assert "'bad'" in caplog.text
    out = MapStage(refuse, Kind.TEXT, runner(skip=True)).feed(SAID)
    assert out == [START, Fault(ClientFault("no"))], "an error of the gateway is the fault itself"


async def test_the_last_event_waits_and_nothing_else_does() -> None:
    order: list[object] = []
    gate = asyncio.Event()

    async def price(last: Event) -> Event:
        order.append("asked")
        await gate.wait()
        assert isinstance(last, Finish)
        return Finish(last.reason, Usage(1, 2))

    said, last = [*SAID, Finish("length")], Finish("length", Usage(1, 2))
    reply = Reply.of(said)
    reply.finish(price)
    reply.watch(order.append)
    chain = chain_of(reply)
    assert chain.feed(said) == order == SAID
    assert chain.waits
    gate.set()
    assert await chain.settle() == [last]
    assert not chain.waits
    assert order[-2:] == ["asked", last]
    assert await collect(reply) == [*SAID, last]


class Other(Stage):
    """Holds the end of an answer back, and gives another one in its place."""

    def __init__(self, *batches: list[Event]) -> None:
        self.batches = batches
        self.closed = False

    def declare(self, reply: Reply) -> None:
        reply.map(self)
        reply.finish(self.finish)

    def feed(self, events: list[Event]) -> list[Event]:
        return events[-1:] if isinstance(events[-1], Finish) else events

    async def finish(self, last: Event) -> Event | Following:
        return self.rest() if isinstance(last, Finish) else last

    async def rest(self) -> Following:
        try:
            for batch in self.batches:
                yield list(batch)
        finally:
            self.closed = True


@every("inner", [True, False])
@every("outer", [True, False])
async def test_another_answer_goes_through_the_stages_further_out(inner: bool, outer: bool) -> None:
    seen: list[Event] = []

    async def price(last: Event) -> Event:
        assert isinstance(last, Finish)
        return Finish(last.reason, Usage(1 + (last.usage.input_tokens if last.usage else 0), 2))

    reply = Reply(StaticSource([Finish("length")]), streamed=True)
    if inner:
        reply.finish(price)
    other = Other(text_block(0, "a"), [*text_block(1, "b"), Finish("stop", Usage(10, 2))], [Finish("length")])
    other.declare(reply)
    reply.watch(seen.append)
    if outer:
        reply.finish(price)
    said = [*text_block(0, "a"), *text_block(1, "b")]
    assert await collect(reply) == [*said, Finish("stop", Usage(10 + outer, 2))]
    assert seen == [*said, Finish("stop", Usage(10, 2))], "and nothing behind the end"
    assert other.closed


@every("begun", [True, False])
async def test_another_answer_may_be_given_up(begun: bool) -> None:
    seen: list[Event] = []
    reply = Reply.of([])
    reply.watch(lambda event: seen.append(START))
    Other(text_block(0, "a"), text_block(1, "b")).declare(reply)
    reply.watch(seen.append)
    chain = chain_of(reply)
    assert chain.feed([Finish()]) == []
    assert await chain.settle() == []
    assert chain.continues
    seen.clear()
    if begun:
        async with aclosing(chain.rest()) as rest:
            assert await anext(rest) == text_block(0, "a")
    fault = Fault(ClientFault("enough"))
    assert chain.give_up(fault) == [fault]
    assert seen == [*(text_block(0, "a") if begun else ()), fault], "only who stands further out sees it"
    assert not chain.waits


async def test_what_a_stage_ended_early_does_not_go_on() -> None:
    async def settled(event: Event) -> Event:
        raise AssertionError("nothing is settled after the end")

    reply = Reply(StaticSource(WHOLE), streamed=False)
    reply.finish(settled)
    reply.owner = runner(skip=False)
    reply.map(refuse, Kind.TEXT)
    with pytest.raises(ClientFault):
        await reply.whole()


async def test_a_whole_answer_that_nobody_wants_to_see_is_not_taken_apart() -> None:
    async def estimated(last: Event) -> Event:
        return Finish("stop", Usage(7, 8))

    class Whole(StaticSource):
        async def reply(self) -> ModelReply:
            return said

    def reply() -> Reply:
        made = Reply(Whole([]), streamed=False)
        made.map(refuse, Kind.FINISHED_CALL | Kind.CALL | Kind.REASONING)
        made.finish(estimated, unless=lambda reply: reply.usage is not None)
        made.watch(refuse, unless=lambda reply: reply.usage is not None)  # type: ignore[arg-type]
        return made

    said = ModelReply("id", "m", 1, (ReplyChoice((Text("a"),)),), Usage(1, 2))
    assert await reply().whole() is said
    plain = said
    for parts in ((Text("a"), ToolUse("c", "f", "{}")), (Reasoning("a"),)):
        said = replace(plain, choices=(ReplyChoice(parts),))
        with pytest.raises(ClientFault):
            await reply().whole()
    said = replace(plain, usage=None)
    with pytest.raises(ClientFault):  # of the watching; what comes before it is left out
        await reply().whole()
    said = replace(plain, choices=(ReplyChoice((Text("a"),), extra={"logprobs": {}}),))
    assert await reply().whole() is said


async def test_a_stage_that_waits_earlier_takes_the_chain_away() -> None:
    reply = Reply.of([START, Finish()])
    assert reply.chain() is not None
    reply.rewrite(same)
    assert reply.chain() is None


@every("skip", [True, False])
async def test_a_broken_settler_or_watcher_ends_the_stream_or_is_skipped(skip: bool) -> None:
    async def settle(last: Event) -> Event:
        raise KeyError("boom")

    def watch(event: Event) -> None:
        if isinstance(event, Delta):
            raise KeyError("boom")

    for declare in (lambda reply: reply.finish(settle), lambda reply: reply.watch(watch)):
        reply = Reply.of(WHOLE)
        reply.owner = runner(skip=skip)
        declare(reply)
        got = await collect(reply)
        assert got == WHOLE if skip else is_defect(got[-1])


async def test_who_only_looks_on_leaves_a_reply_untouched() -> None:
    async def other(last: Event) -> Event:
        return Finish("length")

    reply = Reply.of([START, Finish()])
    reply.watch(lambda event: None)
    reply.finish(other, changes=False)
    assert not reply.touched
    assert await collect(reply) == [START, Finish()], "what is given all the same is not used"
    changing: list[Callable[[Reply], None]] = [
        lambda reply: reply.map(lambda event: event, Kind.EDGES),
        lambda reply: reply.map(Other()),
        lambda reply: reply.finish(other),
        lambda reply: reply.rewrite(same),
    ]
    for declare in changing:
        reply = Reply.of([])
        declare(reply)
        assert reply.touched
    with pytest.raises(TypeError, match="Kind"):
        reply.map(lambda event: event, Kind.NONE)


async def test_a_rewriting_may_come_before_whatever_changes_the_answer() -> None:
    seen: list[str] = []

    def notes(name: str) -> RewriteFunction:
        async def noted(batches: Batches) -> Batches:
            async for batch in batches:
                seen.append(name + "".join(event.text for event in batch if isinstance(event, Delta)))
                yield batch

        return noted

    reply = Reply.of(WHOLE)
    reply.watch(lambda event: seen.append("watched") if isinstance(event, Delta) else None)
    reply.map(lambda event: Delta(0, "b") if isinstance(event, Delta) else event, Kind.TEXT)
    reply.rewrite(notes("last "))
    reply.rewrite(notes("first "), first=True)
    await collect(reply)
    assert seen == ["watched", "first a", "last b"]


@every("streamed", [True, False])
@every("what", ["raises", "refuses", "gives no event"])
@every("skip", [True, False])
async def test_what_takes_the_place_of_the_end_may_break(what: str, skip: bool, streamed: bool) -> None:
    closed: list[bool] = []
    begins = what != "gives no event"

    async def further() -> Following:
        try:
            yield text_block(1, "b")
            raise ClientFault("no") if what == "refuses" else KeyError("boom")
        finally:
            closed.append(True)

    async def go_on(last: Event) -> Event | Following:
        return further() if begins else 7  # type: ignore[return-value]

    reply = Reply(StaticSource(WHOLE), streamed=streamed)
    reply.owner = runner(skip=skip)
    reply.finish(go_on)
    *said, last = await collect(reply)
    assert said == [*SAID, *(text_block(1, "b") if begins else [])]
    assert closed == [True] * begins
    if what == "refuses":
        assert last == Fault(ClientFault("no"))
    else:
        assert last == Finish() if skip else is_defect(last)


@pytest.mark.parametrize(
    ("after", "gives", "shown"),
    [("nothing", True, 0), ("nothing", False, 0), ("the first read", True, 1), ("the first read", False, 0),
     ("all", True, 4), ("all", False, 0)],
)  # fmt: skip
@pytest.mark.parametrize("skip", [True, False])
async def test_a_broken_rewriting_ends_the_stream_or_is_skipped(
    skip: bool, gives: bool, after: str, shown: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(batches: Batches) -> Batches:
        if after == "nothing":
            raise KeyError("boom")
        async for batch in batches:
            if gives:
                yield batch
            if after == "the first read":
                raise KeyError("boom")
        raise KeyError("boom")

    class Reads(StaticSource):
        async def batches(self) -> Batches:
            for event in SAID:
                yield [event]
            if not (after == "all" and gives):
                yield [Finish()]

    reply = Reply(Reads([]), streamed=True)
    reply.owner = runner(skip=skip)
    reply.rewrite(breaks)
    with caplog.at_level(logging.ERROR):
        got = await collect(reply)
    assert "'bad'" in caplog.text
    if skip and not shown:
        assert got == WHOLE
    else:
        assert got[:-1] == SAID[:shown]
        assert is_defect(got[-1])


async def test_what_breaks_further_in_is_not_the_rewritings_fault() -> None:
    class Breaks(StaticSource):
        async def batches(self) -> Batches:
            yield [START]
            raise KeyError("boom")

    reply = Reply(Breaks([]), streamed=True)
    reply.owner = runner(skip=False)
    reply.rewrite(same)
    with pytest.raises(KeyError):
        await collect(reply)


# --- calls that are given out while they come (R6.13)
# -------------------------------------------------------------------


def live_call(block: int, *pieces: str, status: BlockStatus = "complete") -> list[Event]:
    opened = Open(block, BlockKind.TOOL_CALL, name="f", call_id="c", extra={"live": True})
    return [opened, *(Delta(block, piece) for piece in pieces), Close(block, status)]


@every(
    ("kind", "status", "parts"),
    [
        *(("function", None, 1), ("function", "truncated", 1), ("function", "complete", 1)),
        *(("custom", None, 0), ("custom", "truncated", 0), ("custom", "complete", 1)),
    ],
)
def test_half_a_text_of_a_custom_tool_is_no_part_of_an_answer_that_broke_off(
    kind: Any, status: BlockStatus | None, parts: int
) -> None:
    """Where a client hung up, or a fault came."""
    folding = Folding()
    opened = Open(0, BlockKind.TOOL_CALL, name="f", call_id="c", call_kind=kind, extra={"live": True})
    for event in (Start("a", "m", 1), opened, Delta(0, "half"), *([Close(0, status)] if status else [])):
        folding.feed(event)
    assert len(folding.reply().choices[0].parts) == parts


def test_who_wants_finished_calls_holds_them_and_may_refuse() -> None:
    seen: list[Event] = []
    stage = MapStage(seen.append, Kind.FINISHED_CALL, None)
    assert [stage.feed([event]) for event in live_call(1, '{"a":', "1}")] == [[]] * 4
    assert seen == [Call(1, ToolUse("c", "f", '{"a":1}'), source="")]
    stage = MapStage(lambda event: event, Kind.FINISHED_CALL, None)
    assert stage.feed(live_call(1, "{", "}")) == live_call(1, "{", "}")
    # C18: cut off it vanishes, as if it had not been given out while it came.
    seen.clear()
    stage = MapStage(seen.append, Kind.FINISHED_CALL, None)
    assert stage.feed([*live_call(1, "{", status="truncated"), Finish("length")]) == [Finish("length")]
    assert seen == []


def test_of_a_whole_answer_it_is_known_which_call_is_cut() -> None:
    cut = live_call(2, "{", status="truncated")
    reply = fold([Start("r", "m", 0), *live_call(1, "{", "}"), *cut, Finish("length")])
    seen: list[tuple[str, BlockStatus]] = []

    def look(call: Call) -> Call:
        seen.append((call.use.arguments, call.status))
        return call

    assert MapStage(look, Kind.FINISHED_CALL, None).whole(reply) == reply
    assert seen == [("{}", "complete"), ("{", "truncated")]


@every("status", ["complete", "truncated"])
def test_who_only_looks_gets_them_at_their_end(status: BlockStatus) -> None:
    seen: list[Event] = []
    stage = MapStage(lambda event: seen.append(event), Kind.FINISHED_CALL, None, live=True)
    events = live_call(1, '{"a":', "1}", status=status)
    for event in events:
        assert not seen
        assert stage.feed([event]) == [event]  # the function gave None, which drops other calls
    assert seen == [Call(1, ToolUse("c", "f", '{"a":1}'), source="", status=status)]
    assert stage.feed(Call(2, ToolUse("d", "g", "{}")).events()) == []


def test_who_only_looks_may_still_end_the_answer_or_be_switched_off() -> None:
    first = live_call(1, "{", "}")
    *passed, fault = MapStage(refuse, Kind.FINISHED_CALL, runner(skip=False), live=True).feed(first)
    assert passed == first[:-1]
    assert isinstance(fault, Fault)
    stage = MapStage(break_down, Kind.FINISHED_CALL, runner(skip=True), live=True)
    held = Call(2, ToolUse("d", "g", "{}")).events()
    out = stage.feed([held[0], *first, *held[1:]])
    assert out == [*first[:-1], held[0], first[-1], *held[1:]], "what was passed on is not repeated"
