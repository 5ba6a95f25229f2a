"""Makes text readable: JSON for a model, without embedded files; text for a terminal, without control characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

SHORTEST: Final = 2048
"""A shorter text is never treated as a file."""

_FILE: Final = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\r\n-]+=*\s*")


def without_files(value: Any) -> Any:
    """Returns a JSON value in which each text that consists of a file's base64 is replaced by a note of its size."""
    if isinstance(value, str):
        is_file = len(value) >= SHORTEST and _FILE.fullmatch(value) is not None
        return f"[{len(value) * 3 // 4} bytes omitted]" if is_file else value
    if isinstance(value, Mapping):
        return {key: without_files(item) for key, item in value.items()}
    return [without_files(item) for item in value] if isinstance(value, list) else value


def visible(text: str, *, keep: str = "") -> str:
    """Returns `text` as one line for a terminal. Control characters, line ends, direction marks, unusual blanks and
    lone surrogates become Python escapes, except those in `keep`. All foreign text must pass through here before a
    terminal shows it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """Like `visible`, but line ends and tabs stay."""
    return visible(text, keep="\n\t")


def visible_json(text: str) -> str:
    """Returns JSON text with the same value, in which the characters that `visible` escapes are JSON escapes. Line ends
    between values stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json_escape(c) for c in text)


def json_escape(char: str) -> str:
    r"""Returns a character as JSON escapes (`\uXXXX`)."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
