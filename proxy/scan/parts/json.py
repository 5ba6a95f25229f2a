"""Finds the end of a JSON object, character by character.

Deliberately more lenient than JSON: it allows raw control characters in strings, any character after a backslash,
trailing commas, and any run of letters and digits as a scalar. It only answers where the object ends; the call policy
checks whether it is valid or can be repaired.
"""

from __future__ import annotations

from typing import Final

from .._grammar import MAX_DEPTH
from ..modes import STRING, WHOLE, WRONG

# States besides those in `modes`.
_VALUE: Final = 0
_ITEM: Final = 1
_NAME: Final = 2
_COLON: Final = 3
_NEXT: Final = 4
_RUN: Final = 6


class ObjectReader:
    """Follows one JSON object to its end, or to the byte that cannot belong to it. Stores one byte per nesting level,
    no text.

    `closer` is the closing bracket of the innermost open object or array, `outer` are those of the enclosing ones.
    """

    __slots__ = ("closer", "escaped", "is_name", "mode", "outer")

    def __init__(self) -> None:
        self.outer = bytearray()
        self.begin()

    def begin(self) -> None:
        """Starts at the object's brace."""
        self.mode = _VALUE
        self.closer = 0
        self.outer.clear()
        self.is_name = False
        self.escaped = False

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """Reads from `pos` to `end`, or until `mode` is `WHOLE` (returns the position after the last brace) or `WRONG`
        (returns the position of the offending byte)."""
        if self.mode == STRING:
            pos = self._string(buf, pos, end)
        return pos if pos == end else self._structure(buf, pos, end)

    def _structure(self, buf: bytes, pos: int, end: int) -> int:
        while pos < end:
            mode = self.mode
            if mode == STRING:
                pos = self._string(buf, pos, end)
                continue
            byte = buf[pos]
            if mode == _RUN:
                if _is_scalar(byte):
                    pos += 1
                else:
                    self.mode = _NEXT
                continue
            if byte in b" \t\r\n":
                pos += 1
                continue
            if byte == ord('"') and mode <= _NAME:
                self.is_name = mode == _NAME
                self.mode = STRING
            elif byte in b"{[" and mode <= _ITEM:
                self._push(byte + 2)
            elif byte == self.closer and mode in (_ITEM, _NAME, _NEXT):
                self._pop()
            elif byte == ord(",") and mode == _NEXT:
                self.mode = _NAME if self.closer == ord("}") else _ITEM
            elif byte == ord(":") and mode == _COLON:
                self.mode = _VALUE
            elif mode <= _ITEM and _is_scalar(byte):
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
        while pos < end:
            byte = buf[pos]
            if byte == ord('"'):
                self.mode = _COLON if self.is_name else _NEXT
                return pos + 1
            pos += 2 if byte == ord("\\") else 1
        self.escaped = pos > end
        return end

    def _push(self, closer: int) -> None:
        if len(self.outer) == MAX_DEPTH:
            self.mode = WRONG
            return
        self.outer.append(self.closer)
        self.closer = closer
        self.mode = _NAME if closer == ord("}") else _ITEM

    def _pop(self) -> None:
        self.closer = self.outer.pop()
        self.mode = _NEXT if self.closer else WHOLE


def _is_scalar(byte: int) -> bool:
    return byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."
