"""Calls in the text of a server that makes calls itself. They are held until it is known that the server made none
(R23.1).

Rules:

1. A call that was found in text, and everything after it in its answer, is released when the answer ends.
2. If the server makes a call in the same answer, it has parsed the model's text itself. The calls found by the gateway
   become text again.
3. The counts of a call are held with it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, text_block


class WaitingCalls:
    """Held calls of all answers to one request. `count` and `label` are the functions of the exchange's record."""

    def __init__(self, count: Callable[[str], object], label: Callable[[str, str], object]) -> None:
        self._count = count
        self._label = label
        self._held: dict[int, list[Event]] = {}
        self._choice_of: dict[int, int] = {}
        self._counted: dict[int, list[tuple[str, str | None]]] = {}

    def holds(self, choice: int) -> bool:
        """Returns True if more text of this answer would be held."""
        return choice in self._held

    def counts(self, choice: int) -> tuple[Callable[[str], object], Callable[[str, str], object]]:
        """Returns functions that replace `count` and `label` for calls in this answer: they hold the counts with the
        calls."""
        counted = self._counted.setdefault(choice, [])
        return lambda name: counted.append((name, None)), lambda name, label: counted.append((name, label))

    def feed(self, events: list[Event]) -> list[Event]:
        """Takes events of a scanner, or the last event of the answer, and returns the events that can be sent now."""
        out: list[Event] = []
        for event in events:
            match event:
                case Open():
                    self._choice_of[event.block] = event.choice
                    if event.kind is BlockKind.TOOL_CALL:
                        self._held.setdefault(event.choice, [])
                    self._held.get(event.choice, out).append(event)
                case Delta() | Close():
                    self._held.get(self._choice_of[event.block], out).append(event)
                case Finish() | Fault():
                    for choice in [*self._counted]:
                        out += self._held.pop(choice, ())
                        self._tell(choice)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def as_text(self, choice: int) -> list[Event]:
        """Returns the held events of this answer, with calls as the text in which they were found, because the server
        has made a call itself."""
        self._counted.pop(choice, None)
        out: list[Event] = []
        calls: set[int] = set()
        for event in self._held.pop(choice, ()):
            if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                calls.add(event.block)
                out += text_block(event.block, event.extra.get("source", ""), choice)
            elif not (isinstance(event, Delta | Close) and event.block in calls):
                out.append(event)
        return out

    def _tell(self, choice: int) -> None:
        for name, label in self._counted.pop(choice):
            if label is None:
                self._count(name)
            else:
                self._label(name, label)
