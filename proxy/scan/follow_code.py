"""Streams calls in Python syntax early (R6.13). Gemma's braces are in `follow_braces.py`.

Rules of this module:

1. The output is the beginning of what `literals.py` makes of the whole text. Once that is not certain, nothing more is
   sent: in the end the call policy reads the whole text, and the scanner compares.
2. A token is sent when complete, the text of a string while it comes. The outermost bracket, and a comma before the
   next item, are not sent, so the output alone is never valid JSON.
3. One pass; patterns match at their first attempt. At most one token, one escape, or a quote with the whitespace after
   it is held back.
4. Both scanners use this module. `follow_json.py` follows JSON.
"""

from __future__ import annotations

import re
from typing import Final

from ..repair.literals import ESCAPE, SCALAR, json_string, scalar, unescape
from ..repair.relaxed_json import MAX_DEPTH
from ._pystring import CODE_STRING, PLAIN_TEXT
from .follower import (
    COLON,
    ITEM,
    KEY,
    LONGEST,
    NAME,
    NEXT,
    SPACE,
    START,
    STUCK,
    TEXT,
    VALUE,
    WORD,
    SyntaxFollower,
)

_SPACES: Final = " \t\r\n"
_CALLEE: Final = re.compile(r"[\w.-]+")
_FIRST: Final = re.compile(r"[^\W\d]")
_KEYWORD: Final = re.compile(r"[^\W\d][\w-]*")
_TOKEN: Final = re.compile(r"[\w.+-]+")
_PREFIX: Final = re.compile(r"[rRbBuUfF]{1,2}")
_BEHIND: Final = ",)]}:"
_PLAIN: Final = {"'": re.compile(r"[^\\']+"), '"': re.compile(r'[^\\"]+')}
_MORE: Final = {"x": 2, "u": 4, "U": 8, "\r": 1} | dict.fromkeys("01234567", 2)
"""The number of characters that an escape may have after the backslash and the first character."""

# States besides those of all followers. States from `_OPENED` on are inside a string.
_CALL: Final = 1
_BEHIND_CALL: Final = 2
_ASSIGN: Final = 6
_OPENED: Final = 11
_ESCAPE: Final = 13
_QUOTED: Final = 14


class PythonFollower(SyntaxFollower):
    """Reads `[f(a=1), g(b='x')]`, or `f(a=1)` without a list, while it comes. A list that is empty or contains objects
    is JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._listed = False
        self._some = False
        self._quote = ""
        self._raw = False
        self._doubted = False

    def _step(self, text: str, at: int) -> int:
        state = self._state
        if state >= _OPENED:
            return self._in_string(text, at)
        if state in (NAME, KEY, WORD):
            return self._in_word(text, at)
        space = SPACE.match(text, at)
        if space is not None:
            return space.end()
        char = text[at]
        if state == ITEM:
            return self._item(text, at)
        if state == VALUE:
            self._is_key = False
            return self._value(char, at)
        if state == _CALL and char in '{"`]' and self.name is None:
            self.is_json = True
            return at
        if state in (START, _CALL) and _FIRST.match(char):
            self._begin_call(self._count(text, at))
            return at
        if state == START and char == "[":
            self._listed = True
            self._state = _CALL
        elif state == _BEHIND_CALL and char == ",":
            self._state = _CALL
        elif state == _ASSIGN and char == "=":
            self._give(("" if self._some else "{") + json_string(self._token) + ":")
            self._token = ""
            self._some = self.begun = True
            self._state = VALUE
        elif state == COLON and char == ":":
            self._give(":")
            self._state = VALUE
        elif state == NEXT and char == ",":
            self._comma = True
            self._state = ITEM
        elif state == NEXT and char == self._stack[-1]:
            self._close(char)
        else:
            return self._stick(at)
        return at + 1

    def _begin_call(self, start: int) -> None:
        self.start = start
        self.name = None
        self.begun = self._some = self._comma = False
        self._state = NAME

    def _in_word(self, text: str, at: int) -> int:
        """Reads a name, keyword, number or constant up to the first character that cannot belong to it."""
        found = (_CALLEE if self._state == NAME else _TOKEN).match(text, at)
        if found is not None:
            return self._more_of_word(found)
        char, token = text[at], self._token
        if self._state == NAME:
            if char != "(":
                return self._stick(at)
            self.name, self._token = token, ""
            self._stack = [")"]
            self._state = ITEM
            return at + 1
        if self._state == KEY:
            self._state = _ASSIGN if _KEYWORD.fullmatch(token) else STUCK
            return at
        if char in "'\"" and _PREFIX.fullmatch(token):
            return self._open_string(char, "r" in token.lower(), at)
        try:
            value = scalar(token) if SCALAR.fullmatch(token) and char in _BEHIND + _SPACES else ""
        except ValueError:
            value = ""
        if not value:
            return self._stick(at)
        self._give_word(json_string(value) if self._is_key else value)
        return at

    def _item(self, text: str, at: int) -> int:
        """After a bracket or comma: reads another item or the end."""
        char, closer = text[at], self._stack[-1]
        if char == closer:
            self._comma = False
            self._close(closer)
            return at + 1
        if closer == ")":
            self._state = KEY
            return at if _FIRST.match(char) else self._stick(at)
        self._is_key = closer == "}"
        return self._value(char, at)

    def _value(self, char: str, at: int) -> int:
        if char in "'\"":
            return self._open_string(char, False, at)
        if char in "[{" and not self._is_key and len(self._stack) < MAX_DEPTH:
            self._open(char)
            return at + 1
        if not _TOKEN.match(char):
            return self._stick(at)  # parentheses around one value, or a tuple: decided at the end
        self._state = WORD
        return at

    def _close(self, closer: str) -> None:
        self._stack.pop()
        if self._stack:
            self._give(closer)
            self._state = NEXT
            return
        if not self.begun:
            self.passed.append((self.name or "", self.start))
        self._state = _BEHIND_CALL if self._listed else STUCK

    # --- strings: see `literals.py` ---------------------------------------------------------------------------------

    def _kind_of_string(self) -> tuple[int, bytes]:
        quote = self._quote[:1].encode()
        return (PLAIN_TEXT, b"\\" + quote) if self._raw else (CODE_STRING, quote)

    def _open_string(self, quote: str, raw: bool, at: int) -> int:
        self._give('"')
        self._quote = quote
        self._raw = raw
        self._doubted = False
        self._token = ""
        self._state = _OPENED
        return at + 1

    def _in_string(self, text: str, at: int) -> int:
        char = text[at]
        if self._state == TEXT:
            plain = _PLAIN[self._quote[0]].match(text, at)
            if plain is not None:
                self._give_text(plain[0])
                return plain.end()
            self._token = char
            self._state = _ESCAPE if char == "\\" else _QUOTED
            return at + 1
        if self._state == _ESCAPE:
            self._escape(char)
            return at + 1
        if self._state == _QUOTED:
            return self._behind_quotes(char, at)
        if char != self._quote:  # not a second or third quote
            self._state = _QUOTED if self._token else TEXT
            return at
        self._token += char
        if len(self._token) == 2:
            self._quote *= 3
            self._token = ""
            self._state = TEXT
        return at + 1

    def _escape(self, char: str) -> None:
        token = self._token = self._token + char
        if not self._raw and len(token) < 2 + _MORE.get(token[1], 0) and char not in "\\'\"":
            return
        found = None if self._raw else ESCAPE.match(token)
        self._give_text(token[:2] if found is None else unescape(found))
        self._token = ""
        self._state = TEXT
        rest = token[2 if found is None else found.end() :]
        at = 0
        while at < len(rest):
            at = self._in_string(rest, at)

    def _behind_quotes(self, char: str, at: int) -> int:
        """Reads quotes that may end the string; whitespace and the character after it decide."""
        token, quote = self._token, self._quote
        behind = token[len(quote) :]
        letters = behind.lstrip(_SPACES)
        if len(token) < len(quote):
            if char != quote[0]:
                return self._go_on(token, at)
        elif char in _BEHIND and not letters:
            self._token = ""
            self._end_text()
            return at
        elif self._doubted and not behind and char == token[0] == token[-1] and len(quote) == 3:
            self._give_text(char)  # the first of four
            return at + 1
        elif not self._doubted and char in "'\"":
            return self._stick(at)  # strings side by side, or quotes inside of one
        elif letters or char not in _SPACES:
            may_join = not self._doubted and char in "rRbBuUfF" and len(letters) < 2
            if not may_join:
                self._doubted = True
                return self._go_on(token, at)
        self._token += char
        return at + 1 if len(self._token) <= LONGEST else self._stick(at)

    def _go_on(self, token: str, at: int) -> int:
        """The quotes belong to the string."""
        self._give_text(token)
        self._token = ""
        self._state = TEXT
        return at
