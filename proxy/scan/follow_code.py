"""Calls in a model's own syntax while they come (R6.13): Python as models write it, and Gemma's braces.

Rules of this module:

1. What is given out is the beginning of what `literals.py` makes of the whole. Where that is not certain nothing more is given out:
   the judge sees the whole in the end, and the scanner compares.
2. A token is given out when it is whole, the text of a string while it comes; neither the outermost bracket, nor a comma before what
   follows it. So what was given out is never JSON by itself.
3. One pass; patterns match at their first attempt. Held back is at most one token, one escape, or a quote with the whitespace behind.
4. Both scanners use this as it is; JSON is followed in `follow_json.py`.
"""

from __future__ import annotations

import re
from typing import Final

from .literals import ESCAPE, SCALAR, json_string, scalar, unescape
from .repair import MAX_DEPTH

_SPACES: Final = " \t\r\n"
_SPACE: Final = re.compile(r"[ \t\r\n]+")
_CALLEE: Final = re.compile(r"[\w.-]+")
_FIRST: Final = re.compile(r"[^\W\d]")
_KEYWORD: Final = re.compile(r"[^\W\d][\w-]*")
_TOKEN: Final = re.compile(r"[\w.+-]+")
_PREFIX: Final = re.compile(r"[rRbBuUfF]{1,2}")
_BEHIND: Final = ",)]}:"
_PLAIN: Final = {"'": re.compile(r"[^\\']+"), '"': re.compile(r'[^\\"]+')}
_BARE_KEY: Final = re.compile(r"[^:,{}\[\]]+")
_BARE_VALUE: Final = re.compile(r"[^,{}\[\]]+")
_LONGEST: Final = 1024
"""Characters of a word, or behind a quote: beyond that nothing more is given out."""
_MORE: Final = {"x": 2, "u": 4, "U": 8, "\r": 1} | dict.fromkeys("01234567", 2)
"""How many characters an escape may have behind its first."""

_CLOSERS: Final = {"[": "]", "{": "}"}

# What comes next.
_START: Final = 0
_CALL: Final = 1
_BEHIND_CALL: Final = 2
_NAME: Final = 3
_ITEM: Final = 4
_KEY: Final = 5
_ASSIGN: Final = 6
_COLON: Final = 7
_VALUE: Final = 8
_WORD: Final = 9
_NEXT: Final = 10
_OPENED: Final = 11
_TEXT: Final = 12
_ESCAPE: Final = 13
_QUOTED: Final = 14
_MARK: Final = 15
_STUCK: Final = 16


class _Follower:
    """Reads what comes, and gives out what is certain of a call's arguments.

    `begun`: the arguments of a call have begun, it is for the scanner to open it. `name` is its name, `start` where it begins, counted
    in bytes from the first one, `passed` are those before it that had no arguments to give out, each with its name and its beginning.
    `is_json`: it is JSON, for somebody else to read from the start."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.start = 0
        self.begun = False
        self.passed: list[tuple[str, int]] = []
        self.is_json = False
        self._ready: list[str] = []
        self._state = _START
        self._stack: list[str] = []
        self._token = ""
        self._high = ""
        self._is_key = False
        self._comma = False
        # How many bytes were read before this text, and up to which character of it they were counted.
        self._seen = 0
        self._counted = 0

    def read(self, buf: bytes, pos: int, end: int) -> int:
        """The next bytes, whole characters, up to `end`, or less: when `begun` changes, something is to be done before more is read.
        Gives where to go on."""
        text = buf[pos:end].decode()
        begun = self.begun
        before = self._seen
        self._counted = at = 0
        while at < len(text) and self._state != _STUCK and not self.is_json and self.begun == begun:
            at = self._step(text, at)
        self._count(text, at)
        return end if self._state == _STUCK else pos + self._seen - before

    def take(self) -> bytes:
        """What became certain of the arguments since the last call: whole characters."""
        ready = "".join(self._ready).encode()
        self._ready.clear()
        return ready

    def _count(self, text: str, at: int) -> int:
        """How many bytes there are before `at`."""
        self._seen += len(text[self._counted : at].encode())
        self._counted = at
        return self._seen

    def _step(self, text: str, at: int) -> int:
        """Read what begins at `at`. Gives where to go on."""
        raise NotImplementedError  # abstract: each syntax says it

    def _stick(self, at: int) -> int:
        """Nothing more is certain."""
        self._state = _STUCK
        return at

    def _more_of_word(self, found: re.Match[str]) -> int:
        self._token += found[0]
        return found.end() if len(self._token) <= _LONGEST else self._stick(found.end())

    def _give(self, text: str) -> None:
        """Certain text outside of strings, and the comma before it."""
        if self._comma:
            self._ready.append(",")
            self._comma = False
        self._ready.append(text)

    def _give_text(self, text: str) -> None:
        """Certain text of a string. Half a character waits for the other half."""
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
        self._state = _COLON if self._is_key else _NEXT

    def _open(self, bracket: str) -> None:
        self._give(bracket)
        self._stack.append(_CLOSERS[bracket])
        self._state = _ITEM

    def _give_word(self, value: str) -> None:
        """A number or constant was read, as text `value`."""
        self._token = ""
        self._give(value)
        self._state = _COLON if self._is_key else _NEXT


class PythonFollower(_Follower):
    """`[f(a=1), g(b='x')]`, or `f(a=1)` where the first byte is no bracket. The list may hold objects, or nothing: JSON."""

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
        if state in (_NAME, _KEY, _WORD):
            return self._in_word(text, at)
        space = _SPACE.match(text, at)
        if space is not None:
            return space.end()
        char = text[at]
        if state == _ITEM:
            return self._item(text, at)
        if state == _VALUE:
            self._is_key = False
            return self._value(char, at)
        if state == _CALL and char in '{"`]' and self.name is None:
            self.is_json = True
            return at
        if state in (_START, _CALL) and _FIRST.match(char):
            self._begin_call(self._count(text, at))
            return at
        if state == _START and char == "[":
            self._listed = True
            self._state = _CALL
        elif state == _BEHIND_CALL and char == ",":
            self._state = _CALL
        elif state == _ASSIGN and char == "=":
            self._give(("" if self._some else "{") + json_string(self._token) + ":")
            self._token = ""
            self._some = self.begun = True
            self._state = _VALUE
        elif state == _COLON and char == ":":
            self._give(":")
            self._state = _VALUE
        elif state == _NEXT and char == ",":
            self._comma = True
            self._state = _ITEM
        elif state == _NEXT and char == self._stack[-1]:
            self._close(char)
        else:
            return self._stick(at)
        return at + 1

    def _begin_call(self, start: int) -> None:
        self.start = start
        self.name = None
        self.begun = self._some = self._comma = False
        self._state = _NAME

    def _in_word(self, text: str, at: int) -> int:
        """A name, a keyword, a number or a constant, up to what cannot be part of it."""
        found = (_CALLEE if self._state == _NAME else _TOKEN).match(text, at)
        if found is not None:
            return self._more_of_word(found)
        char, token = text[at], self._token
        if self._state == _NAME:
            if char != "(":
                return self._stick(at)
            self.name, self._token = token, ""
            self._stack = [")"]
            self._state = _ITEM
            return at + 1
        if self._state == _KEY:
            self._state = _ASSIGN if _KEYWORD.fullmatch(token) else _STUCK
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
        """Behind a bracket or a comma: one more item, or the end."""
        char, closer = text[at], self._stack[-1]
        if char == closer:
            self._comma = False
            self._close(closer)
            return at + 1
        if closer == ")":
            self._state = _KEY
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
            return self._stick(at)  # brackets may be around one value, or a tuple: that is seen in the end
        self._state = _WORD
        return at

    def _close(self, closer: str) -> None:
        self._stack.pop()
        if self._stack:
            self._give(closer)
            self._state = _NEXT
            return
        if not self.begun:
            self.passed.append((self.name or "", self.start))
        self._state = _BEHIND_CALL if self._listed else _STUCK

    # --- strings: see `literals.py` ---------------------------------------------------------------------------------

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
        if self._state == _TEXT:
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
        if char != self._quote:  # no second quote, or no third one, behind the first
            self._state = _QUOTED if self._token else _TEXT
            return at
        self._token += char
        if len(self._token) == 2:
            self._quote *= 3
            self._token = ""
            self._state = _TEXT
        return at + 1

    def _escape(self, char: str) -> None:
        token = self._token = self._token + char
        if not self._raw and len(token) < 2 + _MORE.get(token[1], 0) and char not in "\\'\"":
            return
        found = None if self._raw else ESCAPE.match(token)
        self._give_text(token[:2] if found is None else unescape(found))
        self._token = ""
        self._state = _TEXT
        rest = token[2 if found is None else found.end() :]
        at = 0
        while at < len(rest):
            at = self._in_string(rest, at)

    def _behind_quotes(self, char: str, at: int) -> int:
        """Quotes that may end the string; whitespace and what follows it say whether they do."""
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
        return at + 1 if len(self._token) <= _LONGEST else self._stick(at)

    def _go_on(self, token: str, at: int) -> int:
        """The quotes were part of the string."""
        self._give_text(token)
        self._token = ""
        self._state = _TEXT
        return at


class BracesFollower(_Follower):
    """`{key:<q>text<q>,other:[1,true]}` with strings between two `quote`."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self._quote = quote
        self._some = False

    def _step(self, text: str, at: int) -> int:
        state = self._state
        if state == _TEXT:
            return self._in_string(text, at)
        if state == _MARK:
            return self._in_mark(text[at], at)
        if state in (_KEY, _WORD):
            return self._in_word(text, at)
        space = _SPACE.match(text, at)
        if space is not None:
            return space.end()
        char = text[at]
        if state == _START and char == "{":
            self._stack.append("}")
            self._state = _ITEM
        elif state == _ITEM and char == self._stack[-1]:
            self._comma = False
            self._close(char)
        elif state in (_ITEM, _VALUE):
            self._is_key = state == _ITEM and self._stack[-1] == "}"
            return self._value(char, at)
        elif state == _COLON and char == ":":
            self._give(":")
            self._state = _VALUE
            self.begun = True
        elif state == _NEXT and char == ",":
            self._comma = True
            self._state = _ITEM
        elif state == _NEXT and char == self._stack[-1]:
            self._close(char)
        else:
            return self._stick(at)
        return at + 1

    def _value(self, char: str, at: int) -> int:
        if not self._some:
            if char == '"':
                return self._stick(at)  # JSON after all, perhaps
            self._give("{")
            self._some = True
        if char == self._quote[0]:
            self._state = _MARK
            return at
        if char in "{[" and not self._is_key and len(self._stack) < MAX_DEPTH:
            self._open(char)
            return at + 1
        self._state = _KEY if self._is_key else _WORD
        return at

    def _in_word(self, text: str, at: int) -> int:
        found = (_BARE_KEY if self._state == _KEY else _BARE_VALUE).match(text, at)
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
        """The beginning of a string."""
        self._token += char
        if not self._quote.startswith(self._token):
            return self._stick(at)
        if self._token == self._quote:
            self._token = ""
            self._give('"')
            self._state = _TEXT
        return at + 1

    def _in_string(self, text: str, at: int) -> int:
        """The text of a string, which ends at the first mark. What may begin one waits."""
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
            self._state = _STUCK
            return
        self._give(closer)
        self._state = _NEXT
