"""The format for models of an unknown family: `hermes` is taught, and calls in any known format are recognised.

If the model's name tells its family, a route with `format: auto` uses that family's format instead
(`model_families.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import Grammar
from ..base import Models, make_format
from ..engine.words import QWEN
from ..families import hermes
from .recognition import FAMILIES, reasoning_tags, recognising

GRAMMAR: Final = recognising(
    Grammar(
        syntaxes=tuple(replace(syntax, family=hermes.FORMAT.name) for syntax in hermes.GRAMMAR.syntaxes),
        reasoning=tuple(dict.fromkeys((("<think>", "</think>"), *reasoning_tags(FAMILIES)))),
    ),
    "whole",
)

TAUGHT: Final = hermes.FORMAT.name
"""The format taught to models of an unknown family."""

FORMAT: Final = make_format(
    "auto",
    GRAMMAR,
    hermes.LAYOUT,
    models=Models(
        call="the model's family's; unknown models are taught `hermes`, and other forms are recognised",
        text="the default",
    ),
    words=QWEN,
    elsewhere=(),
)
