"""The stage of `Reply.map` and `on_event`: one function over the events of the kinds that it wants.

Rules:

1. With `Kind.FINISHED_CALL` the events of a call are held until it is complete and shown as one `Call`. If the function
   returns that object, the held events follow unchanged, except that very many fragments are merged.
2. Held events are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Final

from ...errors import BackendFault
from ...events import (
    BlockKind,
    BlockStatus,
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
    extra_of,
    is_live,
)
from ...folding import add_part, has_incomplete_arguments, parts_of
from ...model import (
    FinishReason,
    ModelReply,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolUse,
    lasting,
    replace,
)
from .stages import Stage, StageOwner, stage_fault

MERGED: Final = 256
"""Neighbouring fragments of a held call are merged in groups of this size. Most calls have some dozens of fragments;
one of a hundred thousand must not delay other requests when all of them are released together."""

HELD_CHARS: Final = 16 * 1024 * 1024
"""Characters of arguments that are held until their calls are complete. More ends the answer."""

MapFunction = Callable[[Event], Event | Iterable[Event] | None]

# Kinds as integers: a test of a `Flag` is a Python call, and each event is tested.
_TEXTS: Final = (Kind.TEXT | Kind.REASONING).value
_CALL: Final = Kind.CALL.value
_FINISHED_CALL: Final = Kind.FINISHED_CALL.value
_EDGES: Final = Kind.EDGES.value
_OPAQUE: Final = Kind.OPAQUE.value
_OF_BLOCK: Final[Mapping[BlockKind, int]] = {
    BlockKind.TEXT: Kind.TEXT.value,
    BlockKind.REFUSAL: Kind.TEXT.value,
    BlockKind.REASONING: Kind.REASONING.value,
    BlockKind.TOOL_CALL: _CALL,
}
_OF_PART: Final[Mapping[type, int]] = {
    Text: Kind.TEXT.value,
    Refusal: Kind.TEXT.value,
    Reasoning: Kind.REASONING.value,
    ToolUse: _CALL | _FINISHED_CALL,
    OpaquePart: _OPAQUE,
}


class MapStage(Stage):
    """Runs one function over a stream. For `live` see `Reply.map`. An unexpected exception ends the stream with a
    `Fault` in the middleware's name, or switches the stage off (`on_failure: skip`)."""

    def __init__(self, function: MapFunction, wants: Kind, owner: StageOwner | None, *, live: bool = False) -> None:
        self._wants: int = wants.value
        self._holds = bool(self._wants & _FINISHED_CALL)
        self.ignores_text = not self._wants & _TEXTS
        self._function = function
        self._owner = owner
        self._kinds: dict[int, int] = {}
        self._held: dict[int, list[Event]] = {}
        self._held_chars = 0
        self._single: dict[int, int] = {}  # fragments of a held call since the last merge
        self._live = live
        self.holds_calls = self._holds and not live
        self._forwarded: set[int] = set()  # blocks in `_held` that were already forwarded
        self._on = True

    def whole(self, reply: ModelReply) -> ModelReply | None:
        if not self._concerns(reply):
            return reply
        return self._whole_calls(reply) if self._wants == _FINISHED_CALL else None

    def _concerns(self, reply: ModelReply) -> bool:
        """Returns whether a whole answer has anything that the function wants."""
        wants = self._wants
        if wants & _EDGES:
            return True
        for choice in reply.choices:
            for part in choice.parts:
                if wants & _OF_PART[type(part)]:
                    return True
        return False

    def _whole_calls(self, reply: ModelReply) -> ModelReply:
        """Returns a whole answer with each call replaced by the function's result."""
        block = 0
        choices: list[ReplyChoice] = []
        for index, choice in enumerate(reply.choices):
            parts: list[Part] = []
            for part in choice.parts:
                if isinstance(part, ToolUse) and self._on:
                    cut = choice.reason not in FinishReason.WHOLE and has_incomplete_arguments(part)
                    self._take(part, block, index, "truncated" if cut else "complete", parts)
                else:
                    add_part(parts, part)
                block += 1
            same = len(parts) == len(choice.parts) and all(map(is_, parts, choice.parts))
            choices.append(choice if same else ReplyChoice(tuple(parts), choice.reason, choice.extra))
        return reply if all(map(is_, choices, reply.choices)) else replace(reply, choices=tuple(choices))

    def _take(self, part: ToolUse, block: int, choice: int, status: BlockStatus, parts: list[Part]) -> None:
        """Calls the function for a call and appends the result to the answer's parts."""
        source = part.extra.get("source")
        use = part if source is None else replace(part, extra=lasting(part.extra))
        call = Call(block, use, choice=choice, status=status, source=source)
        try:
            if len(part.arguments) > HELD_CHARS:
                raise _too_many()
            result = self._function(call)
            if result is call:
                parts.append(part)
                return
            out: list[Event] = []
            self._give(result, out)
        except Exception as error:
            fault = stage_fault(self._owner, error)
            if fault is not None:
                raise fault.error from None
            self._on = False
            parts.append(part)
            return
        for given in parts_of(out):
            add_part(parts, given)

    def feed(self, events: list[Event]) -> list[Event]:
        if not self._on:
            return events
        wants, kinds = self._wants, self._kinds
        out: list[Event] = []
        for index, event in enumerate(events):
            try:
                match event:
                    case Delta() | Close():
                        kind = kinds[event.block]
                    case Open():
                        kind = kinds[event.block] = _OF_BLOCK[event.kind]
                    case Start() | Finish() | Fault():
                        kind = _EDGES
                    case Opaque():
                        kind = _OPAQUE
                    case _:
                        raise TypeError(f"{type(event).__name__} has no place in a stream")
                if kind == _CALL and self._holds:
                    self._call(event, out)
                elif kind & wants:
                    self._give(self._function(event), out)
                else:
                    out.append(event)
            except Exception as error:
                fault = stage_fault(self._owner, error)
                if fault is not None:
                    out.append(fault)
                    return out
                self._on = False
                for block, held in self._held.items():
                    if block not in self._forwarded:
                        out += held
                self._held.clear()
                if not (out and out[-1] is event):
                    out.append(event)
                return out + events[index + 1 :]
        return out

    def _call(self, event: Event, out: list[Event]) -> None:
        match event:
            case Open():
                self._held[event.block] = [event]
                self._single[event.block] = 0
                if self._live and is_live(event):
                    self._forwarded.add(event.block)
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
                    raise _too_many()
                if event.block in self._forwarded:
                    out.append(event)
            case Close():
                held = self._held[event.block]
                call = _finished(held, event)
                self._held_chars -= len(call.use.arguments)
                if call.source == "" and call.status == "truncated" and event.block not in self._forwarded:
                    del self._held[event.block]  # the call was cut off before anything of it was forwarded (C18)
                    return
                result = self._function(call)
                del self._held[event.block]
                if event.block in self._forwarded:
                    self._forwarded.remove(event.block)
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


def _too_many() -> BackendFault:
    return BackendFault(
        f"The calls that the model server makes at once have more than {HELD_CHARS} characters.",
        code="upstream_invalid_response",
    )


def _merge(held: list[Event]) -> None:
    """Merges the last `MERGED` fragments if they have nothing but text."""
    last = [event for event in held[-MERGED:] if isinstance(event, Delta) and event.extra is None]
    if len(last) == MERGED:
        held[-MERGED:] = [Delta(last[0].block, "".join(event.text for event in last))]


def _finished(held: list[Event], closed: Close) -> Call:
    """Returns the call of these events and its `Close`."""
    opened = held[0]
    assert isinstance(opened, Open)
    arguments = "".join([delta.text for delta in held if isinstance(delta, Delta)])
    name, call_id = opened.name or "", opened.call_id or ""
    use = ToolUse(call_id, name, arguments, opened.call_kind, opened.namespace, extra=extra_of(opened, closed))
    source = "" if is_live(opened) else opened.extra.get("source")
    return Call(closed.block, use, choice=opened.choice, status=closed.status, source=source)
