"""Texts for their readers: JSON for a model, without the files that none can read; lines for a terminal, without the
characters that one obeys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

SHORTEST: Final = 2048
"""Fewer characters are left as they are."""

_FILE: Final = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\r\n-]+=*\s*")


def legible(value: Any) -> Any:
    """A JSON value with a note in the place of each text that is nothing but the base64 of a file."""
    if isinstance(value, str):
        is_file = len(value) >= SHORTEST and _FILE.fullmatch(value) is not None
        return f"[{len(value) * 3 // 4} bytes omitted]" if is_file else value
    if isinstance(value, Mapping):
        return {key: legible(item) for key, item in value.items()}
    return [legible(item) for item in value] if isinstance(value, list) else value


def visible(text: str, *, keep: str = "") -> str:
    """A text as one line for a terminal: with an escape, as Python writes it, in the place of each character that is
    not shown but obeyed or hidden (controls, line ends, directions of writing, blanks of other kinds, halves of
    characters), but for those in `keep`. Everything that others may have written and a terminal gets passes through
    here."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """As `visible`, but line ends and tabs stay."""
    return visible(text, keep="\n\t")


def visible_json(text: str) -> str:
    """JSON text for the same value, in which no string holds such a character. Line ends between values stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
