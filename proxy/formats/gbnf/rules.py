"""The named rules of one grammar, including those for strings, lists, maps and free values.

`toolwire.formats.gbnf.arguments` translates JSON Schemas with these.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from ...scan._grammar import valid_text
from ..engine.values import JSON, Syntax, escape_json
from .notation import (
    Alternatives,
    Expression,
    Inexpressible,
    Repeat,
    Rule,
    Sequence,
    choice,
    literal,
    optional,
    sequence,
    to_gbnf,
)
from .text import CONTROLS, Pattern, TextWithout

MAX_STEPS: Final = 10_000
"""Maximum number of subschemas visited and constants written for one grammar."""
CHARS_PER_STEP: Final = 50
"""A longer constant counts as several steps."""
MAX_COUNTING: Final = 5_000
"""Maximum number of rules of one grammar that count characters of strings with forbidden texts."""
MAX_REPEAT: Final = 1_999
"""llama.cpp refuses more repetitions of one item."""


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

FREE_KEY: Final = "[a-zA-Z_] [a-zA-Z0-9_]{0,62}"
"""A key that the schema does not name, in syntaxes with unquoted keys."""


class GrammarRules:
    """The named rules of one grammar. Equal bodies share a name.

    `syntax` is the form of values. `quoted`: they are JSON inside a JSON string. `spaced`: a space may follow a comma
    or colon, as models write it. `stops`: literals that a value must not contain.
    """

    def __init__(
        self,
        bounds: GrammarBounds,
        *,
        syntax: Syntax = JSON,
        quoted: bool = False,
        spaced: bool = True,
        stops: tuple[str, ...] = (),
    ) -> None:
        self.bounds = bounds
        self.syntax = syntax
        self.quoted = quoted
        self.spaced = spaced
        # JSON strings contain no line ends, so a stop that begins with one cannot occur.
        self.stops = tuple(stop for stop in stops if stop[0] != "\n")
        self.steps = 0
        self._counting = MAX_COUNTING
        self._bodies: dict[str, Expression] = {}
        self._known: dict[Expression, Rule] = {}
        self._possible: set[str] = set()
        self._number = 0
        self.texts: dict[tuple[TextWithout, int, int | None], Rule] = {}
        """The rules of texts written so far."""
        self._value: Rule | None = None

    # --- names ------------------------------------------------------------------------------------------------------

    def name(self, hint: str, body: Expression) -> Rule:
        """Returns the rule with this body, created on first use."""
        if isinstance(body, Rule):
            return body
        known = self._known.get(body)
        if known is None:
            known = self._known[body] = self.reserve(hint)
            self._bodies[known.name] = body
        return known

    def reserve(self, hint: str) -> Rule:
        """Returns a rule whose body is set later with `define`. Until then it matches nothing."""
        self._number += 1
        return Rule(f"{hint}-{self._number}")

    def define(self, rule: Rule, body: Expression) -> None:
        """Sets the body of a reserved rule."""
        self._bodies[rule.name] = body

    def step(self, by: int = 1) -> None:
        """Counts steps. Raises `GrammarTooLarge`."""
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

    # --- values -----------------------------------------------------------------------------------------------------

    def mark(self, text: str) -> Expression:
        """Returns a bracket, comma or colon."""
        shown = literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)
        return sequence(shown, '" "?') if self.spaced and text[-1:] in (",", ":") else shown

    def constant(self, value: Any) -> Expression:
        """Returns one value. Raises `Inexpressible`."""
        text = self._fitting(self.syntax.write(value), value)
        return literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)

    def key(self, name: str) -> Expression:
        """Returns a key and its colon. Raises `Inexpressible`."""
        return self.mark(self._fitting(self.syntax.key(name), name) + ":")

    def _fitting(self, text: str, value: Any) -> str:
        whole = json.dumps(value, ensure_ascii=False, default=dict)
        if self.syntax.quote and json.dumps(self.syntax.quote)[1:-1] in whole:
            raise Inexpressible("a string holds what ends it")
        if not whole.isascii() and valid_text(whole) != whole:
            raise Inexpressible("a lone surrogate")
        return escape_json(text, self.stops)

    def string(self, low: int = 0, high: int | None = None) -> Expression:
        """Returns a string of `low` to `high` characters."""
        if own := self.syntax.quote:
            body = TextWithout((Pattern.of(own, ""),), without=CONTROLS).rule(self, low, high)
            return self.name("string", sequence(literal(own), body))
        # One more level of quoting doubles every backslash: \n is \\n, \" is \\\", \\ is \\\\. \u is left out,
        # because it would allow surrogates.
        escape: Expression = r'"\\\\" ([bfnrt] | "\\" ["\\])' if self.quoted else r'"\\" ["\\bfnrt]'
        quote = self.mark('"')
        if self.stops:
            avoided = tuple(Pattern.of(stop, None) for stop in self.stops)
            body = TextWithout(avoided, without=r"\"\\\x00-\x1F\x7F", escape=escape, end=quote).rule(self, low, high)
            return self.name("string", sequence(quote, body))
        char = self.name("char", choice((r'[^"\\\x00-\x1F\x7F]', escape)))
        return self.name("string", sequence(quote, self.repeat(char, low, high), quote))

    def sequence(self, opener: str, item: Expression, low: int, high: int | None, closer: str) -> Expression:
        """Returns `low` to `high` times `item`, comma-separated, in brackets."""
        if high == 0:
            return self.mark(opener + closer)
        more = sequence(self.mark(","), item)
        inner = sequence(item, self.repeat(more, max(low - 1, 0), None if high is None else high - 1))
        return sequence(self.mark(opener), inner if low else optional(inner), self.mark(closer))

    def value(self) -> Rule:
        """Returns any JSON value."""
        if self._value is None:
            self._value = self.reserve("value")
            inner = (
                self.string(0, self.bounds.string),
                numbers(self.bounds.digits),
                *map(self.constant, (True, False, None)),
                self.anything(),
                self.sequence("[", self._value, 0, self.bounds.items, "]"),
            )
            self.define(self._value, choice(inner))
        return self._value

    def anything(self) -> Rule:
        """Returns any object of arguments."""
        return self.name("map", self.map(self.value(), 0, self.bounds.items))

    def map(self, value: Expression, low: int, high: int | None) -> Expression:
        """Returns an object with free keys."""
        key = self.string(1, self.bounds.string)
        if self.syntax.bare_keys:
            key = choice((FREE_KEY, key))
        entry = self.name("entry", sequence(key, self.mark(":"), value))
        return self.sequence("{", entry, low, high, "}")


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


# --- numbers ----------------------------------------------------------------------------------------------------------


_DIGIT: Final = "[0-9]"
_SHORT: Final = f"{_DIGIT} {_DIGIT}?"
_LONG: Final = f'"30" [0-7] | [12] {_DIGIT} {_DIGIT} | {_SHORT}'
"""Exponents that a double can represent after one digit. After more digits a long exponent could exceed its range."""


def integers(digits: int | None) -> str:
    """Returns an expression for all integers, of at most `digits` digits if given."""
    return f'("0" | "-"? {_natural(digits)})'


def numbers(digits: int | None) -> str:
    """Returns an expression for all numbers in a double's range. With `digits`: at most that many before the point and
    six after it."""
    if digits is not None:
        return f'"-"? ("0" | {_natural(digits)}) ("." {_DIGIT}{{1,6}})?'
    decimals = f'("." {_DIGIT}+)?'
    one, more = (f"{decimals} ([eE] [-+]? ({exponents}))?" for exponents in (_LONG, _SHORT))
    return f'"-"? ({_DIGIT} {one} | [1-9] {_DIGIT}+ {more})'


def _natural(digits: int | None) -> str:
    return f"[1-9] {_DIGIT}*" if digits is None else f"[1-9] {_DIGIT}{{0,{max(digits, 1) - 1}}}"
