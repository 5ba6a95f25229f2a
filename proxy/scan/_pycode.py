"""Following what is not JSON, character by character: part of the Python twin, see `_pyparse.py`.

Like `_pyjson.py` these answer one question, where the thing ends. What it means, and whether it means anything, is said
once it is whole (`proxy/scan/literals.py`).
"""

from __future__ import annotations

from typing import Final

from ._grammar import MAX_DEPTH, SPACE
from ._pyjson import STRING, WHOLE, WRONG

_SPACE: Final = SPACE.encode()
_NAME: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_BEHIND: Final = b",)]}:"
_CLOSERS: Final = {ord("("): ord(")"), ord("["): ord("]"), ord("{"): ord("}")}

# What a reader waits for, besides those of `ObjectReader`.
_FIRST: Final = 20
_CALLEE: Final = 21
_INSIDE: Final = 22
_QUOTED: Final = 23


class CodeReader:
    """Follows a call, or a list of calls, as Python writes it; in the list there may be JSON instead.

    Models often leave quotes inside strings as they are, so a quote ends its string only if a comma, colon or closing
    bracket comes next, whitespace aside. Where a string is well-formed that changes nothing. `inside`: past the first
    callee's name, or in the first object.
    """

    __slots__ = ("escaped", "inside", "listed", "mode", "quote", "stack")

    def __init__(self) -> None:
        self.stack = bytearray()
        self.begin(False)

    def begin(self, listed: bool) -> None:
        """The next byte is the list's bracket, or else the first one of the callee's name."""
        self.mode = _FIRST
        self.listed = listed
        self.stack.clear()
        self.quote = 0
        self.escaped = False
        self.inside = False

    def begin_object(self) -> None:
        """What was read is the brace of an object."""
        self.begin(False)
        self._push(ord("{"))

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """See `ObjectReader.read`."""
        while pos < end:
            byte = buf[pos]
            mode = self.mode
            if mode == STRING:
                if self.escaped:
                    self.escaped = False
                elif byte == self.quote:
                    self.mode = _QUOTED
                elif byte == ord("\\"):
                    self.escaped = True
            elif mode == _QUOTED:
                if byte in _BEHIND:
                    self.mode = _INSIDE
                    continue
                if byte not in _SPACE and byte != self.quote:
                    self.mode = STRING
                    continue
            elif mode == _INSIDE:
                if byte in b"'\"":
                    self.quote = byte
                    self.mode = STRING
                elif byte in _CLOSERS:
                    self._push(byte)
                elif byte in b")]}":
                    if _CLOSERS[self.stack[-1]] != byte:
                        self.mode = WRONG
                    else:
                        self.stack.pop()
                        if not self.stack:
                            self.mode = WHOLE
            elif mode == _CALLEE:
                if byte == ord("("):
                    self._push(byte)
                elif byte not in _NAME and byte < 0x80:
                    self.mode = WRONG
            elif byte == ord("[") and self.listed and not self.stack:
                self.stack.append(byte)
            elif byte == ord("{") and self.stack:
                self._push(byte)
            elif (byte in _NAME and not chr(byte).isdigit() and byte not in b".-") or byte >= 0x80:
                self.mode = _CALLEE
            elif not (byte in _SPACE and self.stack):
                self.mode = WRONG
            if self.mode == WRONG:
                return pos
            pos += 1
            if self.mode == WHOLE:
                return pos
        return pos

    def _push(self, bracket: int) -> None:
        if len(self.stack) == MAX_DEPTH:
            self.mode = WRONG
            return
        self.stack.append(bracket)
        self.inside = True
        self.mode = _INSIDE


class BracesReader:
    """Follows `{...}` with strings between two literals that never stand for themselves inside."""

    __slots__ = ("literal", "matched", "mode", "stack")

    def __init__(self) -> None:
        self.stack = bytearray()
        self.begin(b"")

    def begin(self, literal: bytes) -> None:
        """The next byte is the brace; `literal` stands around strings."""
        self.mode = _INSIDE
        self.stack.clear()
        self.literal = literal
        self.matched = 0

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """See `ObjectReader.read`."""
        literal = self.literal
        while pos < end:
            byte = buf[pos]
            if byte == literal[self.matched]:
                self.matched += 1
                if self.matched == len(literal):
                    self.matched = 0
                    self.mode = _INSIDE if self.mode == STRING else STRING
            elif self.mode == STRING:
                self.matched = int(byte == literal[0])
            elif self.matched:
                self.mode = WRONG
            elif byte in b"{[":
                if len(self.stack) == MAX_DEPTH:
                    self.mode = WRONG
                else:
                    self.stack.append(byte)
            elif byte in b"}]":
                if _CLOSERS[self.stack[-1]] != byte:
                    self.mode = WRONG
                else:
                    self.stack.pop()
                    if not self.stack:
                        self.mode = WHOLE
            if self.mode == WRONG:
                return pos
            pos += 1
            if self.mode == WHOLE:
                return pos
        return pos
