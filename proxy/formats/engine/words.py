"""The wording in which a family's own chat template lists tools and hands over results; used in the gateway's prompts
(R5.8, R31.5).

Rules of this module:

1. The wording is that of published chat templates. A family whose template is unknown, or lists tools in a separate
   turn, gets the common wording.
2. Instructions contain nothing that can be copied as a name or value: `<function-name>` is neither, and is not JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .listing import (
    Listing,
    declarations,
    elements,
    function_list,
    functions,
    headings,
    signature_list,
    signatures,
    tagged_functions,
)
from .results import TOOL_RESPONSE, ResultForm
from .values import Syntax

COMMON: Final = """{policy}

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

{format}

{examples}"""
"""The prompt segment of Qwen, GLM and many others, in the order of their templates. The policy comes first, like the
application's system message: after the list, it makes small models call a tool on every question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The wording for tools. `template` is the prompt segment with its four placeholders, `tools` writes the tools on
    offer, `form` says how to write a call (None: derived from the format's layout), `results` is the form of results.
    """

    template: str = COMMON
    tools: Listing = functions
    form: str | None = None
    results: ResultForm = TOOL_RESPONSE


def _around(before: str, behind: str = "") -> str:
    """Returns the common segment with other words around the list."""
    return f"{{policy}}\n\n# Tools\n\n{before}{{tools}}{behind}\n\n{{format}}\n\n{{examples}}"


QWEN: Final = Words(
    form="""For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
Put no Markdown fence around it."""
)
"""Hermes, Qwen 2.5 and 3, Granite 4."""

_QWEN3_CODER: Final = Words(
    template=_around("You have access to the following functions:\n\n<tools>\n", "\n</tools>"),
    tools=elements,
)

_MISTRAL: Final = Words(
    template=_around("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    tools=function_list,
    results=ResultForm("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
)

_LLAMA: Final = Words(
    template=_around("You have access to the following functions.\n\n"),
    form="""To call a function, respond with JSON for a function call, without a Markdown fence and with no other text:
{"name": <function-name>, "parameters": <args-json-object>}
Do not use variables.""",
)

_DEEPSEEK_V3: Final = Words(
    results=ResultForm(
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
        first="<｜tool▁outputs▁begin｜>",
        last="<｜tool▁outputs▁end｜>",
    )
)
_DEEPSEEK_V31: Final = Words(
    template=_around("You have access to the following tools:\n\n"),
    tools=headings,
    results=ResultForm("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", separator=""),
)
_DEEPSEEK_V32: Final = Words(
    template=_around("Here are the functions available in JSONSchema format:\n<functions>\n", "\n</functions>"),
    tools=signatures,
    results=ResultForm("<result>", "</result>", first="<function_results>\n", last="\n</function_results>"),
)
_DEEPSEEK_V4: Final = replace(_DEEPSEEK_V32, results=ResultForm("<tool_result>", "</tool_result>"))

_KIMI: Final = Words(tools=function_list, results=ResultForm("## Return of {id}\n", ""))

_MINIMAX: Final = Words(
    template=_around("Here are the tools available in JSONSchema format:\n\n<tools>\n", "\n</tools>"),
    tools=tagged_functions,
    results=ResultForm("<response>", "</response>"),
)

_QUOTE: Final = '<|"|>'
_GEMMA4: Final = Words(
    template=_around(""),
    tools=declarations("<|tool>", "<tool|>", Syntax(quote=_QUOTE, bare_keys=True)),
    results=ResultForm(
        f"<|tool_response>response:{{name}}{{value:{_QUOTE}", f"{_QUOTE}}}<tool_response|>", separator=""
    ),
)
_FUNCTIONGEMMA: Final = Words(
    template=_around(""),
    tools=declarations(
        "<start_function_declaration>", "<end_function_declaration>", Syntax(quote="<escape>", bare_keys=True)
    ),
    results=ResultForm(
        "<start_function_response>response:{name}{value:<escape>", "<escape>}<end_function_response>", separator=""
    ),
)

_LFM2: Final = Words(
    template=_around("List of tools: <|tool_list_start|>", "<|tool_list_end|>"),
    tools=signature_list,
    results=ResultForm("<|tool_response_start|>", "<|tool_response_end|>"),
)

_NEMOTRON: Final = Words(
    template=_around(
        "You can use the following tools to assist the user if required:\n<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>"
    ),
    tools=signature_list,
    results=ResultForm("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
)

_WORDS: Final[Mapping[str, Words]] = {
    "hermes": QWEN,
    "trinity": QWEN,
    "auto": QWEN,
    "qwen3_coder": _QWEN3_CODER,
    "mistral": _MISTRAL,
    "mistral_v3": _MISTRAL,
    "llama3_json": _LLAMA,
    "pythonic": Words(tools=function_list),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v31": _DEEPSEEK_V31,
    "deepseek_v32": _DEEPSEEK_V32,
    "deepseek_v4": _DEEPSEEK_V4,
    "deepseek_v41": _DEEPSEEK_V4,
    "kimi_k2": _KIMI,
    "minimax_m2": _MINIMAX,
    "gemma4": _GEMMA4,
    "functiongemma": _FUNCTIONGEMMA,
    "lfm2": _LFM2,
    "nemotron": _NEMOTRON,
    "ernie": replace(QWEN, results=ResultForm("<tool_output>\n", "\n</tool_output>")),
    "step3": Words(
        results=ResultForm(
            "<｜tool_output_begin｜>",
            "<｜tool_output_end｜>",
            first="<｜tool_outputs_begin｜>",
            separator="",
            last="<｜tool_outputs_end｜>",
        )
    ),
    "cohere": Words(results=ResultForm("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>")),
}
"""Wordings by the format's name."""


def words_of(format_name: str) -> Words:
    """Returns the wording of the family that a format is made for; the common wording if unknown."""
    return _WORDS.get(format_name, Words())
