"""Searches in pieces: a call of `re` keeps the interpreter from every other thread until it returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

PIECE_BYTES: Final = 48 * 1024
OVERLAP_BYTES: Final = 16 * 1024
"""A search looks so far behind its piece, for the rest of a match that begins in it."""


def matches(pattern: Any, text: bytes, rest: re.Pattern[bytes]) -> Iterator[tuple[Any, int]]:
    """The matches of `pattern` that are not empty, one after the other, each with its end. A match that is longer than
    the overlap may be cut: it goes on as far as `rest`, a class of characters repeated, matches. A match may be missed
    whose pattern has to see more than the overlap to decide."""
    at = 0
    while at < len(text):
        stop = behind = at + PIECE_BYTES
        last = stop + OVERLAP_BYTES
        for found in pattern.finditer(text, at, last):
            begin, end = found.span()
            if begin >= stop:
                break
            if begin < end:
                if end == last:
                    end = _run_end(rest, text, end)
                yield found, end
            behind = max(behind, end)
        at = behind


def places_of(word: bytes, text: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of every occurrence of a word, none of which overlaps another."""
    at = 0
    while at < len(text):
        stop = at + PIECE_BYTES
        found = text.find(word, at, stop + len(word) - 1)
        if found >= 0:
            yield found, found + len(word)
        at = stop if found < 0 else found + len(word)


def _run_end(rest: re.Pattern[bytes], text: bytes, at: int) -> int:
    while (found := rest.match(text, at, at + PIECE_BYTES)) is not None and found.end() > at:
        at = found.end()
    return at
