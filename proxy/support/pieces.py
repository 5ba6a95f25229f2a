"""Searches long texts in pieces. A single call of `re` would block all other threads until it returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

PIECE_BYTES: Final = 48 * 1024
OVERLAP_BYTES: Final = 16 * 1024
"""Bytes after a piece that a search may also read, for a match that begins in the piece."""


def matches(pattern: Any, text: bytes, rest: re.Pattern[bytes]) -> Iterator[tuple[Any, int]]:
    """Yields the non-empty matches of `pattern` in order, each with its end.

    A match that is longer than the overlap is extended as far as `rest` (a repeated character class) matches. A match
    is missed if the pattern needs more than the overlap to recognise it.
    """
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
    """Yields begin and end of every non-overlapping occurrence of `word`."""
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
