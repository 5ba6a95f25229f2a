"""Detects duplicate keys in the objects of a JSON text.

Parsers treat them differently: most take the last value, some the first, some refuse. `orjson` silently takes the last,
so the number of keys in the text is compared with the number of keys in the parsed value.
"""

from __future__ import annotations

import json
from secrets import token_hex
from typing import Any

import orjson

from .json_marks import CountMarks, json_marks


def has_duplicates(text: bytes, value: Any, count: CountMarks = json_marks) -> bool:
    """Whether an object of `text`, whose value `orjson` said is `value`, has a key twice. `count` counts marks."""
    # A duplicate is not in the value, so writing the value gives fewer quotes. Any other quote of the text is written
    # again, unless it was written as an escape that has none.
    try:
        if rb"\u0022" not in text and count(text)[2] == count(orjson.dumps(value))[2]:
            return False
    except orjson.JSONEncodeError:  # nested deeper than orjson can serialise
        pass
    return _keys_of(text) != count_keys(value)


def each_key_once(text: str) -> str:
    """Returns the JSON `text` with only the last value of each duplicate key, as most parsers read it. Returns `text`
    itself if there are no duplicates. Numbers keep their spelling. Raises `ValueError` if the text is not JSON or is
    nested too deep."""
    try:
        return _last_of_each(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _last_of_each(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    try:
        twice = has_duplicates(raw, orjson.loads(raw))
    except orjson.JSONDecodeError:  # lone surrogates, or numbers that orjson cannot read
        twice = _keys_of(raw) != count_keys(json.loads(text, parse_int=str))
    if not twice:
        return text
    mark = token_hex(16)  # Random, so no string of the text can be mistaken for a marked number.

    def marked(number: str) -> str:
        return f"{mark}{number}{mark}"

    value = json.loads(text, parse_int=marked, parse_float=marked)
    # Lone surrogates have no UTF-8 form, so they stay escapes.
    once = json.dumps(value, ensure_ascii=r"\ud" in text.lower(), separators=(",", ":"), allow_nan=False)
    return once.replace(f'"{mark}', "").replace(f'{mark}"', "")


def _keys_of(text: bytes) -> int:
    """Counts the keys of all objects in a JSON text: the colons outside of strings."""
    masked = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    return b"".join(masked.split(b'"')[::2]).count(b":")


def count_keys(value: Any) -> int:
    """Counts the keys of all objects in a parsed JSON `value`."""
    keys = 0
    todo = [value]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is dict:
            keys += len(node)
            todo += node.values()
        elif kind is list:
            todo += node
    return keys


def duplicate_key(text: bytes) -> str | None:
    """Returns the first key that an object of the valid JSON `text` has twice, or None."""
    duplicates: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and not duplicates:
                duplicates.append(key)
            seen.add(key)

    json.loads(text.decode("utf-8", "replace"), object_pairs_hook=note, strict=False)
    return duplicates[0] if duplicates else None
