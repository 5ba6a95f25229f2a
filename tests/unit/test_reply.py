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


async def collect(reply: Reply) -> list[Event]:
    return [event async for batch in reply.events() for event in batch]


def runner(*, skip: bool) -> Layer:
    async def never(request: object, handler: object) -> None:
        raise AssertionError

    return Layer("bad", never, skip, lambda name: None)  # type: ignore[arg-type]  # only its name and policy are used


def refuse(event: Event) -> Event:
    raise ClientFault("no")


def break_down(event: Event) -> Event:
    raise KeyError("boom")


async def same(batches: Batches) -> Batches:
    async for batch in batches:
        yield batch


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


def test_only_the_wanted_kinds_are_seen() -> None:
    seen: list[Event] = []

    def look(event: Event) -> Event:
        seen.append(event)
        return event

    events: list[Event] = [
        START,
        *text_block(0, "a"),
        Open(1, BlockKind.REASONING),
        Delta(1, "r"),
        Close(1),
        *Call(2, ToolUse("c", "f", "{}")).events(),
        Finish(),
    ]
    expect = {
        Kind.TEXT: events[1:4],
        Kind.REASONING: events[4:7],
        Kind.CALL: events[7:10],
        Kind.EDGES: [events[0], events[-1]],
    }
    for wants, wanted in expect.items():
        seen.clear()
        assert MapStage(look, wants, None).feed(events) == events
        assert seen == wanted


@every("skip", [True, False])
def test_what_breaks_at_a_call_of_a_whole_answer_breaks_as_in_its_events(skip: bool) -> None:
    def work(event: Event) -> Event:
        assert isinstance(event, Call)
        if event.use.name == "bad":
            raise KeyError("boom")
        return Call(event.block, replace(event.use, name="other"))

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
        assert isinstance(events[-1], Fault)
        with pytest.raises(Defect):
            stage().whole(reply)


async def test_stages_run_in_the_order_of_declaration() -> None:
    def suffix(mark: str) -> object:
        def add(event: Event) -> Event:
            return Delta(event.block, event.text + mark) if isinstance(event, Delta) else event

        return add

    async def shout(batches: Batches) -> Batches:
        async for batch in batches:
            yield [Delta(e.block, e.text.upper()) if isinstance(e, Delta) else e for e in batch]

    reply = Reply.of([START, *text_block(0, "x"), Finish()])
    reply.map(suffix("a"), Kind.TEXT)  # type: ignore[arg-type]
    reply.rewrite(shout)
    reply.map(suffix("b"), Kind.TEXT)  # type: ignore[arg-type]
    reply.map(suffix("c"), Kind.TEXT)  # type: ignore[arg-type]
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
    reply = Reply.of([START, Finish()])

    async def more(batches: Batches) -> Batches:
        async for batch in batches:
            yield batch
        yield [START]

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

    reply = Reply.of([START, *text_block(0, "a"), Finish()])
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
        out = MapStage(break_down, Kind.TEXT, runner(skip=False)).feed([START, *text_block(0, "a"), Finish()])
    assert out[0] == START
    assert isinstance(out[1], Fault)
    assert isinstance(out[1].error, Defect)
    assert "'bad'" in out[1].error.message
    assert "'bad'" in caplog.text
    assert "boom" not in out[1].error.message
    out = MapStage(refuse, Kind.TEXT, runner(skip=True)).feed([START, *text_block(0, "a")])
    assert out == [START, Fault(ClientFault("no"))], "an error of the gateway is the fault itself"


async def test_the_last_event_waits_and_nothing_else_does() -> None:
    order: list[object] = []
    gate = asyncio.Event()

    async def price(last: Event) -> Event:
        order.append("asked")
        await gate.wait()
        assert isinstance(last, Finish)
        return Finish(last.reason, Usage(1, 2))

    reply = Reply.of([START, *text_block(0, "a"), Finish("length")])
    reply.finish(price)
    reply.watch(order.append)
    chain = reply.chain()
    assert chain is not None
    assert chain.feed([START, *text_block(0, "a"), Finish("length")]) == [START, *text_block(0, "a")]
    assert chain.waits
    assert order == [START, *text_block(0, "a")]
    gate.set()
    assert await chain.settle() == [Finish("length", Usage(1, 2))]
    assert not chain.waits
    assert order[-2:] == ["asked", Finish("length", Usage(1, 2))]
    order.clear()
    assert await collect(reply) == [START, *text_block(0, "a"), Finish("length", Usage(1, 2))]


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
    chain = reply.chain()
    assert chain is not None
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

    reply = Reply(StaticSource([START, *text_block(0, "a"), Finish()]), streamed=False)
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

    events: list[Event] = [START, *text_block(0, "a"), Finish()]
    for declare in (lambda reply: reply.finish(settle), lambda reply: reply.watch(watch)):
        reply = Reply.of(events)
        reply.owner = runner(skip=skip)
        declare(reply)
        got = await collect(reply)
        if skip:
            assert got == events
        else:
            assert isinstance(got[-1], Fault)
            assert isinstance(got[-1].error, Defect)


def test_who_only_looks_on_leaves_a_reply_untouched() -> None:
    async def settle(last: Event) -> None:
        pass

    async def fill(last: Event) -> Event:
        return last

    reply = Reply.of([])
    reply.watch(lambda event: None)
    reply.finish(settle, changes=False)
    assert not reply.touched
    changing: list[Callable[[Reply], None]] = [
        lambda reply: reply.map(lambda event: event, Kind.EDGES),
        lambda reply: reply.map(Other()),
        lambda reply: reply.finish(fill),
        lambda reply: reply.rewrite(same),
    ]
    for declare in changing:
        reply = Reply.of([])
        declare(reply)
        assert reply.touched


async def test_who_promises_to_change_nothing_does_not() -> None:
    async def other(last: Event) -> Event:
        return Finish("length")

    reply = Reply.of([START, Finish()])
    reply.finish(other, changes=False)
    assert await collect(reply) == [START, Finish()]
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

    reply = Reply.of([START, *text_block(0, "a"), Finish()])
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

    async def further() -> Following:
        try:
            yield text_block(1, "b")
            raise ClientFault("no") if what == "refuses" else KeyError("boom")
        finally:
            closed.append(True)

    async def go_on(last: Event) -> Event | Following:
        return further() if what != "gives no event" else 7  # type: ignore[return-value]

    reply = Reply(StaticSource([START, *text_block(0, "a"), Finish()]), streamed=streamed)
    reply.owner = runner(skip=skip)
    reply.finish(go_on)
    got = await collect(reply)
    *said, last = got
    assert said == [START, *text_block(0, "a"), *([] if what == "gives no event" else text_block(1, "b"))]
    assert closed == ([] if what == "gives no event" else [True])
    if what == "refuses":
        assert last == Fault(ClientFault("no"))
    elif skip:
        assert last == Finish()
    else:
        assert isinstance(last, Fault)
        assert isinstance(last.error, Defect)


@pytest.mark.parametrize("after", ["nothing", "the first read", "all"])
@pytest.mark.parametrize("gives", [True, False])
@pytest.mark.parametrize("skip", [True, False])
async def test_a_broken_rewriting_ends_the_stream_or_is_skipped(
    skip: bool, gives: bool, after: str, caplog: pytest.LogCaptureFixture
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
            for event in events[:-1]:
                yield [event]
            if after == "all" and gives:
                return
            yield events[-1:]

    events: list[Event] = [START, *text_block(0, "a"), Finish()]
    reply = Reply(Reads([]), streamed=True)
    reply.owner = runner(skip=skip)
    reply.rewrite(breaks)
    with caplog.at_level(logging.ERROR):
        got = await collect(reply)
    assert "'bad'" in caplog.text
    if skip and not (gives and after != "nothing"):
        assert got == events
    else:
        *said, fault = got
        assert said == (
            [] if after == "nothing" or not gives else events[:1] if after == "the first read" else events[:-1]
        )
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, Defect)
        assert "'bad'" in fault.error.message


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


def test_who_only_looks_may_still_end_the_answer() -> None:
    stage = MapStage(refuse, Kind.FINISHED_CALL, runner(skip=False), live=True)
    *passed, fault = stage.feed(live_call(1, "{", "}"))
    assert passed == live_call(1, "{", "}")[:-1]
    assert isinstance(fault, Fault)


def test_what_was_passed_on_is_not_repeated_when_a_stage_is_switched_off() -> None:
    stage = MapStage(break_down, Kind.FINISHED_CALL, runner(skip=True), live=True)
    held = Call(2, ToolUse("d", "g", "{}")).events()
    first = live_call(1, "{", "}")
    assert stage.feed([held[0], *first, *held[1:]]) == [*first[:-1], held[0], first[-1], *held[1:]]
