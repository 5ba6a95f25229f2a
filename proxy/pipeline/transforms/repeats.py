"""Early end of answers that repeat a call (R30.8).

A model whose server enforces calls may write the same call until `max_tokens`, and the client would run each of them.

Rules:

1. An exact repeat has the name of an earlier call of the same answer and equal arguments, whatever the order of keys
   and the whitespace. It is dropped, and its answer ends. Other calls continue.
2. The first call of a name is forwarded as it comes. A further one is held until it is complete, with all events
   after it. Nothing of a repeat is sent.
3. When all answers to the request have ended, the gateway does not wait for the model. Token counts are then estimated
   from bytes, because the server did not send them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from ...model import FinishReason, ModelReply, ToolUse, Usage
from ...upstream.servers.usage import by_bytes
from ..answers.stages import Stage

_Name = tuple[str | None, str | None]


@dataclass(slots=True)
class _Call:
    """A call of an answer: its `Open` event and its arguments so far."""

    opened: Open
    pieces: list[str] = field(default_factory=list)
    held: bool = False

    @property
    def name(self) -> _Name:
        return self.opened.namespace, self.opened.name

    @property
    def key(self) -> tuple[_Name, str]:
        return self.name, _canonical("".join(self.pieces))


class RepeatStage(Stage):
    """Ends each of the answers to a request (`choices`) at the first call that repeats an earlier one. `size` is the
    size of the request in bytes. `dropped` is called with the `Open` of each call that is a repeat or follows one."""

    ignores_text = True

    def __init__(self, size: int, dropped: Callable[[Open], None], *, choices: int = 1) -> None:
        self._size = size
        self._dropped = dropped
        self._choices = choices
        self._calls: dict[int, _Call] = {}  # open calls, by block
        self._names: set[tuple[int, _Name]] = set()
        self._made: dict[int, set[tuple[_Name, str]]] = {}  # complete calls, by answer
        self._held: list[Event] = []
        self._open: dict[int, int] = {}  # open blocks that were forwarded, and their answers
        self._ended: set[int] = set()
        self._read: Usage | None = None
        self._written = 0
        self._over = False

    def whole(self, reply: ModelReply) -> ModelReply | None:
        for choice in reply.choices:
            uses = [part for part in choice.parts if isinstance(part, ToolUse)]
            if len(uses) > 1:
                keys = {((use.namespace, use.name), _canonical(use.arguments)) for use in uses}
                if len(keys) < len(uses):
                    return None
        return reply

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if self._over:
                self._drop(event)
                continue
            self._note(event)
            if self._held or self._may_repeat(event):
                self._held.append(event)
                if isinstance(event, Open) and event.block in self._calls:
                    self._calls[event.block].held = True
                if not self._calls or isinstance(event, Finish | Fault):
                    held, self._held = self._held, []
                    out += self._settled(held, events[-1])
                continue
            out += self._forward(event)
        return out

    def _may_repeat(self, event: Event) -> bool:
        """Returns True if the event begins a call with the name of an earlier call."""
        if not isinstance(event, Open) or event.kind is not BlockKind.TOOL_CALL:
            return False
        name = event.choice, (event.namespace, event.name)
        if name in self._names:
            return True
        self._names.add(name)
        return False

    def _note(self, event: Event) -> None:
        """Updates the open and the complete calls."""
        match event:
            case Start():
                self._read = event.usage
            case Open(kind=BlockKind.TOOL_CALL):
                self._calls[event.block] = _Call(event)
            case Delta():
                self._written += len(event.text.encode("utf-8", "surrogatepass"))
                if (call := self._calls.get(event.block)) is not None:
                    call.pieces.append(event.text)
            case Close():
                call = self._calls.pop(event.block, None)
                if call is not None and not call.held and event.status == "complete":
                    self._made.setdefault(call.opened.choice, set()).add(call.key)

    def _settled(self, held: list[Event], last: Event) -> list[Event]:
        """Returns the held events without repeated calls and without blocks that begin after them. `last` is the last
        event received so far."""
        out: list[Event] = []
        calls: dict[int, _Call] = {}
        whole: dict[int, _Call] = {}
        for event in held:
            if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                calls[event.block] = _Call(event)
            elif isinstance(event, Delta) and event.block in calls:
                calls[event.block].pieces.append(event.text)
            elif isinstance(event, Close) and event.block in calls and event.status == "complete":
                whole[event.block] = calls[event.block]
        for event in held:
            if isinstance(event, Open) and (call := whole.get(event.block)) is not None:
                choice = event.choice
                self._names.add((choice, call.name))
                made = self._made.setdefault(choice, set())
                if call.key in made:
                    self._ended.add(choice)
                made.add(call.key)
            out += self._forward(event)
        if len(self._ended) >= self._choices and not isinstance(held[-1], Finish | Fault):
            out += self._end(last)
        return out

    def _forward(self, event: Event) -> list[Event]:
        """Returns the event; nothing if its answer has ended."""
        match event:
            case Open():
                if event.choice in self._ended:
                    self._drop(event)
                    return []
                self._open[event.block] = event.choice
            case Delta():
                return [event] if event.block in self._open else []
            case Close():
                return [event] if self._open.pop(event.block, None) is not None else []
            case Finish():
                return [self._finish(event)]
        return [event]

    def _drop(self, event: Event) -> None:
        if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            self._dropped(event)

    def _end(self, last: Event) -> list[Event]:
        """Returns the events that end all answers."""
        self._over = True
        usage = last.usage if isinstance(last, Finish) else None
        usage = usage or by_bytes(self._read, self._size, self._written)
        others = (FinishReason.STOP,) * (self._choices - 1)
        return [*map(Close, self._open), self._finish(Finish(usage=usage, others=others))]

    def _finish(self, finish: Finish) -> Finish:
        """Returns the last event, with the reason of the answers that were ended early."""
        if not self._ended:
            return finish
        reasons = [finish.reason, *finish.others]
        reasons += [finish.reason] * (max(self._ended) + 1 - len(reasons))
        for choice in self._ended:
            reasons[choice] = FinishReason.TOOL_CALLS
        return Finish(reasons[0], finish.usage, tuple(reasons[1:]), finish.extra, finish.choices)


def _canonical(arguments: str) -> str:
    """Returns the same text for all arguments that are equal as JSON. Numbers keep their digits."""
    try:
        value = json.loads(arguments or "{}", parse_float=_digits, parse_int=_digits)
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):  # arguments in free text
        return arguments


def _digits(text: str) -> dict[str, str]:
    return {"": text}
