"""An answer that has not been sent yet.

Rules:

1. A `Reply` is a `web.StreamResponse`, so any aiohttp middleware may set headers and cookies on it or replace it.
2. Middlewares declare what shall happen to the events; nothing runs until delivery sends the reply. Stages run in the order
   in which they were declared: innermost middleware first.
3. A reply with no stage keeps its wire bytes: "nobody touched it" is `not reply.stages` (lane raw). An audit is no stage.
4. Stages run without waiting, so that a stream can be passed on from within the callback that reads it. Only the last event
   may wait (`settle`); what has to wait earlier (`rewrite`, `collect`) costs that.
5. Whoever takes the events must close the reply; `close` may be called twice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol, TypeVar, cast

from aiohttp import web

from .backends.base import Source
from .errors import BackendFault, Defect, GatewayError
from .events import (
    BlockKind,
    Call,
    Close,
    Delta,
    Event,
    Fault,
    Finish,
    Kind,
    Opaque,
    Open,
    Start,
    fold,
    is_live,
    unfold,
)
from .model import ModelReply, Reasoning, Refusal, Text, ToolUse
from .model import Opaque as OpaquePart
from .protocols.base import WireProtocol

T = TypeVar("T")
HELD_CHARS: Final = 16 * 1024 * 1024
"""Arguments of calls that are held until they are whole; more ends the answer."""

Batches = AsyncIterator[list[Event]]
MapFunction = Callable[[Event], Event | Iterable[Event] | None]
RewriteFunction = Callable[[Batches], Batches]
SettleFunction = Callable[[Event], Awaitable[Event]]
ReplyTest = Callable[[ModelReply], bool]

_KIND_OF_BLOCK = {
    BlockKind.TEXT: Kind.TEXT,
    BlockKind.REFUSAL: Kind.TEXT,
    BlockKind.REASONING: Kind.REASONING,
    BlockKind.TOOL_CALL: Kind.CALL,
}
_KINDS_OF_PART: Mapping[type, Kind] = {
    Text: Kind.TEXT,
    Refusal: Kind.TEXT,
    Reasoning: Kind.REASONING,
    ToolUse: Kind.CALL | Kind.FINISHED_CALL,
    OpaquePart: Kind.OPAQUE,
}


class Owner(Protocol):
    """Who answers for a stage: `proxy.middleware.Guard`."""

    skip: bool
    """Go on without the stage when it breaks."""

    def report(self, error: Exception) -> None:
        """Log and count that it broke."""

    def defect(self) -> Defect:
        """What the client gets to see of it."""


class Stage(Protocol):
    """A step that works on events without waiting."""

    def feed(self, events: list[Event]) -> list[Event]:
        """What becomes of these events. Sees every event of the stream once, in order."""

    def leaves(self, reply: ModelReply) -> bool:
        """Whether the events of this whole answer would come out of `feed` as they are, and nobody would miss it if they never
        went in. False says nothing."""


class Reply(web.StreamResponse):
    """An unsent answer.

    Made from a backend's open `Source`, or with `Reply.of` from events or a whole reply (a short circuit). `streamed` says
    which half of the source's interface is to be used.
    """

    _send_headers_immediately = False
    """As for aiohttp's own `Response`: the headers leave with what is written first, in one system call."""

    def __init__(self, source: Source, *, streamed: bool) -> None:
        super().__init__(status=200)
        self.source = source
        self.streamed = streamed
        self.stages: list[Stage | Settle | RewriteFunction] = []
        self.audits: list[Stage | Settle] = []
        self.owner: Owner | None = None
        self.waited_s = 0.0
        self.closed = False
        self._next: Reply | None = None
        self._endings: list[Callable[[], None]] = []

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

    @classmethod
    def of(cls, answer: ModelReply | Sequence[Event]) -> Reply:
        """A reply that is already known."""
        return cls(Given(unfold(answer) if isinstance(answer, ModelReply) else list(answer)), streamed=True)

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
                return fold([event async for batch in batches for event in batch])
        reply = await self._source_reply()
        first = chain.first_concerned(reply)
        if first == len(chain.stages) and not any(choice.extra for choice in reply.choices):  # events do not carry it
            return reply
        events = chain.feed(unfold(reply), first)
        if chain.waits and not (events and isinstance(events[-1], Finish | Fault)):  # a stage may end it early
            events += await chain.settle()
        return fold(events)

    def chain(self) -> Chain | None:
        """The stages, if none of them waits before the last event."""
        if any(callable(stage) for stage in self.stages):
            return None
        return Chain(cast("list[Stage | Settle]", [*self.stages, *self.audits]))

    async def body(self) -> bytes:
        """The wire bytes of a whole answer."""
        before = time.monotonic()
        try:
            return await self.source.body()
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


class Chain:
    """Stages that run one after the other without waiting, up to the first `Settle` that the last event comes to."""

    def __init__(self, stages: Sequence[Stage | Settle]) -> None:
        self.stages = stages
        self._parked: Event | None = None
        self._at = 0

    @property
    def waits(self) -> bool:
        """The last event waits for `settle`. Nothing is to be fed any more."""
        return self._parked is not None

    def feed(self, events: list[Event], at: int = 0) -> list[Event]:
        """What becomes of these events, from the stage number `at` on."""
        return self._run(events, at)

    def first_concerned(self, reply: ModelReply) -> int:
        """The number of the first stage that would not leave a whole answer as it is; how many there are if none would not."""
        for number, stage in enumerate(self.stages):
            if not stage.leaves(reply):
                return number
        return len(self.stages)

    async def settle(self) -> list[Event]:
        """What becomes of the event that waits."""
        events: list[Event] = []
        while self._parked is not None:
            stage = self.stages[self._at]
            assert isinstance(stage, Settle)
            event, self._parked = await stage.wait(self._parked), None
            events += self._run([event], self._at + 1)
        return events

    def _run(self, events: list[Event], at: int) -> list[Event]:
        for index in range(at, len(self.stages)):
            if not events:
                break
            stage = self.stages[index]
            if not isinstance(stage, Settle):
                events = stage.feed(events)
            elif isinstance(events[-1], Finish | Fault):
                self._parked, self._at = events[-1], index
                events = events[:-1]
        return events


async def _through(chain: Chain, batches: Batches) -> Batches:
    async for batch in batches:
        if batch := chain.feed(batch):
            yield batch
        if chain.waits:
            yield await chain.settle()


class Given:
    """A source whose events are known."""

    protocol: WireProtocol | None = None
    private: tuple[str, ...] = ()
    queued_s = 0.0
    began = False

    def __init__(self, events: list[Event]) -> None:
        self._events = events

    def chunks(self) -> AsyncIterator[bytes]:
        raise TypeError("this source has no wire bytes")

    async def batches(self) -> Batches:
        yield self._events

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        raise TypeError("this source has no wire bytes")

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def body(self) -> bytes:
        raise TypeError("this source has no wire bytes")

    async def reply(self) -> ModelReply:
        return fold(self._events)

    async def close(self) -> None:
        pass


class Watch:
    """Shows every event to one function. An exception in it ends the stream with a `Fault`, or the watching (`on_failure:
    skip`)."""

    def __init__(self, function: Callable[[Event], None], owner: Owner | None, unless: ReplyTest | None = None) -> None:
        self._function = function
        self._owner = owner
        self.leaves: ReplyTest = unless or _never
        self._on = True

    def feed(self, events: list[Event]) -> list[Event]:
        """The same events."""
        if self._on:
            for index, event in enumerate(events):
                try:
                    self._function(event)
                except Exception as error:
                    self._on = False
                    fault = broken(self._owner, error)
                    return events if fault is None else [*events[:index], fault]
        return events


class Settle:
    """Lets one function work on the last event. An exception in it becomes the last event, a `Fault`, or is only reported
    (`on_failure: skip`)."""

    def __init__(self, function: SettleFunction, owner: Owner | None, unless: ReplyTest | None = None) -> None:
        self._function = function
        self._owner = owner
        self.leaves: ReplyTest = unless or _never

    async def wait(self, event: Event) -> Event:
        """The event that takes the place of `event`."""
        try:
            return await self._function(event)
        except Exception as error:
            return broken(self._owner, error) or event


def _never(reply: ModelReply) -> bool:
    """A `ReplyTest` that says nothing."""
    return False


def broken(owner: Owner | None, error: Exception) -> Fault | None:
    """What becomes of a stream in which a stage of `owner` raised: a `Fault`, or None if it goes on without the stage.
    Raises `error` if nobody answers for the stage."""
    if owner is None:
        raise error
    if isinstance(error, GatewayError):
        return Fault(error)
    owner.report(error)
    return None if owner.skip else Fault(owner.defect())


class MapStage:
    """Runs one `on_event` over a stream, only for the kinds it wants.

    With `Kind.FINISHED_CALL` the events of a call are held until the call is whole and shown as one `Call`; if that very
    object comes back the held events go on unchanged. For `live` see `Reply.map`. An unexpected exception in the function is reported under the name of
    the middleware and ends the stream with a `Fault`, or switches the stage off (`on_failure: skip`).
    """

    def __init__(self, function: MapFunction, wants: Kind, owner: Owner | None, *, live: bool = False) -> None:
        self.wants = wants
        self._function = function
        self._owner = owner
        self._kinds: dict[int, Kind] = {}
        self._held: dict[int, list[Event]] = {}
        self._held_chars = 0
        self._passes = live
        self._passed: set[int] = set()  # of those in `_held`, what went on already
        self._on = True

    def leaves(self, reply: ModelReply) -> bool:
        """See `Stage`."""
        if Kind.EDGES in self.wants:
            return False
        return not any(self.wants & _KINDS_OF_PART[type(part)] for choice in reply.choices for part in choice.parts)

    def feed(self, events: list[Event]) -> list[Event]:
        """See `Stage`."""
        if not self._on:
            return events
        out: list[Event] = []
        for index, event in enumerate(events):
            try:
                self._one(event, out)
            except Exception as error:
                fault = broken(self._owner, error)
                if fault is not None:
                    out.append(fault)
                    return out
                self._on = False
                for block, held in self._held.items():
                    if block not in self._passed:
                        out += held
                self._held.clear()
                if not (out and out[-1] is event):
                    out.append(event)
                return out + events[index + 1 :]
        return out

    def _one(self, event: Event, out: list[Event]) -> None:
        kind = self._kind(event)
        if kind is Kind.CALL and Kind.FINISHED_CALL in self.wants:
            self._call(event, out)
        elif kind in self.wants:
            self._give(self._function(event), out)
        else:
            out.append(event)

    def _kind(self, event: Event) -> Kind:
        match event:
            case Delta():
                return self._kinds[event.block]
            case Open():
                kind = self._kinds[event.block] = _KIND_OF_BLOCK[event.kind]
                return kind
            case Close():
                return self._kinds[event.block]
            case Start() | Finish() | Fault():
                return Kind.EDGES
            case Opaque():
                return Kind.OPAQUE
            case _:
                raise TypeError(f"{type(event).__name__} has no place in a stream")

    def _call(self, event: Event, out: list[Event]) -> None:
        match event:
            case Open():
                self._held[event.block] = [event]
                if self._passes and is_live(event):
                    self._passed.add(event.block)
                    out.append(event)
            case Delta():
                self._held[event.block].append(event)
                self._held_chars += len(event.text)
                if self._held_chars > HELD_CHARS:
                    raise BackendFault(
                        f"The calls that the model server makes at once have more than {HELD_CHARS} characters.",
                        code="upstream_invalid_response",
                    )
                if event.block in self._passed:
                    out.append(event)
            case Close():
                held = self._held[event.block]
                call = _finished(held, event)
                self._held_chars -= len(call.use.arguments)
                if call.source == "" and call.status == "truncated" and event.block not in self._passed:
                    del self._held[event.block]  # a call that was cut off, and nobody has seen anything of it (C18)
                    return
                result = self._function(call)
                del self._held[event.block]
                if event.block in self._passed:
                    self._passed.remove(event.block)
                    out.append(event)
                elif result is call:
                    out += held
                    out.append(event)
                else:
                    self._give(result, out)

    def _give(self, result: Event | Iterable[Event] | None, out: list[Event]) -> None:
        if result is None:
            return
        if isinstance(result, Call):
            out += result.events()
        elif isinstance(result, Event):
            out.append(result)
        else:
            for event in result:
                self._give(event, out)


def _finished(held: list[Event], closed: Close) -> Call:
    """The call that these events and its `Close` amount to."""
    opened = held[0]
    assert isinstance(opened, Open)
    arguments = "".join(delta.text for delta in held if isinstance(delta, Delta))
    use = ToolUse(opened.call_id or "", opened.name or "", arguments, opened.call_kind, opened.namespace)
    source = "" if is_live(opened) else opened.extra.get("source")
    return Call(closed.block, use, choice=opened.choice, status=closed.status, source=source)
