"""The common base of followers of a model's own syntax: `follow_code.py` (which has the rules) and
`follow_braces.py`."""

from __future__ import annotations

import re
from typing import Final

from ..repair.literals import json_string
from ._pystring import NO_STRING, UNSAID

SPACE: Final = re.compile(r"[ \t\r\n]+")
LONGEST: Final = 1024
"""Maximum length of a word, or of text after a quote, in characters. After a longer one nothing more is sent early."""

_CLOSERS: Final = {"[": "]", "{": "}"}

# States common to all followers.
START: Final = 0
NAME: Final = 3
ITEM: Final = 4
KEY: Final = 5
COLON: Final = 7
VALUE: Final = 8
WORD: Final = 9
NEXT: Final = 10
TEXT: Final = 12
STUCK: Final = 16


class SyntaxFollower:
    """Reads a call while it comes, and outputs those parts of its arguments that are certain.

    `begun`: a call's arguments have begun, so the scanner must open it. `name` is its name, `start` its offset.
    `passed` are earlier calls without arguments, each with name and offset. `is_json`: it is JSON, and another follower
    must read it from the start.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.start = 0
        self.begun = False
        self.passed: list[tuple[str, int]] = []
        self.is_json = False
        self._ready: list[str] = []
        self._state = START
        self._stack: list[str] = []
        self._token = ""
        self._high = ""
        self._is_key = False
        self._comma = False
        # The offset up to which the text was read, and the number of characters up to there.
        self._seen = 0
        self._counted = 0

    @property
    def string(self) -> tuple[int, bytes]:
        """The kind of the current string and the bytes that end it, see `LiveCalls`."""
        if self._state == STUCK:
            return UNSAID, b""
        if self._state != TEXT or self._token or self._high or not self.begun:
            return NO_STRING, b""
        return self._kind_of_string()

    def _kind_of_string(self) -> tuple[int, bytes]:
        """Returns the kind and stops while inside a string."""
        raise NotImplementedError  # abstract: each syntax says it

    def read(self, buf: bytes, pos: int, offset: int) -> int:
        """Reads the next bytes (whole characters), the first one of `buf` at `offset`; returns where to continue. Stops
        early when `begun` changes, because the scanner must act first."""
        text = buf[pos:].decode()
        begun = self.begun
        self._seen = offset + pos
        self._counted = at = 0
        while at < len(text) and self._state != STUCK and not self.is_json and self.begun == begun:
            at = self._step(text, at)
        return len(buf) if self._state == STUCK else self._count(text, at) - offset

    def take(self) -> bytes:
        """Returns the arguments that became certain since the last call, as whole characters."""
        ready = "".join(self._ready).encode()
        self._ready.clear()
        return ready

    def _count(self, text: str, at: int) -> int:
        """Returns the offset of a character."""
        self._seen += len(text[self._counted : at].encode())
        self._counted = at
        return self._seen

    def _step(self, text: str, at: int) -> int:
        """Reads the token at `at`; returns where to continue."""
        raise NotImplementedError  # abstract: each syntax says it

    def _stick(self, at: int) -> int:
        """Stops following: nothing more of the call is certain. Returns `at`."""
        self._state = STUCK
        return at

    def _more_of_word(self, found: re.Match[str]) -> int:
        self._token += found[0]
        return found.end() if len(self._token) <= LONGEST else self._stick(found.end())

    def _give(self, text: str) -> None:
        """Outputs certain text outside strings, preceded by a pending comma."""
        if self._comma:
            self._ready.append(",")
            self._comma = False
        self._ready.append(text)

    def _give_text(self, text: str) -> None:
        """Outputs certain text of a string. Half a surrogate pair waits for the other half."""
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        if text:
            self._ready.append(json_string(text)[1:-1])

    def _end_text(self) -> None:
        if self._high:
            self._ready.append(json_string(self._high)[1:-1])
            self._high = ""
        self._ready.append('"')
        self._state = COLON if self._is_key else NEXT

    def _open(self, bracket: str) -> None:
        self._give(bracket)
        self._stack.append(_CLOSERS[bracket])
        self._state = ITEM

    def _give_word(self, value: str) -> None:
        """Outputs a number or constant."""
        self._token = ""
        self._give(value)
        self._state = COLON if self._is_key else NEXT
