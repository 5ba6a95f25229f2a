"""GBNF, llama.cpp's grammar notation, as a tree: what stands to the right of `::=`.

A terminal is its text in the notation, the empty text is nothing. Trees are values: equal ones can share a rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """A reference to a named rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times the same; `high` None: as often as one likes."""

    item: Expression
    low: int = 0
    high: int | None = None


Expression = str | Rule | Sequence | Choice | Repeat


class Inexpressible(ValueError):
    """Allows nothing, or nothing that a grammar can say."""


# --- making ---------------------------------------------------------------------------------------------------------

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_CLASS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "]": "\\]", "[": "\\[", '"': '\\"', "-": "\\x2D", "^": "\\x5E"}  # fmt: skip


def literal(text: str) -> str:
    """`text` as a terminal; nothing for no text."""
    if not text:
        return ""
    escaped = (_ESCAPES.get(c) or (_hex(c) if c < " " or c == "\x7f" else c) for c in text)
    return f'"{"".join(escaped)}"'


def in_class(chars: Iterable[str]) -> str:
    """Characters as they stand in a class."""
    return "".join(_IN_CLASS.get(c) or (_hex(c) if c < " " or c == "\x7f" else c) for c in sorted(set(chars)))


def _hex(char: str) -> str:
    return f"\\x{ord(char):02X}"


def sequence(*items: Expression) -> Expression:
    """All of `items`, in order."""
    flat: list[Expression] = []
    for item in items:
        if isinstance(item, Sequence):
            flat += item.items
        elif item:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat)) if flat else ""


def choice(options: Iterable[Expression]) -> Expression:
    """One of `options`. Raises `Inexpressible` if there is none."""
    kept = tuple(dict.fromkeys(options))
    if not kept:
        raise Inexpressible("no alternative is left")
    return kept[0] if len(kept) == 1 else Choice(kept)


def optional(item: Expression) -> Expression:
    """`item`, or nothing."""
    return Repeat(item, 0, 1) if item else ""


# --- writing --------------------------------------------------------------------------------------------------------


def written(expression: Expression) -> str:
    """The expression in the notation."""
    match expression:
        case str():
            return expression
        case Rule(name):
            return name
        case Sequence(items):
            return " ".join(f"({written(item)})" if isinstance(item, Choice) else written(item) for item in items)
        case Choice(options):
            return " | ".join(written(option) or '""' for option in options)
        case Repeat(item, low, high):
            text = written(item)
            atom = isinstance(item, Rule) or (isinstance(item, str) and _is_atom(item))
            return f"{text if atom else f'({text})'}{_times(low, high)}"


def _times(low: int, high: int | None) -> str:
    match low, high:
        case 0, 1:
            return "?"
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 1, 1:
            return ""
        case _, None:
            return f"{{{low},}}"
        case _ if low == high:
            return f"{{{low}}}"
    return f"{{{low},{high}}}"


def _is_atom(text: str) -> bool:
    """Whether a terminal is a single character class: a sign of repetition behind it is about all of it."""
    return text.startswith("[") and text.find("]") == len(text) - 1
