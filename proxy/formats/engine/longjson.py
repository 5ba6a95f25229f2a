"""Reading and writing JSON that may hold megabytes, without blocking other threads.

The JSON parser holds the interpreter lock for a whole text. So long strings are read and written in slices, and texts
with too many values are refused. `proxy/ingress/bodies.py` does the same for whole bodies; arguments inside a body are
text there and come here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final, NoReturn

from ...scan._grammar import valid_text

LONG_CHARS: Final = 256 * 1024
"""Shorter texts are read and written at once, which takes less than 3 ms."""
SLICE_CHARS: Final = 64 * 1024
MOST_VALUES: Final = 100_000
"""Maximum number of values and strings in a long text."""

_UNITS: Final = re.compile(r'(?:[^"\\]++|\\(?:u[0-9a-fA-F]{4}|[^u]))*+', re.DOTALL)
_SECOND_HALF: Final = re.compile(r"\\u[dD][c-fC-F]")
_HALF: Final = re.compile("[\ud800-\udfff]")


class Number(str):
    """The text of a JSON number."""

    __slots__ = ()


class TooMuch(ValueError):
    """The text is refused because reading it would take too long."""


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse)


def read_long_json(text: str) -> Any:
    """Returns the value of a JSON text, numbers as `Number`. Raises `ValueError` or `RecursionError`, and `TooMuch` for
    a long text with too many values."""
    if len(text) <= LONG_CHARS:
        return _DECODER.decode(text)
    mark = token_hex(16)  # random, so that no text can look like a placeholder
    strings: list[str] = []
    rest: list[str] = []
    at = size = values = 0
    while at < len(text):
        start = text.find('"', at)
        start = len(text) if start < 0 else start
        end = _end_of_string(text, start + 1)
        if start < end == len(text):
            raise ValueError("a string has no end")
        outside, inside = text[at:start], text[start : end + 1]
        if len(inside) > SLICE_CHARS:
            strings.append(_read_string(text, start + 1, end))
            inside = f'"{mark}{len(strings) - 1}"'
        rest += outside, inside
        size += len(outside) + len(inside)
        values += 1 + outside.count(",") + outside.count("[") + outside.count("{")
        if values > MOST_VALUES or size > 4 * LONG_CHARS:
            raise TooMuch
        at = end + 1
    return _with_strings(_DECODER.decode("".join(rest)), mark, strings)


def _end_of_string(text: str, start: int) -> int:
    """Returns the end of the string whose first character is at `start`: its closing quote, or the end of the text."""
    at = start
    while at < len(text):
        found = _UNITS.match(text, at, at + SLICE_CHARS)
        end = at if found is None else found.end()
        if end < len(text) and text[end] == '"':
            return end
        if end == at:
            break
        at = end
    return len(text)


def _read_string(text: str, start: int, end: int) -> str:
    """Returns the string with this JSON text. Raises `ValueError`."""
    parts: list[str] = []
    while start < end:
        found = _UNITS.match(text, start, min(end, start + SLICE_CHARS))
        cut = start if found is None else found.end()
        if cut == start:
            raise ValueError("that is no escape")
        if cut < end and _SECOND_HALF.match(text, cut):
            cut += 6
        parts.append(json.loads(f'"{text[start:cut]}"'))
        start = cut
    return "".join(parts)


def _with_strings(value: Any, mark: str, strings: list[str]) -> Any:
    """Returns `value` with the long strings put back. Raises `TooMuch` if one is a key."""
    match value:
        case str() if type(value) is str and value.startswith(mark):
            return strings[int(value[len(mark) :])]
        case dict():
            if any(key.startswith(mark) for key in value):
                raise TooMuch
            return {key: _with_strings(inner, mark, strings) for key, inner in value.items()}
        case list():
            return [_with_strings(inner, mark, strings) for inner in value]
    return value


def compact(value: Any) -> str:
    """Returns JSON text without whitespace, keys in their order."""
    if type(value) is str:
        return quoted(value)
    if not _has_long(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
    if isinstance(value, Mapping):
        return f"{{{','.join([f'{compact(str(key))}:{compact(inner)}' for key, inner in value.items()])}}}"
    return f"[{','.join(map(compact, value))}]"


def quoted(text: str) -> str:
    """Returns `text` as a JSON string with quotes."""
    if len(text) <= LONG_CHARS:
        return json.dumps(text, ensure_ascii=False)
    slices = [
        json.dumps(text[at : at + SLICE_CHARS], ensure_ascii=False)[1:-1] for at in range(0, len(text), SLICE_CHARS)
    ]
    return f'"{"".join(slices)}"'


def _has_long(value: Any) -> bool:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            if len(node) > LONG_CHARS:
                return True
        elif isinstance(node, Mapping):
            stack += node.keys()
            stack += node.values()
        elif isinstance(node, list | tuple):
            stack += node
    return False


def join_surrogates(text: str) -> str:
    """Returns `text` with surrogate pairs joined and lone surrogates replaced, see `valid_text`."""
    if text.isascii() or not any(_HALF.search(text, at, at + SLICE_CHARS) for at in range(0, len(text), SLICE_CHARS)):
        return text
    return valid_text(text)
