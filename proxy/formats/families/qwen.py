"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5 and later: a tag for each argument. Seed-OSS has another outer
tag; MiMo has no line ends around values.

One line end on each side of a value belongs to the tags (not in MiMo). Models omit `<tool_call>` and `</parameter>`.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, wrong_closers
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.listing import elements
from ..engine.syntaxes import DONE, FUNCTION_STOPS, function_tags
from ..engine.templates import CHATML, NEMOTRON, between
from ..engine.words import Words, around

_SEED_TOKENS: Final = between("<", "seed:bos seed:eos seed:pad", ">")

_QWEN3_CODER_WORDS: Final = Words(
    template=around("You have access to the following functions:\n\n<tools>\n", "\n</tools>"),
    tools=elements,
)


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
        body=(
            (Branch(literal="<function=", then=1),),
            *function_tags(1, Branch(literal=closer), *wrong_closers(closer)),
        ),
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
    models=Models(
        call="`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`",
        text="Qwen3-Coder, Qwen 3.5 and later, Nemotron 3 and 3.5, Granite 4.2, Step 3.5, 3.7 and 5, MiniCPM-V 5, Holo 3, Ornith, Tmax, Nanbeige",
        names=(
            r"step[-_]?(3[._p-][5-9]|[5-9])(?![0-9])|nanbeige",
            r"granite[-_]?(4[._p-][2-9]|[5-9])(?![0-9]*b)",
            r"minicpm[-_]?[vo][-_]?[5-9]",
        ),
        derived=(
            r"nemotron[-_]?cascade|nemotron[-_](nano|super|ultra)[-_]?v?3(?![0-9_])",
            r"nemotron[-_]?[3-9]([._p-][0-9])?(?![0-9._b-]*b|[0-9])",
            r"holo[-_]?[3-9]|ornith|tmax|qwopus",
            r"qwen[-_]?3[-_]?coder|qwen[-_]?3([._p][5-9](?![0-9]*b)|[5-9](?![0-9b])|-[5-9]-[0-9]+b)|qwen[-_]?[4-9](?![0-9]*b)",
        ),
        templates=(("<tool_call>", "<function="), ("<tool_call>", "<function=", "<parameter=")),
    ),
    aliases=("qwen_xml",),
    template_tokens=(*CHATML, *NEMOTRON),
    words=_QWEN3_CODER_WORDS,
)

SEED_OSS: Final = make_format(
    "seed_oss",
    Grammar(
        syntaxes=(_syntax("<seed:tool_call>", "</seed:tool_call>"),),
        reasoning=(("<seed:think>", "</seed:think>"),),
    ),
    _layout("<seed:tool_call>", "</seed:tool_call>"),
    notes=VERBATIM,
    models=Models(
        call="as `qwen3_coder`, inside `<seed:tool_call>`; reasoning in `<seed:think>`",
        text="Seed-OSS",
        names=(r"seed[-_]?oss",),
        templates=(("<seed:tool_call>",),),
    ),
    template_tokens=_SEED_TOKENS,
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
    models=Models(call="as `qwen3_coder`, but line ends are part of a value", text="MiMo", names=(r"mimo[-_]?v[2-9]",)),
    template_tokens=CHATML,
    elsewhere=(),
)
