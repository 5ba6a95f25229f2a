"""gpt-oss: everything is a message with a header, and reasoning, text and calls have channels of their own. llm-jp adds
a blank after each special token; Beam has a tag for each argument.

A call's recipient follows its channel or the role; the first message's `<|start|>assistant` is part of the prompt.
Recipients other than `functions.NAME` (`browser.search`, `python`) are built into the model and are not calls here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.syntaxes import DONE, framing
from ..engine.templates import bars

_HARMONY_TOKENS: Final = bars("start end message channel constrain return call startoftext endoftext endofprompt")


def _call(base: int) -> tuple[Node, ...]:
    """Returns the nodes after the recipient's name: the channel, the content type, the arguments."""
    return (
        (
            Branch(literal="<|channel|>", then=base + 1),
            Branch(literal="<|constrain|>", then=base + 2),
            Branch(literal="<|message|>", read="object", field="arguments", then=base + 4),
            Branch(literal=" json", then=base + 3),
        ),
        (Branch(literal="commentary", then=base + 2), Branch(literal="analysis", then=base + 2)),
        (
            Branch(literal="<|constrain|>", then=base + 2),
            Branch(literal="json", then=base + 3),
            Branch(literal="<|message|>", read="object", field="arguments", then=base + 4),
        ),
        (Branch(literal="<|message|>", read="object", field="arguments", then=base + 4),),
        (
            *(Branch(literal=f"{slip}{end}", slip=bool(slip)) for end in ("<|call|>", "<|end|>") for slip in ("", "}")),
            DONE,
        ),
    )


_TO: Final = "to=functions."
_NAME: Final = Branch(read="word", field="name", then=1)
_HEADED: Final = ((Branch(literal=_TO, read="word", field="name", then=1),), *_call(1))


def _message(space: str) -> BlockSyntax:
    """Returns the syntax of a whole message, for grammars that do not treat its beginning as framing. `space` follows
    special tokens."""
    return BlockSyntax(
        opener=f"<|start|>{space}assistant",
        closer="<|call|>",
        body=(
            tuple(
                Branch(literal=f"<|channel|>{space}{channel} {_TO}", read="word", field="name", then=1)
                for channel in ("commentary", "analysis")
            ),
            *_call(1),
        ),
    )


def _framing(space: str) -> tuple[BlockSyntax, ...]:
    return (
        framing(f"<|start|>{space}assistant", kind="start"),
        framing(f"<|channel|>{space}commentary<|message|>", kind="head"),
        BlockSyntax(
            opener=f"<|channel|>{space}final",
            body=(
                (Branch(literal="<|message|>"), Branch(literal="<|constrain|>", then=1)),
                (Branch(literal="json", then=2),),
                (Branch(literal="<|message|>"),),
            ),
            framing="head",
        ),
        framing("<|end|>"),
        framing("<|return|>"),
    )


_FRAMING: Final = _framing("")


def _grammar(space: str) -> Grammar:
    return Grammar(
        syntaxes=(
            *(
                BlockSyntax(opener=f"<|channel|>{space}{channel} {_TO}", closer="<|call|>", body=((_NAME,), *_call(1)))
                for channel in ("commentary", "analysis")
            ),
            BlockSyntax(opener=f"<|start|>{space}assistant", closer="<|call|>", body=_HEADED),
            BlockSyntax(opener="", anchor="answer", body=_HEADED),
            *_framing(space),
        ),
        reasoning=((f"<|channel|>{space}analysis<|message|>", "<|end|>"),),
    )


_STRIPPED_CALLS: Final = tuple(
    Branch(literal=f"assistant{channel} {_TO}", read="word", field="name", then=2)
    for channel in ("commentary", "analysis", "")
)
_STRIPPED: Final = BlockSyntax(
    opener="",
    anchor="answer",
    body=(
        (
            Branch(literal="analysis", read="text", field="said", then=1),
            Branch(literal=f"commentary {_TO}", read="word", field="name", then=2),
        ),
        (*_STRIPPED_CALLS, Branch(literal="assistantfinal")),
        (
            *(Branch(literal=channel, then=3) for channel in ("commentary", "analysis", " json")),
            Branch(read="object", field="arguments", then=4),
        ),
        (Branch(literal="json", then=3), Branch(read="object", field="arguments", then=4)),
        (*_STRIPPED_CALLS, Branch(read="end")),
    ),
    family="harmony",
    untaught=True,
)
"""A whole answer from which the server removed the special tokens but not the words between them."""

GRAMMAR: Final = replace(_grammar(""), syntaxes=(*_grammar("").syntaxes, _STRIPPED))
FORMAT: Final = make_format(
    "harmony",
    GRAMMAR,
    Layout(
        opener=f"<|channel|>commentary {_TO}",
        name="plain",
        middle=" <|constrain|>json<|message|>",
        closer="<|call|>",
        separator="<|start|>assistant",
    ),
    framing=_FRAMING,
    models=Models(
        call="messages with headers: `<|channel|>commentary to=functions.NAME`; the `analysis` channel is reasoning",
        text="gpt-oss, as text",
        names=(r"gpt[-_]?oss",),
        templates=(("<|channel|>", "<|start|>assistant"),),
    ),
    template_tokens=_HARMONY_TOKENS,
    elsewhere=(*GRAMMAR.syntaxes, _message("")),
)

# llm-jp 4: as above, with a blank after each special token. Of parallel calls only the last one ends with `<|call|>`.
_LLM_JP: Final = _grammar(" ")
LLM_JP: Final = make_format(
    "llm_jp",
    _LLM_JP,
    Layout(
        opener=f"<|channel|> commentary {_TO}",
        name="plain",
        middle="<|constrain|> json<|message|> ",
        closer="",
        separator="<|end|><|start|> assistant",
        last="<|call|>",
    ),
    framing=_framing(" "),
    models=Models(
        call="as `harmony`, with a blank behind each special token; of several calls only the last ends with `<|call|>`",
        text="llm-jp 4",
        names=(r"llm[-_]?jp[-_]?[4-9]",),
        templates=(("<|channel|>", "<|start|> assistant"),),
    ),
    template_tokens=_HARMONY_TOKENS,
    elsewhere=(*_LLM_JP.syntaxes, _message(" ")),
)

# --- Beam -----------------------------------------------------------------------------------------------------------

_BEAM_CALL: Final[tuple[Node, ...]] = (
    (Branch(literal="to=", read="word", field="name", then=1),),
    (Branch(literal="<|channel|>", read="word", then=2), Branch(literal="<|message|>", then=4)),
    (Branch(literal="<|constrain|>", read="word", then=3), Branch(literal="<|message|>", then=4)),
    (Branch(literal="<|message|>", then=4),),
    (
        Branch(literal="<rfl:parameter name=", read="word", field="key", then=5),
        Branch(literal="<|call|>"),
        Branch(literal="<|end|>"),
        DONE,
    ),
    (Branch(literal=">", read="text", field="value", then=6),),
    (
        Branch(literal="</rfl:parameter>", then=4),
        Branch(literal="\n<rfl:parameter name=", read="word", field="key", then=5),
    ),
)
BEAM: Final = make_format(
    "beam",
    Grammar(
        syntaxes=(
            BlockSyntax(opener="<|start|>assistant", closer="<|call|>", framed=True, body=_BEAM_CALL),
            BlockSyntax(opener="", anchor="answer", framed=True, body=_BEAM_CALL),
            *_FRAMING,
        ),
        reasoning=GRAMMAR.reasoning,
    ),
    Layout(
        opener="<|start|>assistant to=",
        name="plain",
        middle="<|channel|>analysis <|constrain|>xml<|message|>",
        arguments=Tagged(
            opener='<rfl:parameter name="',
            strings='">\n',
            closer="\n</rfl:parameter>\n",
            stops=("</rfl:parameter>", "\n<rfl:parameter name="),
        ),
        closer="<|call|>",
    ),
    notes=VERBATIM,
    framing=_FRAMING,
    models=Models(call="harmony's messages, a tag for each argument", text="Beam", names=(r"beam(?![a-z])",)),
    template_tokens=_HARMONY_TOKENS,
    elsewhere=(),
)
