"""JSON numbers as GBNF, without ranges and `multipleOf`: arguments are checked later anyway."""

from __future__ import annotations

from typing import Final

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
