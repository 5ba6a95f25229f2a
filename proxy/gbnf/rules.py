"""GBNF, llama.cpp's grammar notation: terminals, named rules, and the rules for strings, lists, numbers and free values.

What a JSON Schema becomes is in `proxy.gbnf.grammar`; this is what it is written with. Everything here is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from .._grammar import valid_text
from ..formats.values import JSON, Syntax, escape_json

MAX_STEPS: Final = 10_000
"""Subschemas visited for one grammar."""
MAX_REPEAT: Final = 2_000
"""llama.cpp refuses more repetitions of one item."""


class Inexpressible(ValueError):
    """Allows nothing, or nothing that a grammar can say."""


class TooLarge(Exception):
    """`MAX_STEPS` are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Room for what the schema leaves open: characters of a string, items of a list or map, digits before the point,
    levels of free-form or recursive values, calls in one answer."""

    string: int = MAX_REPEAT
    items: int = 16
    digits: int = 15
    depth: int = 3
    calls: int = 8


STANDARD: Final = Bounds()


# --- notation -------------------------------------------------------------------------------------------------------

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """`text` as a terminal; nothing for no text."""
    if not text:
        return ""
    escaped = (_ESCAPES.get(c) or (f"\\x{ord(c):02X}" if c < " " or c == "\x7f" else c) for c in text)
    return f'"{"".join(escaped)}"'


def repeat(item: str, low: int, high: int) -> str:
    """`item` from `low` to `high` times."""
    if low == high:
        return item if low == 1 else f"{item}{{{low}}}" if low else ""
    return f"{item}?" if (low, high) == (0, 1) else f"{item}{{{low},{high}}}"


_CONTROLS: Final = r"\x00-\x08\x0B-\x1F\x7F"
"""Inside a character class: what raw text does not hold. Tabs and line ends it does."""

_IN_CLASS: Final = {"\n": "\\n", "\\": "\\\\", "]": "\\]", "[": "\\[", '"': '\\"'}

FREE_KEY: Final = "[a-zA-Z_] [a-zA-Z0-9_]{0,62}"
"""A key that the schema does not name, where keys have no quotes."""


def raw_text(stops: Iterable[str], low: int, high: int, most: int | None) -> str:
    """Text of about `low` to `high` characters that holds none of the literals; never fewer, and never more than `most`."""
    stops = tuple(stops)
    firsts = "".join(dict.fromkeys(stop[0] for stop in stops))
    plain = _any_but(firsts)
    longest = max(map(len, stops))
    if most is not None and most < high * (longest + 1):
        return repeat(plain, low, high)
    # A beginning of a stop is no harm if something else follows. What follows must not begin another one.
    parts = dict.fromkeys(stop[:size] for stop in stops for size in range(1, len(stop)))
    items = [plain]
    for part in parts:
        follows = {stop[len(part)] for stop in stops if stop.startswith(part) and len(stop) > len(part)}
        blank = f"{literal(part[0])}? " if part[0] == "\n" else ""
        items.append(f"{blank}{literal(part)} {_any_but(firsts, follows)}")
    return repeat(f"({' | '.join(items)})", low, high)


def _any_but(*chars: Iterable[str]) -> str:
    excluded = sorted({char for some in chars for char in some})
    return f"[^{''.join(_IN_CLASS.get(char, char) for char in excluded)}{_CONTROLS}]"


class Rules:
    """The named rules of one grammar. Equal bodies share a name.

    `syntax` is how values are written. `quoted`: as JSON inside a JSON string. `stops`: literals that must not stand in it.
    """

    def __init__(
        self, bounds: Bounds, *, syntax: Syntax = JSON, quoted: bool = False, stops: tuple[str, ...] = ()
    ) -> None:
        self.bounds = bounds
        self.syntax = syntax
        self.quoted = quoted
        self.stops = stops
        self.steps = 0
        self.bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def name(self, hint: str, body: str) -> str:
        """A rule with this body."""
        known = self._names.get(body)
        if known is None:
            known = f"{hint}-{len(self.bodies)}"
            self.bodies[known] = body
            self._names[body] = known
        return known

    def step(self) -> None:
        """Count a step. Raises `TooLarge`."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooLarge

    def mark(self, text: str) -> str:
        """Brackets, commas and colons as a terminal."""
        return literal(json.dumps(text, ensure_ascii=False)[1:-1] if self.quoted else text)

    def constant(self, value: Any) -> str:
        """One value as a terminal. Raises `Inexpressible`."""
        return self.mark(self._fitting(self.syntax.write(value), value))

    def key(self, name: str) -> str:
        """A key and its colon as a terminal. Raises `Inexpressible`."""
        return self.mark(self._fitting(self.syntax.key(name), name) + ":")

    def _fitting(self, text: str, value: Any) -> str:
        whole = json.dumps(value, ensure_ascii=False, default=dict)
        if self.syntax.quote and json.dumps(self.syntax.quote)[1:-1] in whole:
            raise Inexpressible("a string holds what ends it")
        if not whole.isascii() and valid_text(whole) != whole:
            raise Inexpressible("a lone surrogate")
        return escape_json(text, self.stops)

    def string(self, low: int, high: int, most: int | None = None) -> str:
        """A string of `low` to `high` characters. `most`: what the schema allows."""
        if self.syntax.quote:
            quote = literal(self.syntax.quote)
            return self.name("string", f"{quote} {raw_text((self.syntax.quote,), low, high, most)} {quote}".strip())
        # One more level of quoting doubles every backslash: \n is \\n, \" is \\\", \\ is \\\\. There is no \u: what it
        # could add are surrogates.
        escape = r'"\\\\" ([bfnrt] | "\\" ["\\])' if self.quoted else r'"\\" ["\\bfnrt]'
        avoided = "".join(dict.fromkeys(_IN_CLASS.get(stop[0], stop[0]) for stop in self.stops if stop[0] != "\n"))
        char = self.name("char", rf'[^"\\{avoided}\x00-\x1F\x7F] | {escape}')
        quote = self.mark('"')
        return self.name("string", f"{quote} {repeat(char, low, high)} {quote}")

    def sequence(self, opener: str, item: str, low: int, high: int, closer: str) -> str:
        """`low` to `high` times `item`, with commas, in brackets."""
        if high == 0:
            return self.mark(opener + closer)
        comma = self.mark(",")
        low_more = max(low - 1, 0)
        inner = f"{item} {repeat(f'({comma} {item})', low_more, high - 1)}".strip()
        return f"{self.mark(opener)} {inner if low else f'({inner})?'} {self.mark(closer)}"

    def value(self, depth: int) -> str:
        """Any JSON value with at most `depth` levels."""
        options = [
            self.string(0, self.bounds.string),
            numbers(None, None, self.bounds.digits),
            *map(self.constant, _WORDS),
        ]
        if depth > 0:
            inner = self.value(depth - 1)
            options += [self.map(inner, 0, self.bounds.items), self.sequence("[", inner, 0, self.bounds.items, "]")]
        return self.name("value", " | ".join(options))

    def anything(self) -> str:
        """Any object of arguments."""
        return self.name("map", self.map(self.value(self.bounds.depth - 1), 0, self.bounds.items))

    def map(self, value: str, low: int, high: int) -> str:
        """An object with free keys."""
        key = FREE_KEY if self.syntax.bare_keys else self.string(1, min(64, self.bounds.string))
        entry = self.name("entry", f"{key} {self.mark(':')} {value}")
        return self.sequence("{", entry, low, high, "}")


_WORDS: Final = (True, False, None)


# --- numbers --------------------------------------------------------------------------------------------------------


def _span(low: str, high: str) -> str:
    """The digit strings from `low` to `high`, of one length."""
    if low == high:
        return f'"{low}"'
    if low[0] == high[0]:
        return f'"{low[0]}" {_span(low[1:], high[1:])}'
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if not rest:
        return f"[{first}-{last}]"
    options = []
    tail = ""
    if low[1:] != "0" * rest:
        options.append(f'"{first}" {_span(low[1:], "9" * rest)}')
        first += 1
    if high[1:] != "9" * rest:
        tail = f'"{last}" {_span("0" * rest, high[1:])}'
        last -= 1
    if first <= last:
        options.append(f"[{first}-{last}] {repeat('[0-9]', rest, rest)}")
    if tail:
        options.append(tail)
    return f"({' | '.join(options)})"


def _naturals(low: int, high: int) -> list[str]:
    """The decimal texts of `low` to `high`, both at least 0."""
    options = []
    while low <= high:
        longest = int("9" * len(str(low)))
        options.append(_span(str(low), str(min(high, longest))))
        low = longest + 1
    return options


def integers(low: int | None, high: int | None, digits: int) -> str:
    """The integers from `low` to `high`; an open end reaches `digits` digits. Raises `Inexpressible` for none."""
    low, high = _ends(low, high, digits)
    options = [f'"-" {text}' for text in _naturals(max(1, -high), -low)] + _naturals(max(0, low), high)
    if not options:
        raise Inexpressible("no integer is in range")
    return f"({' | '.join(options)})"


def numbers(low: int | None, high: int | None, digits: int) -> str:
    """The decimal numbers from `low` to `high` with up to 6 digits after the point; as `integers` otherwise."""
    low, high = _ends(low, high, digits)
    fraction = '("." [0-9]{1,6})?'
    if low > high:
        raise Inexpressible("no number is in range")
    options = []
    if low < 0:
        least = max(0, -high)
        options += [f'"-" {text} {fraction}' for text in _naturals(least, -low - 1)] + [f'"{low}"']
    if high >= 0:
        options += [f"{text} {fraction}" for text in _naturals(max(0, low), high - 1)] + [f'"{high}"']
    return f"({' | '.join(options)})"


def _ends(low: int | None, high: int | None, digits: int) -> tuple[int, int]:
    """The range with ends: an open one, and one further out than `digits` digits, as near as the other end allows."""
    most = 10**digits - 1
    bottom = min(-most, high if high is not None else -most) if low is None else low
    top = max(most, bottom) if high is None else high
    if bottom < -most <= top:
        bottom = -most
    if bottom <= most < top:
        top = most
    return bottom, top
