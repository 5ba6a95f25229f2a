"""Running the stages of an answer.

Rules:

1. Stages run in the order of the list, innermost middleware first.
2. Neighbouring stages that do not wait form a `StageChain`. It is fed from within the read callback. Only the last
   event may wait in it.
3. A `RewriteStage` separates two chains. Then all parts run as generators over batches of events (`run`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from ...events import Event, Fault, Finish
from ...folding import finished, fold, unfold
from ...model import ModelReply
from .stages import AnyStage, Batches, FinishStage, Following, RewriteStage, Stage


class StageChain:
    """Stages that run one after the other without waiting, up to the first `FinishStage` that the last event
    reaches."""

    def __init__(self, stages: Sequence[Stage | FinishStage]) -> None:
        self.stages = stages
        self.waits = False
        """True while the last event waits for `settle`, or other events in its place for `rest`. Nothing more may be
        fed."""
        self.works = False
        """True while a stage has deferred events for `work_off`. Events that are fed meanwhile are queued behind
        them."""
        self._worker = 0  # the number of the stage with deferred events
        self._parked: Event | None = None
        self._following: Following | None = None
        self._at = 0  # the stage at which the last event waits
        self._behind = 0  # the stage after the one that replaced the last event

    @property
    def continues(self) -> bool:
        """True if other events replace the last one. They may take as long as a whole answer."""
        return self._following is not None

    def feed(self, events: list[Event], at: int = 0) -> list[Event]:
        """Runs events through the stages from number `at` on. Returns the resulting events."""
        for index in range(at, len(self.stages)):
            if not events:
                break
            stage = self.stages[index]
            if not isinstance(stage, FinishStage):
                events = stage.feed(events)
                if stage.later:
                    self._worker, self.works = index, True
            elif isinstance(events[-1], Finish | Fault):
                self._parked, self._at, self.waits = events[-1], index, True
                events = events[:-1]
        return events

    async def work_off(self) -> list[Event]:
        """Runs the deferred work. Returns the resulting events. The other stages run in the event loop."""
        events: list[Event] = []
        while self.works:
            stage = self.stages[self._worker]
            assert isinstance(stage, Stage)
            done = await stage.work()
            self.works = bool(stage.later)
            events += self.feed(done, self._worker + 1)
        return events

    async def settle(self) -> list[Event]:
        """Runs the stages that wait at the last event, if there are any. Returns the resulting events. Other events may
        follow (`continues`)."""
        events = await self.work_off() if self.works else []
        while self._parked is not None:
            stage = self.stages[self._at]
            assert isinstance(stage, FinishStage)
            given, self._parked = await stage.finish(self._parked), None
            self.waits = False
            if isinstance(given, Event):
                events += self.feed([given], self._at + 1)
                if self.works:
                    events += await self.work_off()
            else:
                self._following, self.waits = given, True
        return events

    async def rest(self) -> AsyncGenerator[list[Event], None]:
        """Yields the events that replace the last one. If these end with a last event that has to wait as well,
        `settle` must be called again."""
        assert self._following is not None
        following, self._following, self.waits = self._following, None, False
        self._behind = self._at + 1
        async with aclosing(following) as batches:
            async for batch in batches:
                out = self.feed(batch, self._behind)
                if self.works:
                    out += await self.work_off()
                if out:
                    yield out
                if self.waits or (out and isinstance(out[-1], Finish | Fault)):
                    return

    def give_up(self, fault: Fault) -> list[Event]:
        """Ends the answer with `fault`, because `rest` failed. Returns the resulting events."""
        if self._following is not None:  # `rest` was not started
            self._behind, self._following, self.waits = self._at + 1, None, False
        return self.feed([fault], self._behind)

    async def through(self, batches: Batches) -> Batches:
        """Runs a stream of events through the stages and yields the results."""
        async for batch in batches:
            if batch := self.feed(batch):
                yield batch
            if self.works and (batch := await self.work_off()):
                yield batch
            while self.waits:
                if batch := await self.settle():
                    yield batch
                if self.continues:
                    async with aclosing(self.rest()) as rest:
                        async for batch in rest:
                            yield batch

    async def whole(self, reply: ModelReply) -> ModelReply:
        """Runs a whole answer through the stages. Raises the `GatewayError` with which a stage ends it."""
        reply, number = await self._without_events(reply)
        return finished(reply) if number is None else fold(await self._events_of(reply, number))

    async def show(self, reply: ModelReply) -> None:
        """Shows a whole answer to stages that change nothing. Raises the `GatewayError` with which a stage ends it."""
        reply, number = await self._without_events(reply)
        if number is not None:
            events = await self._events_of(reply, number)
            if events and isinstance(events[-1], Fault):
                raise events[-1].error

    async def _without_events(self, reply: ModelReply) -> tuple[ModelReply, int | None]:
        """Runs a whole answer through the stages up to the first one that has to see its events. Returns the answer and
        the number of that stage; None if there is none."""
        for number, stage in enumerate(self.stages):
            made = await stage.whole(reply) if isinstance(stage, FinishStage) else stage.whole(reply)
            if made is None:
                return reply, number
            reply = made
        return reply, None

    async def _events_of(self, reply: ModelReply, first: int) -> list[Event]:
        """Returns the events of a whole answer after the stages from number `first` on."""
        events = self.feed(unfold(reply), first)
        if self.works:
            events += await self.work_off()
        if self.waits and not (events and isinstance(events[-1], Finish | Fault)):  # a stage may end it early
            events += await self.settle()
            while self.continues:
                async with aclosing(self.rest()) as rest:
                    events += [event async for batch in rest for event in batch]
                events += await self.settle()
        return events


async def run(stages: Sequence[AnyStage], batches: Batches) -> AsyncGenerator[list[Event], None]:
    """Runs a stream through all stages, up to its `Finish` or `Fault`.

    A caller that may stop early must close the generator. Then every stage is closed, outermost first.
    """
    made = [batches]
    for part in _parts(stages):
        batches = part.rewritten(batches) if isinstance(part, RewriteStage) else part.through(batches)
        made.append(batches)
    try:
        async for batch in batches:
            yield batch
            if batch and isinstance(batch[-1], Finish | Fault):
                return
    finally:
        for batches in reversed(made):
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()


def _parts(stages: Sequence[AnyStage]) -> Iterator[StageChain | RewriteStage]:
    together: list[Stage | FinishStage] = []
    for stage in stages:
        if not isinstance(stage, RewriteStage):
            together.append(stage)
            continue
        if together:
            yield StageChain(together)
            together = []
        yield stage
    if together:
        yield StageChain(together)
