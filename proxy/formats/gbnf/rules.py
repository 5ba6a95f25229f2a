"""The named rules of one grammar, and those for strings, lists, maps and free values.

What a JSON Schema becomes is in `proxy.formats.gbnf.arguments`; this is what it is written with.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from ...scan._grammar import valid_text
from ..values import JSON, Syntax, escape_json
from .notation import Choice, Expression, Inexpressible, Repeat, Rule, Sequence, choice, literal, optional, sequence
from .notation import written as in_notation
from .numbers import numbers
from .text import CONTROLS, Pattern, Text

MAX_STEPS: Final = 10_000
"""Subschemas visited and constants written for one grammar."""
CHARS_PER_STEP: Final = 50
"""A longer constant counts as several."""
MAX_COUNTING: Final = 5_000
"""Rules of one grammar that only count characters of strings that cannot hold certain texts."""
MAX_REPEAT: Final = 1_999
"""llama.cpp refuses more repetitions of one item."""


class TooLarge(Exception):
    """`MAX_STEPS` are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Room for what the schema leaves open: characters of a string, items of a list or map, digits before the point of
    a number, calls in one answer. None: no bound. For small models, which fill whatever room they get."""

    string: int | None = None
    items: int | None = None
    digits: int | None = None
    calls: int | None = None


STANDARD: Final = Bounds()

_NOTHING: Final = '""'

FREE_KEY: Final = "[a-zA-Z_] [a-zA-Z0-9_]{0,62}"
"""A key that the schema does not name, where keys have no quotes."""


class Rules:
    """The named rules of one grammar. Equal bodies share a name.

    `syntax` is how values are written. `quoted`: as JSON inside a JSON string. `spaced`: a space may follow a comma or
    a colon, as models write them. `stops`: literals that must not stand in a value.
    """

    def __init__(
        self,
        bounds: Bounds,
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
        # What begins with a line end cannot stand in JSON, which has none in its strings.
        self.stops = tuple(stop for stop in stops if stop[0] != "\n")
        self.steps = 0
        self._counting = MAX_COUNTING
        self._bodies: dict[str, Expression] = {}
        self._known: dict[Expression, Rule] = {}
        self._possible: set[str] = set()
        self._number = 0
        self.texts: dict[tuple[Text, int, int | None], Rule] = {}
        """The rules of texts that have been written."""
        self._value: Rule | None = None

    # --- names ------------------------------------------------------------------------------------------------------

    def name(self, hint: str, body: Expression) -> Rule:
        """A rule with this body."""
        if isinstance(body, Rule):
            return body
        known = self._known.get(body)
        if known is None:
            known = self._known[body] = self.reserve(hint)
            self._bodies[known.name] = body
        return known

    def reserve(self, hint: str) -> Rule:
        """A rule whose body comes later, by `define`, if it comes at all: until then it allows nothing."""
        self._number += 1
        return Rule(f"{hint}-{self._number}")

    def define(self, rule: Rule, body: Expression) -> None:
        """Give a reserved rule its body."""
        self._bodies[rule.name] = body

    def step(self, by: int = 1) -> None:
        """Count steps. Raises `TooLarge`."""
        self.steps += by
        if self.steps > MAX_STEPS:
            raise TooLarge

    def affords(self, rules: int) -> bool:
        """Whether so many rules may be spent on counting; they are spent then."""
        if rules > self._counting:
            return False
        self._counting -= rules
        return True

    def repeat(self, item: Expression, low: int, high: int | None) -> Expression:
        """`item` from `low` to `high` times, as far as llama.cpp counts: what is beyond is left open."""
        low = min(low, MAX_REPEAT)
        if high is not None and high > MAX_REPEAT:
            high = None
        if high == 0 or not item:
            return ""
        if low == high == 1:
            return item
        # What it counts are the rules in a group times the repetitions; a named rule is one.
        single = isinstance(item, Rule) or (low <= 1 and high in (None, 1))
        return Repeat(item if single else self.name("item", item), low, high)

    # --- what can be written at all ---------------------------------------------------------------------------------

    def is_possible(self, expression: Expression) -> bool:
        """Whether any text fits. A rule that cannot be written without itself allows none."""
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
            case Choice(options):
                return any(map(self._fits, options))
            case Repeat(item, low):
                return low == 0 or self._fits(item)
        return True

    def text(self, root: Expression) -> str:
        """The grammar of `root`: the rules that it needs, without alternatives that cannot be written."""
        if not self.is_possible(root):
            raise Inexpressible("nothing fits")
        lines = {"root": self._pruned(root)}
        waiting = [lines["root"]]
        while waiting:
            for name in _named(waiting.pop()):
                if name not in lines:
                    lines[name] = self._pruned(self._bodies[name])
                    waiting.append(lines[name])
        text = "".join(f"{name} ::= {in_notation(body) or _NOTHING}\n" for name, body in lines.items())
        if not text.isascii() and valid_text(text) != text:
            raise Inexpressible("a schema holds a lone surrogate")
        return text

    def _pruned(self, expression: Expression) -> Expression:
        match expression:
            case Sequence(items):
                return sequence(*map(self._pruned, items))
            case Choice(options):
                return choice(self._pruned(option) for option in options if self._fits(option))
            case Repeat(item, low, high):
                return Repeat(self._pruned(item), low, high) if self._fits(item) else ""
        return expression

    # --- values -----------------------------------------------------------------------------------------------------

    def mark(self, text: str) -> Expression:
        """Brackets, commas and colons."""
        shown = literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)
        return sequence(shown, '" "?') if self.spaced and text[-1:] in (",", ":") else shown

    def constant(self, value: Any) -> Expression:
        """One value. Raises `Inexpressible`."""
        text = self._fitting(self.syntax.write(value), value)
        return literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)

    def key(self, name: str) -> Expression:
        """A key and its colon. Raises `Inexpressible`."""
        return self.mark(self._fitting(self.syntax.key(name), name) + ":")

    def _fitting(self, text: str, value: Any) -> str:
        whole = json.dumps(value, ensure_ascii=False, default=dict)
        if self.syntax.quote and json.dumps(self.syntax.quote)[1:-1] in whole:
            raise Inexpressible("a string holds what ends it")
        if not whole.isascii() and valid_text(whole) != whole:
            raise Inexpressible("a lone surrogate")
        return escape_json(text, self.stops)

    def string(self, low: int = 0, high: int | None = None) -> Expression:
        """A string of `low` to `high` characters."""
        if own := self.syntax.quote:
            body = Text((Pattern.of(own, ""),), without=CONTROLS).rule(self, low, high)
            return self.name("string", sequence(literal(own), body))
        # One more level of quoting doubles every backslash: \n is \\n, \" is \\\", \\ is \\\\. There is no \u: what it
        # could add are surrogates.
        escape: Expression = r'"\\\\" ([bfnrt] | "\\" ["\\])' if self.quoted else r'"\\" ["\\bfnrt]'
        quote = self.mark('"')
        if self.stops:
            avoided = tuple(Pattern.of(stop, None) for stop in self.stops)
            body = Text(avoided, without=r"\"\\\x00-\x1F\x7F", escape=escape, end=quote).rule(self, low, high)
            return self.name("string", sequence(quote, body))
        char = self.name("char", choice((r'[^"\\\x00-\x1F\x7F]', escape)))
        return self.name("string", sequence(quote, self.repeat(char, low, high), quote))

    def sequence(self, opener: str, item: Expression, low: int, high: int | None, closer: str) -> Expression:
        """`low` to `high` times `item`, with commas, in brackets."""
        if high == 0:
            return self.mark(opener + closer)
        more = sequence(self.mark(","), item)
        inner = sequence(item, self.repeat(more, max(low - 1, 0), None if high is None else high - 1))
        return sequence(self.mark(opener), inner if low else optional(inner), self.mark(closer))

    def value(self) -> Rule:
        """Any JSON value."""
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
        """Any object of arguments."""
        return self.name("map", self.map(self.value(), 0, self.bounds.items))

    def map(self, value: Expression, low: int, high: int | None) -> Expression:
        """An object with free keys."""
        key = self.string(1, self.bounds.string)
        if self.syntax.bare_keys:
            key = choice((FREE_KEY, key))
        entry = self.name("entry", sequence(key, self.mark(":"), value))
        return self.sequence("{", entry, low, high, "}")


def _named(expression: Expression) -> list[str]:
    """The rules that an expression refers to, in order."""
    match expression:
        case Rule(name):
            return [name]
        case Sequence(parts) | Choice(parts):
            return [name for part in parts for name in _named(part)]
        case Repeat(item):
            return _named(item)
    return []
