"""Hermes and Qwen: the sentinel's tags around an object whose `arguments` is an object, not a string. Trinity does so,
also where it thinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..scan._grammar import BlockSyntax, Grammar
from .base import written
from .layout import Layout

GRAMMAR: Final = Grammar(syntaxes=(BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True),))

INSTRUCTIONS: Final = """To call a tool, write a block in exactly this form:
<tool_call>
{"name":"TOOL","arguments":{"KEY":"VALUE"}}
</tool_call>
TOOL is the tool's name, `arguments` a JSON object with the tool's arguments; use {} if there are none. Put no Markdown
fence around the block. Only such a block calls a tool. The result follows in the next message as a tool_response; never
write a result yourself."""

LAYOUT: Final = Layout(opener='<tool_call>\n{"name":', middle=',"arguments":', closer="}\n</tool_call>", separator="\n")

FORMAT: Final = written("hermes", GRAMMAR, LAYOUT, INSTRUCTIONS)

TRINITY: Final = written("trinity", replace(GRAMMAR, calls_in_reasoning=True), LAYOUT, INSTRUCTIONS)
