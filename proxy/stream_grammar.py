"""Validity of event streams as a state machine (rule 1 of `toolwire.events`), and a normal form for comparing them
(rule 2).

For tests and `toolwire replay`: too slow for every request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from .events import (
    BlockKind,
    Close,
    Delta,
    Event,
    Fault,
    Finish,
    Opaque,
    Open,
    Start,
    StreamGrammarError,
    extra_of,
)


class StreamGrammar:
    """Checks rule 1 event by event."""

    def __init__(self) -> None:
        self.open: dict[int, Open] = {}
        self._seen: set[int] = set()
        self._state: Literal["before", "inside", "after"] = "before"

    def feed(self, event: Event) -> None:
        """Checks the next event. Raises `StreamGrammarError` if it is not valid here."""
        if self._state == "after":
            raise StreamGrammarError(f"{event!r} after the end")
        if self._state == "before":
            if isinstance(event, Fault):
                self._state = "after"
                return
            if not isinstance(event, Start):
                raise StreamGrammarError(f"{event!r} before Start")
            self._state = "inside"
            return
        match event:
            case Open():
                if event.block in self._seen:
                    raise StreamGrammarError(f"block {event.block} opened twice")
                if (event.kind is BlockKind.TOOL_CALL) != (event.name is not None and event.call_id is not None):
                    raise StreamGrammarError(f"name and call_id belong to calls and only to calls: {event!r}")
                self._seen.add(event.block)
                self.open[event.block] = event
            case Delta():
                if event.block not in self.open:
                    raise StreamGrammarError(f"delta for block {event.block}, which is not open")
            case Close():
                if self.open.pop(event.block, None) is None:
                    raise StreamGrammarError(f"close of block {event.block}, which is not open")
            case Finish():
                if self.open:
                    raise StreamGrammarError(f"Finish while blocks {sorted(self.open)} are open")
                self._state = "after"
            case Fault():
                self._state = "after"
            case Opaque():
                pass
            case _:
                raise StreamGrammarError(f"{event!r} has no place in a stream here")

    def finish(self) -> None:
        """Checks that the stream is complete. Raises `StreamGrammarError` if it has neither `Finish` nor `Fault`."""
        if self._state != "after":
            raise StreamGrammarError("the stream stopped without Finish or Fault")


def check(events: Iterable[Event]) -> None:
    """Raises `StreamGrammarError` unless `events` is a complete, valid stream."""
    grammar = StreamGrammar()
    for event in events:
        grammar.feed(event)
    grammar.finish()


def _is_empty(last: Event, block: int) -> bool:
    """True if `last` opens the text block `block` and has no `extra`."""
    return isinstance(last, Open) and last.block == block and last.kind is BlockKind.TEXT and not extra_of(last)


def normalise(events: Iterable[Event]) -> list[Event]:
    """Returns the stream in a form that does not depend on chunking: neighbouring deltas of a block merged, empty ones
    dropped, blocks numbered from 0 in order of appearance, per-token data removed, empty text blocks removed."""
    number: dict[int, int] = {}
    out: list[Event] = []
    for event in events:
        match event:
            case Open():
                number[event.block] = len(number)
                out.append(replace(event, block=number[event.block]))
            case Delta():
                if not event.text:
                    continue
                block = number[event.block]
                last = out[-1]
                if isinstance(last, Delta) and last.block == block:
                    out[-1] = Delta(block, last.text + event.text)
                else:
                    out.append(Delta(block, event.text))
            case Close():
                block = number[event.block]
                last = out[-1]
                if _is_empty(last, block) and not event.extra:
                    out.pop()
                else:
                    out.append(Close(block, event.status, event.extra))
            case _:
                out.append(event)
    return out
