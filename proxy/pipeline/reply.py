"""An answer that has not been sent yet.

Rules:

1. A `Reply` is a `web.StreamResponse`, so any aiohttp middleware may set headers and cookies on it or replace it.
2. Middlewares declare what shall happen to the events; nothing runs until delivery sends the reply. Stages run in the order
   in which they were declared: innermost middleware first.
3. A reply with no stage keeps its wire bytes: "nobody touched it" is `not reply.stages` (it can pass through). An audit is no stage.
4. Stages run without waiting, so that a stream can be passed on from within the callback that reads it. Only the last event
   may wait (`settle`), and other events may take its place (`resume`); what has to wait earlier (`rewrite`, `collect`) costs that.
5. Whoever takes the events must close the reply; `close` may be called twice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, TypeVar, cast

from aiohttp import web

from ..backends.base import EventSource, WireSource, fold_batches
from ..events import Event, Fault, Finish, Kind, fold, unfold
from ..model import ModelReply
from ..protocols.base import ServerSide
from .stages import Chain, MapFunction, MapStage, Owner, ReplyTest, Sequel, Settle, SettleFunction, Stage, Watch

T = TypeVar("T")
Batches = AsyncIterator[list[Event]]
RewriteFunction = Callable[[Batches], Batches]


class Reply(web.StreamResponse):
    """An unsent answer.

    Made from a backend's open source, or with `Reply.of` from events or a whole reply (a short circuit). `streamed` says
    whether it gives a stream or a whole answer. `wire` is the source again if its bytes may pass unread.
    """

    _send_headers_immediately = False
    """As for aiohttp's own `Response`: the headers leave with what is written first, in one system call."""

    def __init__(self, source: EventSource, *, streamed: bool) -> None:
        super().__init__(status=200)
        self.source = source
        self.wire = source if isinstance(source, WireSource) else None
        self.streamed = streamed
        self.stages: list[Stage | Settle | RewriteFunction] = []
        self.audits: list[Stage | Settle] = []
        self.owner: Owner | None = None
        self.waited_s = 0.0
        self.closed = False
        self._next: Reply | None = None
        self._endings: list[Callable[[], None]] = []

    @property
    def protocol(self) -> ServerSide | None:
        """The form of the bytes in which the answer comes; None: it comes as events."""
        return None if self.wire is None else self.wire.protocol

    def untouched(self, header: str) -> bool:
        """Nobody asked for anything in its head but that header."""
        return (
            self.status == 200
            and self.reason == "OK"
            and len(self.headers) == (header in self.headers)
            and not self._cookies
            and not (self.compression or self.chunked or self.prepared)
            and self.keep_alive is None
        )

    def note_sent(self, request: web.Request) -> None:
        """All of it has been written past this object: for aiohttp it is as if `write_eof` had been called."""
        self._keep_alive = True
        self._eof_sent = True
        self._body_length = request.writer.output_size

    @property
    def text(self) -> Any:
        """There is none yet; `proxy.pipeline.whole.WholeReply` has one."""
        self._missing("text")

    @text.setter
    def text(self, text: str) -> None:
        self._missing("text")

    @property
    def body(self) -> Any:
        """There is none yet; `proxy.pipeline.whole.WholeReply` has one."""
        self._missing("body")

    @body.setter
    def body(self, body: Any) -> None:
        self._missing("body")

    def _missing(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this answer has no `{name}`: it has not come yet. Take its events with `reply.map` or `reply.watch`, what it says"
            " with `on_reply` or `reply.collect`; only a whole answer has a body, in a plain aiohttp middleware"
        )

    @classmethod
    def of(cls, answer: ModelReply | Sequence[Event]) -> Reply:
        """A reply that is already known."""
        return cls(StaticSource(unfold(answer) if isinstance(answer, ModelReply) else list(answer)), streamed=True)

    def map(self, function: MapFunction, wants: Kind, *, live: bool = False) -> None:
        """Let `function` see, change, drop or multiply the events of the kinds in `wants`.

        `live` concerns `Kind.FINISHED_CALL` and calls that are given out while they come (`argument_streaming: incremental`).
        Without it such a call too is held until it is whole, and vanishes if it is cut off. With it, it is passed on as it comes
        and shown when it has ended, cut off (`truncated`) or not: what `function` returns for it is ignored, only a
        `GatewayError` has effect, which ends the answer.
        """
        self.stages.append(MapStage(function, wants, self.owner, live=live))

    def scan(self, stage: Stage) -> None:
        """Declare the scanner that finds calls in the text. A declaration of its own, so that delivery can tell it from a
        mapping and may run it on wire bytes."""
        self.stages.append(stage)

    def watch(self, function: Callable[[Event], None], *, unless: ReplyTest | None = None) -> None:
        """Let `function` see every event, and change none. Neighbouring deltas of a block may be shown as one, and late, but
        before the next other event. `unless` may say of a whole answer that nothing needs to be seen of it."""
        self.stages.append(Watch(function, self.owner, unless))

    def settle(self, function: SettleFunction, *, unless: ReplyTest | None = None) -> None:
        """Let `function` see the last event (`Finish` or `Fault`), wait, and give the event that takes its place. Everything
        before it has been sent by then, the event itself has not. `unless` may say of a whole answer that its last event
        would stay."""
        self.stages.append(Settle(function, self.owner, unless))

    def resume(self, sequel: Sequel) -> None:
        """Let `sequel` hold events back, and go on with others when all have come."""
        self.stages.append(sequel)

    def audit(self, see: Callable[[Event], None], settle: Callable[[Event], Awaitable[None]]) -> None:
        """As `watch` and `settle`, but behind all stages, and `settle` changes nothing either. So an answer that nobody else touches
        keeps its bytes, and is read on the side."""

        async def unchanged(last: Event) -> Event:
            await settle(last)
            return last

        self.audits += (Watch(see, self.owner), Settle(unchanged, self.owner))

    async def audited(self, answer: ModelReply) -> None:
        """Show a whole answer, which goes out in its own bytes, to the audits."""
        chain = Chain(self.audits)
        chain.feed(unfold(answer))
        await chain.settle()

    def at_end(self, function: Callable[[], None]) -> None:
        """Call `function` when the exchange is over, whether all was sent, or nothing."""
        self._endings.append(function)

    def ended(self) -> None:
        """The exchange is over: call what `at_end` was given."""
        while self._endings:
            self._endings.pop()()

    def rewrite(self, function: RewriteFunction) -> None:
        """Let an asynchronous generator work on the batches of events: for what has to wait."""
        self.stages.append(function)

    def collect(self, function: Callable[[ModelReply], Awaitable[ModelReply]]) -> None:
        """Let `function` see and change the whole answer. Holds a stream back until it is complete."""

        async def whole(batches: Batches) -> Batches:
            events = [event async for batch in batches for event in batch]
            if events and isinstance(events[-1], Fault):
                yield events
                return
            yield unfold(await function(fold(events)))

        self.stages.append(whole)

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The answer after all stages, one list of events per read of the backend. Ends with `Finish` or `Fault`.

        Whoever may leave before the end must close it; then every stage is closed, outermost first, before this returns.
        """
        batches: Batches = self._source_batches()
        made = [batches]
        sync: list[Stage | Settle] = []
        for stage in (*self.stages, *self.audits):
            if callable(stage):
                if sync:
                    batches = _through(Chain(sync), batches)
                    made.append(batches)
                    sync = []
                batches = stage(batches)
                made.append(batches)
            else:
                sync.append(stage)
        if sync:
            batches = _through(Chain(sync), batches)
            made.append(batches)
        try:
            async for batch in batches:
                yield batch
                if batch and isinstance(batch[-1], Finish | Fault):
                    return
        finally:
            for stage_batches in reversed(made):
                if isinstance(stage_batches, AsyncGenerator):
                    await stage_batches.aclose()

    async def whole(self) -> ModelReply:
        """The whole answer after all stages. Raises the `GatewayError` with which it broke off."""
        chain = None if self.streamed else self.chain()
        if chain is None:
            async with aclosing(self.events()) as batches:
                return await fold_batches(batches)
        reply = await self._source_reply()
        first = chain.first_concerned(reply)
        if first == len(chain.stages):
            return reply
        events = chain.feed(unfold(reply), first)
        if chain.waits and not (events and isinstance(events[-1], Finish | Fault)):  # a stage may end it early
            events += await chain.settle()
            while chain.continues:
                async with aclosing(chain.rest()) as rest:
                    events += [event async for batch in rest for event in batch]
                events += await chain.settle()
        return fold(events)

    def chain(self) -> Chain | None:
        """The stages, if none of them waits before the last event."""
        if any(callable(stage) for stage in self.stages):
            return None
        return Chain(cast("list[Stage | Settle]", [*self.stages, *self.audits]))

    async def wire_body(self) -> bytes:
        """The wire bytes of a whole answer; only if there is a `wire`."""
        assert self.wire is not None
        before = time.monotonic()
        try:
            return await self.wire.body()
        finally:
            self.waited_s += time.monotonic() - before

    async def _source_batches(self) -> Batches:
        if self.streamed:
            async for batch in self._timed(self.source.batches()):
                yield batch
        else:
            yield unfold(await self._source_reply())

    async def _source_reply(self) -> ModelReply:
        before = time.monotonic()
        reply = await self.source.reply()
        self.waited_s += time.monotonic() - before
        return reply

    async def _timed(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same items; the time until each comes is booked as waiting for the backend."""
        while True:
            before = time.monotonic()
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            finally:
                self.waited_s += time.monotonic() - before
            yield item

    def goes_on(self, later: Reply) -> None:
        """What this answer says next comes from `later`, so closing this one closes that one."""
        self._next = later

    async def close(self) -> None:
        """Give up what is still open at the backend. `closed` tells whoever works on the answer that nobody wants it."""
        self.closed = True
        if self._next is not None:
            await self._next.close()
        await self.source.close()


async def _through(chain: Chain, batches: Batches) -> Batches:
    async for batch in batches:
        if batch := chain.feed(batch):
            yield batch
        while chain.waits:
            if batch := await chain.settle():
                yield batch
            if chain.continues:
                async with aclosing(chain.rest()) as rest:
                    async for batch in rest:
                        yield batch


class StaticSource(EventSource):
    """A source whose events are known."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events

    async def batches(self) -> Batches:
        yield self._events

    async def close(self) -> None:
        pass
