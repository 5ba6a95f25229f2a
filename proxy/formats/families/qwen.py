"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5 and later: a tag for each argument. Seed-OSS has another outer
tag; MiMo has no line ends around values.

One line end on each side of a value belongs to the tags (not in MiMo). Models omit `<tool_call>` and `</parameter>`.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import VERBATIM, make_format
from ..engine.layout import Layout, Tagged
from ..engine.syntaxes import DONE, FUNCTION_STOPS, function_tags

_ARGUMENTS: Final = Tagged(opener="<parameter=", strings=">\n", closer="\n</parameter>\n", stops=FUNCTION_STOPS)


def _layout(opener: str, closer: str, arguments: Tagged = _ARGUMENTS) -> Layout:
    return Layout(
        opener=f"{opener}\n<function=",
        name="plain",
        middle=">\n",
        arguments=arguments,
        closer=f"</function>\n{closer}",
        separator="\n",
    )


def _syntax(opener: str, closer: str, *, framed: bool = True) -> BlockSyntax:
    return BlockSyntax(
        opener=opener,
        closer=closer,
        framed=framed,
        body=((Branch(literal="<function=", then=1),), *function_tags(1, Branch(literal=closer))),
    )


def _bare(*, framed: bool = True) -> BlockSyntax:
    """Returns the syntax without the outer tag."""
    return BlockSyntax(
        opener="<function=",
        closer="</function>",
        framed=framed,
        body=function_tags(0, Branch(literal="</tool_call>"), DONE),
    )


QWEN3_CODER: Final = make_format(
    "qwen3_coder",
    Grammar(
        syntaxes=(
            _syntax("<tool_call>", "</tool_call>"),
            _bare(),
        )
    ),
    _layout("<tool_call>", "</tool_call>"),
    notes=VERBATIM,
)

SEED_OSS: Final = make_format(
    "seed_oss",
    Grammar(
        syntaxes=(_syntax("<seed:tool_call>", "</seed:tool_call>"),),
        reasoning=(("<seed:think>", "</seed:think>"),),
    ),
    _layout("<seed:tool_call>", "</seed:tool_call>"),
    notes=VERBATIM,
)

MIMO: Final = make_format(
    "mimo",
    Grammar(syntaxes=(_syntax("<tool_call>", "</tool_call>", framed=False), _bare(framed=False))),
    _layout(
        "<tool_call>",
        "</tool_call>",
        Tagged(opener="<parameter=", strings=">", closer="</parameter>\n", stops=FUNCTION_STOPS),
    ),
    notes=VERBATIM,
)
