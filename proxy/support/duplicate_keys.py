"""Keys that an object of a JSON text has twice.

Parsers disagree about them: most take the last value, some the first, some refuse. `orjson` takes the last and says
nothing, so the keys of the text are counted, and compared with those of the value.
"""

from __future__ import annotations

import json
from secrets import token_hex
from typing import Any

import orjson

from toolwire.support.json_marks import CountMarks, json_marks


def has_duplicates(text: bytes, value: Any, count: CountMarks = json_marks) -> bool:
    """Whether an object of `text`, whose value `orjson` said is `value`, has a key twice. `count` counts marks."""
    # A duplicate is not in the value, so writing the value gives fewer quotes. Any other quote of the text is written
    # again, unless it was written as an escape that has none.
    try:
        if rb"\u0022" not in text and count(text)[2] == count(orjson.dumps(value))[2]:
            return False
    except orjson.JSONEncodeError:  # it is nested deeper than the writer goes
        pass
    return _keys_of(text) != count_keys(value)


def each_key_once(text: str) -> str:
    """The JSON `text` with the last value of each key that an object has twice, as most parsers read it; itself if none
    has. Numbers keep their text. Raises `ValueError` if it cannot be written so."""
    try:
        return _last_of_each(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _last_of_each(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    try:
        twice = has_duplicates(raw, orjson.loads(raw))
    except orjson.JSONDecodeError:  # halves of characters, or numbers that it does not know
        twice = _keys_of(raw) != count_keys(json.loads(text, parse_int=str))
    if not twice:
        return text
    mark = token_hex(16)  # Not to be guessed, so no string of the text can look like a number of ours.

    def marked(number: str) -> str:
        return f"{mark}{number}{mark}"

    value = json.loads(text, parse_int=marked, parse_float=marked)
    # Halves of characters are no UTF-8: they stay escapes.
    once = json.dumps(value, ensure_ascii=r"\ud" in text.lower(), separators=(",", ":"), allow_nan=False)
    return once.replace(f'"{mark}', "").replace(f'{mark}"', "")


def _keys_of(text: bytes) -> int:
    """The keys of all objects in a text: each has a colon behind it, and no other stands outside of strings."""
    masked = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    return b"".join(masked.split(b'"')[::2]).count(b":")


def count_keys(value: Any) -> int:
    """The keys of all objects in `value`, which a parser made."""
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
    """The first key of a valid `text` that an object has twice; None if there is none."""
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and not found:
                found.append(key)
            seen.add(key)

    json.loads(text.decode("utf-8", "replace"), object_pairs_hook=note, strict=False)
    return found[0] if found else None
