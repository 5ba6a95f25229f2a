"""Google's syntax for Gemma 4 and FunctionGemma: keys without quotes, strings between two literals."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.listing import declarations
from ..engine.results import ResultForm
from ..engine.syntaxes import DONE
from ..engine.templates import GEMMA, bars, between
from ..engine.values import Syntax
from ..engine.words import Words, around

QUOTE: Final = '<|"|>'

_FUNCTIONGEMMA_TOKENS: Final = (
    *GEMMA,
    *between(
        "<",
        "start_function_declaration end_function_declaration start_function_response end_function_response",
        ">",
    ),
)

_GEMMA4_TOKENS: Final = (
    *between("<", "bos eos pad unk", ">"),
    *between("<|", "turn tool tool_response image audio video", ">"),
    *between("<", "turn tool tool_response image audio video", "|>"),
    *bars("think image audio video"),
)

_FUNCTIONGEMMA_WORDS: Final = Words(
    template=around(""),
    tools=declarations(
        "<start_function_declaration>", "<end_function_declaration>", Syntax(quote="<escape>", bare_keys=True)
    ),
    results=ResultForm(
        "<start_function_response>response:{name}{value:<escape>", "<escape>}<end_function_response>", separator=""
    ),
)

_GEMMA4_WORDS: Final = Words(
    template=around(""),
    tools=declarations("<|tool>", "<tool|>", Syntax(quote=QUOTE, bare_keys=True)),
    results=ResultForm(f"<|tool_response>response:{{name}}{{value:{QUOTE}", f"{QUOTE}}}<tool_response|>", separator=""),
)


def _call(*ends: str) -> tuple[Node, ...]:
    return (
        (
            *(Branch(literal=word, read="word", field="name", then=1) for word in ("call:", ":")),
            Branch(read="name", field="name", then=1),
        ),
        (Branch(read="braces", field="arguments", then=2),),
        (*(Branch(literal=end) for end in ends), *(Branch(literal=f"}}{end}", slip=True) for end in ends), DONE),
    )


def _layout(opener: str, quote: str, closer: str) -> Layout:
    return Layout(
        opener=f"{opener}call:",
        name="plain",
        middle="",
        arguments=Syntax(quote=quote, bare_keys=True),
        closer=closer,
    )


# Gemma 4: generation stops at the closer, or at the opener of a response.
GEMMA4: Final = make_format(
    "gemma4",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|tool_call>",
                closer="<tool_call|>",
                quote=QUOTE,
                body=_call("<tool_call|>", "<|tool_response>"),
            ),
        ),
        reasoning=(("<|channel>thought\n", "<channel|>"),),
    ),
    _layout("<|tool_call>", QUOTE, "<tool_call|>"),
    notes=f"Every string stands between two {QUOTE}, without quotes; numbers, true, false and null as in JSON.",
    models=Models(
        call='`<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`',
        text="Gemma 4, DiffusionGemma",
        names=(r"(diffusion[-_]?)?gemma[-_]?4|diffusion[-_]?gemma",),
        templates=(("<|tool_call>call:",),),
    ),
    aliases=("gemma",),
    template_tokens=_GEMMA4_TOKENS,
    words=_GEMMA4_WORDS,
)

FUNCTIONGEMMA: Final = make_format(
    "functiongemma",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<start_function_call>",
                closer="<end_function_call>",
                quote="<escape>",
                body=_call("<end_function_call>"),
            ),
        )
    ),
    _layout("<start_function_call>", "<escape>", "<end_function_call>"),
    notes="Every string stands between two <escape>, without quotes; numbers, true, false and null as in JSON.",
    models=Models(
        call="`<start_function_call>call:NAME{key:<escape>text<escape>}<end_function_call>`",
        text="FunctionGemma",
        derived=(r"functiongemma",),
        templates=(("<start_function_call>",),),
    ),
    template_tokens=_FUNCTIONGEMMA_TOKENS,
    words=_FUNCTIONGEMMA_WORDS,
)
