"""Spans of a model's text, from what the scanner reports about it.

The scanner reports where blocks and tags stand, in bytes of the text that it was fed. Everything else is text or
reasoning; whitespace that the scanner leaves out beside a block or tag is markup. Nothing here searches for a call.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ...scan._grammar import SPACE
from ...scan.spans import Span
from .judgements import Judgement

SpanKind = Literal["text", "reasoning", "call", "refused", "markup", "dropped", "open"]

_SPACE: Final = SPACE.encode()
_NO_SPACE: Final = re.compile(rb"[^ \t\r\n]")
_PIECE_CHARS: Final = 1024
"""Longer text is kept in pieces of this size, so that a place in it is found fast."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A stretch of a model's answer, in characters, and what became of it. `open`: not decided yet. `call` is the
    number of the call that the stretch became. `judgements` are those on this stretch."""

    begin: int
    end: int
    kind: SpanKind
    call: int | None = None
    judgements: Sequence[Judgement] = ()


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a block of calls, and what became of it; `size` is its length in bytes."""

    size: int
    kind: SpanKind
    call: int | None = None
    judgements: Sequence[Judgement] = ()


@dataclass(slots=True)
class _Refused:
    start: int
    end: int
    judgements: Sequence[Judgement]


@dataclass(slots=True)
class FedText:
    """The text that one scanner was fed, as spans of the answer in which it stands.

    `spans` gets the spans. `trims`: the scanner leaves out whitespace beside blocks and tags. `reasoning`: the text
    begins inside of reasoning. `settled` is the place up to which spans were made, in bytes of the fed text.
    """

    spans: list[TextSpan]
    trims: bool
    reasoning: bool = False
    settled: int = 0
    _raw: bytearray = field(default_factory=bytearray)
    _starts: list[int] = field(default_factory=list)  # of the pieces, in bytes of the fed text
    _places: list[int] = field(default_factory=list)  # of the pieces, in characters of the answer
    _edge: int = 0  # the end of the last block or tag that vanished
    _first: int = -1  # the first character since then that is no whitespace; negative if there is none
    _looked: int = 0
    _spoken: bool = False  # there was visible text
    _refused: list[_Refused] = field(default_factory=list)

    def add(self, text: str, place: int) -> None:
        """Adds the next piece of text, which stands at `place` in the answer. Called before the scanner is fed."""
        for at in range(0, len(text), _PIECE_CHARS):
            raw = text[at : at + _PIECE_CHARS].encode()
            self._starts.append(len(self._raw))
            self._places.append(place + at)
            self._raw += raw
        if self._first < 0:
            self._look_for_text()

    def text(self, span: Span) -> str:
        """Returns the text of a span that the scanner reported."""
        return self._raw[span.start : span.end].decode()

    def refuse(self, span: Span, judgements: Sequence[Judgement]) -> bool:
        """Notes that a block stays text, and why. Returns False if that text was refused before, when it was read in
        another form."""
        if any(one.start < span.end and span.start < one.end for one in self._refused):
            return False
        self._refused.append(_Refused(span.start, span.end, judgements))
        return True

    def vanish(self, span: Span, pieces: Sequence[CallPiece]) -> list[Judgement]:
        """Makes the spans of a block or tag that is not sent as text. Returns the judgements on text that was refused
        in another form before and is part of this block: they no longer hold."""
        undone = [one for one in self._refused if one.end > span.start]
        self._refused = [one for one in self._refused if one.end <= span.start]
        self._settle_text(span.start, at_edge=True)
        at = span.start
        for piece in pieces:
            self._emit(at, at + piece.size, piece.kind, piece.call, piece.judgements)
            at += piece.size
        self.settled = self._edge = span.end
        self._look_for_text()
        if span.kind in ("reasoning", "text"):
            self.reasoning = span.kind == "reasoning"
        return [judgement for one in undone for judgement in one.judgements]

    def release(self, held: int) -> None:
        """Makes spans of all text except the last `held` bytes, which the scanner holds back."""
        upto = len(self._raw) - held
        upto = min([upto, *(one.start for one in self._refused if one.end > upto)])
        if 0 <= self._first < upto:
            self._settle_text(upto)

    def finish(self, *, failed: bool) -> None:
        """Makes spans of the rest. `failed`: the call policy ended the answer with an error, so the rest is lost."""
        if failed:
            self._emit(self.settled, len(self._raw), "markup")
            self.settled = len(self._raw)
        else:
            self._settle_text(len(self._raw), at_edge=self._first < 0 and (self._edge > 0 or self.reasoning))

    def first_open(self) -> int | None:
        """Returns the place in the answer of the first character without a span; None if there is none."""
        if self.settled == len(self._raw):
            return None
        return self._place(self.settled, bisect_right(self._starts, self.settled) - 1)

    def _settle_text(self, upto: int, *, at_edge: bool = False) -> None:
        """Makes spans of text up to `upto`. `at_edge`: a block or tag that vanishes begins there."""
        start = self.settled
        kind: SpanKind = "reasoning" if self.reasoning else "text"
        if start >= upto:
            return
        raw = self._raw[start:upto]
        if not raw.strip(_SPACE) and at_edge and (self.trims or self.reasoning):
            self._emit(start, upto, "markup")
            self.settled = upto
            return
        if self.trims and not self.reasoning:
            if start == self._edge > 0:
                space = raw[: len(raw) - len(raw.lstrip(_SPACE))]
                begin = start + len(space) - self._kept_of(space)
                self._emit(start, begin, "markup")
                start = begin
            if at_edge:
                upto -= len(raw) - len(raw.rstrip(_SPACE))
        settled = self.settled + len(raw)
        for one in self._refused:
            if one.end <= settled:
                end = min(one.end, upto)  # a block may end with whitespace that is left out
                self._emit(start, one.start, kind)
                self._emit(max(start, one.start), end, "refused", None, one.judgements)
                start = max(start, end)
        self._refused = [one for one in self._refused if one.end > settled]
        self._spoken = self._spoken or not self.reasoning
        self._emit(start, upto, kind)
        self._emit(upto, settled, "markup")
        self.settled = settled

    def _look_for_text(self) -> None:
        """Finds the first text since the last edge. Whitespace that was looked at is not looked at again."""
        found = _NO_SPACE.search(self._raw, max(self._edge, self._looked))
        self._first = -1 if found is None else found.start()
        self._looked = len(self._raw) if found is None else found.start()

    def _kept_of(self, space: bytes | bytearray) -> int:
        """Returns how many of the last bytes of whitespace between two texts the scanner keeps: a line end, else a
        blank."""
        stays = space.endswith(b"\n") or (space.endswith(b" ") and b"\n" not in space)
        return int(stays and self._spoken)

    def _emit(
        self, start: int, end: int, kind: SpanKind, call: int | None = None, judgements: Sequence[Judgement] = ()
    ) -> None:
        """Adds spans for these bytes: several if something else of the answer stands between them."""
        if start >= end:
            return
        index = bisect_right(self._starts, start) - 1
        while start < end:
            stop = end if index + 1 == len(self._starts) else min(end, self._starts[index + 1])
            begin = self._place(start, index)
            size = len(self._raw[start:stop].decode())
            self.spans.append(TextSpan(begin, begin + size, kind, call, judgements))
            start, index = stop, index + 1

    def _place(self, start: int, index: int) -> int:
        """Returns the place in the answer of a byte in the piece with this index."""
        return self._places[index] + len(self._raw[self._starts[index] : start].decode())


def join_spans(spans: Sequence[TextSpan], end: int) -> list[TextSpan]:
    """Returns the spans in the order of the answer, neighbours of one kind as one. Gaps, and the rest up to `end`, are
    `open`."""
    whole: list[TextSpan] = []
    for span in (*sorted(spans, key=lambda one: one.begin), TextSpan(end, end, "open")):
        at = whole[-1].end if whole else 0
        if at < span.begin:
            whole.append(TextSpan(at, span.begin, "open"))
        last = whole[-1] if whole else None
        if last is not None and (last.kind, last.call, last.judgements) == (span.kind, span.call, span.judgements):
            whole[-1] = TextSpan(last.begin, span.end, span.kind, span.call, span.judgements)
        elif span.begin < span.end:
            whole.append(span)
    return whole
