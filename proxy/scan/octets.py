"""Operations on bytes that the parts of the scanner share. `octets.pxd` has the same with C types for the compiled
scanner, where `buf` is a pointer, so a range of it is given by its ends."""

from __future__ import annotations

from typing import Final

CUT: Final = 1
"""Result of `fits`: the end of the text cuts the literal off."""
WHOLE: Final = 2
"""Result of `fits`: the whole literal is there."""

BLANK: Final = 0
ITEM: Final = 1
MARK: Final = 2
NUMBER: Final = 3
PROSE_LINE: Final = 4
CITED: Final = 5
"""The beginning of a line: nothing but indentation yet (`BLANK`), or list items' marks and blanks (`ITEM`), in or after
such a mark (`MARK`) or in its `NUMBER`, anything else (`PROSE_LINE`), or `>`, a Markdown quotation (`CITED`)."""

_WINDOW: Final = 256


def find(buf: bytes, byte: int, pos: int, end: int) -> int:
    """Returns the position of the first `byte` between `pos` and `end`, or `end`."""
    at = buf.find(byte, pos, end)
    return end if at < 0 else at


def find_one_of(buf: bytes, table: bytes, pos: int, end: int) -> int:
    """Returns the position of the first byte between `pos` and `end` that is 1 in `table`, which has 256 bytes; or
    `end`."""
    while pos < end:  # in windows, because the next search may begin after the next byte
        at = buf[pos : min(pos + _WINDOW, end)].translate(table).find(1)
        if at >= 0:
            return pos + at
        pos += _WINDOW
    return end


def find_literal(buf: bytes, literal: bytes, pos: int, end: int) -> int:
    """Returns the position of the first `literal` between `pos` and `end`, or -1. It is not empty."""
    return buf.find(literal, pos, end)


def fits(buf: bytes, literal: bytes, pos: int, end: int) -> int:
    """Returns `WHOLE` if `literal` is at `pos`, `CUT` if the text up to `end` is its beginning, else 0."""
    if buf.startswith(literal, pos, end):
        return WHOLE
    return CUT if end - pos < len(literal) and literal.startswith(buf[pos:end]) else 0


def begins(literal: bytes, word: bytearray) -> bool:
    """Returns True if `literal` begins with `word`."""
    return literal[: len(word)] == word


def append(to: bytearray, buf: bytes, pos: int, end: int) -> None:
    """Appends the bytes between `pos` and `end`."""
    to += buf[pos:end]


def same(buf: bytes, pos: int, other: bytes, size: int) -> bool:
    """Returns True if the `size` bytes at `pos` are the first ones of `other`."""
    return buf[pos : pos + size] == other[:size]


def begins_with(before: int, byte: int) -> int:
    """Returns what a line begins with after the next byte; `before` is one of those before `PROSE_LINE`."""
    if byte in b" \t":
        return PROSE_LINE if before == NUMBER else before if before == BLANK else ITEM
    if before <= ITEM:
        if byte in b">":
            return CITED
        if byte in b"-*+":
            return MARK
    if before != MARK and byte in b"0123456789":
        return NUMBER
    return MARK if before == NUMBER and byte in b".)" else PROSE_LINE
