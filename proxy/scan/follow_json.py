"""Streams JSON calls early (R6.13): their names, and their arguments with `json_text.py`. See `live.py`."""

from __future__ import annotations

from typing import Final

from ._grammar import SPACE
from ._pystring import JSON_STRING, NESTED_STRING, NO_STRING, UNSAID
from .json_text import ENDED, ESCAPES, FAILED, HEX, PLAIN, SCALAR, JsonText

_SPACE: Final = SPACE.encode()
_QUOTE: Final = ord('"')
_SLASH: Final = ord("\\")
_ROOTS: Final = b'{["' + SCALAR
_UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}".encode()

# States of `CallFollower`.
_CALLS: Final = 0
_NAME_KEY: Final = 1
_NEXT_KEY: Final = 2
_IN_KEY: Final = 3
_BEFORE_VALUE: Final = 4
_ANY: Final = 5
_OTHER: Final = 6
_NAME: Final = 7
_OBJECT: Final = 8
_TEXT: Final = 9
_BEHIND: Final = 10
_ITEM: Final = 11
_NEXT_ITEM: Final = 12
_BEHIND_ITEM: Final = 13
LOST: Final = 14

_VALUES: Final = (_OBJECT, _OTHER)
_STRINGS: Final = (_TEXT, _NAME)

# Kinds of the enclosing objects and arrays.
_LIST: Final = 0
_CALL: Final = 1
_INNER: Final = 2

Passed = tuple[str, int]
"""The name of a call without arguments, and its offset."""


class CallFollower:
    """Reads the JSON of calls while it comes: an object, an array of them, or an object with such an array as
    `tool_calls`; also OpenAI's nested `function`. Extracts the arguments: an object as written or without whitespace, a
    string as the text it contains.

    `is_json`: always False, see `PythonFollower`. `begun`: the name and first bytes of a call's arguments are known, so
    the scanner must open it. `name` is its name, `start` its offset, `passed` are earlier calls without arguments.
    """

    __slots__ = (
        "_code",
        "_compact",
        "_escaped",
        "_high",
        "_inside",
        "_key",
        "_listed",
        "_mode",
        "_names",
        "_objects",
        "_other",
        "_parameters",
        "_text",
        "_word",
        "begun",
        "is_json",
        "name",
        "passed",
        "start",
    )

    def __init__(self) -> None:
        self._text = JsonText()
        self._other = JsonText()
        self._key = bytearray()
        self._word = bytearray()
        self._inside: list[int] = []
        self.passed: list[Passed] = []
        self.name: str | None = None
        self.is_json = False
        self.begin((), (), True, False, False, 0)

    def begin(
        self,
        names: tuple[bytes, ...],
        parameters: tuple[bytes, ...],
        objects: bool,
        compact: bool,
        listed: bool,
        start: int,
    ) -> None:
        """Starts at a bracket at offset `start`. `names` and `parameters` are the keys of name and arguments.
        `objects`: arguments may be an object, sent without whitespace if `compact`. `listed`: an array of calls is
        allowed."""
        self._names = names
        self._parameters = parameters
        self._objects = objects
        self._compact = compact
        self._listed = listed
        self._inside.clear()
        self.passed.clear()
        self._mode = _CALLS
        self._escaped = False
        self._code = -1
        self._high = 0
        self._text.take()
        self._begin_call(start)

    def begin_arguments(self) -> None:
        """Starts at the brace of arguments whose call has its name elsewhere."""
        self.begin((), (), True, False, False, 0)
        self.name = ""
        self._mode = _OBJECT

    def _begin_call(self, start: int) -> None:
        self.start = start
        self.name = None
        self.begun = False
        self._text.begin(False)

    def take(self) -> bytes:
        """Returns the arguments that became certain since the last call."""
        return self._text.take()

    @property
    def string(self) -> tuple[int, bytes]:
        """The kind of the current string and the bytes that end it, see `LiveCalls`."""
        if self._mode == LOST:
            return UNSAID, b""
        if not (self.begun and self._text.in_string):
            return NO_STRING, b""
        if self._mode == _OBJECT:
            return JSON_STRING, b""
        cut = self._escaped or self._code >= 0 or self._high
        return NESTED_STRING if self._mode == _TEXT and not cut else NO_STRING, b""

    def read(self, buf: bytes, pos: int, offset: int) -> int:
        """Reads the next bytes, the first one at `offset`; returns where to continue. Stops early when `begun` changes,
        because the scanner must act first."""
        end = len(buf)
        begun = self.begun
        while pos < end and self._mode != LOST and self.begun == begun:
            mode = self._mode
            if mode in _VALUES:
                text = self._text if mode == _OBJECT else self._other
                pos = text.read(buf, pos, end)
                if text.mode == ENDED:
                    self._mode = _BEHIND
                elif text.mode == FAILED:
                    self._mode = LOST
                if not begun:
                    self._look()
                continue
            if mode in _STRINGS:
                pos = self._string(buf, pos, end)
                continue
            byte = buf[pos]
            pos += 1
            if mode == _IN_KEY:
                self._in_key(byte)
            elif byte in _SPACE:
                pass
            elif mode == _ANY:
                pos -= self._begin_value(byte)
            else:
                self._bracket(byte, offset + pos - 1)
        return end if self._mode == LOST else pos

    def _look(self) -> None:
        """Sets `begun` if the call can be opened."""
        if self._text.has_output and self.name is not None:
            self.begun = True

    def _bracket(self, byte: int, at: int) -> None:
        """Reads a byte between keys and values."""
        mode = self._mode
        if byte == _QUOTE and mode in (_NAME_KEY, _NEXT_KEY):
            self._key.clear()
            self._mode = _IN_KEY
        elif byte == ord(":") and mode == _BEFORE_VALUE:
            self._mode = _ANY
        elif byte == ord(",") and mode == _BEHIND:
            self._mode = _NEXT_KEY
        elif byte == ord(",") and mode == _BEHIND_ITEM:
            self._mode = _NEXT_ITEM
        elif byte == ord("{") and mode in (_CALLS, _ITEM, _NEXT_ITEM):
            if mode != _CALLS:
                self._begin_call(at)
            self._inside.append(_CALL)
            self._mode = _NAME_KEY
        elif byte == ord("[") and mode == _CALLS and self._listed:
            self._inside.append(_LIST)
            self._mode = _ITEM
        elif byte == ord("}") and mode in (_NAME_KEY, _BEHIND):
            self._close_object()
        elif byte == ord("]") and mode in (_ITEM, _BEHIND_ITEM):
            self._inside.pop()
            self._mode = _BEHIND if self._inside else LOST
        else:
            self._mode = LOST

    def _close_object(self) -> None:
        closed = self._inside.pop()
        if closed == _INNER:
            self._mode = _BEHIND
        elif not self._inside:
            self._mode = LOST  # there is no more
        elif self.name is None:
            self._mode = LOST  # no call
        else:
            if not self.begun:
                self.passed.append((self.name, self.start))
            self._mode = _BEHIND_ITEM

    def _in_key(self, byte: int) -> None:
        if byte == _SLASH or byte < 0x20:
            self._mode = LOST  # no key that is looked for has to be escaped
        elif byte != _QUOTE:
            self._key.append(byte)
        elif self._names:
            self._mode = _BEFORE_VALUE
        else:  # the name is the key
            self._mode = LOST if self.name is not None else _BEFORE_VALUE
            self.name = self._key.decode()

    def _begin_value(self, byte: int) -> int:
        """Reads the first byte of a value. Returns 1 if the byte must be read again, else 0."""
        key = bytes(self._key)
        wanted = key in self._parameters or not self._names
        if wanted and self._text.has_output:
            self._mode = LOST  # a second time
        elif byte == _QUOTE and (wanted or key in self._names):
            self._word.clear()
            self._mode = _TEXT if wanted else _NAME
            if wanted:
                self._text.begin(False)
            elif self.name is not None:
                self._mode = LOST
            return 0
        elif byte == ord("{") and wanted and self._objects:
            self._text.begin(self._compact)
            self._mode = _OBJECT
        elif wanted and byte != ord("n"):
            self._mode = LOST  # neither an object nor a string, nor null
        elif self.name is None and key == b"function" and byte == ord("{") and self._inside[-1] == _CALL:
            self._inside.append(_INNER)
            self._mode = _NAME_KEY
            return 0
        elif self.name is None and key == b"tool_calls" and byte == ord("[") and self._inside == [_CALL]:
            self._inside.append(_LIST)
            self._mode = _ITEM
            return 0
        else:
            self._other.begin(True, _ROOTS)
            self._mode = _OTHER
        return 1

    def _string(self, buf: bytes, pos: int, end: int) -> int:
        """Reads more of a string whose text is needed."""
        plain = None if self._code >= 0 or self._escaped or self._high else PLAIN.match(buf, pos, end)
        if plain is not None and self._mode == _TEXT:
            self._pass_text(plain[0])
            return plain.end()
        if plain is not None:
            self._word += plain[0]
            return plain.end()
        if buf[pos] == _QUOTE and self._code < 0 and not self._escaped:
            self._settle_high()
            self._end_string()
            return pos + 1
        self._in_string(buf[pos])
        if self._mode == _TEXT and self._word:
            self._pass_word()
        return pos + 1

    def _in_string(self, byte: int) -> None:
        """Reads a byte of an escape, or after half a surrogate pair."""
        if self._code >= 0:  # the digits of \uXXXX, after a leading bit that counts them
            if byte not in HEX:
                self._mode = LOST
                return
            self._code = self._code << 4 | int(chr(byte), 16)
            if self._code >= 0x10000:
                self._unit(self._code & 0xFFFF)
                self._code = -1
        elif self._escaped:
            self._escaped = False
            if byte == ord("u"):
                self._code = 1
            elif byte in ESCAPES:
                self._settle_high()
                self._word.append(ESCAPES[byte])
            else:
                self._mode = LOST
        elif byte == _SLASH:
            self._escaped = True
        elif byte < 0x20:
            self._mode = LOST
        else:
            self._settle_high()
            self._word.append(byte)

    def _pass_text(self, more: bytes) -> None:
        """Reads more of the text that contains the arguments."""
        text = self._text
        used = text.read(more, 0, len(more))
        if text.mode == FAILED or (used < len(more) and more[used:].strip(_SPACE)):
            self._mode = LOST
        if not self.begun:
            self._look()

    def _pass_word(self) -> None:
        """Reads such text that was written with escapes."""
        more = bytes(self._word)
        self._word.clear()
        self._pass_text(more)

    def _end_string(self) -> None:
        if self._mode == _NAME:
            self.name = self._word.decode()
            self._mode = _BEHIND
            self._look()
            return
        self._pass_word()
        if self._mode != LOST and self._text.mode != ENDED and not self._text.is_blank:
            self._mode = LOST
        elif self._mode != LOST:
            self._mode = _BEHIND

    def _unit(self, unit: int) -> None:
        """Takes a UTF-16 unit: pairs are joined, lone surrogates replaced."""
        if self._high and 0xDC00 <= unit <= 0xDFFF:
            self._word += chr(0x10000 + (self._high - 0xD800 << 10) + unit - 0xDC00).encode()
            self._high = 0
            return
        self._settle_high()
        if 0xD800 <= unit <= 0xDBFF:
            self._high = unit
        else:
            self._word += _UNKNOWN if 0xDC00 <= unit <= 0xDFFF else chr(unit).encode()

    def _settle_high(self) -> None:
        if self._high:
            self._word += _UNKNOWN
            self._high = 0
