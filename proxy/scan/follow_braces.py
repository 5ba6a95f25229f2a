"""Streams calls in Gemma's braces early (R6.13). The rules are those of `follow_code.py`."""

from __future__ import annotations

import re
from typing import Final

from ..repair.literals import json_string, scalar
from ..repair.relaxed_json import MAX_DEPTH
from ._pystring import PLAIN_TEXT
from .follower import COLON, ITEM, KEY, NEXT, SPACE, START, STUCK, TEXT, VALUE, WORD, SyntaxFollower

_BARE_KEY: Final = re.compile(r"[^:,{}\[\]]+")
_BARE_VALUE: Final = re.compile(r"[^,{}\[\]]+")

_MARK: Final = 15
"""A further state of this follower: at the beginning of a string."""


class BracesFollower(SyntaxFollower):
    """Reads `{key:<q>text<q>,other:[1,true]}` while it comes; strings stand between two `quote`, here `<q>`."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self._quote = quote
        self._some = False

    def _step(self, text: str, at: int) -> int:
        state = self._state
        if state == TEXT:
            return self._in_string(text, at)
        if state == _MARK:
            return self._in_mark(text[at], at)
        if state in (KEY, WORD):
            return self._in_word(text, at)
        space = SPACE.match(text, at)
        if space is not None:
            return space.end()
        char = text[at]
        if state == START and char == "{":
            self._stack.append("}")
            self._state = ITEM
        elif state == ITEM and char == self._stack[-1]:
            self._comma = False
            self._close(char)
        elif state in (ITEM, VALUE):
            self._is_key = state == ITEM and self._stack[-1] == "}"
            return self._value(char, at)
        elif state == COLON and char == ":":
            self._give(":")
            self._state = VALUE
            self.begun = True
        elif state == NEXT and char == ",":
            self._comma = True
            self._state = ITEM
        elif state == NEXT and char == self._stack[-1]:
            self._close(char)
        else:
            return self._stick(at)
        return at + 1

    def _value(self, char: str, at: int) -> int:
        if char in ('"', "'"):
            return self._stick(at)  # JSON after all, perhaps
        if not self._some:
            self._give("{")
            self._some = True
        if char == self._quote[0]:
            self._state = _MARK
            return at
        if char in "{[" and not self._is_key and len(self._stack) < MAX_DEPTH:
            self._open(char)
            return at + 1
        self._state = KEY if self._is_key else WORD
        return at

    def _in_word(self, text: str, at: int) -> int:
        found = (_BARE_KEY if self._state == KEY else _BARE_VALUE).match(text, at)
        if found is not None:
            return self._more_of_word(found)
        word = self._token.strip()
        try:
            value = json_string(word) if self._is_key and word else scalar(word)
        except ValueError:
            return self._stick(at)
        self._give_word(value)
        return at

    def _in_mark(self, char: str, at: int) -> int:
        """Reads the beginning of a string."""
        self._token += char
        if not self._quote.startswith(self._token):
            return self._stick(at)
        if self._token == self._quote:
            self._token = ""
            self._give('"')
            self._state = TEXT
        return at + 1

    def _kind_of_string(self) -> tuple[int, bytes]:
        return PLAIN_TEXT, self._quote.encode()[:1]

    def _in_string(self, text: str, at: int) -> int:
        """Reads the text of a string, which ends at the first mark. A possible beginning of a mark is held back."""
        quote = self._quote
        if not self._token:
            mark = text.find(quote[0], at)
            if mark != at:
                mark = len(text) if mark < 0 else mark
                self._give_text(text[at:mark])
                return mark
        token = self._token + text[at]
        while not quote.startswith(token):
            self._give_text(token[0])
            token = token[1:]
        self._token = token
        if token == quote:
            self._token = ""
            self._end_text()
        return at + 1

    def _close(self, closer: str) -> None:
        self._stack.pop()
        if not self._stack:
            self._state = STUCK
            return
        self._give(closer)
        self._state = NEXT
