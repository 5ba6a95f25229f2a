"""Moonshot's Kimi: K2 with JSON after the call's id, K3 with tags made of special tokens and plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.listing import function_list
from ..engine.results import ResultForm
from ..engine.syntaxes import framing, section
from ..engine.templates import bars, between
from ..engine.words import Words

_KIMI_K2_TOKENS: Final = (
    *bars(
        "im_system im_user im_assistant im_middle im_end start_header_id end_header_id media_begin media_content media_end "
        "media_pad"
    ),
    *between("[", "BOS EOS EOT PAD UNK", "]"),
)

_KIMI_K3_TOKENS: Final = (
    *bars("open close sep end_of_msg kimi_image_placeholder"),
    *between("[", "BOS EOS EOT PAD UNK", "]"),
)

_KIMI_WORDS: Final = Words(tools=function_list, results=ResultForm("## Return of {id}\n", ""))


_CALL: Final = "<|tool_call_begin|>"
ARGUMENTS: Final = "<|tool_call_argument_begin|>"
CALL_END: Final = "<|tool_call_end|>"
SECTION_END: Final = "<|tool_calls_section_end|>"


def _call(base: int) -> tuple[Node, ...]:
    return (
        (Branch(read="word", field="id", then=base + 1),),  # functions.NAME:NUMBER
        (Branch(literal=ARGUMENTS, read="object", field="arguments", then=base + 2),),
        (Branch(literal=CALL_END), Branch(literal=SECTION_END)),
    )


def _section(word: str) -> list[BlockSyntax]:
    """Returns the syntaxes for the opener, further calls and end of a section. The opener of the
    first call may be missing."""
    first, *others = section(f"<|{word}_begin|>", _CALL, _call, f"<|{word}_end|>", tokens=True, closer=CALL_END)
    unopened = Branch(literal="functions.", read="word", field="id", then=3)
    return [replace(first, body=((*first.body[0], unopened), *first.body[1:])), *others]


K2: Final = make_format(
    "kimi_k2",
    Grammar(
        syntaxes=(
            *_section("tool_calls_section"),
            *(
                syntax for syntax in _section("tool_call_section") if syntax.opener != _CALL
            ),  # models also write the singular
        )
    ),
    Layout(
        first="<|tool_calls_section_begin|>",
        opener=f"{_CALL}functions.",
        name="plain",
        numbered=":",
        ids="functions.",
        middle=ARGUMENTS,
        closer=CALL_END,
        last=SECTION_END,
    ),
    notes="The number behind the name counts the calls of the conversation, from 0.",
    models=Models(
        call="`<|tool_calls_section_begin|>`, each call with the id `functions.NAME:NUMBER`, which clients get if it is new in the conversation",
        text="Kimi K2 to K2.6",
        names=(r"kimi[-_]?(k2|linear)",),
        templates=(("<|tool_calls_section_begin|>",),),
    ),
    template_tokens=_KIMI_K2_TOKENS,
    words=_KIMI_WORDS,
)

_K3_CALL: Final = "<|open|>call tool="
_K3_END: Final = "<|close|>call<|sep|>"
_K3_VALUE_END: Final = "<|close|>argument<|sep|>"


def _k3_call(base: int) -> tuple[Node, ...]:
    return (
        (Branch(read="word", field="name", then=base + 1),),  # "NAME" index="NUMBER"
        (Branch(literal="<|sep|>", then=base + 2),),
        (
            Branch(literal="<|open|>argument key=", read="word", field="key", then=base + 3),  # "KEY" type="TYPE"
            Branch(literal=_K3_END),
        ),
        (Branch(literal="<|sep|>", read="text", field="value", then=base + 4),),
        (Branch(literal=_K3_VALUE_END, then=base + 2),),
    )


_K3_FRAMING: Final = (
    framing("<|open|>response<|sep|>", kind="start"),
    *map(framing, ("<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>")),
)

K3: Final = make_format(
    "kimi_k3",
    Grammar(
        syntaxes=(
            *section(
                "<|open|>tools<|sep|>",
                _K3_CALL,
                _k3_call,
                "<|close|>tools<|sep|>",
                tokens=True,
                closer=_K3_END,
                entities=True,
            ),
            *_K3_FRAMING,
        ),
        reasoning=(("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
    ),
    Layout(
        first="<|open|>tools<|sep|>",
        opener=f'{_K3_CALL}"',
        name="plain",
        numbered='" index="',
        start=1,
        middle='"<|sep|>',
        arguments=Tagged(
            opener='<|open|>argument key="',
            strings='" type="string"<|sep|>',
            others='" type="{type}"<|sep|>',
            closer=_K3_VALUE_END,
            stops=(_K3_VALUE_END,),
            entities=True,
        ),
        closer=_K3_END,
        last="<|close|>tools<|sep|>",
    ),
    notes=VERBATIM,
    framing=_K3_FRAMING,
    models=Models(
        call="`<|open|>tools<|sep|>`, a tag for each argument",
        text="Kimi K3",
        names=(r"kimi[-_]?k[3-9]",),
        templates=(("<|open|>", "<|sep|>"),),
    ),
    template_tokens=_KIMI_K3_TOKENS,
)
