"""Forms in which models write calls although nobody taught them (R23.1)."""

from __future__ import annotations

from typing import Literal

from .._grammar import Grammar

Mode = Literal["any", "whole", "taught"]


def recognising(grammar: Grammar, mode: Mode) -> Grammar:
    """The grammar, in which other forms are read besides what was taught."""
    return grammar


def recognised_markers(mode: Mode) -> tuple[str, ...]:
    """What opens or closes a block in one of these forms."""
    return ()
