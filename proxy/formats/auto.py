"""Any of the known formats, for models that nobody has told us about: the first opener decides, `hermes` is taught.

Where the model's name says its family, a route with `format: auto` uses that family's format instead (`families.py`).

Left out, because ordinary text would be held back or lost: openers and framing that may stand in any text, such as plain words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from .._grammar import Branch, Grammar, Shape
from . import (
    deepseek,
    dsml,
    fenced_json,
    gemma,
    glm,
    harmony,
    hermes,
    invoke,
    json_tags,
    kimi,
    messages,
    minimax,
    mistral,
    plamo,
    pythonic,
    qwen,
)
from .base import ToolFormat, written
from .shapes import DONE, bare, listed

_FAMILIES: Final[tuple[ToolFormat, ...]] = (
    hermes.FORMAT,
    qwen.QWEN3_CODER,
    qwen.SEED_OSS,
    glm.GLM47,
    glm.IQUEST,
    glm.HUNYUAN3,
    glm.K2_HORIZON,
    glm.SOLAR_OPEN2,
    mistral.FORMAT,
    deepseek.V31,
    dsml.V32,
    dsml.GIGACHAT35,
    kimi.K2,
    kimi.K3,
    invoke.MINIMAX_M2,
    minimax.M3,
    invoke.DOTS,
    invoke.STEP3,
    invoke.MINICPM5,
    invoke.MUSE,
    pythonic.PYTHONIC,
    pythonic.LFM2,
    pythonic.OLMO3,
    gemma.GEMMA4,
    gemma.FUNCTIONGEMMA,
    harmony.FORMAT,
    messages.INKLING,
    plamo.FORMAT,
    json_tags.LLAMA3_JSON,
    json_tags.GRANITE,
    json_tags.JAMBA,
    json_tags.NEMOTRON,
    json_tags.APERTUS,
    json_tags.COHERE,
    json_tags.INTERNLM,
    json_tags.LONGCAT,
    json_tags.GIGACHAT,
    fenced_json.FORMAT,
)

_LEFT_OUT: Final = ("", "function call<|role_sep|>", "<|end|>", "</s>", "<|message_sep|>")
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    glm.HUNYUAN3.name: ("<tool_calls>", "<tool_calls:"),
    invoke.DOTS.name: ("<dots_function_call>",),
    invoke.MUSE.name: ("<atem:function_calls>", "<atem:invoke name=", "</atem:function_calls>"),
}
"""Of these formats only the shapes with these openers: what the others begin with means something else elsewhere."""
_HERMES: Final = hermes.GRAMMAR.shapes[0].opener
"""One JSON object behind it is hermes, whoever else writes so."""


# An answer that is nothing but JSON or Python: one shape for each bracket, since what follows tells them apart.
_OBJECT: Final = Shape(
    opener="",
    anchor="answer",
    body=(
        (Branch(read="object", field="call", then=1),),
        (Branch(literal=";", read="object", field="call", then=1), DONE),
    ),
    first_keys=("name", "arguments", "parameters", "tool_calls", "type"),
    parameters=("arguments", "parameters"),
    family=json_tags.LLAMA3_JSON.name,
)

GRAMMAR: Final = Grammar(
    shapes=(
        *(
            replace(shape, family=f.name)
            for f in _FAMILIES
            for shape in f.grammar.shapes
            if shape.opener not in _LEFT_OUT
            and shape.opener in _ONLY.get(f.name, (shape.opener,))
            and not (shape.opener == _HERMES and not shape.body and f is not hermes.FORMAT)
        ),
        listed("```json", "```", anchor="line", first_keys=("name", "arguments"), family=json_tags.XLAM.name),
        _OBJECT,
        bare("list", family=pythonic.PYTHONIC.name),
    ),
    reasoning=tuple(
        dict.fromkeys(
            [("<think>", "</think>"), *(t for f in _FAMILIES if f.name not in _ONLY for t in f.grammar.reasoning)]
        )
    ),
    exclusive=True,
    families={f.name: f.grammar for f in _FAMILIES if f.name in _ONLY},
)

FORMAT: Final = written("auto", GRAMMAR, hermes.LAYOUT, hermes.INSTRUCTIONS)
