"""Taking the arguments out of a call's object while it comes (R6.13): part of the Python twin, see `_pyparse.py`.

Reads an object that `ObjectReader` reads as well, one step behind it, and looks only at what stands on its first level. What it
gives is what the judge will make of the whole object where that is well-formed; where it is not, the scanner notices in the end.
"""

from __future__ import annotations

from typing import Final

from ._grammar import SPACE

_SPACE: Final = SPACE.encode()
_QUOTE: Final = ord('"')
_SLASH: Final = ord("\\")
_ESCAPES: Final = {ord(a): ord(b) for a, b in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True)}
_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}".encode()

# What comes next: in the object, in one of its keys or values.
_OUTSIDE: Final = 0
_KEY: Final = 1
_COLON: Final = 2
_VALUE: Final = 3
_OTHER: Final = 4
_NAME: Final = 5
_OBJECT: Final = 6
_TEXT: Final = 7


class ArgumentFollower:
    """`name`, once it is known; the arguments in pieces, from `take`: an object as it was written, a string as the text that
    it holds."""

    __slots__ = (
        *("_code", "_depth", "_escaped", "_high", "_in_string", "_key", "_mode", "_names", "_objects", "_parameters"),
        *("_ready", "_word", "name"),
    )

    def __init__(self) -> None:
        self._ready = bytearray()
        self._key = bytearray()
        self._word = bytearray()
        self.begin((), (), True)

    def begin(self, names: tuple[bytes, ...], parameters: tuple[bytes, ...], objects: bool) -> None:
        """The next byte is the object's brace. `names` and `parameters` are the keys of name and arguments; with `objects`
        arguments may be an object."""
        self._names = names
        self._parameters = parameters
        self._objects = objects
        self.name: str | None = None
        self._mode = _OUTSIDE
        self._depth = 0
        self._in_string = self._escaped = False
        self._code = -1
        self._high = 0
        self._ready.clear()
        self._key.clear()
        self._word.clear()

    def take(self) -> bytes:
        """The arguments that have come since the last call: whole characters."""
        ready = bytes(self._ready)
        self._ready.clear()
        return ready

    def read(self, more: bytes) -> None:
        """The next bytes of the object."""
        for byte in more:
            mode = self._mode
            if mode == _TEXT:
                self._text(byte, self._ready)
            elif mode == _NAME:
                self._text(byte, self._word)
                if self._mode != _NAME:
                    self.name = self._word.decode()
            elif mode == _KEY:
                self._in_key(byte)
            elif mode >= _OTHER:
                self._in_value(byte)
            elif mode == _VALUE:
                if byte not in _SPACE:
                    self._begin_value(byte)
            elif mode == _COLON:
                if byte == ord(":"):
                    self._mode = _VALUE
            elif byte == _QUOTE:
                self._mode = _KEY
                self._key.clear()

    def _in_key(self, byte: int) -> None:
        if self._escaped:
            self._escaped = False
        elif byte == _SLASH:
            self._escaped = True
        elif byte == _QUOTE:
            self._mode = _COLON
            return
        self._key.append(byte)

    def _begin_value(self, byte: int) -> None:
        key = bytes(self._key)
        self._depth = 0
        self._mode = _OTHER
        if byte == _QUOTE and key in self._names:
            self._mode = _NAME
            self._word.clear()
        elif byte == _QUOTE and key in self._parameters:
            self._mode = _TEXT
        else:
            if byte == ord("{") and key in self._parameters and self._objects:
                self._mode = _OBJECT
            self._in_value(byte)

    def _in_value(self, byte: int) -> None:
        """A value that is skipped, or passed on: up to the end of its brackets, or to what follows a scalar."""
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif byte == _SLASH:
                self._escaped = True
            elif byte == _QUOTE:
                self._in_string = False
        elif byte == _QUOTE:
            self._in_string = True
        elif byte in b"{[":
            self._depth += 1
        elif byte in b"}]":
            self._depth -= 1
        elif byte == ord(",") and self._depth == 0:
            self._mode = _OUTSIDE
            return
        if self._mode == _OBJECT:
            self._ready.append(byte)
            if self._depth == 0:
                self._mode = _OUTSIDE

    def _text(self, byte: int, to: bytearray) -> None:
        """A byte of a string whose text is wanted."""
        if self._code >= 0:  # the digits of \\uXXXX, behind a bit that counts them
            self._code = self._code << 4 | int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else 0x1FFFD
            if self._code >= 0x10000:
                self._unit(self._code & 0xFFFF, to)
                self._code = -1
        elif self._escaped:
            self._escaped = False
            if byte == ord("u"):
                self._code = 1
            else:
                self._settle_high(to)
                to.append(_ESCAPES.get(byte, byte))
        elif byte == _SLASH:
            self._escaped = True
        else:
            self._settle_high(to)
            if byte == _QUOTE:
                self._mode = _OUTSIDE
            else:
                to.append(byte)

    def _unit(self, unit: int, to: bytearray) -> None:
        """A UTF-16 unit: halves are joined, or replaced where they stand alone."""
        if self._high and 0xDC00 <= unit <= 0xDFFF:
            to += chr(0x10000 + (self._high - 0xD800 << 10) + unit - 0xDC00).encode()
            self._high = 0
            return
        self._settle_high(to)
        if 0xD800 <= unit <= 0xDBFF:
            self._high = unit
        else:
            to += _UNKNOWN if 0xDC00 <= unit <= 0xDFFF else chr(unit).encode()

    def _settle_high(self, to: bytearray) -> None:
        if self._high:
            to += _UNKNOWN
            self._high = 0
