"""Mistral: `[TOOL_CALLS]` and a name outside the JSON (tokenizer v11 and later), or one array (before).

Both formats read both forms; they differ in what they write. Reasoning models reason between `[THINK]` and `[/THINK]`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.listing import function_list
from ..engine.results import ResultForm
from ..engine.syntaxes import framing
from ..engine.templates import MISTRAL
from ..engine.words import Words, around

_MISTRAL_WORDS: Final = Words(
    template=around("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    tools=function_list,
    results=ResultForm("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
)


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
        replace(framing("[/TOOL_CALLS]"), ends_section=True),
    ),
    reasoning=(("[THINK]", "[/THINK]"),),
)

FORMAT: Final = make_format(
    "mistral",
    GRAMMAR,
    Layout(opener="[TOOL_CALLS]", name="plain", middle="[ARGS]", closer=""),
    models=Models(
        call="`[TOOL_CALLS]NAME[ARGS]{...}`; reasoning in `[THINK]`",
        text="Mistral from tokenizer v11: Small 3.2, Magistral, Devstral, Ministral 3",
        names=(r"mistral(?!$)|ministral|magistral|devstral|leanstral|voxtral|codestral[-_](25|26|latest)",),
        templates=(("[TOOL_CALLS]", "[ARGS]"),),
    ),
    template_tokens=MISTRAL,
    words=_MISTRAL_WORDS,
)

V3: Final = make_format(
    "mistral_v3",
    GRAMMAR,
    Layout(first="[TOOL_CALLS] [", opener='{"name":', middle=',"arguments":', closer="}", separator=", ", last="]"),
    models=Models(
        call='`[TOOL_CALLS] [{"name","arguments"}]`; this and `mistral` read both',
        text="earlier Mistral and Mixtral models",
        names=(
            r"mistral[-_]?(7b|nemo|small[-_:]?(24b|22b|24(?![0-9])|240|25(01|03)|3[._p-]1)|large[-_]?24)",
            r"mistral[:-]instruct|mistral(:v?0|:7b|:latest|$)|mixtral|pixtral|ministral[-_][38]b[-_](instruct[-_])?24",
        ),
        templates=(("[TOOL_CALLS]",),),
    ),
    template_tokens=MISTRAL,
    words=_MISTRAL_WORDS,
    elsewhere=(),
)
