"""A number's JSON Schema as GBNF: its range, and what it is a multiple of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from math import ceil, floor
from typing import Any, Final

from .notation import Expression, choice, literal, sequence
from .numbers import End, integers, multiples_below_one, numbers
from .rules import Rules

MAX_LISTED: Final = 256
"""Values that are listed one by one for `multipleOf`."""
MAX_MODULUS: Final = 100
"""The largest `multipleOf` that is reckoned digit by digit."""


def number(kind: str, schema: Mapping[str, Any], rules: Rules) -> Expression:
    """The numbers that fit: `kind` is `integer` or `number`. Raises `Inexpressible` for none."""
    digits = rules.bounds.digits
    low = _end(schema, "minimum", "exclusiveMinimum", max)
    high = _end(schema, "maximum", "exclusiveMaximum", min)
    step = None if "multipleOf" not in schema else Decimal(str(schema["multipleOf"]))
    if step is not None and step >= 1 and step == int(step):
        return multiples(int(step), *_whole(low, high), rules)
    if kind == "integer":
        return integers(*_whole(low, high), digits)  # of a step below 1 every integer is a multiple, nearly always
    if step is not None and step < 1 and 1 / step == int(1 / step) <= MAX_LISTED:
        return numbers(low, high, digits, multiples_below_one(step))
    return numbers(low, high, digits)


def multiples(step: int, low: int | None, high: int | None, rules: Rules) -> Expression:
    """The multiples of `step` in a range; where those cannot be said, all integers."""
    if rules.bounds.digits is not None and (low is None or high is None):
        return integers(low, high, rules.bounds.digits)
    positive = _multiples(step, 0 if low is None else max(0, low), high, rules)
    negative = _multiples(step, 1 if high is None else max(1, -high), None if low is None else -low, rules)
    if positive is None or negative is None:
        return integers(low, high)
    return choice([*positive, *(sequence(literal("-"), option) for option in negative)])


def _multiples(step: int, low: int, high: int | None, rules: Rules) -> list[Expression] | None:
    """Those between two bounds of which none is negative: listed, or reckoned digit by digit. None if there are too
    many for both."""
    end = high if high is not None else 10 ** len(str(low)) - 1
    listed = range(-(-low // step) * step, end + 1, step)
    states = step * (len(str(low)) + 1) if high is None else 0
    if len(listed) > MAX_LISTED or (states and step > MAX_MODULUS) or not rules.affords(states + len(listed)):
        return None
    options: list[Expression] = [literal(str(value)) for value in listed]
    if high is None:
        least = len(str(low))
        left = [[rules.reserve("rest") for _ in range(step)] for _ in range(least + 1)]
        for more, row in enumerate(left):  # so many digits more must come
            for rest, rule in enumerate(row):
                ways: list[Expression] = [
                    sequence(literal(str(digit)), left[max(more - 1, 0)][(10 * rest + digit) % step])
                    for digit in range(10)
                ]
                rules.define(rule, choice([*ways, ""] if not more and not rest else ways))
        options += [sequence(literal(str(digit)), left[least][digit % step]) for digit in range(1, 10)]
    return options


def _end(schema: Mapping[str, Any], word: str, strict: str, tighter: Callable[..., Decimal]) -> End | None:
    """An end of a range of numbers."""
    found = {key: Decimal(str(schema[key])) for key in (word, strict) if key in schema}
    values = {key: value for key, value in found.items() if value.is_finite()}
    if not values:
        return None
    value = tighter(values.values())
    return End(value, values.get(strict) == value)


def _whole(low: End | None, high: End | None) -> tuple[int | None, int | None]:
    """The same range for integers."""
    least = most = None
    if low is not None:
        least = floor(low.value) + 1 if low.strict else ceil(low.value)
    if high is not None:
        most = ceil(high.value) - 1 if high.strict else floor(high.value)
    return least, most
