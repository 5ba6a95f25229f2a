"""Arguments as formats write them: as JSON, with Python's words, or with a format's own quotes.

Rules of this module:

1. Numbers keep their text; they are never converted.
2. A value that is read back and restored is equal to the original.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .longjson import Number, compact, join_surrogates, quoted, read_long_json

__all__ = ["JSON", "PYTHON", "Escape", "Number", "Syntax", "escape_json", "read_object"]

Escape = Callable[[str], str]
"""Escapes the markers in a string."""

_BARE_KEY: Final = re.compile(r"[\w.-]+")


def read_object(text: str) -> dict[str, Any] | None:
    """Returns the JSON object in `text`, with its numbers as `Number`, or None if it is something else."""
    try:
        value = read_long_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def escape_json(text: str, literals: Iterable[str]) -> str:
    """Returns JSON text of the same value that contains none of the literals, which can only occur inside its
    strings."""
    for literal in literals:
        # A literal that begins with a line end can only stand between tokens, where whitespace may be removed.
        first = "" if literal[0] == "\n" else f"\\u{ord(literal[0]):04x}"
        text = text.replace(literal, first + literal[1:])
    return text


@dataclass(frozen=True, slots=True)
class Syntax:
    """The written form of a value. `words` are true, false and null; `quote` surrounds strings (empty: as in JSON);
    `bare_keys`: keys without quotes."""

    words: tuple[str, str, str] = ("true", "false", "null")
    quote: str = ""
    bare_keys: bool = False

    def write(self, value: Any, escape: Escape | None = None) -> str:
        """Returns the text of a value. `escape` is applied to its strings; by default a backslash breaks every `quote`
        in them."""
        match value:
            case None:
                return self.words[2]
            case bool():
                return self.words[not value]
            case Number():
                return str(value)
            case str():
                return self.string(value, escape)
            case Mapping():
                items = (f"{self.key(key, escape)}:{self.write(inner, escape)}" for key, inner in value.items())
                return f"{{{','.join(items)}}}"
            case list() | tuple():
                return f"[{','.join([self.write(inner, escape) for inner in value])}]"
        return compact(value)

    def key(self, key: str, escape: Escape | None = None) -> str:
        """Returns a key of an object as this syntax writes it."""
        return key if self.bare_keys and _BARE_KEY.fullmatch(key) else self.string(key, escape)

    def string(self, text: str, escape: Escape | None = None) -> str:
        """Returns `text` as this syntax writes a string, with quotes."""
        text = join_surrogates(text)
        if escape is not None:
            text = escape(text)
        if not self.quote:
            return quoted(text)
        if escape is None:
            text = text.replace(self.quote, f"{self.quote[0]}\\{self.quote[1:]}")
        return f"{self.quote}{text}{self.quote}"


JSON: Final = Syntax()
PYTHON: Final = Syntax(words=("True", "False", "None"))
