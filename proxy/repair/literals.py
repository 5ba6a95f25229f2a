"""Converts values in a model's own syntax (Python, Gemma's braces) to JSON text.

Rules of this module:

1. Nothing is evaluated: each token is read and written as JSON. Numbers keep their text if it is valid JSON.
2. Text with several possible readings is malformed, never guessed: a bare word, a nested call, arithmetic, adjacent
   strings.
3. A Python string ends where `parts/code.py` ends it: at a quote followed (after whitespace) by a comma, colon or
   closing bracket, so that quotes which a model left unescaped stay data. For well-formed strings this changes nothing.
4. One pass, no backtracking; patterns match at their first attempt. `MAX_DEPTH` and `MAX_VALUES` limit the work.

All functions here raise `ValueError` with what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

import orjson

from .characters import SPACE, valid_text
from .relaxed_json import CURLY, MAX_DEPTH, NUMBER, from_curly, skip_space

MAX_VALUES: Final = 20_000
"""Text with more values is malformed: each takes about a microsecond on the event loop."""

_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_CALLEE: Final = re.compile(r"[^\W\d][\w.-]*")
_PRINTED: Final = re.compile(r"print[ \t]*\([ \t\r\n]*(?=(?:await[ \t]++)?[^\W\d][\w.-]*+\()")
_AWAITED: Final = re.compile(r"await[ \t]+")
_KEYWORD: Final = re.compile(r"([^\W\d][\w-]*)[ \t\r\n]*=")
SCALAR: Final = re.compile(r"[+-]?[\w.]*(?:(?<=[eE])[+-][0-9]+)?")
_QUOTE: Final = re.compile(r"""([rRbBuUfF]{0,2})('''|\"""|'|")""")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_POINTED: Final = re.compile(r"(-?)([0-9]*)\.([0-9]*)((?:[eE][+-]?[0-9]+)?)")
_BASED: Final = re.compile(r"-?0(?:[xX][0-9a-fA-F]{1,64}|[oO][0-7]{1,64}|[bB][01]{1,64})")
ESCAPE: Final = re.compile(
    r"\\(?:\r\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)",
    re.DOTALL,
)
_SHORT: Final = (
    {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
    | {char: char for char in "\\'\""}
    | {"\n": "", "\r\n": ""}
)
_BARE_KEY: Final = re.compile(r"[^:,{}\[\]]*")
_BARE_VALUE: Final = re.compile(r"[^,{}\[\]]*")


_SPACES: Final = r"[ \t\r\n]*"
_BEHIND: Final = re.compile(_SPACES + r"(?:[,)\]}:]|\Z)")
_JOINED: Final = re.compile(_SPACES + r"""[rRbBuUfF]{0,2}['"]""")


def _to_quote(quote: str, data: str) -> re.Pattern[str]:
    """Returns a pattern for the content of a string and its closing quote. A quote that matches `data` is content. The
    pattern never backtracks."""
    one, rest = quote[0], quote[1:]
    return re.compile(rf"((?:[^\\{one}]++|\\.|{one}(?!{rest}){data})*+){quote}", re.DOTALL)


_QUOTES: Final = ("'", '"', "'''", '"""')
_STRING: Final = {quote: _to_quote(quote, "") for quote in _QUOTES}
_WITH_QUOTES: Final = {quote: _to_quote(quote, rf"|{quote[0]}(?!{quote[1:]}{_BEHIND.pattern})") for quote in _QUOTES}


@dataclass(frozen=True, slots=True)
class PythonCall:
    """`name(1, key='value')`: its arguments as JSON texts, and its own text."""

    name: str
    positional: tuple[str, ...]
    keywords: dict[str, str]
    source: str


def python_call(text: str, *, literal: bool = False) -> PythonCall:
    """Returns the call in `text`. `literal`: f-strings with fields (`f"{x}"`) are refused instead of taken verbatim."""
    reader = _Python(text, literal=literal)
    call = reader.call()
    reader.finish()
    return call


def without_wrapping(text: str) -> str:
    """Returns `text` without a surrounding `print(...)` or `await`; unchanged if there is none."""
    text = _past(_AWAITED, text.strip(SPACE))
    if text.endswith(")"):
        inner = _past(_PRINTED, text)
        if inner is not text:
            text = _past(_AWAITED, inner[:-1].rstrip(SPACE))
    return text


def _past(beginning: re.Pattern[str], text: str) -> str:
    found = beginning.match(text)
    return text if found is None else text[found.end() :]


def python_calls(text: str, *, literal: bool = False) -> list[PythonCall]:
    """Returns the calls in a list. `literal`: as in `python_call`."""
    reader = _Python(text, literal=literal)
    calls: list[PythonCall] = []
    reader.enter("[")
    while reader.more("]", bool(calls)):
        calls.append(reader.call())
    reader.finish()
    return calls


def python_value(text: str) -> str:
    """Returns a Python literal as JSON text."""
    reader = _Python(text)
    reader.value()
    reader.finish()
    return "".join(reader.out)


QUOTE_TOKEN: Final = re.compile(r"""[<‹][|｜]["'][|｜][>›]|<escape>""")
"""A token that surrounds strings, in any spelling. In an unquoted value it shows that the token at the string's other
end is missing."""


def braces_value(text: str, quote: str, *, bare: bool = False) -> str:
    """Returns an object in braces as JSON text: bare keys, and strings between two `quote` (which cannot occur inside)
    or in Python's quotes. `bare`: other text than numbers and constants is an unquoted string."""
    reader = _Braces(text, quote, bare=bare)
    reader.value()
    reader.finish()
    return "".join(reader.out)


def json_string(text: str) -> str:
    """Returns a string as JSON text. Lone surrogates become U+FFFD."""
    return orjson.dumps(valid_text(text)).decode()


def scalar(text: str) -> str:
    """Returns a number or constant, as written in JSON or Python, as JSON text."""
    if NUMBER.fullmatch(text):
        return text
    if text in _WORDS:
        return _WORDS[text]
    number = _BETWEEN_DIGITS.sub("", text[1:] if text[:1] == "+" else text)
    if found := _POINTED.fullmatch(number):
        sign, whole, fraction, exponent = found.groups()
        if whole or fraction:
            number = f"{sign}{whole or '0'}.{fraction or '0'}{exponent}"
    elif _BASED.fullmatch(number):
        number = str(int(number, 0))
    if not NUMBER.fullmatch(number) or text[:2] == "+-":
        raise ValueError(f"{text[:40]!r} is no value")
    return number


class _LiteralReader:
    """Reads `text` and writes JSON text to `out`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = skip_space(text)
        self.out: list[str] = []
        self._depth = 0
        self._values = 0

    def value(self) -> None:
        """Reads one value."""
        raise NotImplementedError

    def key(self) -> None:
        """Reads the key of a member."""
        raise NotImplementedError

    def finish(self) -> None:
        """Fails unless the text has ended."""
        self.space()
        if self.at < len(self.text):
            self.fail()

    def fail(self) -> NoReturn:
        raise ValueError(f"it cannot be read at character {self.at}")

    def space(self) -> None:
        self.at = skip_space(self.text, self.at)

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def enter(self, bracket: str) -> None:
        """Moves past an opening bracket."""
        if self.next() != bracket:
            self.fail()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        self.at += 1

    def more(self, closer: str, begun: bool) -> bool:
        """Returns True if another item follows before `closer`; moves past the comma or the closer. `begun`: an item
        was read."""
        self.space()
        comma = begun and self.next() == ","
        if comma:
            self.at += 1
            self.space()
        if self.next() == closer:
            self.at += 1
            self._depth -= 1
            return False
        if begun and not comma:
            self.fail()
        self.count()
        return True

    def count(self) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values")

    def array(self) -> None:
        self.enter("[")
        self.out.append("[")
        begun = False
        while self.more("]", begun):
            if begun:
                self.out.append(",")
            begun = True
            self.value()
        self.out.append("]")

    def object(self) -> None:
        self.enter("{")
        self.out.append("{")
        begun = False
        while self.more("}", begun):
            if begun:
                self.out.append(",")
            begun = True
            self.key()
            self.space()
            if self.next() != ":":
                self.fail()
            self.at += 1
            self.out.append(":")
            self.space()
            self.value()
        self.out.append("}")


class _Python(_LiteralReader):
    def __init__(self, text: str, *, literal: bool = False) -> None:
        super().__init__(text)
        self._literal = literal

    def call(self) -> PythonCall:
        start = self.at
        callee = _CALLEE.match(self.text, start)
        if callee is None:
            self.fail()
        self.at = callee.end()
        self.enter("(")
        positional: list[str] = []
        keywords: dict[str, str] = {}
        while self.more(")", bool(positional or keywords)):
            keyword = _KEYWORD.match(self.text, self.at)
            if keyword is not None:
                self.at = keyword.end()
            elif keywords:
                self.fail()
            self.out.clear()
            self.space()
            self.value()
            if keyword is None:
                positional.append("".join(self.out))
            else:
                keywords[keyword[1]] = "".join(self.out)
        return PythonCall(callee[0], tuple(positional), keywords, self.text[start : self.at])

    def value(self) -> None:
        char = self.next()
        if char == "[":
            self.array()
        elif char == "{":
            self.object()
        elif char == "(":
            self._tuple()
        elif quote := _QUOTE.match(self.text, self.at):
            self.out.append(self._string(quote))
        elif curly := CURLY.match(self.text, self.at):
            self.at = curly.end()
            self.out.append(from_curly(curly))
        else:
            self.out.append(self._scalar())

    def key(self) -> None:
        quote = _QUOTE.match(self.text, self.at)
        self.out.append(self._string(quote) if quote else json_string(self._scalar()))

    def _tuple(self) -> None:
        """Reads a tuple as an array. Parentheses around one value without a comma are not a tuple."""
        first = len(self.out)
        self.enter("(")
        self.out.append("[")
        items = 0
        single = False
        while self.more(")", items > 0):
            if items:
                self.out.append(",")
            items += 1
            self.value()
            self.space()
            single = items == 1 and self.next() == ")"
        if single:
            self.out[first] = ""
        else:
            self.out.append("]")

    def _string(self, quote: re.Match[str]) -> str:
        found = _STRING[quote[2]].match(self.text, quote.end())
        if found is not None and not _BEHIND.match(self.text, found.end()):
            if _JOINED.match(self.text, found.end()):
                self.fail()  # strings side by side, or quotes inside of one
            found = _WITH_QUOTES[quote[2]].match(self.text, quote.end())
        if found is None:
            raise ValueError("a string in it has no end")
        self.at = found.end()
        body = found[1]
        if self._literal and "f" in quote[1].lower() and ("{" in body or "}" in body):
            raise ValueError("a string in it would have to be computed")
        if "\\" in body and "r" not in quote[1].lower():
            body = ESCAPE.sub(unescape, body)
        return json_string(body)

    def _scalar(self) -> str:
        found = SCALAR.match(self.text, self.at)
        if found is None:
            self.fail()
        self.at = found.end()
        return scalar(found[0])


def unescape(found: re.Match[str]) -> str:
    """Returns the meaning of a Python escape; an unknown escape is returned unchanged."""
    escape = found[0][1:]
    if escape in _SHORT:
        return _SHORT[escape]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    if len(escape) > 1 and int(escape[1:], 16) <= 0x10FFFF:
        return chr(int(escape[1:], 16))
    return found[0]


class _Braces(_Python):
    def __init__(self, text: str, quote: str, *, bare: bool) -> None:
        super().__init__(text)
        self._mark = quote
        self._may_be_bare = bare

    def value(self) -> None:
        char = self.next()
        if self._quoted():
            return
        if char == "{":
            self.object()
        elif char == "[":
            self.array()
        else:
            text = self._bare(_BARE_VALUE)
            try:
                self.out.append(scalar(text))
            except ValueError:
                if not (self._may_be_bare and text) or QUOTE_TOKEN.search(text):
                    raise
                self.out.append(json_string(text))

    def key(self) -> None:
        if self._quoted():
            return
        name = self._bare(_BARE_KEY)
        if not name or self._mark in name:
            self.fail()
        self.out.append(json_string(name))

    def _bare(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail()
        self.at = found.end()
        return found[0].strip()

    def _quoted(self) -> bool:
        """Reads a string, if there is one. Returns whether there was."""
        if not self.text.startswith(self._mark, self.at):
            quote = _QUOTE.match(self.text, self.at)
            if quote is None or quote[1]:
                return False
            self.out.append(self._string(quote))
            return True
        start = self.at + len(self._mark)
        end = self.text.find(self._mark, start)
        if end < 0:
            raise ValueError("a string in it has no end")
        self.at = end + len(self._mark)
        self.out.append(json_string(self.text[start:end]))
        return True
