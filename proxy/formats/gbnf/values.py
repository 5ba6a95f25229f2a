"""The rules for values: strings, lists, maps, numbers and free values.

`toolwire.formats.gbnf.arguments` translates JSON Schemas with these.
"""

from __future__ import annotations

import json
from typing import Any, Final

from ...scan._grammar import valid_text
from ..engine.values import JSON, Syntax, escape_json
from .notation import (
    Expression,
    Inexpressible,
    Rule,
    choice,
    literal,
    optional,
    sequence,
)
from .rules import GrammarBounds
from .text import CONTROLS, Pattern, TextRules, TextWithout

CHARS_PER_STEP: Final = 50
"""Characters of a constant that count as one step (`GrammarRules.step`)."""

FREE_KEY: Final = "[a-zA-Z_] [a-zA-Z0-9_]{0,62}"
"""A key that the schema does not name, in syntaxes with unquoted keys."""


class ValueRules(TextRules):
    """The named rules of one grammar with JSON values. Methods that build a value return an expression for it.

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
        super().__init__(bounds)
        self.syntax = syntax
        self.quoted = quoted
        self.spaced = spaced
        # JSON strings contain no line ends, so a stop that begins with one cannot occur.
        self.stops = tuple(stop for stop in stops if stop[0] != "\n")
        self._value: Rule | None = None

    def mark(self, text: str) -> Expression:
        """Returns an expression for a bracket, comma or colon."""
        shown = literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)
        return sequence(shown, '" "?') if self.spaced and text[-1:] in (",", ":") else shown

    def constant(self, value: Any) -> Expression:
        """Returns an expression for exactly this value. Raises `Inexpressible`."""
        text = self._fitting(self.syntax.write(value), value)
        return literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)

    def key(self, name: str) -> Expression:
        """Returns an expression for the key `name` and its colon. Raises `Inexpressible`."""
        return self.mark(self._fitting(self.syntax.key(name), name) + ":")

    def _fitting(self, text: str, value: Any) -> str:
        whole = json.dumps(value, ensure_ascii=False, default=dict)
        if self.syntax.quote and json.dumps(self.syntax.quote)[1:-1] in whole:
            raise Inexpressible("a string holds what ends it")
        if not whole.isascii() and valid_text(whole) != whole:
            raise Inexpressible("a lone surrogate")
        return escape_json(text, self.stops)

    def string(self, low: int = 0, high: int | None = None) -> Expression:
        """Returns an expression for a string of `low` to `high` characters."""
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
        """Returns an expression for `low` to `high` times `item`, comma-separated, in these brackets."""
        if high == 0:
            return self.mark(opener + closer)
        more = sequence(self.mark(","), item)
        inner = sequence(item, self.repeat(more, max(low - 1, 0), None if high is None else high - 1))
        return sequence(self.mark(opener), inner if low else optional(inner), self.mark(closer))

    def value(self) -> Rule:
        """Returns an expression for any JSON value."""
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
        """Returns an expression for arguments of any form: any object."""
        return self.name("map", self.map(self.value(), 0, self.bounds.items))

    def map(self, value: Expression, low: int, high: int | None) -> Expression:
        """Returns an expression for an object with any keys, and `low` to `high` members that fit `value`."""
        key = self.string(1, self.bounds.string)
        if self.syntax.bare_keys:
            key = choice((FREE_KEY, key))
        entry = self.name("entry", sequence(key, self.mark(":"), value))
        return self.sequence("{", entry, low, high, "}")


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
