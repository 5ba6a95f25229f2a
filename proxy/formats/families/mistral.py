"""Mistral: `[TOOL_CALLS]` and a name outside the JSON (tokenizer v11 and later), or one array (before).

Both formats read both forms; they differ in what they write. Reasoning models reason between `[THINK]` and `[/THINK]`.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import make_format
from ..engine.layout import Layout

_ARGUMENTS: Final = Branch(literal="[ARGS]", read="object", field="arguments")

GRAMMAR: Final = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="[TOOL_CALLS]",
            body=(
                (Branch(read="name", field="name", then=1),),
                (
                    _ARGUMENTS,
                    Branch(literal="[CALL_ID]", read="word", field="id", then=2),
                    Branch(read="object", field="arguments"),  # the token is not always made text
                ),
                (_ARGUMENTS,),
            ),
        ),
        BlockSyntax(
            opener="[TOOL_CALLS]",
            body=((Branch(read="array", field="calls"), Branch(read="object", field="call")),),
        ),
    ),
    reasoning=(("[THINK]", "[/THINK]"),),
)

FORMAT: Final = make_format("mistral", GRAMMAR, Layout(opener="[TOOL_CALLS]", name="plain", middle="[ARGS]", closer=""))

V3: Final = make_format(
    "mistral_v3",
    GRAMMAR,
    Layout(first="[TOOL_CALLS] [", opener='{"name":', middle=',"arguments":', closer="}", separator=", ", last="]"),
)
