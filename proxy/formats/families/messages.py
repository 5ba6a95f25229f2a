"""Formats in which a call is a message with its own header: Inkling, functionary. Harmony and Muse are in other
modules."""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.syntaxes import DONE, framing
from ..engine.templates import LLAMA3, bars

_INKLING_TOKENS: Final = bars(
    "message_user message_model message_system message_tool content_text content_image content_audio_input content_thinking "
    "content_xml content_tool_error content_invoke_tool content_invoke_tool_json content_invoke_tool_text "
    "content_model_end_sampling model_trigger_generation end_message audio_end audio endoftext"
)


# Inkling: `<|message_model|>`, perhaps a tool's name, then the kind of the message. The first `<|message_model|>` is
# part of the prompt.
_INVOKE: Final = "<|content_invoke_tool_json|>"
_SAID: Final = (Branch(literal="<|content_text|>"), Branch(literal="<|content_thinking|>", ahead=True))
_KINDS: Final = (Branch(literal=_INVOKE, then=2), *_SAID)
_CALL: Final[tuple[Node, ...]] = (
    (Branch(read="object", field="call", then=3),),
    (Branch(literal="<|end_message|>"), Branch(literal="<|content_model_end_sampling|>"), DONE),
)
_HEADER: Final[tuple[Node, ...]] = ((*_KINDS, Branch(read="name", then=1)), _KINDS, *_CALL)
_ARGUMENTS: Final = ("args", "arguments", "parameters")
_ENDS: Final = (
    *(
        framing(literal, kind="head")
        for literal in ("<|content_text|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")
    ),
    framing("<|content_model_end_sampling|>"),
    framing("<|end_message|>"),
)

INKLING: Final = make_format(
    "inkling",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="<|message_model|>", closer="<|end_message|>", body=_HEADER, parameters=_ARGUMENTS),
            BlockSyntax(opener="", anchor="answer", body=_HEADER, parameters=_ARGUMENTS),
            BlockSyntax(
                opener=_INVOKE,
                closer="<|end_message|>",
                body=((Branch(read="object", field="call", then=1),), _CALL[1]),
                parameters=_ARGUMENTS,
            ),
            *_ENDS,
        ),
        reasoning=(("<|content_thinking|>", "<|end_message|>"),),
    ),
    Layout(
        opener=f'<|message_model|>{_INVOKE}{{"name":',
        middle=',"args":',
        closer="}<|end_message|>",
    ),
    framing=(
        BlockSyntax(opener="<|message_model|>", body=((*_SAID, Branch(read="name", then=1)), _SAID)),
        BlockSyntax(opener="", anchor="answer", body=(_SAID,)),
        *_ENDS,
    ),
    models=Models(
        call='`<|message_model|><|content_invoke_tool_json|>{"name","args"}<|end_message|>`',
        text="Inkling",
        names=(r"inkling",),
        templates=(("<|content_invoke_tool_json|>",),),
    ),
    template_tokens=_INKLING_TOKENS,
)

# functionary 3.2: `>>>`, a recipient (`all` for text), a line end. The first `>>>` is part of the prompt.
_RECIPIENT: Final[tuple[Node, ...]] = (
    (Branch(literal="all\n"), Branch(read="name", field="name", then=1)),
    (Branch(read="object", field="arguments"),),
)
FUNCTIONARY: Final = make_format(
    "functionary",
    Grammar(
        syntaxes=(
            BlockSyntax(opener=">>>", anchor="line", body=_RECIPIENT),
            BlockSyntax(opener="", anchor="answer", body=_RECIPIENT),
        )
    ),
    Layout(opener=">>>", name="plain", middle="\n", closer="", separator="\n"),
    framing=(
        BlockSyntax(opener=">>>", anchor="line", body=((Branch(literal="all\n"),),)),
        BlockSyntax(opener="", anchor="answer", body=((Branch(literal="all\n"),),)),
    ),
    models=Models(
        call="`>>>NAME`, then the arguments; `>>>all` is text", text="functionary 3.2", derived=(r"functionary",)
    ),
    template_tokens=LLAMA3,
    elsewhere=(),
)

# functionary 3.1, the form of Llama 3.1's custom tool prompt.
FUNCTIONARY_V31: Final = make_format(
    "functionary_v31",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<function=",
                closer="</function>",
                body=(
                    (Branch(read="word", field="name", then=1),),
                    (Branch(literal=">", read="object", field="arguments", then=2),),
                    (Branch(literal="</function>"),),
                ),
            ),
        )
    ),
    Layout(opener="<function=", name="plain", middle=">", closer="</function>", separator="\n"),
    models=Models(
        call="`<function=NAME>{...}</function>`",
        text="functionary 3.1, Llama 3.1 if asked to",
        derived=(r"functionary.*v3[._]1",),
    ),
    template_tokens=LLAMA3,
    elsewhere=(),
)
