"""Reports of where the scanner found something in the text that it was fed. Both scanners use this module: a report is
made once per block or tag, and only if the scanner is observed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ._grammar import AS_TEXT, Decision
from .live import LiveCalls

SpanKind = Literal["block", "framing", "reasoning", "text"]


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the text that a scanner was fed, and what the scanner found there. `start` and `end` count bytes of
    UTF-8 from the beginning of that text.

    `kind` is `block` where the call policy made a `decision`, `framing` for marks and fences that vanish around blocks,
    `reasoning` for a tag that begins reasoning, and `text` for a tag that ends it. `calls` is the number of calls of a
    block, those included that were streamed before the block ended.

    Spans are reported in the order in which they are decided, each before the events that follow from it. A block
    without calls that is text may be read again in another form, so a later span may overlap it.
    """

    start: int
    end: int
    kind: SpanKind
    decision: Decision = AS_TEXT
    calls: int = 0


SpanObserver = Callable[[Span], object]


class SpanReports:
    """Reports the spans of one scanner to `observer`."""

    def __init__(self, observer: SpanObserver, live: LiveCalls | None) -> None:
        self._observer = observer
        self._live = live

    def report(self, start: int, raw: bytes, kind: SpanKind, decision: Decision) -> None:
        """Reports the text `raw`, which begins at byte `start`. An empty text is not reported."""
        end, calls = start + len(raw), len(decision.calls)
        if kind == "block" and self._live is not None and self._live.opened is not None:
            calls = self._live.given + max(calls, 1)
        if decision.before:
            start += len(raw.decode()[: decision.before].encode())
        if raw:
            self._observer(Span(start, end, kind, decision, calls))
