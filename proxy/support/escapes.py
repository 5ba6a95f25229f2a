r"""Undoes escapes in bytes: `\u0041` and `\/` of JSON, also in JSON nested in JSON strings, and `%41` of URLs.

A search for a secret in raw bytes misses a secret that is spelled with escapes, although every JSON reader undoes them.
`views` yields the bytes with their escapes undone, and maps each position back to the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

DEPTH: Final = 3
"""Maximum number of nested levels of escapes. Each level costs as much as the first search."""

_BYTES: Final = {
    digits.encode(): bytes((code,))
    for code in range(0x20, 0x80)
    for digits in {f"{code:02x}", f"{code:02X}", f"{code:x}"[0] + f"{code:X}"[1]}
}
_ESCAPE: Final = re.compile(rb"\\++(?:u00([2-7][0-9a-fA-F])|(/))?+|%([2-7][0-9a-fA-F])")
"""A run of backslashes is consumed once, even if it escapes nothing, so the search takes linear time."""
_BACKSLASHES: Final = re.compile(rb"\\*+")


class DecodedView:
    """The text `before.text` with one level of escapes undone; the original text if `before` is None."""

    def __init__(self, text: bytes, before: DecodedView | None = None) -> None:
        self.text = text
        self._before = before
        self._places: tuple[list[int], list[int]] | None = None

    def origin(self, begin: int, end: int) -> tuple[int, int]:
        """Returns begin and end in the original bytes of `text[begin:end]`, which must not be empty."""
        view = self
        while view._before is not None:
            begin, end = view._in_text_before(begin, end)
            view = view._before
        return begin, end

    def _in_text_before(self, begin: int, end: int) -> tuple[int, int]:
        assert self._before is not None
        if self._places is None:  # computed on demand: only for a secret that was found
            self._places = _places(self._before.text)
        here, before = self._places
        first, last = bisect_right(here, begin) - 1, bisect_right(here, end - 1) - 1
        start = before[first] + begin - here[first]
        # Undone escapes are pieces of one byte, whose end is where the next piece begins.
        after = before[last + 1] if last % 2 else before[last] + end - here[last]
        return start, after


def views(data: bytes) -> Iterator[DecodedView]:
    """Yields `data` itself, then `data` with one, two, ... levels of escapes undone, while there are any."""
    view = DecodedView(data)
    yield view
    for _ in range(DEPTH):
        text = _undone(view.text)
        if text is None:
            return
        view = DecodedView(text, view)
        yield view


def replace_words(text: str, words: Iterable[bytes], by: str) -> str:
    """Returns the text with all `words` replaced by `by`, also where they are spelled with escapes."""
    data = text.encode(errors="surrogatepass")
    words = tuple(words)
    places = [view.origin(*place) for view in views(data) for word in words for place in places_of(word, view.text)]
    if not places:
        return text
    out: list[bytes] = []
    done = 0
    for begin, end in sorted(places):
        if begin >= done:  # overlapping places are replaced once
            out += data[done:begin], by.encode()
        done = max(done, end)
    return b"".join([*out, data[done:]]).decode(errors="surrogatepass")


def _undone(data: bytes) -> bytes | None:
    """Returns `data` with one level of escapes undone, or None if there are none."""
    if not any(True for _ in _escapes(data)):
        return None
    out: list[bytes] = []
    done = 0
    for match, end in _escapes(data):
        digits = match[1] or match[3]
        out += data[done : match.start()], b"/" if digits is None else _BYTES[digits]
        done = end
    return b"".join([*out, data[done:]])


def _places(data: bytes) -> tuple[list[int], list[int]]:
    """Returns where the pieces begin in the text with one level undone, and where in `data`. Plain pieces (possibly
    empty) and escapes alternate."""
    here, before = [0], [0]
    undone = 0
    for match, end in _escapes(data):
        begin = match.start()
        here += begin - undone, begin - undone + 1
        before += begin, end
        undone += end - begin - 1
    return here, before


def _escapes(data: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    if b"%" in data or b"\\u00" in data or b"\\/" in data:  # fast check: JSON bodies are full of other escapes
        yield from ((match, end) for match, end in matches(_ESCAPE, data, _BACKSLASHES) if match.lastindex is not None)


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
