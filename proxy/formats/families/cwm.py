"""Meta's CWM: a tool's name, then the rest of the block as its first argument, or a JSON object with all of them.

The model also puts the name into the tag, with or without the `>` behind it: `<tool: bash> ls </tool>`. That is why the
tag's last word is part of what is read.
"""

from __future__ import annotations

from typing import Final

from toolwire.formats.base import written
from toolwire.formats.engine.layout import Layout
from toolwire.formats.engine.values import JSON
from toolwire.scan._grammar import BlockSyntax, Branch, Grammar

FORMAT: Final = written(
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
)
