"""Formats with JSON between tags of the model's own. Each section of this module has the grammar and the layout of
one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar
from ..base import Models, make_format
from ..engine import templates
from ..engine.layout import Layout
from ..engine.listing import signature_list
from ..engine.results import ResultForm
from ..engine.syntaxes import DONE, GIGACHAT_FRAMING, bare, framing, listed
from ..engine.templates import (
    CHATML,
    DEEPSEEK,
    LLAMA3,
    MISTRAL,
    SENTENCEPIECE,
    bars,
    between,
)
from ..engine.words import QWEN, Words, around

_APERTUS_TOKENS: Final = (
    *SENTENCEPIECE,
    *bars(
        "system_start system_end developer_start developer_end user_start user_end assistant_start assistant_end inner_prefix "
        "inner_suffix"
    ),
)

_APRIEL_TOKENS: Final = (
    *MISTRAL,
    *bars("begin_system begin_user begin_assistant begin_tool_result begin_content end system user assistant"),
)

_COHERE_TOKENS: Final = (
    *bars(
        "START_OF_TURN_TOKEN END_OF_TURN_TOKEN SYSTEM_TOKEN USER_TOKEN CHATBOT_TOKEN START_TOOL_RESULT END_TOOL_RESULT YES_TOKEN "
        "NO_TOKEN"
    ),
    *between("<", "BOS_TOKEN EOS_TOKEN PAD UNK CLS SEP MASK_TOKEN", ">"),
)

_ERNIE_TOKENS: Final = (
    *SENTENCEPIECE,
    *bars("begin_of_sentence end_of_sentence im_start im_end image@placeholder video@placeholder"),
)

_HYPERCLOVAX_TOKENS: Final = (*CHATML, *bars("endofturn stop"))

_INTERNLM_TOKENS: Final = (*CHATML, *bars("plugin interpreter"), *SENTENCEPIECE)

_JAMBA_TOKENS: Final = bars("startoftext endoftext bom eom system user assistant tool document pad unk")

_LONGCAT_TOKENS: Final = between(
    "<",
    "longcat_s /longcat_s longcat_pad longcat_unk longcat_system longcat_user longcat_assistant longcat_tool_declare "
    "/longcat_tool_declare longcat_tool_response",
    ">",
)

_PHI_TOKENS: Final = bars(
    "system user assistant end tool /tool tool_response /tool_response tag endoftext im_start im_end im_sep "
    "dummy_85 fim_prefix fim_middle fim_suffix"
)

_LLAMA_WORDS: Final = Words(
    template=around("You have access to the following functions.\n\n"),
    form="""To call a function, respond with JSON for a function call, without a Markdown fence and with no other text:
{"name": <function-name>, "parameters": <args-json-object>}
Do not use variables.""",
)

_NEMOTRON_WORDS: Final = Words(
    template=around(
        "You can use the following tools to assist the user if required:\n<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>"
    ),
    tools=signature_list,
    results=ResultForm("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
)


_NAMED: Final = ("name", "arguments")


def _list(opener: str, closer: str = "", key: str = "arguments", name: str = "name") -> Layout:
    """Returns the layout of one array of calls between two tags."""
    return Layout(
        first=f"{opener}[", opener=f'{{"{name}":', middle=f',"{key}":', closer="}", separator=",", last=f"]{closer}"
    )


# Llama 3.1 to 3.3: the whole answer is one object, or several separated by semicolons; or they follow a tag.
_SEVERAL: Final = (
    (Branch(read="object", field="call", then=1),),
    (Branch(literal=";", read="object", field="call", then=1), Branch(literal="}", then=2, slip=True), DONE),
    (DONE,),
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
    models=Models(
        call='the whole answer is `{"name","parameters"}`, several with `; ` between; also behind `<|python_tag|>`',
        text="Llama 3.1 to 3.3",
        names=(r"llama(?=[-_]?3[._p-][1-3](?![0-9]))",),
        derived=(r"llama[-_]?3[._]1[-_]nemotron[-_](51|70)b",),
        templates=(("<|python_tag|>", '"parameters"'),),
    ),
    aliases=("llama3",),
    template_tokens=LLAMA3,
    words=_LLAMA_WORDS,
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
    models=Models(
        call="`<|tool_call|>[...]` or `<tool_call>[...]`",
        text="Granite 3",
        names=(r"granite[-_]?3|granite[-_]20b[-_]functioncalling",),
    ),
    template_tokens=templates.GRANITE,
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
    models=Models(
        call="`functools[...]`",
        text="Phi-4-mini and -multimodal, FireFunction 2",
        names=(r"phi[-_]?4[-_](mini|multimodal)",),
        derived=(r"firefunction",),
    ),
    template_tokens=_PHI_TOKENS,
    elsewhere=(),
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
    models=Models(
        call='the whole answer is `[{"name","arguments"}]`; also in a fence or behind the tags of others',
        text="xLAM",
        derived=(r"xlam",),
    ),
    template_tokens=(*CHATML, *LLAMA3, *MISTRAL, *DEEPSEEK),
    elsewhere=(),
)

JAMBA: Final = make_format(
    "jamba",
    Grammar(syntaxes=(listed("<tool_calls>", "</tool_calls>"),)),
    _list("<tool_calls>", "</tool_calls>"),
    models=Models(call="`<tool_calls>[...]</tool_calls>`", text="Jamba", names=(r"jamba",)),
    template_tokens=_JAMBA_TOKENS,
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
    models=Models(
        call="as `jamba`; `[BEGIN FINAL RESPONSE]` ends its reasoning and is removed", text="Apriel", names=(r"apriel",)
    ),
    template_tokens=_APRIEL_TOKENS,
    elsewhere=(),
)

# Hunyuan A13B. It may call from inside its reasoning: `reasoning.scan_calls`.
_HUNYUAN_FRAMING: Final = (framing("<answer>", "line"), framing("</answer>"))
HUNYUAN: Final = make_format(
    "hunyuan",
    Grammar(syntaxes=(listed("<tool_calls>", "</tool_calls>"), *_HUNYUAN_FRAMING)),
    _list("<tool_calls>", "</tool_calls>"),
    framing=_HUNYUAN_FRAMING,
    models=Models(call="as `jamba`", text="Hunyuan A13B", names=(r"hunyuan",)),
    template_tokens=templates.HUNYUAN,
    elsewhere=(),
)

NEMOTRON: Final = make_format(
    "nemotron",
    Grammar(syntaxes=(listed("<TOOLCALL>", "</TOOLCALL>"),)),
    _list("<TOOLCALL>", "</TOOLCALL>"),
    models=Models(
        call="`<TOOLCALL>[...]</TOOLCALL>`",
        text="Nemotron before 3",
        derived=(r"nemotron",),
        templates=(("<TOOLCALL>",),),
    ),
    template_tokens=templates.NEMOTRON,
    words=_NEMOTRON_WORDS,
)

# Apertus: the name is the key of the arguments.
APERTUS: Final = make_format(
    "apertus",
    Grammar(
        syntaxes=(listed("<|tools_prefix|>", "<|tools_suffix|>", optional=True, names=()),),
        reasoning=(("<|inner_prefix|>", "<|inner_suffix|>"),),
        calls_in_reasoning=True,
    ),
    Layout(first="<|tools_prefix|>[", opener="{", middle=":", closer="}", separator=",", last="]<|tools_suffix|>"),
    models=Models(
        call='`<|tools_prefix|>[{"NAME":{...}}]<|tools_suffix|>`',
        text="Apertus",
        names=(r"apertus",),
        templates=(("<|tools_prefix|>",),),
    ),
    template_tokens=_APERTUS_TOKENS,
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
    models=Models(
        call='`<|START_ACTION|>[{"tool_name","parameters"}]<|END_ACTION|>`',
        text="Command R7B, A and 4, North",
        names=(r"command[-_]?(r7b|a|[4-9])(?![a-z0-9])|north[-_](mini|small|medium|large|code|[0-9])",),
        templates=(("<|START_ACTION|>",),),
    ),
    template_tokens=_COHERE_TOKENS,
    words=Words(results=ResultForm("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>")),
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
    models=Models(
        call="the tags of `jamba` around one object a line",
        text="MiniMax M1, Text-01",
        names=(r"minimax[-_]?(m1|text|vl)",),
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
    models=Models(
        call="`<tool_call>function`, the name and the arguments on lines of their own, `</tool_call>`",
        text="Step-Audio 2",
        names=(r"step[-_]?audio",),
        templates=(("<tool_call>function", "</tool_call>"),),
    ),
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
    models=Models(
        call='`<|action_start|><|plugin|>{"name","parameters"}<|action_end|>`',
        text="InternLM 2, Intern-S1",
        names=(r"intern(lm|[-_]?s1)",),
        templates=(("<|plugin|>",),),
    ),
    template_tokens=_INTERNLM_TOKENS,
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
    models=Models(
        call="as `hermes`; `<response>` tags are removed",
        text="ERNIE 4.5",
        names=(r"ernie[-_]?4[._p]5",),
        templates=(("<tool_call>", "<response>", "</response>"),),
    ),
    template_tokens=_ERNIE_TOKENS,
    words=replace(QWEN, results=ResultForm("<tool_output>\n", "\n</tool_output>")),
    elsewhere=(),
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
    models=Models(
        call='`<longcat_tool_call>{"name","arguments"}</longcat_tool_call>`',
        text="LongCat-Flash",
        names=(r"longcat",),
        templates=(("<longcat_tool_call>",),),
    ),
    template_tokens=_LONGCAT_TOKENS,
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
    models=Models(
        call='`function call<|role_sep|>{"name","arguments"}`', text="GigaChat 3", names=(r"gigachat[-_]?3",)
    ),
    template_tokens=templates.GIGACHAT,
    elsewhere=(
        BlockSyntax(opener="<|function_call|>", body=_TO_THE_END),
        BlockSyntax(
            opener="<|message_sep|>",
            body=(
                (Branch(literal="function call<|role_sep|>", read="object", field="call", then=1),),
                (Branch(literal="</s>"), Branch()),
            ),
        ),
    ),
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
    models=Models(
        call='`<|im_start|>assistant -> tool/function_call`, then `[{"name","arguments"}]`',
        text="HyperCLOVA X Think 14B",
        names=(r"hyperclovax[-_]seed[-_]think[-_]14b",),
    ),
    template_tokens=_HYPERCLOVAX_TOKENS,
    elsewhere=(
        listed(
            "<|im_start|>assistant -> tool/function_call",
            "<|im_end|>",
            optional=True,
            parameters=("arguments", "parameters"),
        ),
    ),
)
