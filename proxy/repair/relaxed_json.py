"""Strict reading of JSON, and the safe repair of almost valid JSON (R9.7).

Rules of this module:

1. One pass from left to right without backtracking. It reads relaxed JSON (as JSON5 or Python would) and writes strict
   JSON. It changes text only where strict JSON cannot continue: so the steps of R9.7 can be combined, none is applied
   needlessly, and a valid value keeps its text.
2. Text with several possible readings is refused, never guessed: an unescaped inner quote, a bracket of the wrong kind,
   text before or after the object, a comment, a word such as `NaN`.
3. Every pattern here matches at its first attempt (one class of characters, one token, or a run of valid members), and
   none backtracks. A run goes two levels deep, so each character is read at most four times: the work is linear, and
   `MAX_REPAIRED_VALUES` limits it.
4. Strict means RFC 8259: no `NaN`, no raw control characters; and at most `MAX_DEPTH` levels, so that later code cannot
   be made to recurse without limit.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, Final, Literal, NoReturn, get_args

import orjson

MAX_VALUES: Final = 100_000
"""Text with more values does not count as JSON here: about this many can be read in 20 ms."""
MAX_DEPTH: Final = 128
"""Deeper nesting does not count as JSON here. Equal to the default of `limits.json_depth`, because a client must be
able to send a call back."""

MAX_REPAIRED_VALUES: Final = 20_000
"""Text with more values is not repaired: the repair may take two microseconds per value."""

RepairKind = Literal["fence", "commas", "quotes", "controls", "brackets"]
REPAIR_KINDS: Final[tuple[RepairKind, ...]] = get_args(RepairKind)
"""The kinds of repair, in the order of R9.7; see `repair_json`."""

NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""Matches a JSON number."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_OR_SPACE: Final = re.compile(r'("(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|[ \t\n\r]++', re.DOTALL)
_STRING: Final = r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_CURLY: Final = ("“", "”")
_QUOTES: Final = ('"', "'", *_CURLY)
CURLY: Final = re.compile(r"[“”]([^“”\\]*+(?:\\.[^“”\\]*+)*+)[“”]", re.DOTALL)
"""A string in curly quotes, as some models and renderers write it; see `from_curly`."""
_EMPTY: Final = re.compile(r"\[[ \t\n\r]*\]|\{[ \t\n\r]*\}")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
"""A translation table from brackets to changes of the nesting depth, as signed bytes: 1 or -1."""
_WORD: Final = re.compile(r"[^\W\d][\w-]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_IN_SINGLE: Final = re.compile(r'\\.|["\x00-\x1f]', re.DOTALL)
_FENCE_OPEN: Final = re.compile(r"```[A-Za-z0-9]*")

_RUN_LEVELS: Final = 2


def _run_of(closer: str) -> re.Pattern[str]:
    """Returns a pattern for commas, each followed by a member of an object or array in strict JSON."""
    space = r"[ \t\n\r]*+"
    value = scalar = f"{_STRING}|{NUMBER.pattern}|true|false|null"
    for _ in range(_RUN_LEVELS):
        members = [f"(?:{value})", f"{_STRING}{space}:{space}(?:{value})"]
        array, object_ = (f"(?:{one}{space}(?:,{space}{one}{space})*+)?+" for one in members)
        value = rf"{scalar}|\[{space}{array}\]|\{{{space}{object_}\}}"
    key = f"{_STRING}{space}:{space}" if closer == "}" else ""
    return re.compile(f"(?:,{space}{key}(?:{value}){space}(?=[,}}\\]]))++", re.DOTALL)


_CLOSER: Final = {"{": "}", "[": "]"}
_BEHIND: Final = " \t\n\r;," + "".join(_CLOSER.values())
_RUN: Final = {closer: _run_of(closer) for closer in _CLOSER.values()}
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = {char: _SHORT.get(char, f"\\u{ord(char):04x}") for char in map(chr, range(0x20))}
_JSON_WORDS: Final = frozenset(("true", "false", "null"))
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_OTHER_WORDS: Final = frozenset(("true", "false", "null", "none", "nan", "inf", "infinity", "undefined", "nil"))
"""Words (in lower case) that mean a constant in JSON or a programming language. They are never taken for strings."""


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


# Integers are read as floats: no code here uses a number, and `int` refuses texts of more than 4300 digits.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=float)


def read_value(text: str, at: int = 0) -> tuple[Any, int]:
    """Returns the JSON value that begins exactly at `at`, and the offset of its end.

    Numbers are returned as floats, so use it only to examine the structure. Raises `ValueError` if there is no strict
    JSON value, or if it is nested deeper than `MAX_DEPTH`.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    if text.count("{", at, end) + text.count("[", at, end) > MAX_DEPTH and _depth(text[at:end]) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value, end


def skip_space(text: str, at: int = 0) -> int:
    """Returns the offset of the first character at or after `at` that is not JSON whitespace."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def read_json(text: str) -> Any:
    """Returns the value of a whole JSON text, as in `read_value`. Raises `ValueError`, also for more than `MAX_VALUES`
    values."""
    if has_more_values(text, MAX_VALUES):
        raise ValueError(f"more than {MAX_VALUES} values")
    value, end = read_value(text, skip_space(text))
    if skip_space(text, end) != len(text):
        raise ValueError(f"text after the JSON value, at character {end}")
    return value


def has_more_values(text: str, most: int) -> bool:
    """Returns True if JSON has about that many values or more, estimated without parsing."""
    return len(text) > most and text.count(",") + text.count("{") + text.count("[") > most


def parses(text: str) -> bool:
    """Returns True for strict JSON within the limits of depth and number of values."""
    if text.count("{") + text.count("[") <= MAX_DEPTH and len(text) <= MAX_VALUES:
        try:
            orjson.loads(text)  # accepts less than `read_json` does, several times faster
        except orjson.JSONDecodeError:
            pass
        else:
            return True
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def compact_json(text: str) -> str:
    """Returns a JSON text without whitespace outside strings. `text` must be valid JSON."""
    return _STRING_OR_SPACE.sub(lambda found: found[1] or "", text)


def repair_json(text: str) -> tuple[str, tuple[RepairKind, ...]] | None:
    """Returns strict JSON with the meaning of `text`, and the kinds of repair that were needed, in the order of R9.7.

    Returns None if there is no safe repair. Valid JSON is returned unchanged, without kinds. Only an object or an array
    is repaired:

    - `fence`: a Markdown fence around the whole text is removed.
    - `commas`: a comma before a closing bracket is removed. At the end of the input it stays an error: more was to
      come.
    - `quotes`: keys and strings in single or curly quotes, and bare words (letters, digits, `_`, `-`, starting with a
      letter or `_`), get double quotes. A string ends at its first unescaped quote; if JSON cannot continue there, it
      had an inner quote and the text is refused. Words with another meaning in some language (`NaN`, `undefined`) are
      refused. `True`, `False` and `None` are converted if a string in the text is single-quoted and the text has no
      `true`, `false` or `null`; else they are refused.
    - `controls`: raw control characters in strings are escaped.
    - `brackets`: brackets, commas and semicolons behind the whole value are removed, and brackets that are open at the
      end of the input are closed, if the last item is a whole value. Text that ends with an unterminated string, a bare
      word, a key, a colon or an opening bracket may be cut off and is refused.
    """
    if parses(text):
        return text, ()
    if has_more_values(text, MAX_VALUES):
        return None
    inner = _inside_fence(text)
    rewriter = _Rewriter(text if inner is None else inner)
    if inner is not None:
        rewriter.kinds.add("fence")
    try:
        repaired = rewriter.run()
    except _Unclear:
        return None
    if not parses(repaired):
        return None
    return repaired, tuple(kind for kind in REPAIR_KINDS if kind in rewriter.kinds)


def _depth(text: str) -> int:
    """Returns the nesting levels of a JSON text; 0 for a scalar."""
    brackets = _outside(text).encode().translate(None, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=0))


def _outside(text: str) -> str:
    """Returns a JSON text with each string replaced by a digit."""
    masked = text.replace(r"\\", "__").replace(r"\"", "__") if "\\" in text else text
    return "0".join(masked.split('"')[::2])


def _inside_fence(text: str) -> str | None:
    """Returns the content of a Markdown fence around the whole text, or None."""
    text = text.strip()
    opening = _FENCE_OPEN.match(text)
    if opening is None or len(text) < opening.end() + 3 or not text.endswith("```"):
        return None
    return text[opening.end() : -3].strip()


def _controls_escaped(text: str) -> str:
    for char, escape in _ESCAPES.items():
        if char in text:
            text = text.replace(char, escape)
    return text


def _escape_in_single(found: re.Match[str]) -> str:
    piece = found[0]
    if piece in ("\\'", "\\“", "\\”"):
        return piece[1]
    if piece == '"':
        return '\\"'
    return piece if piece[0] == "\\" else _ESCAPES[piece]


def from_curly(found: re.Match[str]) -> str:
    """Returns a match of `CURLY` as a JSON string. Its escapes are those of JSON; if one is not, all are plain text."""
    text = f'"{_IN_SINGLE.sub(_escape_in_single, found[1])}"'
    return text if parses(text) else json.dumps(found[1], ensure_ascii=False)


class _Unclear(Exception):
    """The text has no single reading."""


class _Rewriter:
    """Reads relaxed JSON and writes strict JSON. `run` may be called once."""

    def __init__(self, text: str) -> None:
        self.kinds: set[RepairKind] = set()
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._closers: list[str] = []
        self._words: set[str] = set()
        self._single = False
        self._values = 0

    def run(self) -> str:
        """Returns the rewritten text. Raises `_Unclear`. The result must still be validated, because escapes are copied
        unread."""
        self._space()
        if self._next() not in _CLOSER:
            raise _Unclear
        self._value()
        while self._closers:
            self._inside()
        self._space()
        if self._at < len(self._text):
            if self._text[self._at :].strip(_BEHIND):
                raise _Unclear
            self.kinds.add("brackets")
        python = not self._words.isdisjoint(_PYTHON_WORDS)
        if python and (not self._single or not self._words.isdisjoint(_JSON_WORDS)):
            raise _Unclear
        return "".join(self._out)

    def _inside(self) -> None:
        """Reads one step inside a container: the next member, comma or closing bracket."""
        fresh = self._out[-1] in _CLOSER
        self._space()
        char = self._next()
        closer = self._closers[-1]
        if char == closer:
            self._copy(self._at + 1)
            self._closers.pop()
        elif fresh:
            self._member()
        elif char == "," and (run := self._run(closer)):
            self._copy(run)
        elif char == ",":
            comma = self._at
            self._at = skip_space(self._text, comma + 1)
            if self._next() == closer:
                self.kinds.add("commas")
                self._out.append(self._text[comma + 1 : self._at])
            else:
                self._out.append(self._text[comma : self._at])
                self._member()
        elif char == "":
            self.kinds.add("brackets")
            self._out += reversed(self._closers)
            self._closers.clear()
        else:
            raise _Unclear

    def _run(self, closer: str) -> int:
        """Returns the end of the valid members that follow here, or 0 if there are none."""
        if len(self._closers) + _RUN_LEVELS > MAX_DEPTH:
            return 0
        found = _RUN[closer].match(self._text, self._at)
        if found is None:
            return 0
        outside = _outside(found[0])
        self._words.update(word for word in _JSON_WORDS if word in outside)
        # Each member follows a comma, except the first one of a container that is not empty.
        self._values += outside.count(",") + outside.count("[") + outside.count("{") - len(_EMPTY.findall(outside))
        if self._values > MAX_REPAIRED_VALUES:
            raise _Unclear
        return found.end()

    def _member(self) -> None:
        if self._closers[-1] == "}":
            if self._next() in _QUOTES:
                self._string()
            else:
                self._word(key=True)
            self._space()
            if self._next() != ":":
                raise _Unclear
            self._copy(self._at + 1)
            self._space()
        self._value()

    def _value(self) -> None:
        self._values += 1
        if self._values > MAX_REPAIRED_VALUES:
            raise _Unclear
        char = self._next()
        if char in _QUOTES:
            self._string()
        elif char in _CLOSER:
            if len(self._closers) == MAX_DEPTH:
                raise _Unclear
            self._copy(self._at + 1)
            self._closers.append(_CLOSER[char])
        elif number := NUMBER.match(self._text, self._at):
            self._copy(number.end())
        else:
            self._word(key=False)

    def _string(self) -> None:
        text, quote, start = self._text, self._text[self._at], self._at + 1
        if quote in _CURLY:
            curly = CURLY.match(text, self._at)
            if curly is None:
                raise _Unclear
            self.kinds.add("quotes")
            self._out.append(from_curly(curly))
            self._at = curly.end()
            return
        end = text.find(quote, start)
        while end >= 0 and _is_escaped(text, start, end):
            end = text.find(quote, end + 1)
        if end < 0:
            raise _Unclear
        body = text[start:end]
        controls = _CONTROL.search(body) is not None
        if controls:
            self.kinds.add("controls")
        if quote == "'":
            self._single = True
            self.kinds.add("quotes")
            body = _IN_SINGLE.sub(_escape_in_single, body)
        elif controls:
            body = _controls_escaped(body)
        self._out.append(f'"{body}"')
        self._at = end + 1

    def _word(self, *, key: bool) -> None:
        found = _WORD.match(self._text, self._at)
        if found is None:
            raise _Unclear
        word = found[0]
        self._at = found.end()
        if not key and word in _JSON_WORDS:
            self._words.add(word)
            self._out.append(word)
            return
        self.kinds.add("quotes")
        if not key and word in _PYTHON_WORDS:
            self._words.add(word)
            self._out.append(_PYTHON_WORDS[word])
        elif word.lower() in _OTHER_WORDS or self._at == len(self._text):
            raise _Unclear
        else:
            self._out.append(f'"{word}"')

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _copy(self, end: int) -> None:
        self._out.append(self._text[self._at : end])
        self._at = end

    def _space(self) -> None:
        end = skip_space(self._text, self._at)
        if end > self._at:
            self._copy(end)


def _is_escaped(text: str, start: int, at: int) -> bool:
    """Returns True if an odd number of backslashes, counted back to `start`, precedes `at`."""
    first = at
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1
