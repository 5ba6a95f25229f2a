"""Calls as `{"tool_calls": [...]}` in a Markdown fence. Any other fence is text."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout

GRAMMAR: Final = Grammar(
    syntaxes=(BlockSyntax(opener="```json", closer="```", anchor="line", first_keys=("tool_calls",)),),
)

INSTRUCTIONS: Final = """To call a tool, write a block in exactly this form, on lines of its own:
```json
{"tool_calls": [{"name": <function-name>, "arguments": <args-json-object>}]}
```
Each call is one item of the list. Put no other fence around the block. The result follows in the next message; never
write a result yourself."""

LAYOUT: Final = Layout(
    first='```json\n{"tool_calls":[',
    opener='{"name":',
    middle=',"arguments":',
    closer="}",
    separator=",",
    last="]}\n```",
)

FORMAT: Final = make_format(
    "fenced_json",
    GRAMMAR,
    LAYOUT,
    INSTRUCTIONS,
    models=Models(
        call='a ```` ```json ```` fence with `{"tool_calls": [...]}`',
        text="models that write Markdown well and drop tags",
    ),
    elsewhere=(),
)
