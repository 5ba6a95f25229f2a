"""An answer that has not been sent yet.

Rules:

1. A `Reply` is a `web.StreamResponse`, so any aiohttp middleware may set headers and cookies on it, or replace it.
2. Middlewares declare changes of the events with four verbs. Nothing runs before delivery sends the reply. `stages` has
   the order of declaration: innermost middleware first.
3. A reply that no stage changes (`touched`) keeps its wire bytes. Stages that only watch are fed a copy.
4. Stages run without waiting, so that a stream can be forwarded from within the read callback. Only the last event may
   wait (`finish`), and another answer may replace it. Waiting earlier (`rewrite`) costs a task switch per read.
5. The consumer of the events must close the reply. `close` may be called twice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NoReturn, TypeVar, cast, overload

from aiohttp import web

from ...errors import GatewayError
from ...events import Event, Kind
from ...folding import unfold
from ...model import ModelReply
from ...protocols.base import ServerSide
from ...upstream.servers.base import EventSource, WireSource, fold_batches
from .mapping import MapFunction, MapStage
from .renaming import Renaming
from .stage_chain import StageChain, run
from .stages import (
    AnyStage,
    Batches,
    FinishFunction,
    FinishStage,
    ReplyTest,
    RewriteFunction,
    RewriteStage,
    Stage,
    StageOwner,
    Watcher,
    WatchStage,
)

T = TypeVar("T")

Counting = tuple[FinishFunction, Watcher | None]
"""The function that adds token counts to the last event, and the stage that watches the model's output for it, if
any."""


class Reply(web.StreamResponse):
    """An unsent answer, from an open source of a backend, or from events or a whole reply (`Reply.of`). `streamed`: it
    is a stream. `wire` is the source if its bytes may be sent unchanged."""

    _send_headers_immediately = False
    """Headers are sent with the first bytes of the body in one system call, as in aiohttp's own `Response`."""

    # Initial values on the class, so that they cost an answer nothing.
    owner: StageOwner | None = None
    renaming: Renaming | None = None
    """Replaces the model's name in bytes that are sent unchanged, if the route renames the model."""
    waited_s = 0.0
    closed = False
    sealed = False
    """True once the stages of `toolwire.pipeline.transforms.sealing` that the answer needs are declared."""
    _counting: tuple[Callable[[], Counting], StageOwner | None] | None = None
    _keeps_bytes = False
    _fills = False
    _always = False
    _rewritten = False
    _next: Reply | None = None
    _stop: Callable[[GatewayError], None] | None = None
    _stopped_by: GatewayError | None = None

    def __init__(self, source: EventSource, *, streamed: bool) -> None:
        super().__init__(status=200)
        self.source = source
        self.wire = source if isinstance(source, WireSource) else None
        self.streamed = streamed
        self.stages: list[AnyStage] = []

    @property
    def protocol(self) -> ServerSide | None:
        """The protocol of the answer's bytes; None if it comes as events."""
        return None if self.wire is None else self.wire.protocol

    @property
    def touched(self) -> bool:
        """True if a stage changes the answer, or its server sent it in the other form, so that its bytes have to be
        written from events."""
        if self._fills or (self.wire is not None and self.wire.converts):
            return True
        for stage in self.stages:  # noqa: SIM110  # runs for each answer, and a generator costs more
            if stage.changes:
                return True
        return False

    def unchanged_source(self, protocol: str) -> WireSource | None:
        """Returns the source whose bytes are the answer to a client of this protocol, if no stage changes it; else
        None. Removes the stages that concern only rewritten answers."""
        wire = self.wire
        if wire is None or wire.protocol.name != protocol or self._fills or wire.converts:
            return None
        if self.stages:
            if self.touched:
                return None
            self.stages = [stage for stage in self.stages if not (isinstance(stage, Stage) and stage.only_rewritten)]
        return wire

    def plain_head(self, headers: int) -> bool:
        """Returns True if the head is that of a plain 200 with exactly this number of headers: no cookies, no
        compression, no other setting."""
        return (
            self.status == 200
            and self.reason == "OK"
            and len(self.headers) == headers
            and not self._cookies
            and not (self.compression or self.chunked or self.prepared)
            and self.keep_alive is None
        )

    def note_sent(self, request: web.Request) -> None:
        """Marks the response as sent after its bytes were written directly, as if `write_eof` had been called."""
        self._keep_alive = True
        self._eof_sent = True
        self._body_length = request.writer.output_size

    @property
    def text(self) -> Any:
        """Raises `AttributeError`: the answer has not come yet. `toolwire.pipeline.paths.whole.WholeReply` has it."""
        self._missing("text")

    @text.setter
    def text(self, text: str) -> None:
        self._missing("text")

    @property
    def body(self) -> Any:
        """Raises `AttributeError`: the answer has not come yet. `toolwire.pipeline.paths.whole.WholeReply` has it."""
        self._missing("body")

    @body.setter
    def body(self, body: Any) -> None:
        self._missing("body")

    def _missing(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this answer has no `{name}` yet. Read its events with `reply.map` or `reply.watch`, or the whole answer with"
            " `on_reply`. Only a whole answer has a body, in a plain aiohttp middleware"
        )

    @classmethod
    def of(cls, answer: ModelReply | Sequence[Event]) -> Reply:
        """Makes a reply from an answer that is already known: a whole reply or its events."""
        return cls(StaticSource(unfold(answer) if isinstance(answer, ModelReply) else list(answer)), streamed=True)

    # --- the four verbs
    # -------------------------------------------------------------------------------------------------

    @overload
    def map(self, function: MapFunction, wants: Kind, *, live: bool = False) -> None: ...

    @overload
    def map(self, function: Stage) -> None: ...

    def map(self, function: MapFunction | Stage, wants: Kind = Kind.NONE, *, live: bool = False) -> None:
        """Lets `function` change, drop or multiply the events of the kinds in `wants`. A `Stage` in place of the
        function gets all events of a read.

        `live` concerns `Kind.FINISHED_CALL`. Without it, no call is streamed before it is complete
        (`calls.argument_streaming`). With it, the events of such a call are forwarded as they come, and `function` sees
        it after it has ended, complete or `truncated`. The result of `function` is ignored then; a `GatewayError` ends
        the answer. Raises `TypeError` for a function that wants nothing.
        """
        if isinstance(function, Stage):
            self.stages.append(function)
            return
        if wants is Kind.NONE:
            raise TypeError("`map` needs the kinds of events that the function handles: set `wants`, e.g. Kind.TEXT")
        self.stages.append(MapStage(function, wants, self.owner, live=live))

    def watch(self, function: Callable[[Event], None], *, unless: ReplyTest | None = None) -> None:
        """Lets `function` see every event without changing any: an otherwise unchanged answer keeps its bytes.
        Neighbouring deltas of a block may be shown merged and late, but before the next other event. `unless` returns
        True for a whole answer that need not be shown."""
        self.stages.append(WatchStage(function, self.owner, unless))

    @overload
    def finish(self, function: FinishFunction, *, unless: ReplyTest | None = None) -> None: ...

    @overload
    def finish(
        self,
        function: Callable[[Event], Awaitable[object]],
        *,
        changes: Literal[False],
        unless: ReplyTest | None = None,
    ) -> None: ...

    def finish(
        self,
        function: Callable[[Event], Awaitable[object]],
        *,
        changes: bool = True,
        unless: ReplyTest | None = None,
    ) -> None:
        """Lets `function` process the last event (`Finish` or `Fault`). It may wait, and returns the event that
        replaces it, or an asynchronous generator of batches of events up to another last one. Everything before the
        last event has been sent by then. With `changes=False` the result is ignored, and an otherwise unchanged answer
        keeps its bytes. `unless` returns True for a whole answer whose last event needs no processing."""
        self.stages.append(FinishStage(function, self.owner, changes=changes, unless=unless))

    def count(
        self,
        counting: Callable[[], Counting],
        *,
        keeps_bytes: bool,
        changes: bool = False,
        always: bool = False,
    ) -> None:
        """Declares token counting, before all other stages. It does not make the gateway rewrite an answer, unless it
        `changes` the answer. `keeps_bytes`: an answer that is sent unchanged keeps the counts of its server, and
        `counting` is not called. It is not called for a whole answer with counts either, unless `always` is set."""
        self._counting = counting, self.owner
        self._keeps_bytes = keeps_bytes
        self._fills, self._always = changes, always

    @property
    def holds_calls(self) -> bool:
        """True if one of the stages holds calls until they are complete, so that streaming them early is no use."""
        return any(stage.holds_calls for stage in self.stages)

    def rewrite(self, function: RewriteFunction, *, first: bool = False, holds: bool = False) -> None:
        """Lets an asynchronous generator process the batches of events, for functions that have to wait. `first`:
        before all stages that change something, but after those that watch or process the last event. `holds`: it
        yields nothing before the answer is complete."""
        at = len(self.stages)
        if first:
            early = (Watcher, FinishStage)
            at = next((number for number, stage in enumerate(self.stages) if not isinstance(stage, early)), at)
        self.stages.insert(at, RewriteStage(function, self.owner, holds=holds))
        self._rewritten = True

    # --- running the stages
    # ---------------------------------------------------------------------------------------------

    def events(self) -> AsyncGenerator[list[Event], None]:
        """Runs all stages. Yields one list of events per read of the backend, up to `Finish` or `Fault`.

        A caller that may stop early must close the generator. Then every stage is closed, outermost first.
        """
        return run(self._running(), self._source_batches())

    async def whole(self) -> ModelReply:
        """Returns the whole answer after all stages. Raises the `GatewayError` with which it broke off."""
        if self.streamed or self._rewritten:
            async with aclosing(self.events()) as batches:
                return await fold_batches(batches)
        answer = await self._source_reply()
        return await StageChain(cast("list[Stage | FinishStage]", self._running(answer))).whole(answer)

    def chain(self) -> StageChain | None:
        """Returns the stages as a chain, or None if one waits before the last event."""
        stages = self._running()
        return None if self._rewritten else StageChain(cast("list[Stage | FinishStage]", stages))

    def clear_stages(self) -> None:
        """Clears the declared stages, which must not run again."""
        self.stages.clear()
        self._rewritten = self._fills = False
        self._counting = None

    def _running(self, answer: ModelReply | None = None) -> list[AnyStage]:
        """Returns the stages in their order, with token counting first if it is needed. `answer` is the whole answer,
        if it has come."""
        if self._counting is None or (self._keeps_bytes and not self.touched):
            return self.stages[:]
        usage = None if answer is None or self._always else answer.usage
        if usage is not None and usage.missing is None:
            return self.stages[:]
        counting, owner = self._counting
        fill, watcher = counting()
        stages = [FinishStage(fill, owner), *self.stages]
        return stages if watcher is None else [watcher, *stages]

    async def wire_body(self) -> bytes:
        """Returns the wire bytes of a whole answer. Needs `wire`."""
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
        """Yields the same items and counts the time until each as waiting for the backend."""
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
        """Notes that the answer continues with `later`, so that closing this reply closes `later`."""
        self._next = later

    def stop(self, reason: GatewayError) -> None:
        """Ends the stream with this error, now or as soon as it is sent."""
        self._stopped_by = reason
        if self._stop is not None:
            self._stop(reason)

    def on_stop(self, stop: Callable[[GatewayError], None]) -> None:
        """Registers the sender's function that ends the stream."""
        self._stop = stop
        if self._stopped_by is not None:
            stop(self._stopped_by)

    async def close(self) -> None:
        """Cancels the request to the backend if it is still open. `closed` tells stages that nobody wants the answer
        any more. Drops references to stages and sender, because only the garbage collector could free the cycle."""
        self.closed = True
        self._stop = None
        self.clear_stages()
        if self._next is not None:
            await self._next.close()
        await self.source.close()


class StaticSource(EventSource):
    """A source of events that are already known."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events

    async def batches(self) -> Batches:
        yield self._events

    async def close(self) -> None:
        pass
