"""Calls as Python writes them: Llama 3.2 and 4, LFM2, Olmo 3."""

from __future__ import annotations

from typing import Final

from .._grammar import Branch, Grammar, Shape
from .base import written
from .layout import Layout
from .shapes import bare, listed

_NOTES: Final = "Arguments are written as Python writes them: strings in quotes, True, False, None, lists and dicts."

# Llama 3.2 and 4: the whole answer is one list, perhaps between two tags.
PYTHONIC: Final = written(
    "pythonic",
    Grammar(shapes=(bare("list"), listed("<|python_start|>", "<|python_end|>", read="list", optional=True))),
    Layout(first="[", opener="", name="plain", middle="(", arguments="keywords", closer=")", separator=", ", last="]"),
    notes=_NOTES,
    alone=True,
)

LFM2: Final = written(
    "lfm2",
    Grammar(shapes=(listed("<|tool_call_start|>", "<|tool_call_end|>", read="list", optional=True),)),
    Layout(
        first="<|tool_call_start|>[",
        opener="",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator=", ",
        last="]<|tool_call_end|>",
    ),
    notes=_NOTES,
)

# Olmo 3: one call a line.
OLMO3: Final = written(
    "olmo3",
    Grammar(
        shapes=(
            Shape(
                opener="<function_calls>",
                closer="</function_calls>",
                body=(
                    (Branch(read="call", field="call", then=1),),
                    (Branch(literal="</function_calls>"), Branch(read="call", field="call", then=1)),
                ),
            ),
        )
    ),
    Layout(
        first="<function_calls>\n",
        opener="",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator="\n",
        last="\n</function_calls>",
    ),
    notes=_NOTES,
)
