"""The gateway's own format: `<tool_call>{"name": ..., "arguments": "<JSON text>"}</tool_call>` (R6.1)."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout

GRAMMAR: Final = Grammar(
    syntaxes=(BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True, arguments="string"),),
)

INSTRUCTIONS: Final = r"""To call a tool, write a block in exactly this form:
<tool_call>{"name": <function-name>, "arguments": <args-json-string>}</tool_call>
<args-json-string> is a string that holds a JSON object with the tool's arguments, its quotes escaped by a backslash; use
"{}" if there are none. Put no Markdown fence around the block.
The result follows in the next message; never write a result yourself."""

LAYOUT: Final = Layout(
    opener='<tool_call>{"name":', middle=',"arguments":', closer="}</tool_call>", separator="\n", arguments="string"
)

FORMAT: Final = make_format(
    "sentinel",
    GRAMMAR,
    LAYOUT,
    INSTRUCTIONS,
    special_tokens=False,
    models=Models(call="`<tool_call>`, object with `arguments` as a string, `</tool_call>`", text="any model"),
    elsewhere=(),
)
