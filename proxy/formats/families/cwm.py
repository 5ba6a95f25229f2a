"""Meta's CWM: a tool's name, then its first argument as text, or all arguments as a JSON object.

The model also puts the name into the tag, with or without the `>` after it: `<tool: bash> ls </tool>`. So the tag's
last word is part of the field.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.templates import LLAMA3
from ..engine.values import JSON

FORMAT: Final = make_format(
    "cwm",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<tool: ",
                closer="</tool>",
                body=((Branch(read="text", field="call", then=1),), (Branch(literal="</tool>"),)),
            ),
        )
    ),
    Layout(
        opener="<tool: function>\n",
        name="plain",
        middle=" ",
        arguments=JSON,
        closer="\n</tool>",
        separator="\n",
    ),
    models=Models(
        call="`<tool: function>`, a line with the name and a JSON object, or the text of the first argument, `</tool>`",
        text="CWM",
        names=(r"cwm(?![a-z])",),
    ),
    template_tokens=LLAMA3,
)
