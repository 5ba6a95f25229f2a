"""Formats in which a call is an element with a `name`, and so is each argument: MiniMax M2, Step 3, MiniCPM5."""

from __future__ import annotations

from typing import Final

from .._grammar import Branch, Grammar, Place, Shape
from .base import VERBATIM, written
from .layout import Layout, Tagged
from .shapes import elements, section


def _minimax(base: int) -> tuple[Place, ...]:
    return elements(base, "parameter", "</invoke>")


MINIMAX_M2: Final = written(
    "minimax_m2",
    Grammar(
        shapes=tuple(
            section(
                "<minimax:tool_call>",
                "<invoke name=",
                _minimax,
                "</minimax:tool_call>",
                after="after",
                closer="</invoke>",
            )
        )
    ),
    Layout(
        first="<minimax:tool_call>\n",
        opener='<invoke name="',
        name="plain",
        middle='">\n',
        arguments=Tagged(opener='<parameter name="', strings='">', closer="</parameter>\n", stops=("</parameter>",)),
        closer="</invoke>",
        separator="\n",
        last="\n</minimax:tool_call>",
    ),
    notes=VERBATIM,
)

_STEP: Final = "<｜tool_call_begin｜>"  # the bar is U+FF5C, the underscores are ASCII
_STEP_END: Final = "<｜tool_call_end｜>"


def _step3(base: int) -> tuple[Place, ...]:
    return (
        (Branch(literal="function", then=base + 1),),
        (Branch(literal="<｜tool_sep｜>", then=base + 2),),
        (Branch(literal="<steptml:invoke name=", then=base + 3),),
        *elements(base + 3, "steptml:parameter", "</steptml:invoke>", then=base + 8),
        (Branch(literal=_STEP_END),),
    )


STEP3: Final = written(
    "step3",
    Grammar(shapes=tuple(section("<｜tool_calls_begin｜>", _STEP, _step3, "<｜tool_calls_end｜>", closer=_STEP_END))),
    Layout(
        first="<｜tool_calls_begin｜>",
        opener=f'{_STEP}function<｜tool_sep｜><steptml:invoke name="',
        name="plain",
        middle='">',
        arguments=Tagged(
            opener='<steptml:parameter name="',
            strings='">',
            closer="</steptml:parameter>",
            stops=("</steptml:parameter>",),
        ),
        closer=f"</steptml:invoke>{_STEP_END}",
        last="<｜tool_calls_end｜>",
    ),
    notes=VERBATIM,
)

MINICPM5: Final = written(
    "minicpm5",
    Grammar(shapes=(Shape(opener="<function name=", closer="</function>", body=elements(0, "param", "</function>")),)),
    Layout(
        opener='<function name="',
        name="plain",
        middle='">',
        arguments=Tagged(opener='<param name="', strings='">', closer="</param>", stops=("</param>",)),
        closer="</function>",
        separator="\n",
    ),
    notes=VERBATIM,
)
