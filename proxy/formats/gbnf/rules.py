"""The named rules of one grammar."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ...scan._grammar import valid_text
from .notation import (
    Alternatives,
    Expression,
    Inexpressible,
    Repeat,
    Rule,
    Sequence,
    choice,
    sequence,
    to_gbnf,
)

MAX_STEPS: Final = 10_000
"""Maximum number of subschemas visited and constants written for one grammar."""
MAX_COUNTING: Final = 5_000
"""Maximum number of rules of one grammar that count characters of strings with forbidden texts."""
MAX_REPEAT: Final = 1_999
"""Maximum number of repetitions of one item that llama.cpp accepts."""


class GrammarTooLarge(Exception):
    """The grammar needs more than `MAX_STEPS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarBounds:
    """Limits where the schema has none: characters of a string, items of a list or map, digits before a number's point,
    calls in one answer (None: no limit). Small models need them: they fill whatever is allowed."""

    string: int | None = None
    items: int | None = None
    digits: int | None = None
    calls: int | None = None


STANDARD: Final = GrammarBounds()

_NOTHING: Final = '""'


class GrammarRules:
    """The named rules of one grammar. Equal bodies share a name."""

    def __init__(self, bounds: GrammarBounds) -> None:
        self.bounds = bounds
        self.steps = 0
        self._counting = MAX_COUNTING
        self._bodies: dict[str, Expression] = {}
        self._known: dict[Expression, Rule] = {}
        self._possible: set[str] = set()
        self._number = 0

    # --- names ------------------------------------------------------------------------------------------------------

    def name(self, hint: str, body: Expression) -> Rule:
        """Returns the rule with this body, created on first use. Its name begins with `hint`."""
        if isinstance(body, Rule):
            return body
        known = self._known.get(body)
        if known is None:
            known = self._known[body] = self.reserve(hint)
            self._bodies[known.name] = body
        return known

    def reserve(self, hint: str) -> Rule:
        """Returns a new rule whose body is set later with `define`. Until then it matches nothing."""
        self._number += 1
        return Rule(f"{hint}-{self._number}")

    def define(self, rule: Rule, body: Expression) -> None:
        """Sets the body of a reserved rule."""
        self._bodies[rule.name] = body

    def step(self, by: int = 1) -> None:
        """Counts `by` subschemas or constants. Raises `GrammarTooLarge` beyond `MAX_STEPS`."""
        self.steps += by
        if self.steps > MAX_STEPS:
            raise GrammarTooLarge

    def affords(self, rules: int) -> bool:
        """Returns True if this many rules may be spent on counting characters, and spends them."""
        if rules > self._counting:
            return False
        self._counting -= rules
        return True

    def repeat(self, item: Expression, low: int, high: int | None) -> Expression:
        """Returns `item` repeated `low` to `high` times. A limit that is too high for llama.cpp is dropped."""
        low = min(low, MAX_REPEAT)
        if high is not None and high > MAX_REPEAT:
            high = None
        if high == 0 or not item:
            return ""
        if low == high == 1:
            return item
        # llama.cpp counts the rules in a group times the repetitions; a named rule counts as one.
        single = isinstance(item, Rule) or (low <= 1 and high in (None, 1))
        return Repeat(item if single else self.name("item", item), low, high)

    # --- possible rules ---------------------------------------------------------------------------------------------

    def is_possible(self, expression: Expression) -> bool:
        """Returns True if some text matches. A rule that can only be expanded through itself matches nothing."""
        waiting = deque(name for name in self._bodies if name not in self._possible)
        needed_by: dict[str, list[str]] = {}
        for name in waiting:
            for other in set(_named(self._bodies[name])):
                needed_by.setdefault(other, []).append(name)
        while waiting:
            name = waiting.popleft()
            if name not in self._possible and self._fits(self._bodies[name]):
                self._possible.add(name)
                waiting += needed_by.get(name, ())
        return self._fits(expression)

    def _fits(self, expression: Expression) -> bool:
        match expression:
            case Rule(name):
                return name in self._possible
            case Sequence(items):
                return all(map(self._fits, items))
            case Alternatives(options):
                return any(map(self._fits, options))
            case Repeat(item, low):
                return low == 0 or self._fits(item)
        return True

    def text(self, root: Expression) -> str:
        """Returns the grammar of `root` with the rules it needs, without impossible alternatives. Raises
        `Inexpressible` if nothing matches, or for lone surrogates."""
        if not self.is_possible(root):
            raise Inexpressible("nothing fits")
        lines = {"root": self._pruned(root)}
        waiting = [lines["root"]]
        while waiting:
            for name in _named(waiting.pop()):
                if name not in lines:
                    lines[name] = self._pruned(self._bodies[name])
                    waiting.append(lines[name])
        text = "".join(f"{name} ::= {to_gbnf(body) or _NOTHING}\n" for name, body in lines.items())
        if not text.isascii() and valid_text(text) != text:
            raise Inexpressible("a schema holds a lone surrogate")
        return text

    def _pruned(self, expression: Expression) -> Expression:
        match expression:
            case Sequence(items):
                return sequence(*map(self._pruned, items))
            case Alternatives(options):
                return choice(self._pruned(option) for option in options if self._fits(option))
            case Repeat(item, low, high):
                return Repeat(self._pruned(item), low, high) if self._fits(item) else ""
        return expression


def _named(expression: Expression) -> list[str]:
    """Returns the rules that an expression refers to, in order."""
    match expression:
        case Rule(name):
            return [name]
        case Sequence(parts) | Alternatives(parts):
            return [name for part in parts for name in _named(part)]
        case Repeat(item):
            return _named(item)
    return []
