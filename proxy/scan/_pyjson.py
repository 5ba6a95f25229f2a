"""Following a JSON object character by character: part of the Python twin, see `_pyparse.py`.

Deliberately looser than JSON: raw control characters in strings, any character behind a backslash, trailing commas and
any run of letters and digits as a scalar are let through. It answers one question, where the object ends; whether the
object parses, or can be made to, the call policy says.
"""

from __future__ import annotations

from typing import Final

from ._grammar import MAX_DEPTH, SPACE

_SPACE: Final = SPACE.encode()
_SCALAR: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."
_QUOTE: Final = ord('"')
_BRACE: Final = ord("{")

# What `ObjectReader` waits for.
_VALUE: Final = 0
_ITEM: Final = 1
_NAME: Final = 2
_COLON: Final = 3
_NEXT: Final = 4
STRING: Final = 5
_RUN: Final = 6
WHOLE: Final = 7
WRONG: Final = 8


class ObjectReader:
    """Follows one JSON object: where it ends, or that it is none. Keeps one bit per level of nesting, no text."""

    __slots__ = ("arrays", "depth", "escaped", "is_name", "mode")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The next byte is the object's brace."""
        self.mode = _VALUE
        self.depth = 0
        self.arrays = 0
        self.is_name = False
        self.escaped = False

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """Read from `pos` to `end`, or until `mode` is `WHOLE` (the position behind the last brace is returned) or
        `WRONG` (the position of the offending byte is returned)."""
        while pos < end:
            mode = self.mode
            if mode == STRING:
                pos = self._string(buf, pos, end)
                continue
            byte = buf[pos]
            if mode == _RUN:
                if byte in _SCALAR:
                    pos += 1
                else:
                    self.mode = _NEXT
                continue
            if byte in _SPACE:
                pos += 1
                continue
            if byte == _QUOTE and mode in (_VALUE, _ITEM, _NAME):
                self.is_name = mode == _NAME
                self.mode = STRING
            elif byte == _BRACE and mode in (_VALUE, _ITEM):
                self._push(False)
            elif byte == ord("[") and mode in (_VALUE, _ITEM):
                self._push(True)
            elif byte == (ord("]") if self.arrays & 1 else ord("}")) and mode in (_ITEM, _NAME, _NEXT):
                self._pop()
            elif byte == ord(",") and mode == _NEXT:
                self.mode = _ITEM if self.arrays & 1 else _NAME
            elif byte == ord(":") and mode == _COLON:
                self.mode = _VALUE
            elif byte in _SCALAR and mode in (_VALUE, _ITEM):
                self.mode = _RUN
            else:
                self.mode = WRONG
            if self.mode == WRONG:
                return pos
            pos += 1
            if self.mode == WHOLE:
                return pos
        return pos

    def _string(self, buf: bytes, pos: int, end: int) -> int:
        if self.escaped:
            self.escaped = False
            pos += 1
        quote = -1
        searched = False
        while pos < end:
            if not searched or 0 <= quote < pos:
                quote = buf.find(b'"', pos, end)
                searched = True
            slash = buf.find(b"\\", pos, quote if quote >= 0 else end)
            if slash < 0:
                if quote < 0:
                    return end
                self.mode = _COLON if self.is_name else _NEXT
                return quote + 1
            pos = slash + 2
            if pos > end:
                self.escaped = True
                return end
        return pos

    def _push(self, array: bool) -> None:
        if self.depth == MAX_DEPTH:
            self.mode = WRONG
            return
        self.depth += 1
        self.arrays = self.arrays << 1 | array
        self.mode = _ITEM if array else _NAME

    def _pop(self) -> None:
        self.depth -= 1
        self.arrays >>= 1
        self.mode = _NEXT if self.depth else WHOLE
