"""Streams one JSON value early (R6.13): outputs the part of it that is certain. See `live.py`.

`ObjectReader` finds the end of the model's text, however it is written. `JsonText` reads the same bytes strictly, one
step behind, and stops for good at the first violation of RFC 8259. Its output until then is the beginning of valid
JSON, and of any repaired form of the text.
"""

from __future__ import annotations

import re
from typing import Final

from ..repair.relaxed_json import MAX_DEPTH
from ._grammar import SPACE

_SPACE: Final = SPACE.encode()
_QUOTE: Final = ord('"')
_SLASH: Final = ord("\\")
SCALAR: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."
_WHOLE_SCALAR: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]+')
HEX: Final = b"0123456789abcdefABCDEF"
ESCAPES: Final = {ord(a): ord(b) for a, b in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True)}

# States of `JsonText`.
_VALUE: Final = 0
_FIRST_ITEM: Final = 1
_FIRST_KEY: Final = 2
_KEY: Final = 3
_COLON: Final = 4
_NEXT: Final = 5
_STRING: Final = 6
_ESCAPE: Final = 7
_DIGITS: Final = 8
_WORD: Final = 9
ENDED: Final = 10
FAILED: Final = 11


class JsonText:
    """Reads one JSON value while it comes, and outputs its certain part: text that cannot change any more. Whole tokens
    and characters of strings (escapes as a whole) are certain. A comma, an opening bracket or the end of a string is
    certain only when something valid follows, the outermost brackets never. The output of an object or array alone is
    therefore never valid JSON.

    `has_output`: something was output. `compact`: whitespace between tokens is removed. `roots`: possible first bytes
    of the value.
    """

    __slots__ = (
        "_arrays",
        "_compact",
        "_depth",
        "_digits",
        "_held",
        "_is_key",
        "_ready",
        "_roots",
        "_token",
        "has_output",
        "mode",
    )

    def __init__(self) -> None:
        self._held = bytearray()
        self._ready = bytearray()
        self.begin(False)

    def begin(self, compact: bool, roots: bytes = b"{") -> None:
        """Starts a value at the next byte (or after whitespace). Output that was not taken yet stays."""
        self._compact = compact
        self._roots = roots
        self._held.clear()
        self._arrays = 0
        self._depth = 0
        self._digits = 0
        self._token = 0
        self._is_key = False
        self.has_output = False
        self.mode = _VALUE

    def take(self) -> bytes:
        """Returns the output that became certain since the last call."""
        ready = bytes(self._ready)
        self._ready.clear()
        return ready

    def rest(self) -> bytes:
        """Returns the remaining output of a value that has ended."""
        return bytes(self._held)

    @property
    def is_blank(self) -> bool:
        """True if only whitespace was read."""
        return self.mode == _VALUE and self._depth == 0

    @property
    def in_string(self) -> bool:
        """True inside a string but not in an escape, so that more text of the string changes no state."""
        return self.mode == _STRING

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """Reads up to `end`, or until `mode` is `ENDED` or `FAILED`. Returns the position after the last byte read."""
        while pos < end and self.mode < ENDED:
            mode = self.mode
            byte = buf[pos]
            if mode == _STRING:
                plain = PLAIN.match(buf, pos, end)
                if plain is not None:
                    self._be_certain(plain[0])
                    pos = plain.end()
                    continue
                self._in_string(byte)
            elif mode == _WORD:
                if byte not in SCALAR:
                    self._end_word()
                    continue
                self._held.append(byte)
            elif mode in (_ESCAPE, _DIGITS):
                self._escape(byte)
            elif byte in _SPACE:
                if not self._compact:
                    self._held.append(byte)
            else:
                self._token_begins(byte)
            pos += 1
        return pos

    def _be_certain(self, more: bytes) -> None:
        self._ready += self._held
        self._ready += more
        self._held.clear()
        self.has_output = True

    def _in_string(self, byte: int) -> None:
        if byte == _QUOTE:
            self._held.append(byte)
            self._value_ended()
            if self._is_key:
                self.mode = _COLON
        elif byte == _SLASH:
            self._held.append(byte)
            self.mode = _ESCAPE
        else:
            self.mode = FAILED

    def _escape(self, byte: int) -> None:
        self._held.append(byte)
        if self.mode == _ESCAPE and byte == ord("u"):
            self._digits = 4
            self.mode = _DIGITS
            return
        self._digits -= 1
        if byte not in (ESCAPES if self.mode == _ESCAPE else HEX):
            self.mode = FAILED
        elif self.mode == _ESCAPE or self._digits == 0:
            self._be_certain(b"")
            self.mode = _STRING

    def _end_word(self) -> None:
        if _WHOLE_SCALAR.fullmatch(self._held, self._token):
            self._be_certain(b"")
            self._value_ended()
        else:
            self.mode = FAILED

    def _value_ended(self) -> None:
        self.mode = _NEXT if self._depth else ENDED

    def _token_begins(self, byte: int) -> None:
        mode = self.mode
        in_array = self._arrays & 1
        value = mode in (_VALUE, _FIRST_ITEM)
        if self._depth == 0 and byte not in self._roots:
            self.mode = FAILED
        elif byte == _QUOTE and (value or mode in (_FIRST_KEY, _KEY)):
            self._is_key = not value
            self._be_certain(b'"')
            self.mode = _STRING
        elif byte in b"{[" and value and self._depth < MAX_DEPTH:
            self._open(byte)
        elif byte in SCALAR and value:
            self._token = len(self._held)
            self._held.append(byte)
            self.mode = _WORD
        elif byte == (ord("]") if in_array else ord("}")) and mode in (_FIRST_ITEM, _FIRST_KEY, _NEXT):
            self._close(byte)
        elif byte == ord(",") and mode == _NEXT:
            self._held.append(byte)
            self.mode = _VALUE if in_array else _KEY
        elif byte == ord(":") and mode == _COLON:
            self._be_certain(b":")
            self.mode = _VALUE
        else:
            self.mode = FAILED

    def _open(self, bracket: int) -> None:
        array = bracket == ord("[")
        self._held.append(bracket)
        self._depth += 1
        self._arrays = self._arrays << 1 | array
        self.mode = _FIRST_ITEM if array else _FIRST_KEY

    def _close(self, bracket: int) -> None:
        self._depth -= 1
        self._arrays >>= 1
        if self._depth:
            self._be_certain(b"]" if bracket == ord("]") else b"}")
        else:
            self._held.append(bracket)
        self._value_ended()
