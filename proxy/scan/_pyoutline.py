"""Finds arrays and their items in a JSON text, compares the objects parsed from them, and estimates their memory: the
specification of `_fastoutline.pxi`.

The functions for texts look only for quotes, brackets, commas and colons, without parsing values. `array_start` and
`item_ends` are exact for a valid JSON object; for other texts their results mean nothing. `json_marks` takes any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import is_
from sys import getsizeof, maxsize
from typing import Any, Final

from ..support.duplicate_keys import has_duplicates
from ..support.json_marks import json_marks

__all__ = [
    "array_start",
    "bytes_of",
    "common_length",
    "has_duplicates",
    "item_ends",
    "json_marks",
    "same_items",
    "with_own_texts",
]

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},:]', re.DOTALL)
_BLANKS: Final = b" \t\r\n"
VALUE_BYTES: Final = 120
"""Estimated memory of an object of `toolwire.model` without its fields, in bytes."""
SMALL_BYTES: Final = 32
"""Estimated memory of a number, or of any other object, in bytes."""


def array_start(text: bytes, key: bytes) -> int:
    """Returns the position after the opening bracket of the array in field `key`; -1 if the object has no array there.
    `key` includes its quotes."""
    depth = 0
    name: bytes | None = None
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in (b"[", b"{"):
            if depth == 1 and name == key:
                return found.end() if token == b"[" else -1
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
        elif depth == 1:
            if token == b",":
                name = None
            elif token == b":":
                if name == key and not text[found.end() :].lstrip(_BLANKS).startswith((b"[", b"{")):
                    return -1
            elif name is None:
                name = token
    return -1


def item_ends(text: bytes, start: int, most: int = maxsize) -> list[int]:
    """Returns the positions of the comma or bracket after each of the next items of an array, at most `most`. `start`
    is the position after the opening bracket, or an earlier result, to continue after that item."""
    ends: list[int] = []
    depth = 0
    if text[start : start + 1] == b",":
        start += 1
    for found in _TOKEN.finditer(text, start):
        if len(ends) == most:
            break
        token = found[0]
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
            if depth < 0:
                if ends or text[start : found.start()].strip(_BLANKS):
                    ends.append(found.start())
                break
        elif token == b"," and depth == 0:
            ends.append(found.start())
    return ends


def common_length(one: bytes, start: int, other: bytes, other_start: int) -> int:
    """Returns the length of the common prefix of `one[start:]` and `other[other_start:]` in bytes."""
    low, high = 0, max(0, min(len(one) - start, len(other) - other_start))
    while low < high:
        middle = (low + high + 1) // 2
        if one[start + low : start + middle] == other[other_start + low : other_start + middle]:
            low = middle
        else:
            high = middle - 1
    return low


def same_items(one: tuple[object, ...], other: tuple[object, ...]) -> int:
    """Returns the number of first items that are the same objects in both."""
    same = list(map(is_, one, other))
    return same.index(False) if False in same else len(same)


def bytes_of(values: Iterable[object], of: Iterable[object] = ()) -> int:
    """Returns the approximate memory of these values: texts, numbers, containers, and model objects. Texts that occur
    in the values `of` as well are not counted: they are counted where those values are stored."""
    seen: set[int] = set()
    _add_up(of, seen)
    return _add_up(values, seen)


def _add_up(values: Iterable[object], seen: set[int]) -> int:
    total = 0
    todo = list(values)
    while todo:
        value = todo.pop()
        if not value:  # empty values are shared objects
            continue
        kind = type(value)
        if kind is str or kind is bytes:
            if id(value) not in seen:
                seen.add(id(value))
                total += getsizeof(value)
        elif kind is tuple or kind is list:
            total += getsizeof(value)
            todo += value  # type: ignore[arg-type]
        elif kind is dict:
            total += getsizeof(value)
            todo += value  # type: ignore[arg-type]
            todo += value.values()  # type: ignore[attr-defined]
        elif kind is int or kind is float or kind is bool:
            total += SMALL_BYTES
        elif (fields := getattr(kind, "_values", None)) is not None:
            total += VALUE_BYTES
            todo += fields(value)
        elif isinstance(value, Mapping):
            total += getsizeof(value)
            todo += value.keys()
            todo += value.values()
        else:
            total += SMALL_BYTES
    return total


def with_own_texts(value: Any) -> Any:
    """Returns a JSON value with copies of its texts that are not ASCII. Some libraries store the UTF-8 form of such a
    text in the text object, which doubles its memory."""
    if type(value) is str:
        return value if value.isascii() else value[:1] + value[1:]
    if type(value) is dict:
        return {key: with_own_texts(inner) for key, inner in value.items()}
    if type(value) is list:
        return [with_own_texts(inner) for inner in value]
    return value
