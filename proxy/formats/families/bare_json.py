"""Calls as one object that is the whole answer: `{"tool_calls": [...]}` or `{"name": ..., "arguments": ...}`."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout

GRAMMAR: Final = Grammar(
    syntaxes=(BlockSyntax(opener="", closer="", anchor="answer", first_keys=("tool_calls", "name", "arguments")),),
)

INSTRUCTIONS: Final = """To call a tool, let the whole answer be one JSON object in exactly this form, with no other text:
{"tool_calls": [{"name": <function-name>, "arguments": <args-json-object>}]}
Each call is one item of the list. Put no Markdown fence around it. The result follows in the next message; never write a
result yourself."""

LAYOUT: Final = Layout(
    first='{"tool_calls":[', opener='{"name":', middle=',"arguments":', closer="}", separator=",", last="]}"
)

FORMAT: Final = make_format(
    "bare_json",
    GRAMMAR,
    LAYOUT,
    INSTRUCTIONS,
    alone=True,
    json_answer=True,
    models=Models(call="the whole answer is one object", text="servers that can only enforce a JSON Schema"),
    elsewhere=(),
)
