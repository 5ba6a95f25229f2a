"""DeepSeek: V3 and R1 with a fence around the arguments, V3.1 without, V3.2 and later in tags.

The bar in the tags is U+FF5C, the underscore of the first two U+2581. V3 and V3.1 share all tags, so both formats read both;
a tool called `function` cannot be told from V3's word for functions.
"""

from __future__ import annotations

from typing import Final

from .._grammar import Branch, Grammar, Place, Shape
from .base import VERBATIM, written
from .layout import Layout, Tagged
from .shapes import elements, framing, section

_CALL: Final = "<｜tool▁call▁begin｜>"
_SEP: Final = "<｜tool▁sep｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SECTION: Final = "<｜tool▁calls▁begin｜>"
_SECTION_END: Final = "<｜tool▁calls▁end｜>"


def _call(base: int) -> tuple[Place, ...]:
    return (
        (
            Branch(literal=f"function{_SEP}", read="word", field="name", then=base + 1),
            Branch(read="word", field="name", then=base + 2),
        ),
        (Branch(literal="```", then=base + 3),),
        (Branch(literal=_SEP, read="object", field="arguments", then=base + 5),),
        (Branch(literal="json", then=base + 4), Branch(read="object", field="arguments", then=base + 6)),
        (Branch(read="object", field="arguments", then=base + 6),),
        (Branch(literal=_CALL_END),),
        (Branch(literal="```", then=base + 5),),
    )


GRAMMAR: Final = Grammar(shapes=tuple(section(_SECTION, _CALL, _call, _SECTION_END, closer=_CALL_END)))

V3: Final = written(
    "deepseek_v3",
    GRAMMAR,
    Layout(
        first=_SECTION,
        opener=f"{_CALL}function{_SEP}",
        name="plain",
        middle="\n```json\n",
        closer=f"\n```{_CALL_END}",
        separator="\n",
        last=_SECTION_END,
    ),
)

V31: Final = written(
    "deepseek_v31",
    GRAMMAR,
    Layout(first=_SECTION, opener=_CALL, name="plain", middle=_SEP, closer=_CALL_END, last=_SECTION_END),
)

_INVOKE: Final = "<｜DSML｜invoke name="
_INVOKE_END: Final = "</｜DSML｜invoke>"


def _invoke(base: int) -> tuple[Place, ...]:
    return elements(base, "｜DSML｜parameter", _INVOKE_END)


# The section's word is that of V3.2, of V4, and of V4.1, with its space.
_WORDS: Final = ("function_calls", "tool_calls", " calls")
DSML_GRAMMAR: Final = Grammar(
    shapes=(
        *(
            Shape(
                opener=f"<｜DSML｜{word}>", closer=_INVOKE_END, body=((Branch(literal=_INVOKE, then=1),), *_invoke(1))
            )
            for word in _WORDS
        ),
        Shape(opener=_INVOKE, closer=_INVOKE_END, body=_invoke(0)),
        *(framing(f"</｜DSML｜{word}>", "after") for word in _WORDS),
    )
)

V32: Final = written(
    "deepseek_v32",
    DSML_GRAMMAR,
    Layout(
        first="<｜DSML｜function_calls>\n",
        opener=f'{_INVOKE}"',
        name="plain",
        middle='">\n',
        arguments=Tagged(
            opener='<｜DSML｜parameter name="',
            strings='" string="true">',
            others='" string="false">',
            closer="</｜DSML｜parameter>\n",
            stops=("</｜DSML｜parameter>",),
        ),
        closer=_INVOKE_END,
        separator="\n",
        last="\n</｜DSML｜function_calls>",
    ),
    notes=f'{VERBATIM} `string="true"` says that the value is a string, `string="false"` that it is JSON.',
)
