"""JSON on the wire, for text that need not be valid Unicode.

A backend may split one character into two halves (`"\\ud83d"`, then `"\\ude00"`) or send bytes that are not UTF-8. orjson
rightly refuses both; a gateway must not (R6.5). Reading therefore falls back to the standard library, which keeps the
halves apart so that whoever joins the text joins them too; writing replaces what is still half by U+FFFD.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

MAX_MESSAGE_CHARS: Final = 500
"""A backend's error message is shortened to this many characters (R10.8)."""


def load(text: bytes | str) -> Any:
    """The value of a JSON text. Raises `ValueError` if it is none, also when it is nested too deep to read."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None


def dump(value: Any) -> bytes:
    """`value` as compact JSON. Half characters inside become U+FFFD. Raises `TypeError` for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Whole numbers beyond 64 bits and half characters: the standard library writes both.
        return whole(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)).encode()


def whole(text: str) -> str:
    """`text` with the two halves of a character joined and single halves replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def shorten(message: str) -> str:
    """A foreign message, cut to `MAX_MESSAGE_CHARS` characters."""
    message = whole(message.strip())
    return message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 1] + "…"
