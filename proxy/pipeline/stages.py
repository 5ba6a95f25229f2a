"""The steps through which the events of an answer go on their way out.

Rules:

1. A stage sees every event of a stream once, in order, and works without waiting; only for the last event a `Settle` may wait, and only
   when all events have come a `Sequel` may give others.
2. An exception in what a middleware declared ends the stream with a `Fault` under the middleware's name, or switches the stage off
   (`on_failure: skip`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from ..errors import BackendFault, Defect, GatewayError
from ..events import BlockKind, Call, Close, Delta, Event, Fault, Finish, Kind, Opaque, Open, Start, extra_of, is_live
from ..model import ModelReply, Reasoning, Refusal, Text, ToolUse
from ..model import Opaque as OpaquePart

MERGED: Final = 256
"""So many neighbouring fragments of a held call are kept as one. A call has some dozens; of one in a hundred thousand fragments, which
all go on at once in the end, others must not have to wait for each."""

HELD_CHARS: Final = 16 * 1024 * 1024
"""Arguments of calls that are held until they are whole; more ends the answer."""

MapFunction = Callable[[Event], Event | Iterable[Event] | None]
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
    """Who answers for a stage: `proxy.pipeline.middleware.MiddlewareRunner`."""

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


class Sequel(ABC):
    """A stage that may go on when all events have come: with what it held back, or with another answer.

    `continues`: it has taken the last event, gave nothing out for that, and goes on with `rest`. Nothing is to be fed any more.
    """

    continues = False

    @abstractmethod
    def feed(self, events: list[Event]) -> list[Event]:
        """See `Stage`. Text that follows what it let pass may go by it."""

    @abstractmethod
    def leaves(self, reply: ModelReply) -> bool:
        """See `Stage`."""

    @abstractmethod
    def rest(self) -> AsyncGenerator[list[Event], None]:
        """What is still to come, up to the last event. It may take as long as an answer does."""


class Chain:
    """Stages that run one after the other without waiting, up to the first `Settle` that the last event comes to, or a `Sequel` that
    goes on."""

    def __init__(self, stages: Sequence[Stage | Settle]) -> None:
        self.stages = stages
        self._parked: Event | None = None
        self._sequel: Sequel | None = None
        self._at = 0
        self._behind = 0  # the stage behind the sequel that went on

    @property
    def waits(self) -> bool:
        """What is still to come waits for `settle` or `rest`. Nothing is to be fed any more."""
        return self._parked is not None or self._sequel is not None

    @property
    def continues(self) -> bool:
        """What is still to come may take as long as an answer does."""
        return self._sequel is not None

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
        """What becomes of the last event, if that waits. Afterwards a `Sequel` may go on (`continues`)."""
        events: list[Event] = []
        while self._parked is not None:
            stage = self.stages[self._at]
            assert isinstance(stage, Settle)
            event, self._parked = await stage.wait(self._parked), None
            events += self._run([event], self._at + 1)
        return events

    async def rest(self) -> AsyncGenerator[list[Event], None]:
        """What a `Sequel` that goes on gives, as it comes. Afterwards the last event may wait again."""
        assert self._sequel is not None
        sequel, self._sequel = self._sequel, None
        self._behind = self._at + 1
        async with aclosing(sequel.rest()) as batches:
            async for batch in batches:
                out = self._run(batch, self._behind)
                if out:
                    yield out
                if self.waits or (out and isinstance(out[-1], Finish | Fault)):
                    return

    def give_up(self, fault: Fault) -> list[Event]:
        """What becomes of `fault`, with which `rest` is over before its end."""
        if self._sequel is not None:  # it has not even begun
            self._behind, self._sequel = self._at + 1, None
        return self._run([fault], self._behind)

    def _run(self, events: list[Event], at: int) -> list[Event]:
        for index in range(at, len(self.stages)):
            if not events:
                break
            stage = self.stages[index]
            if not isinstance(stage, Settle):
                events = stage.feed(events)
                if not events and isinstance(stage, Sequel) and stage.continues:
                    self._sequel, self._at = stage, index
            elif isinstance(events[-1], Finish | Fault):
                self._parked, self._at = events[-1], index
                events = events[:-1]
        return events


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
    object comes back the held events go on as they came (very many fragments as fewer). For `live` see `Reply.map`. An unexpected exception in the function is reported under the name of
    the middleware and ends the stream with a `Fault`, or switches the stage off (`on_failure: skip`).
    """

    def __init__(self, function: MapFunction, wants: Kind, owner: Owner | None, *, live: bool = False) -> None:
        self.wants = wants
        self._function = function
        self._owner = owner
        self._kinds: dict[int, Kind] = {}
        self._held: dict[int, list[Event]] = {}
        self._held_chars = 0
        self._single: dict[int, int] = {}  # fragments of a held call since some were made one
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
                self._single[event.block] = 0
                if self._passes and is_live(event):
                    self._passed.add(event.block)
                    out.append(event)
            case Delta():
                held = self._held[event.block]
                held.append(event)
                self._single[event.block] += 1
                if self._single[event.block] == MERGED:
                    self._single[event.block] = 0
                    _merge(held)
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


def _merge(held: list[Event]) -> None:
    """Make one fragment of the last `MERGED`, if they are nothing but text."""
    last = [event for event in held[-MERGED:] if isinstance(event, Delta) and event.extra is None]
    if len(last) == MERGED:
        held[-MERGED:] = [Delta(last[0].block, "".join(event.text for event in last))]


def _finished(held: list[Event], closed: Close) -> Call:
    """The call that these events and its `Close` amount to."""
    opened = held[0]
    assert isinstance(opened, Open)
    arguments = "".join(delta.text for delta in held if isinstance(delta, Delta))
    name, call_id = opened.name or "", opened.call_id or ""
    use = ToolUse(call_id, name, arguments, opened.call_kind, opened.namespace, extra=extra_of(opened, closed))
    source = "" if is_live(opened) else opened.extra.get("source")
    return Call(closed.block, use, choice=opened.choice, status=closed.status, source=source)
