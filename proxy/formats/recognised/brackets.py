"""`prompt.flatten: bracket`: earlier calls as `[function_call call_id=... name=... arguments={...}]` in every format.

A model imitates what it is shown, so where calls are shown in this form they are read in this form too (R5.7).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ...scan._grammar import WORD_BYTES, BlockSyntax, Branch
from ...support.legible import json_escape
from ..base import ToolFormat
from ..engine.escaping import Escaping
from ..engine.results import ResultForm

OPENER: Final = "[function_call"

MARKERS: Final = (OPENER,)
"""The literal that opens calls, and results too."""

RESULTS: Final = ResultForm("[function_call_output call_id={id} output=", "]")
"""The form of tool results in a prompt whose earlier calls are written in brackets."""

_CALL_ID: Final = Branch(literal="call_id=", read="word", field="id", then=2)
_NAME: Final = Branch(literal="name=", read="word", field="name", then=3)
_SHAPE: Final = BlockSyntax(
    opener=OPENER,
    closer="]",
    body=(
        (Branch(literal="id=", read="word", then=1), _CALL_ID, _NAME),
        (_CALL_ID, _NAME),
        (_NAME,),
        (Branch(literal="arguments=", read="object", field="arguments", then=4),),
        (Branch(literal="]"),),
    ),
    family="bracket",
)


_ODD: Final = re.compile(r"[^\w.:/+-]", re.ASCII)


def attribute(value: str, escaping: Escaping) -> str:
    r"""Returns an id or name: unchanged if it is plain, else as a JSON string with `\uXXXX` escapes, so that nothing in
    it ends the attribute."""
    text = _ODD.sub(lambda char: json_escape(char[0]), value)
    return value if text == value and value and not escaping.holds(value) else escaping.json(f'"{text}"')


def is_word(attribute: str) -> bool:
    """Returns True if an attribute is short enough to be read back."""
    return len(attribute) < WORD_BYTES


@lru_cache(maxsize=256)  # grammars are looked up as the very same object
def reading_brackets(tool_format: ToolFormat) -> ToolFormat:
    """Returns a copy of the format that also reads calls in brackets."""
    grammar = tool_format.grammar
    return replace(tool_format, grammar=replace(grammar, syntaxes=(*grammar.syntaxes, _SHAPE)))
