"""Finds the end of text that is not JSON (Python calls, Gemma's braces), character by character.

Like `json.py` it only answers where the value ends. `proxy/repair/literals.py` reads the complete value.
"""

from __future__ import annotations

from typing import Final

from .._grammar import MAX_DEPTH
from ..modes import STRING, WHOLE, WRONG

# States besides those in `modes`.
_FIRST: Final = 20
_CALLEE: Final = 21
_INSIDE: Final = 22
_QUOTED: Final = 23


class CodeReader:
    """Follows a Python call or a list of calls; the list may contain JSON instead.

    Models often leave quotes inside strings unescaped, so a quote ends its string only if a comma, colon or closing
    bracket follows (after whitespace). For well-formed strings this changes nothing. `inside`: past the first callee's
    name, or in the first object. `closers` are the closing brackets of the open ones.
    """

    __slots__ = ("closers", "escaped", "inside", "listed", "mode", "quote")

    def __init__(self) -> None:
        self.closers = bytearray()
        self.begin(False)

    def begin(self, listed: bool) -> None:
        """Starts at the list's bracket (`listed`) or at the callee's name."""
        self.mode = _FIRST
        self.listed = listed
        self.closers.clear()
        self.quote = 0
        self.escaped = False
        self.inside = False

    def begin_object(self) -> None:
        """Starts after the brace of an object."""
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
                if byte in b",)]}:":
                    self.mode = _INSIDE
                    continue
                if byte != self.quote and byte not in b" \t\r\n":
                    self.mode = STRING
                    continue
            elif mode == _INSIDE:
                if byte in b"'\"":
                    self.quote = byte
                    self.mode = STRING
                elif byte in b"([{":
                    self._push(byte)
                elif byte in b")]}":
                    self._pop(byte)
            elif mode == _CALLEE:
                if byte == ord("("):
                    self._push(byte)
                elif byte not in b".-" and not _is_word(byte):
                    self.mode = WRONG
            elif byte == ord("[") and self.listed and not len(self.closers):
                self.closers.append(ord("]"))
            elif byte == ord("{") and len(self.closers):
                self._push(byte)
            elif _is_word(byte) and byte not in b"0123456789":
                self.mode = _CALLEE
            elif byte not in b" \t\r\n" or not len(self.closers):
                self.mode = WRONG
            if self.mode == WRONG:
                return pos
            pos += 1
            if self.mode == WHOLE:
                return pos
        return pos

    def _push(self, bracket: int) -> None:
        if len(self.closers) == MAX_DEPTH:
            self.mode = WRONG
            return
        self.closers.append(_closer(bracket))
        self.inside = True
        self.mode = _INSIDE

    def _pop(self, bracket: int) -> None:
        if self.closers.pop() != bracket:
            self.mode = WRONG
        elif not len(self.closers):
            self.mode = WHOLE


class BracesReader:
    """Follows `{...}` with strings between two literals, which cannot occur inside strings. `before` is the last
    byte outside of strings that is not blank: a literal where no value can begin ends a string whose first literal is
    missing (Gemma 4 leaves it out often)."""

    __slots__ = ("before", "closers", "literal", "matched", "mode")

    def __init__(self) -> None:
        self.closers = bytearray()
        self.begin(b"")

    def begin(self, literal: bytes) -> None:
        """Starts at the opening brace of an object in which `literal` stands on both sides of strings."""
        self.mode = _INSIDE
        self.closers.clear()
        self.literal = literal
        self.matched = 0
        self.before = ord("{")

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """See `ObjectReader.read`."""
        literal = self.literal
        while pos < end:
            byte = buf[pos]
            if byte == literal[self.matched]:
                self.matched += 1
                if self.matched == len(literal):
                    self.matched = 0
                    self.mode = STRING if self.mode == _INSIDE and self.before in b":=,[{(" else _INSIDE
                    self.before = byte
            elif self.mode == STRING:
                self.matched = byte == literal[0]
            elif self.matched:
                self.mode = WRONG
            elif byte in b"{[":
                if len(self.closers) == MAX_DEPTH:
                    self.mode = WRONG
                else:
                    self.closers.append(_closer(byte))
            elif byte in b"}]":
                if self.closers.pop() != byte:
                    self.mode = WRONG
                elif not len(self.closers):
                    self.mode = WHOLE
            if self.mode == WRONG:
                return pos
            if self.mode == _INSIDE and not self.matched and byte not in b" \t\r\n":
                self.before = byte
            pos += 1
            if self.mode == WHOLE:
                return pos
        return pos


def _closer(bracket: int) -> int:
    return bracket + 1 if bracket == ord("(") else bracket + 2


def _is_word(byte: int) -> bool:
    return byte >= 0x80 or byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
