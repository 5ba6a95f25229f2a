"""Calls in Python syntax: Llama 3.2 and 4, LFM2, Olmo 3, UI-TARS. Sarashina 3 lists them as dicts; openPangu 2 has
LFM2's tags around JSON."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.listing import function_list, signature_list
from ..engine.results import ResultForm
from ..engine.syntaxes import DONE, bare, listed
from ..engine.templates import CHATML, LLAMA3, SENTENCEPIECE, bars
from ..engine.values import PYTHON
from ..engine.words import Words, around

_LFM2_TOKENS: Final = (
    *CHATML,
    *bars("tool_list_start tool_list_end tool_response_start tool_response_end pad"),
)

_LLAMA4_TOKENS: Final = bars(
    "begin_of_text end_of_text header_start header_end eot eom step finetune_right_pad "
    "image_start image_end tile_x_separator tile_y_separator patch image fim_prefix fim_middle fim_suffix"
)

_PANGU_TOKENS: Final = (*SENTENCEPIECE, *(f"[unused{number}]" for number in range(9, 20)))

_LFM2_WORDS: Final = Words(
    template=around("List of tools: <|tool_list_start|>", "<|tool_list_end|>"),
    tools=signature_list,
    results=ResultForm("<|tool_response_start|>", "<|tool_response_end|>"),
)


_NOTES: Final = "Arguments are written as Python writes them: strings in quotes, True, False, None, lists and dicts."

# Llama 3.2 and 4: the whole answer is one list, perhaps between two tags.
PYTHONIC: Final = make_format(
    "pythonic",
    Grammar(syntaxes=(bare("list"), listed("<|python_start|>", "<|python_end|>", read="list", optional=True))),
    Layout(first="[", opener="", name="plain", middle="(", arguments="keywords", closer=")", separator=", ", last="]"),
    notes=_NOTES,
    alone=True,
    models=Models(
        call="the whole answer is `[f(a=1), g()]`; also between `<|python_start|>` and `<|python_end|>`",
        text="Llama 4",
        names=(r"llama[-_]?4",),
    ),
    template_tokens=(*_LLAMA4_TOKENS, *LLAMA3),
    words=Words(tools=function_list),
)

# LFM2: a list between tags; LFM2.5 also writes the list alone, as the whole answer. The tags may contain JSON instead.
_TAGS: Final = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="<|tool_call_start|>",
            closer="<|tool_call_end|>",
            body=(
                (Branch(read="list", field="calls", then=1), Branch(read="object", field="call", then=1)),
                (Branch(literal="<|tool_call_end|>"), DONE),
            ),
            parameters=("arguments", "parameters"),
        ),
        bare("list"),
    )
)
LFM2: Final = make_format(
    "lfm2",
    _TAGS,
    Layout(
        first="<|tool_call_start|>[",
        opener="",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator=", ",
        last="]<|tool_call_end|>",
    ),
    notes=_NOTES,
    models=Models(
        call="`<|tool_call_start|>[f(a=1)]<|tool_call_end|>`, JSON as well; or the whole answer is the list",
        text="LFM2, LFM2.5",
        names=(r"lfm[-_]?[2-9]",),
        templates=(("<|tool_call_start|>",),),
    ),
    template_tokens=_LFM2_TOKENS,
    words=_LFM2_WORDS,
)

OPENPANGU: Final = make_format(
    "openpangu",
    _TAGS,
    Layout(
        first="<|tool_call_start|>[",
        opener='{"name":',
        middle=',"arguments":',
        closer="}",
        separator=",",
        last="]<|tool_call_end|>",
    ),
    models=Models(
        call='the tags of `lfm2` around `[{"name","arguments"}]`', text="openPangu 2", names=(r"openpangu[-_]?v?2",)
    ),
    template_tokens=_PANGU_TOKENS,
    elsewhere=(),
)

# Olmo 3: one call per line.
OLMO3: Final = make_format(
    "olmo3",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<function_calls>",
                closer="</function_calls>",
                body=(
                    (Branch(read="call", field="call", then=1),),
                    (Branch(literal="</function_calls>"), Branch(read="call", field="call", then=1)),
                ),
            ),
        )
    ),
    Layout(
        first="<function_calls>\n",
        opener="",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator="\n",
        last="\n</function_calls>",
    ),
    notes=_NOTES,
    models=Models(call="`<function_calls>`, one Python call a line", text="Olmo 3", names=(r"olmo[-_]?3",)),
    template_tokens=CHATML,
)

# Sarashina 3: one list of dicts after a token.
SARASHINA: Final = make_format(
    "sarashina",
    Grammar(syntaxes=(listed("<|tool_calls|>", read="list"),)),
    Layout(
        first="<|tool_calls|>[",
        opener="{'name': '",
        name="plain",
        middle="', 'arguments': ",
        arguments=PYTHON,
        closer="}",
        separator=", ",
        last="]",
    ),
    notes="Arguments are written as Python writes a dict: strings in quotes, True, False, None, lists and dicts.",
    models=Models(
        call="`<|tool_calls|>[{'name': ..., 'arguments': {...}}]`, as Python writes it",
        text="Sarashina 3",
        names=(r"sarashina",),
        templates=(("<|tool_calls|>",),),
    ),
)

# UI-TARS: a line with a thought, which stays text, then a line with the call. The opener is an ordinary word.
UI_TARS: Final = make_format(
    "ui_tars",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="Action:", anchor="line", body=((Branch(read="call", field="call", then=1),), (DONE,))),
        )
    ),
    Layout(
        opener="Action: ",
        name="plain",
        middle="(",
        arguments="keywords",
        closer=")",
        separator="\n",
    ),
    notes=_NOTES,
    special_tokens=False,
    models=Models(
        call="`Action: f(a=1)` on a line; the reasoning before it is text", text="UI-TARS", names=(r"ui[-_]?tars",)
    ),
    template_tokens=CHATML,
    elsewhere=(),
)
