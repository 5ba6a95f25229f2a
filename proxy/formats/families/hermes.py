"""Hermes and Qwen: `<tool_call>` tags around an object whose `arguments` is an object, not a string. Trinity also calls
inside its reasoning."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Grammar
from ..base import make_format
from ..engine.layout import Layout

GRAMMAR: Final = Grammar(syntaxes=(BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True),))

LAYOUT: Final = Layout(opener='<tool_call>\n{"name":', middle=',"arguments":', closer="}\n</tool_call>", separator="\n")

FORMAT: Final = make_format("hermes", GRAMMAR, LAYOUT)

TRINITY: Final = make_format("trinity", replace(GRAMMAR, calls_in_reasoning=True), LAYOUT)
