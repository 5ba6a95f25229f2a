"""Mistral: `[TOOL_CALLS]` and a name without JSON around it (tokenizer v11 and later), or one array (before).

Both are read by either format; they differ in what is written. Reasoning models think between `[THINK]` and `[/THINK]`.
"""

from __future__ import annotations

from typing import Final

from toolwire.formats.base import written
from toolwire.formats.engine.layout import Layout
from toolwire.scan._grammar import BlockSyntax, Branch, Grammar

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

FORMAT: Final = written("mistral", GRAMMAR, Layout(opener="[TOOL_CALLS]", name="plain", middle="[ARGS]", closer=""))

V3: Final = written(
    "mistral_v3",
    GRAMMAR,
    Layout(first="[TOOL_CALLS] [", opener='{"name":', middle=',"arguments":', closer="}", separator=", ", last="]"),
)
