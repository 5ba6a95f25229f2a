"""Calls in Python syntax: Llama 3.2 and 4, LFM2, Olmo 3, UI-TARS. Sarashina 3 lists them as dicts; openPangu 2 has
LFM2's tags around JSON."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import make_format
from ..engine.layout import Layout
from ..engine.syntaxes import DONE, bare, listed
from ..engine.values import PYTHON

_NOTES: Final = "Arguments are written as Python writes them: strings in quotes, True, False, None, lists and dicts."

# Llama 3.2 and 4: the whole answer is one list, perhaps between two tags.
PYTHONIC: Final = make_format(
    "pythonic",
    Grammar(syntaxes=(bare("list"), listed("<|python_start|>", "<|python_end|>", read="list", optional=True))),
    Layout(first="[", opener="", name="plain", middle="(", arguments="keywords", closer=")", separator=", ", last="]"),
    notes=_NOTES,
    alone=True,
)

# LFM2: a list between tags; LFM2.5 also writes the list alone, as the whole answer. The tags may contain JSON instead.
_TAGS: Final = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="<|tool_call_start|>",
            closer="<|tool_call_end|>",
            body=(
                (Branch(read="list", field="calls", then=1), Branch(read="object", field="call", then=1)),
                (Branch(literal="<|tool_call_end|>"), DONE),
            ),
            parameters=("arguments", "parameters"),
        ),
        bare("list"),
    )
)
LFM2: Final = make_format(
    "lfm2",
    _TAGS,
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

OPENPANGU: Final = make_format(
    "openpangu",
    _TAGS,
    Layout(
        first="<|tool_call_start|>[",
        opener='{"name":',
        middle=',"arguments":',
        closer="}",
        separator=",",
        last="]<|tool_call_end|>",
    ),
)

# Olmo 3: one call per line.
OLMO3: Final = make_format(
    "olmo3",
    Grammar(
        syntaxes=(
            BlockSyntax(
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

# Sarashina 3: one list of dicts after a token.
SARASHINA: Final = make_format(
    "sarashina",
    Grammar(syntaxes=(listed("<|tool_calls|>", read="list"),)),
    Layout(
        first="<|tool_calls|>[",
        opener="{'name': '",
        name="plain",
        middle="', 'arguments': ",
        arguments=PYTHON,
        closer="}",
        separator=", ",
        last="]",
    ),
    notes="Arguments are written as Python writes a dict: strings in quotes, True, False, None, lists and dicts.",
)

# UI-TARS: a line with a thought, which stays text, then a line with the call. The opener is an ordinary word.
UI_TARS: Final = make_format(
    "ui_tars",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="Action:", anchor="line", body=((Branch(read="call", field="call", then=1),), (DONE,))),
        )
    ),
    Layout(
        opener="Action: ",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator="\n",
    ),
    notes=_NOTES,
    special_tokens=False,
)
