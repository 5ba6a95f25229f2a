"""Any of the known formats, for models that nobody has told us about: `hermes` is taught, what else they write is
recognised.

Where the model's name says its family, a route with `format: auto` uses that family's format instead (`families.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolwire.formats.base import written
from toolwire.formats.engine.recognition import FAMILIES, reasoning_tags, recognising
from toolwire.formats.families import hermes
from toolwire.scan._grammar import Grammar

GRAMMAR: Final = recognising(
    Grammar(
        syntaxes=tuple(replace(syntax, family=hermes.FORMAT.name) for syntax in hermes.GRAMMAR.syntaxes),
        reasoning=tuple(dict.fromkeys((("<think>", "</think>"), *reasoning_tags(FAMILIES)))),
    ),
    "whole",
)

TAUGHT: Final = hermes.FORMAT.name
"""What a model of an unknown family is taught."""

FORMAT: Final = written("auto", GRAMMAR, hermes.LAYOUT)
