"""Formats with JSON between tags of the model's own. Each paragraph describes the grammar and the layout of one."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import make_format
from ..engine.layout import Layout
from ..engine.syntaxes import DONE, GIGACHAT_FRAMING, bare, framing, listed

_NAMED: Final = ("name", "arguments")


def _list(opener: str, closer: str = "", key: str = "arguments", name: str = "name") -> Layout:
    """Returns the layout of one array of calls between two tags."""
    return Layout(
        first=f"{opener}[", opener=f'{{"{name}":', middle=f',"{key}":', closer="}", separator=",", last=f"]{closer}"
    )


# Llama 3.1 to 3.3: the whole answer is one object, or several separated by semicolons; or they follow a tag.
_SEVERAL: Final = (
    (Branch(read="object", field="call", then=1),),
    (Branch(literal=";", read="object", field="call", then=1), DONE),
)
_LLAMA3: Final = BlockSyntax(
    opener="",
    anchor="answer",
    body=_SEVERAL,
    first_keys=("name", "parameters", "arguments", "type"),
    parameters=("parameters", "arguments"),
)
LLAMA3_JSON: Final = make_format(
    "llama3_json",
    Grammar(
        syntaxes=(
            _LLAMA3,
            BlockSyntax(opener="<|python_tag|>", body=_SEVERAL, parameters=("parameters", "arguments")),
        )
    ),
    Layout(opener='{"name":', middle=',"parameters":', closer="}", separator="; "),
    alone=True,
)

# Granite 3: the token `<|tool_call|>` (3.0, 3.1) or `<tool_call>` (3.2, 3.3), then one array. Granite 4 uses `hermes`.
GRANITE: Final = make_format(
    "granite",
    Grammar(
        syntaxes=(
            listed("<|tool_call|>"),
            listed("<tool_call>", "</tool_call>", optional=True),
            BlockSyntax(opener="<tool_call>", closer="</tool_call>"),
            BlockSyntax(
                opener="<function_call>",
                body=((Branch(read="object", field="call", then=1),), (Branch(literal="</function_call>"), DONE)),
            ),
        )
    ),
    _list("<|tool_call|>"),
)

# Phi-4-mini: a plain word and one array. The bracket is part of the opener, so that the word alone stays text.
PHI4_MINI: Final = make_format(
    "phi4_mini",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="functools[",
                body=(
                    (Branch(read="object", field="call", then=1),),
                    (Branch(literal=",", read="object", field="call", then=1), Branch(literal="]")),
                ),
            ),
        )
    ),
    _list("functools"),
)

# xLAM: the whole answer is one array; fine-tunes also put it into a fence or after other families' tags.
XLAM: Final = make_format(
    "xlam",
    Grammar(
        syntaxes=(
            bare("array", first_keys=_NAMED),
            listed("```json", "```", anchor="line", first_keys=_NAMED),
            listed("[TOOL_CALLS]"),
            listed("<tool_call>", "</tool_call>", optional=True),
        )
    ),
    _list(""),
    alone=True,
)

JAMBA: Final = make_format(
    "jamba", Grammar(syntaxes=(listed("<tool_calls>", "</tool_calls>"),)), _list("<tool_calls>", "</tool_calls>")
)

_APRIEL_FRAMING: Final = (
    framing("[BEGIN FINAL RESPONSE]", kind="start"),
    framing("[END FINAL RESPONSE]"),
    framing("<|end|>"),
)

# Apriel: as Jamba; its text stands between markers that are removed, and its reasoning before them.
APRIEL: Final = make_format(
    "apriel",
    Grammar(
        syntaxes=(
            listed("<tool_calls>", "</tool_calls>"),
            *_APRIEL_FRAMING,
        ),
        reasoning=(("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),),
    ),
    _list("<tool_calls>", "</tool_calls>"),
    framing=_APRIEL_FRAMING,
)

# Hunyuan A13B. It may call from inside its reasoning: `reasoning.scan_calls`.
HUNYUAN: Final = make_format(
    "hunyuan", Grammar(syntaxes=(listed("<tool_calls>", "</tool_calls>"),)), _list("<tool_calls>", "</tool_calls>")
)

NEMOTRON: Final = make_format(
    "nemotron", Grammar(syntaxes=(listed("<TOOLCALL>", "</TOOLCALL>"),)), _list("<TOOLCALL>", "</TOOLCALL>")
)

# Apertus: the name is the key of the arguments.
APERTUS: Final = make_format(
    "apertus",
    Grammar(syntaxes=(listed("<|tools_prefix|>", "<|tools_suffix|>", optional=True, names=()),)),
    Layout(first="<|tools_prefix|>[", opener="{", middle=":", closer="}", separator=",", last="]<|tools_suffix|>"),
)

# Cohere's Command R7B and A, and Command 4, which writes TEXT instead of RESPONSE. These tags are removed. A single
# call may lack the list's brackets.
_COHERE_FRAMING: Final = (
    *(framing(f"<|START_{word}|>", kind="start") for word in ("RESPONSE", "TEXT")),
    *(framing(f"<|END_{word}|>") for word in ("RESPONSE", "TEXT")),
    framing("<|END_OF_TURN_TOKEN|>"),
)
COHERE: Final = make_format(
    "cohere",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|START_ACTION|>",
                closer="<|END_ACTION|>",
                body=(
                    (Branch(read="array", field="calls", then=1), Branch(read="object", field="call", then=1)),
                    (Branch(literal="<|END_ACTION|>"), DONE),
                ),
                names=("tool_name", "name"),
                parameters=("parameters", "arguments"),
            ),
            *_COHERE_FRAMING,
        ),
        reasoning=(("<|START_THINKING|>", "<|END_THINKING|>"),),
    ),
    _list("<|START_ACTION|>", "<|END_ACTION|>", key="parameters", name="tool_name"),
    framing=_COHERE_FRAMING,
)

# MiniMax M1: one object per line.
MINIMAX_M1: Final = make_format(
    "minimax_m1",
    Grammar(syntaxes=(BlockSyntax(opener="<tool_calls>", closer="</tool_calls>"),)),
    Layout(
        first="<tool_calls>\n",
        opener='{"name":',
        middle=',"arguments":',
        closer="}",
        separator="\n",
        last="\n</tool_calls>",
    ),
)

# Step-Audio 2: a line with the word `function`, one with the name, then the arguments.
STEP_AUDIO2: Final = make_format(
    "step_audio2",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<tool_call>",
                closer="</tool_call>",
                body=(
                    (Branch(literal="function\n", read="name", field="name", then=1),),
                    (Branch(read="object", field="arguments", then=2),),
                    (Branch(literal="</tool_call>"),),
                ),
            ),
        )
    ),
    Layout(opener="<tool_call>function\n", name="plain", middle="\n", closer="</tool_call>", separator="\n"),
)

# InternLM 2 and Intern-S1: one call.
INTERNLM: Final = make_format(
    "internlm",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|action_start|><|plugin|>",
                closer="<|action_end|>",
                body=((Branch(read="object", field="call", then=1),), (Branch(literal="<|action_end|>"), DONE)),
                parameters=("parameters", "arguments"),
            ),
        )
    ),
    Layout(
        opener='<|action_start|><|plugin|>\n{"name":',
        middle=',"parameters":',
        closer="}<|action_end|>",
        separator="\n",
    ),
)

# ERNIE 4.5: hermes blocks; its text stands between tags that are removed.
_ERNIE_FRAMING: Final = (framing("<response>", kind="start"), framing("</response>"))
ERNIE: Final = make_format(
    "ernie",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True),
            *_ERNIE_FRAMING,
        )
    ),
    Layout(opener='<tool_call>\n{"name":', middle=',"arguments":', closer="}\n</tool_call>", separator="\n"),
    framing=_ERNIE_FRAMING,
)

LONGCAT: Final = make_format(
    "longcat",
    Grammar(syntaxes=(BlockSyntax(opener="<longcat_tool_call>", closer="</longcat_tool_call>"),)),
    Layout(
        opener='<longcat_tool_call>\n{"name":',
        middle=',"arguments":',
        closer="}\n</longcat_tool_call>",
        separator="\n",
    ),
)

# GigaChat 3: one object up to the end of its turn.
_TO_THE_END: Final = ((Branch(read="object", field="call", then=1),), (DONE,))
GIGACHAT: Final = make_format(
    "gigachat",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="function call<|role_sep|>", body=_TO_THE_END),
            BlockSyntax(opener="<|function_call|>", body=_TO_THE_END),
            *GIGACHAT_FRAMING,
        )
    ),
    Layout(opener='function call<|role_sep|>\n{"name":', middle=',"arguments":', closer="}", separator="\n"),
    framing=GIGACHAT_FRAMING,
)

# HyperCLOVA X Think 14B: a recipient in the header, then one array.
_HYPERCLOVAX_FRAMING: Final = (framing("<|im_start|>assistant", kind="start"), framing("<|im_end|>"))
HYPERCLOVAX: Final = make_format(
    "hyperclovax",
    Grammar(
        syntaxes=(
            listed("-> tool/function_call", "<|im_end|>", optional=True, parameters=("arguments", "parameters")),
            *_HYPERCLOVAX_FRAMING,
        ),
        reasoning=(("/think\n", "<|im_end|>"),),
    ),
    _list("<|im_start|>assistant -> tool/function_call\n", "<|im_end|>"),
    framing=_HYPERCLOVAX_FRAMING,
)
