"""PLaMo 3: every part of a call stands between two special tokens."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import Branch, Grammar, Node
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.syntaxes import framing, section

_PLAMO_TOKENS: Final = ("<|plamo:",)  # the common beginning of all its tokens


def _begin(what: str) -> str:
    return f"<|plamo:begin_{what}:plamo|>"


def _end(what: str) -> str:
    return f"<|plamo:end_{what}:plamo|>"


def _call(base: int) -> tuple[Node, ...]:
    return (
        (Branch(literal=_begin("tool_name"), read="word", field="name", then=base + 1),),
        (Branch(literal=_end("tool_name"), then=base + 2),),
        (Branch(literal=_begin("tool_arguments"), then=base + 3),),
        (
            Branch(literal="<|plamo:constrain|>", read="word", then=base + 4),
            Branch(read="object", field="arguments", then=base + 5),
        ),
        (Branch(literal="<|plamo:msg|>", read="object", field="arguments", then=base + 5),),
        (Branch(literal=_end("tool_arguments"), then=base + 6),),
        (Branch(literal=_end("tool_request")),),
    )


FORMAT: Final = make_format(
    "plamo3",
    Grammar(
        syntaxes=(
            *section(
                _begin("tool_requests"),
                _begin("tool_request"),
                _call,
                _end("tool_requests"),
                tokens=True,
                closer=_end("tool_request"),
            ),
            framing("<|plamo:tag|>"),
        ),
        reasoning=((_begin("think"), _end("think")),),
    ),
    Layout(
        first=_begin("tool_requests"),
        opener=_begin("tool_request") + _begin("tool_name"),
        name="plain",
        middle=f"{_end('tool_name')}{_begin('tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>",
        closer=_end("tool_arguments") + _end("tool_request"),
        last=_end("tool_requests"),
    ),
    models=Models(
        call="`<|plamo:begin_tool_requests:plamo|>`, for each call its name and its arguments",
        text="Plamo 3",
        names=(r"plamo[-_]?3",),
    ),
    template_tokens=_PLAMO_TOKENS,
)
