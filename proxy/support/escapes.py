r"""Text behind escapes: `\u0041` and `\/` of JSON, at any depth of JSON inside of JSON strings, and `%41` of URLs.

A search for a secret in bytes as they stand misses one that is spelled with escapes, which every reader of the JSON
undoes. `views` gives the bytes with their escapes undone, and says where each byte came from.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from toolwire.support.pieces import matches, places_of

DEPTH: Final = 3
"""Escapes of escapes are undone this many times. Each time costs as much as the first search."""

_BYTES: Final = {
    digits.encode(): bytes((code,))
    for code in range(0x20, 0x80)
    for digits in {f"{code:02x}", f"{code:02X}", f"{code:x}"[0] + f"{code:X}"[1]}
}
_ESCAPE: Final = re.compile(rb"\\++(?:u00([2-7][0-9a-fA-F])|(/))?+|%([2-7][0-9a-fA-F])")
"""A run of backslashes is read once, also if it escapes nothing here: so the search is linear."""
_BACKSLASHES: Final = re.compile(rb"\\*+")


class View:
    """`text` is `before.text` with one level of escapes undone, or what was given (`before` is None)."""

    def __init__(self, text: bytes, before: View | None = None) -> None:
        self.text = text
        self._before = before
        self._places: tuple[list[int], list[int]] | None = None

    def origin(self, begin: int, end: int) -> tuple[int, int]:
        """The place in the bytes that were given of `text[begin:end]`, which is not empty."""
        view = self
        while view._before is not None:
            begin, end = view._in_text_before(begin, end)
            view = view._before
        return begin, end

    def _in_text_before(self, begin: int, end: int) -> tuple[int, int]:
        assert self._before is not None
        if self._places is None:  # only a secret that was found asks for it
            self._places = _places(self._before.text)
        here, before = self._places
        first, last = bisect_right(here, begin) - 1, bisect_right(here, end - 1) - 1
        start = before[first] + begin - here[first]
        # Undone escapes are pieces of one byte, whose end is where the next piece begins.
        after = before[last + 1] if last % 2 else before[last] + end - here[last]
        return start, after


def views(data: bytes) -> Iterator[View]:
    """`data` as it is, and with escapes undone once, twice and so on, as long as there are any."""
    view = View(data)
    yield view
    for _ in range(DEPTH):
        text = _undone(view.text)
        if text is None:
            return
        view = View(text, view)
        yield view


def without(text: str, words: Iterable[bytes], by: str) -> str:
    """The text with `by` in the place of the words, also where they are spelled with escapes."""
    data = text.encode(errors="surrogatepass")
    words = tuple(words)
    found = [view.origin(*place) for view in views(data) for word in words for place in places_of(word, view.text)]
    if not found:
        return text
    out: list[bytes] = []
    done = 0
    for begin, end in sorted(found):
        if begin >= done:  # what overlaps is one place
            out += data[done:begin], by.encode()
        done = max(done, end)
    return b"".join([*out, data[done:]]).decode(errors="surrogatepass")


def _undone(data: bytes) -> bytes | None:
    """`data` with one level of escapes undone, or None if there are none."""
    if not any(True for _ in _escapes(data)):
        return None
    out: list[bytes] = []
    done = 0
    for found, end in _escapes(data):
        digits = found[1] or found[3]
        out += data[done : found.start()], b"/" if digits is None else _BYTES[digits]
        done = end
    return b"".join([*out, data[done:]])


def _places(data: bytes) -> tuple[list[int], list[int]]:
    """Where the pieces begin in the text with one level of escapes undone, and where in `data`: by turns a piece that
    stays, perhaps empty, and an escape."""
    here, before = [0], [0]
    undone = 0
    for found, end in _escapes(data):
        begin = found.start()
        here += begin - undone, begin - undone + 1
        before += begin, end
        undone += end - begin - 1
    return here, before


def _escapes(data: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    if b"%" in data or b"\\u00" in data or b"\\/" in data:  # a body of JSON is full of other escapes
        yield from ((found, end) for found, end in matches(_ESCAPE, data, _BACKSLASHES) if found.lastindex is not None)
