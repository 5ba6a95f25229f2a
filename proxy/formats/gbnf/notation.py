"""GBNF, llama.cpp's grammar notation, as a tree: the right side of `::=`.

A terminal is a string in the notation; the empty string matches nothing. Trees are values, so equal ones share a rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """An expression: a reference to a named rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """An expression: items one after another."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """An expression: one of several expressions."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """An expression: an item repeated `low` to `high` times; `high` None: unlimited."""

    item: Expression
    low: int = 0
    high: int | None = None


Expression = str | Rule | Sequence | Alternatives | Repeat


class Inexpressible(ValueError):
    """The schema allows nothing, or something that a grammar cannot express."""


# --- making ---------------------------------------------------------------------------------------------------------

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_CLASS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "]": "\\]", "[": "\\[", '"': '\\"', "-": "\\x2D", "^": "\\x5E"}  # fmt: skip


def literal(text: str) -> str:
    """Returns `text` as a terminal; empty for empty text."""
    if not text:
        return ""
    escaped = (_ESCAPES.get(c) or (_hex(c) if c < " " or c == "\x7f" else c) for c in text)
    return f'"{"".join(escaped)}"'


def in_class(chars: Iterable[str]) -> str:
    """Returns characters as written in a GBNF character class, without its brackets."""
    return "".join(_IN_CLASS.get(c) or (_hex(c) if c < " " or c == "\x7f" else c) for c in sorted(set(chars)))


def _hex(char: str) -> str:
    return f"\\x{ord(char):02X}"


def sequence(*items: Expression) -> Expression:
    """Returns an expression for all of `items` in order."""
    flat: list[Expression] = []
    for item in items:
        if isinstance(item, Sequence):
            flat += item.items
        elif item:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat)) if flat else ""


def choice(options: Iterable[Expression]) -> Expression:
    """Returns an expression for one of `options`. Raises `Inexpressible` if there are none."""
    alternatives = tuple(dict.fromkeys(options))
    if not alternatives:
        raise Inexpressible("no alternative is left")
    return alternatives[0] if len(alternatives) == 1 else Alternatives(alternatives)


def optional(item: Expression) -> Expression:
    """Returns an expression for an optional `item`."""
    return Repeat(item, 0, 1) if item else ""


# --- writing --------------------------------------------------------------------------------------------------------


def to_gbnf(expression: Expression) -> str:
    """Returns the expression as GBNF text."""
    match expression:
        case str():
            return expression
        case Rule(name):
            return name
        case Sequence(items):
            return " ".join(f"({to_gbnf(item)})" if isinstance(item, Alternatives) else to_gbnf(item) for item in items)
        case Alternatives(options):
            return " | ".join(to_gbnf(option) or '""' for option in options)
        case Repeat(item, low, high):
            text = to_gbnf(item)
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
    """Returns True if a terminal is a single character class, so that a repetition sign after it applies to all of
    it."""
    return text.startswith("[") and text.find("]") == len(text) - 1
