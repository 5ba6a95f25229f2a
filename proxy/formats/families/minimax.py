"""MiniMax M3: `]<]minimax[>[` stands before every tag, and an argument is an element named after it.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="f">]<]minimax[>[<city>Oslo]<]minimax[>[</city>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

An element may contain elements: an object, or a list of `<item>`. These are read; written is JSON, whose types are
clear without the tool's schema. M2 is in `invoke.py`.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import Branch, Grammar, Node
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.syntaxes import section
from ..engine.templates import MINIMAX

PREFIX: Final = "]<]minimax[>["


def _call(base: int) -> tuple[Node, ...]:
    """Returns the nodes after `<invoke name=`. The key field includes the bracket (`<city`), because closing tags begin
    with `</`. A value is followed by its closer, or by its first inner element; from there on all is read at once."""
    tag, key, value, behind, after, name_end, end = range(base + 2, base + 9)
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (Branch(literal=">", then=tag), Branch(literal="/>")),
        (Branch(literal=PREFIX, then=key),),
        (Branch(literal="</invoke>"), Branch(read="word", field="key", then=value)),
        (Branch(literal=">", read="text", field="value", then=behind),),
        (Branch(literal=PREFIX, then=after),),
        (Branch(literal="</", read="word", then=name_end), Branch(read="text", field="arguments", then=end)),
        (Branch(literal=">", then=tag),),
        (Branch(literal=f"{PREFIX}</invoke>"),),
    )


M3: Final = make_format(
    "minimax_m3",
    Grammar(
        syntaxes=tuple(
            section(
                f"{PREFIX}<tool_call>",
                f"{PREFIX}<invoke name=",
                _call,
                f"{PREFIX}</tool_call>",
                tokens=True,
                closer=f"{PREFIX}</invoke>",
                prefix=PREFIX,
            )
        ),
        reasoning=(("<mm:think>", "</mm:think>"),),
    ),
    Layout(
        first=f"{PREFIX}<tool_call>\n",
        opener=f'{PREFIX}<invoke name="',
        name="plain",
        middle='">',
        arguments=Tagged(
            opener=f"{PREFIX}<",
            strings=">",
            closer=f"{PREFIX}</{{key}}>",
            stops=(PREFIX,),
        ),
        closer=f"{PREFIX}</invoke>",
        separator="\n",
        last=f"\n{PREFIX}</tool_call>",
    ),
    notes=VERBATIM,
    models=Models(
        call="`]<]minimax[>[<tool_call>` with an element for each argument, nested where the schema is",
        text="MiniMax M3",
        names=(r"minimax[-_]?m[3-9]",),
        templates=(("]<]minimax[>[",),),
    ),
    template_tokens=MINIMAX,
)
