"""JSON numbers in a range, as GBNF terminals. Ranges are exact; an open end is open, unless `digits` bounds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from math import ceil, floor
from typing import Final

from .notation import Inexpressible

FAR: Final = 10**40
"""A bound beyond this is no bound: that of a double would take a page of digits."""

_DIGIT: Final = "[0-9]"
_SHORT: Final = f"{_DIGIT} {_DIGIT}?"
_LONG: Final = f'"30" [0-7] | [12] {_DIGIT} {_DIGIT} | {_SHORT}'
"""Exponents. A double reaches as far as the long ones behind one digit; behind more digits a long one may lead beyond,
to no number at all."""


@dataclass(frozen=True, slots=True)
class End:
    """An end of a range; `strict`: not itself a part of it."""

    value: Decimal
    strict: bool = False


Fraction = Callable[[End | None, End | None], str | None]
"""What may stand behind the digits before the point, so that it is between two ends within [0, 1): a terminal, nothing
for nothing, None if nothing is between them."""


# --- integers -------------------------------------------------------------------------------------------------------


def integers(low: int | None, high: int | None, digits: int | None = None) -> str:
    """The integers from `low` to `high`; an open end reaches `digits` digits. Raises `Inexpressible` for none."""
    low, high = _near(low, high, digits)
    options = [f'"-" {text}' for text in _naturals(1 if high is None else max(1, -high), _negated(low), digits)]
    options += _naturals(0 if low is None else max(0, low), high, digits)
    return _one_of(options)


def _negated(value: int | None) -> int | None:
    return None if value is None else -value


def _naturals(low: int, high: int | None, digits: int | None) -> list[str]:
    """The decimal texts of `low` to `high`, both at least 0, one alternative for each length."""
    if high is None and digits is not None:
        high = max(10**digits - 1, low)
    options: list[str] = []
    while high is None or low <= high:
        length = len(str(low))
        longest = 10**length - 1
        if high is None and (low in (0, 1) or low == 10 ** (length - 1)):
            zero = ['"0"'] if low == 0 else []
            return [*options, *zero, f"[1-9] {_run(length - 1, None)}"]
        options.append(_span(str(low), str(longest if high is None else min(high, longest))))
        low = longest + 1
    return options


def _run(low: int, high: int | None) -> str:
    """So many digits."""
    if high is None:
        return f"{_DIGIT}*" if not low else f"{_DIGIT}{{{low}}} {_DIGIT}*" if low > 1 else f"{_DIGIT} {_DIGIT}*"
    return _DIGIT if low == high == 1 else f"{_DIGIT}{{{low},{high}}}" if low < high else f"{_DIGIT}{{{low}}}"


def _span(low: str, high: str) -> str:
    """The digit strings from `low` to `high`, of one length."""
    if low == high:
        return f'"{low}"'
    if low[0] == high[0]:
        return f'"{low[0]}" {_span(low[1:], high[1:])}'
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if not rest:
        return _digits(first, last)
    options = []
    tail = ""
    if low[1:] != "0" * rest:
        options.append(f'"{first}" {_span(low[1:], "9" * rest)}')
        first += 1
    if high[1:] != "9" * rest:
        tail = f'"{last}" {_span("0" * rest, high[1:])}'
        last -= 1
    if first <= last:
        options.append(f"{_digits(first, last)} {_run(rest, rest)}")
    if tail:
        options.append(tail)
    return _one_of(options)


def _digits(first: int, last: int) -> str:
    return f'"{first}"' if first == last else f"[{first}-{last}]"


def _one_of(options: Iterable[str]) -> str:
    kept = list(dict.fromkeys(options))
    if not kept:
        raise Inexpressible("no number is in range")
    return kept[0] if len(kept) == 1 and " " not in kept[0] else f"({' | '.join(kept)})"


def _near(low: int | None, high: int | None, digits: int | None) -> tuple[int | None, int | None]:
    """The range with ends that are worth writing. With `digits`, an end further out is drawn in, as near as the other
    one allows."""
    if digits is None:
        return (None if low is not None and low < -FAR else low), (None if high is not None and high > FAR else high)
    most = 10**digits - 1
    bottom = min(-most, high if high is not None else -most) if low is None else low
    top = max(most, bottom) if high is None else high
    if bottom < -most <= top:
        bottom = -most
    if bottom <= most < top:
        top = most
    return bottom, top


# --- decimal numbers ------------------------------------------------------------------------------------------------


def numbers(low: End | None, high: End | None, digits: int | None = None, fraction: Fraction | None = None) -> str:
    """The decimal numbers from `low` to `high`. `fraction`: what may stand behind the point, by default anything, up to
    6 digits where `digits` bounds those before it. Raises `Inexpressible` for none."""
    if low is None and high is None and digits is None and fraction is None:
        decimals = f'("." {_DIGIT}+)?'
        one, more = (f"{decimals} ([eE] [-+]? ({exponents}))?" for exponents in (_LONG, _SHORT))
        return f'"-"? ({_DIGIT} {one} | [1-9] {_DIGIT}+ {more})'
    low, high = (_not_far(end) for end in (low, high))
    if digits is not None:
        lowest = None if low is None else floor(low.value)
        bottom, top = _near(lowest, None if high is None else ceil(high.value), digits)
        low, high = _drawn_in(low, bottom), _drawn_in(high, top)
    part = fraction or _any_fraction(f"{_DIGIT}*" if digits is None else f"{_DIGIT}{{0,5}}")
    zero = End(Decimal(0))
    positive = [] if high is not None and high.value < 0 else _from_zero(_upper(low, zero), high, part)
    negative = []
    if low is None or low.value < 0:
        down = None if high is None else replace(high, value=-high.value)
        up = None if low is None else replace(low, value=-low.value)
        negative = [f'"-" {text}' for text in _from_zero(_upper(down, End(Decimal(0), strict=True)), up, part)]
    return _one_of((*negative, *positive))


def _not_far(end: End | None) -> End | None:
    return None if end is None or abs(end.value) > FAR else end


def _drawn_in(end: End | None, near: int | None) -> End | None:
    if near is None or (end is not None and abs(end.value) <= abs(near)):
        return end
    return End(Decimal(near))


def _upper(left: End | None, right: End) -> End:
    """The larger of two lower ends."""
    if left is None or left.value < right.value:
        return right
    if left.value == right.value:
        return End(left.value, left.strict or right.strict)
    return left


def _from_zero(low: End, high: End | None, fraction: Fraction) -> list[str]:
    """The numbers between two ends of which none is negative."""
    if high is not None and low.value > high.value:
        return []
    first = floor(low.value)
    inner = replace(low, value=low.value - first)
    if high is None:
        return _behind(f'"{first}"', fraction(inner, None)) + _whole(first + 1, None, fraction)
    last = floor(high.value)
    outer = replace(high, value=high.value - last)
    if first == last:
        return _behind(f'"{first}"', fraction(inner, outer))
    head = _behind(f'"{first}"', fraction(inner, None))
    return head + _whole(first + 1, last - 1, fraction) + _behind(f'"{last}"', fraction(None, outer))


def _whole(first: int, last: int | None, fraction: Fraction) -> list[str]:
    """The numbers whose part before the point is in this range."""
    free = fraction(None, None)
    return [text for natural in _naturals(first, last, None) for text in _behind(natural, free)]


def _behind(natural: str, fraction: str | None) -> list[str]:
    return [] if fraction is None else [f"{natural} {fraction}".strip()]


def _any_fraction(tail: str) -> Fraction:
    """Fractions of any digits. `tail` are those that nothing bounds."""

    def fraction(low: End | None, high: End | None) -> str | None:
        return _between(low, high, tail)

    return fraction


def _between(low: End | None, high: End | None, tail: str) -> str | None:
    """The fractions between two ends, digit by digit: as long as the digits are those of an end, it bounds the next
    one."""
    bottom = _after_point(low) if low is not None else ""
    top = _after_point(high) if high is not None else ""
    strict_low, strict_high = low is not None and low.strict, high is not None and high.strict

    def may_end(at: int, by_low: bool, by_high: bool) -> bool:
        above = not by_low or (not bottom[at:] and not strict_low)
        return above and (not by_high or bool(top[at:]) or not strict_high)

    @cache
    def rest(at: int, by_low: bool, by_high: bool) -> str | None:
        """What may follow the first `at` digits, at least one digit."""
        if by_low and not bottom[at:] and not strict_low:
            by_low = False
        if not by_low and not by_high:
            return f"{_DIGIT} {tail}"
        if not (by_low and bottom[at:]) and not (by_high and top[at:]):
            # Behind the last digit of the ends there are only zeros to tell from others.
            zeros = '"0"*'
            if by_high:
                return None if strict_high or by_low else f'"0" {zeros}'
            return f"{zeros} [1-9] {tail}"
        least = int(bottom[at : at + 1] or 0) if by_low else 0
        most = int(top[at : at + 1] or 0) if by_high else 9
        options: list[str] = []
        inner = range(least + by_low, most + (not by_high))
        if inner:
            options.append(f"{_digits(inner[0], inner[-1])} {tail}")
        edges = {least} if by_low else set()
        edges |= {most} if by_high else set()
        for digit in sorted(edges):
            if least <= digit <= most:
                state = at + 1, by_low and digit == least, by_high and digit == most
                more, end = rest(*state), may_end(*state)
                if more is not None:
                    options.append(f'"{digit}" ({more})?' if end else f'"{digit}" {more}')
                elif end:
                    options.append(f'"{digit}"')
        return f"({' | '.join(options)})" if options else None

    more, end = rest(0, low is not None, high is not None), may_end(0, low is not None, high is not None)
    if more is None:
        return "" if end else None
    return f'("." {more})?' if end else f'"." {more}'


def _after_point(end: End) -> str:
    return f"{end.value:f}".partition(".")[2].rstrip("0")


def multiples_below_one(step: Decimal) -> Fraction:
    """Fractions that are multiples of `step`, of which a whole number makes 1."""
    values = [step * k for k in range(int(1 / step))]

    def fraction(low: End | None, high: End | None) -> str | None:
        kept = [value for value in values if _is_between(value, low, high)]
        texts = [f"{value.normalize():f}"[1:] for value in kept if value]
        if not kept:
            return None
        if not texts:
            return ""
        options = " | ".join(f'"{text}"' for text in texts)
        return f"({options}){'?' if Decimal(0) in kept else ''}"

    return fraction


def _is_between(value: Decimal, low: End | None, high: End | None) -> bool:
    above = low is None or value > low.value or (value == low.value and not low.strict)
    return above and (high is None or value < high.value or (value == high.value and not high.strict))
