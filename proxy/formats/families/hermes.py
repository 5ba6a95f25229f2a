"""Hermes and Qwen: the sentinel's tags around an object whose `arguments` is an object, not a string. Trinity does so,
also where it thinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolwire.formats.base import written
from toolwire.formats.engine.layout import Layout
from toolwire.scan._grammar import BlockSyntax, Grammar

GRAMMAR: Final = Grammar(syntaxes=(BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True),))

LAYOUT: Final = Layout(opener='<tool_call>\n{"name":', middle=',"arguments":', closer="}\n</tool_call>", separator="\n")

FORMAT: Final = written("hermes", GRAMMAR, LAYOUT)

TRINITY: Final = written("trinity", replace(GRAMMAR, calls_in_reasoning=True), LAYOUT)
