"""JSON numbers as GBNF. Ranges and `multipleOf` are not said: whoever gets the call checks its arguments."""

from __future__ import annotations

from typing import Final

_DIGIT: Final = "[0-9]"
_SHORT: Final = f"{_DIGIT} {_DIGIT}?"
_LONG: Final = f'"30" [0-7] | [12] {_DIGIT} {_DIGIT} | {_SHORT}'
"""Exponents. A double reaches as far as the long ones behind one digit; behind more digits a long one may lead beyond,
to no number at all."""


def integers(digits: int | None) -> str:
    """All integers; those of at most so many digits, if that is given."""
    return f'("0" | "-"? {_natural(digits)})'


def numbers(digits: int | None) -> str:
    """All numbers that a double reaches; those of at most so many digits before the point and six behind it, if that is
    given."""
    if digits is not None:
        return f'"-"? ("0" | {_natural(digits)}) ("." {_DIGIT}{{1,6}})?'
    decimals = f'("." {_DIGIT}+)?'
    one, more = (f"{decimals} ([eE] [-+]? ({exponents}))?" for exponents in (_LONG, _SHORT))
    return f'"-"? ({_DIGIT} {one} | [1-9] {_DIGIT}+ {more})'


def _natural(digits: int | None) -> str:
    return f"[1-9] {_DIGIT}*" if digits is None else f"[1-9] {_DIGIT}{{0,{max(digits, 1) - 1}}}"
