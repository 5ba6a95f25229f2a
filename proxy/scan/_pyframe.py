"""Finds the text in one frame of a Chat stream. Part of the Python twin, see `_pychunk.py`. `_fastframe.pxi` is the
same with C types; it also reads and writes the escapes of the text, which this twin leaves to orjson."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_START: Final = re.compile(rb"data: ?(?=\{)")
_STRING: Final = re.compile(rb'"[^"\\\x00-\x1f]*"')
_CONTENT: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,31})(?:\.[0-9]{1,31})?(?:[eE][+-]?[0-9]{1,31})?")
_WORDS: Final = (b"null", b"true", b"false")
_SPACE: Final = b" \t"
_DEPTH: Final = 16
"""Deeper nested frames are declined."""
_TEXT: Final = b'"content"'
_REASONING: Final = (b'"reasoning_content"', b'"reasoning"', b'"reasoning_text"')


def find_text(frame: bytes) -> tuple[int, int, bool] | None:
    """Returns start and end of the text in a frame without other content, and whether it is reasoning; else None."""
    start = _START.match(frame)
    if start is None:
        return None
    reader = _FrameReader(frame)
    return (reader.start, reader.end, reader.reasoning) if reader.chunk(start.end()) == len(frame) else None


def is_text(frame: bytes, start: int, end: int) -> bool:
    """Returns True if the bytes between these positions are the content of one whole JSON string."""
    return _CONTENT.fullmatch(frame, start - 1, end + 1) is not None


class _FrameReader:
    """Reads one chunk. Each method returns the position after what it read, or -1 to decline the frame.

    `start` and `end` are the position of the text, once found; `reasoning` is its kind.
    """

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.start = self.end = -1
        self.reasoning = False
        self._key = b""
        self._choices = 0

    def chunk(self, pos: int) -> int:
        """Reads the top level: one choice, no error, no usage."""
        pos = self._members(pos, self._of_chunk)
        return pos if self.start >= 0 else -1

    def _of_chunk(self, key: bytes, pos: int) -> int:
        if key == b'"choices"':
            return self._array(pos)
        if key in (b'"error"', b'"usage"'):
            return self._null(pos)
        if key == b'"object"' and self._frame.startswith(b'"error"', pos):
            return -1
        return self._value(pos, _DEPTH)

    def _array(self, pos: int) -> int:
        """Reads the choices: exactly one."""
        self._choices += 1
        if self._choices > 1 or not self._frame.startswith(b"[", pos):
            return -1
        pos = self._space(self._members(self._space(pos + 1), self._of_choice))
        return pos + 1 if pos >= 0 and self._frame.startswith(b"]", pos) else -1

    def _of_choice(self, key: bytes, pos: int) -> int:
        """Reads a member of the choice: index 0, not finished."""
        if key == b'"delta"':
            return self._members(pos, self._of_delta) if self.start < 0 else -1
        if key == b'"index"':
            after = self._number(pos)
            return after if self._frame[pos:after] == b"0" else -1
        if key in (b'"finish_reason"', b'"logprobs"'):
            return self._null(pos)
        return self._value(pos, _DEPTH)

    def _of_delta(self, key: bytes, pos: int) -> int:
        """Reads a member of the delta: one text or reasoning; other members must be null, empty strings or a role."""
        if key == self._key:
            return -1
        if key == b'"role"' and self._frame.startswith(b'"', pos):
            return self._string(pos)
        if self._frame.startswith(b'""', pos):
            return pos + 2
        if self.start >= 0 or (key != _TEXT and key not in _REASONING):
            return self._null(pos)
        found = _CONTENT.match(self._frame, pos)
        if found is None:
            return self._null(pos)
        self._key = key
        self.reasoning = key != _TEXT
        self.start, self.end = pos + 1, found.end() - 1
        return found.end()

    def _members(self, pos: int, member: Callable[[bytes, int], int]) -> int:
        """Reads an object. `member` reads each value, given the key and the value's position."""
        frame = self._frame
        if pos < 0 or not frame.startswith(b"{", pos):
            return -1
        pos = self._space(pos + 1)
        if frame.startswith(b"}", pos):
            return pos + 1
        while True:
            after = self._string(pos)
            if after < 0:
                return -1
            key = frame[pos:after]
            pos = self._space(after)
            if not frame.startswith(b":", pos):
                return -1
            pos = self._space(member(key, self._space(pos + 1)))
            if pos < 0:
                return -1
            if frame.startswith(b"}", pos):
                return pos + 1
            if not frame.startswith(b",", pos):
                return -1
            pos = self._space(pos + 1)

    def _value(self, pos: int, depth: int) -> int:
        """Reads any value up to `depth` levels."""
        frame = self._frame
        if not depth:
            return -1
        if frame.startswith(b'"', pos):
            return self._string(pos)
        if frame.startswith(b"{", pos):
            return self._members(pos, lambda key, at: self._value(at, depth - 1))
        if not frame.startswith(b"[", pos):
            for word in _WORDS:
                if frame.startswith(word, pos):
                    return pos + len(word)
            return self._number(pos)
        pos = self._space(pos + 1)
        if frame.startswith(b"]", pos):
            return pos + 1
        while True:
            pos = self._space(self._value(pos, depth - 1))
            if pos >= 0 and frame.startswith(b"]", pos):
                return pos + 1
            if pos < 0 or not frame.startswith(b",", pos):
                return -1
            pos = self._space(pos + 1)

    def _null(self, pos: int) -> int:
        return pos + 4 if self._frame.startswith(b"null", pos) else -1

    def _string(self, pos: int) -> int:
        """Reads a string without escapes."""
        found = _STRING.match(self._frame, pos)
        return -1 if found is None else found.end()

    def _number(self, pos: int) -> int:
        found = _NUMBER.match(self._frame, pos)
        return -1 if found is None else found.end()

    def _space(self, pos: int) -> int:
        while 0 <= pos < len(self._frame) and self._frame[pos] in _SPACE:
            pos += 1
        return pos
