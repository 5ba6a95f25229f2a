"""Google's syntax for Gemma 4 and FunctionGemma: keys without quotes, strings between two literals."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import make_format
from ..engine.layout import Layout
from ..engine.syntaxes import DONE
from ..engine.values import Syntax


def _call(*ends: str) -> tuple[Node, ...]:
    return (
        (
            *(Branch(literal=word, read="word", field="name", then=1) for word in ("call:", ":")),
            Branch(read="name", field="name", then=1),
        ),
        (Branch(read="braces", field="arguments", then=2),),
        (*(Branch(literal=end) for end in ends), DONE),
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
QUOTE: Final = '<|"|>'
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
)
