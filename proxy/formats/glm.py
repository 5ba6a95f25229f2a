"""GLM-4.5 and 4.6, with line ends between the tags, and GLM-4.7 and 5, without. Both formats read both."""

from __future__ import annotations

from typing import Final

from .._grammar import Branch, Grammar, Shape
from .base import VERBATIM, written
from .layout import Layout, Tagged

_NEXT: Final = (
    Branch(literal="<arg_key>", read="word", field="key", then=2),
    Branch(literal="</tool_call>"),
)
SHAPE: Final = Shape(
    opener="<tool_call>",
    closer="</tool_call>",
    body=(
        (Branch(read="name", field="name", then=1),),
        _NEXT,
        (Branch(literal="</arg_key>", then=3),),
        (Branch(literal="<arg_value>", read="text", field="value", then=4),),
        (Branch(literal="</arg_value>", then=1),),
    ),
)
GRAMMAR: Final = Grammar(shapes=(SHAPE,))


def _layout(end: str) -> Layout:
    """`end` stands behind the name and behind every tag of an argument."""
    return Layout(
        opener="<tool_call>",
        name="plain",
        middle=end,
        arguments=Tagged(
            opener="<arg_key>",
            strings=f"</arg_key>{end}<arg_value>",
            closer=f"</arg_value>{end}",
            stops=("</arg_value>",),
        ),
        closer="</tool_call>",
        separator=end,
    )


GLM45: Final = written("glm45", GRAMMAR, _layout("\n"), notes=VERBATIM)
GLM47: Final = written("glm47", GRAMMAR, _layout(""), notes=VERBATIM)
