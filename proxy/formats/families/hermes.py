"""Hermes and Qwen: `<tool_call>` tags around an object whose `arguments` is an object, not a string. Trinity also calls
inside its reasoning."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.templates import CHATML, GRANITE, LLAMA3
from ..engine.words import QWEN

GRAMMAR: Final = Grammar(syntaxes=(BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True),))

LAYOUT: Final = Layout(opener='<tool_call>\n{"name":', middle=',"arguments":', closer="}\n</tool_call>", separator="\n")

FORMAT: Final = make_format(
    "hermes",
    GRAMMAR,
    LAYOUT,
    models=Models(
        call='`<tool_call>{"name","arguments"}</tool_call>`',
        text="Qwen 2.5, Qwen 3, QwQ, Hermes, Granite 4.0 and 4.1, Ling 2, SmolLM3, Cogito v1, K2 V2",
        names=(
            r"mimo|exaone[-_]?4|k[-_]exaone|reka[-_]?edge|smollm[-_]?3",
            r"(ling|ring)[-_]?([12]|(mini|flash|lite|plus|max)[-_])",
            r"granite[-_]?4",
            r"minicpm[-_]?[vo]",
        ),
        derived=(
            r"(deep)?hermes",
            r"nemotron[-_](orchestrator|terminal|cascade[-_](8|14)b)",
            r"llama[-_]?3[-_]groq|k2[-_](think(?!ing)|v2)",
            r"cogito",
            r"holo[-_]?[12]",
            r"step[-_]?3[-_]vl[-_]10b",
            r"qwen|qwq",
        ),
        templates=(("<tool_call>", '"arguments"'),),
    ),
    template_tokens=(*CHATML, *LLAMA3, *GRANITE),
    words=QWEN,
)

TRINITY: Final = make_format(
    "trinity",
    replace(GRAMMAR, calls_in_reasoning=True),
    LAYOUT,
    models=Models(call="as `hermes`; calls inside reasoning count", text="Trinity", names=(r"trinity",)),
    template_tokens=(*CHATML, *LLAMA3),
    words=QWEN,
    elsewhere=(),
)
