"""Arguments as formats write them: JSON, Python's words, or strings between a literal of the format's own.

Rules of this module:

1. Numbers keep their text: nothing here makes a number of it.
2. What is read back has the same value. Where a syntax cannot say a value, `Syntax.write` says what stands for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from .._grammar import valid_text

_BARE_KEY: Final = re.compile(r"[\w.-]+")


class Number(str):
    """The text of a JSON number."""

    __slots__ = ()


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, with its numbers as `Number`; None if it is none."""
    try:
        value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def escape_json(text: str, literals: Iterable[str]) -> str:
    """JSON text for the same value that holds none of the literals. They can only stand inside its strings."""
    for literal in literals:
        # A literal that begins with a line end can only stand between tokens, where that may go.
        first = "" if literal[0] == "\n" else f"\\u{ord(literal[0]):04x}"
        text = text.replace(literal, first + literal[1:])
    return text


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a value is written. `words` are true, false and null, `quote` stands around strings (none: as in JSON), and
    `bare_keys` go without quotes."""

    words: tuple[str, str, str] = ("true", "false", "null")
    quote: str = ""
    bare_keys: bool = False

    def write(self, value: Any) -> str:
        """The text of a value. A string that holds `quote` cannot be said: a backslash goes behind the first character of
        each, which is not taken out again."""
        match value:
            case None:
                return self.words[2]
            case bool():
                return self.words[not value]
            case Number():
                return str(value)
            case str():
                return self.string(value)
            case Mapping():
                return f"{{{','.join(f'{self.key(key)}:{self.write(inner)}' for key, inner in value.items())}}}"
            case list() | tuple():
                return f"[{','.join(map(self.write, value))}]"
        return json.dumps(value)

    def key(self, key: str) -> str:
        """A key of an object."""
        return key if self.bare_keys and _BARE_KEY.fullmatch(key) else self.string(key)

    def string(self, text: str) -> str:
        """A string."""
        text = valid_text(text)
        if not self.quote:
            return json.dumps(text, ensure_ascii=False)
        return f"{self.quote}{text.replace(self.quote, self.quote[0] + chr(92) + self.quote[1:])}{self.quote}"


JSON: Final = Syntax()
PYTHON: Final = Syntax(words=("True", "False", "None"))
