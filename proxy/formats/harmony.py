"""gpt-oss: everything is a message with a header. What is thought, said and called stands on channels of its own. Beam
does so too, with a tag for each argument.

A call's recipient stands behind its channel or behind the role; the first message's `<|start|>assistant` is part of the
prompt. Recipients other than `functions.NAME` (`browser.search`, `python`) are built into the model and are no calls
here.
"""

from __future__ import annotations

from typing import Final

from ..scan._grammar import BlockSyntax, Branch, Grammar, Node
from .base import VERBATIM, written
from .layout import Layout, Tagged
from .syntaxes import DONE, framing

_TO: Final = "to=functions."


def _call(base: int) -> tuple[Node, ...]:
    """What follows the recipient's name: the channel, the content's type, the arguments."""
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
        (Branch(literal="<|call|>"), Branch(literal="<|end|>"), DONE),
    )


_NAME: Final = Branch(read="word", field="name", then=1)
_HEADED: Final = ((Branch(literal=_TO, read="word", field="name", then=1),), *_call(1))

MESSAGE: Final = BlockSyntax(
    opener="<|start|>assistant",
    closer="<|call|>",
    body=(
        tuple(
            Branch(literal=f"<|channel|>{channel} {_TO}", read="word", field="name", then=1)
            for channel in ("commentary", "analysis")
        ),
        *_call(1),
    ),
)
"""A whole message, for those who do not know its beginning as framing."""

_FRAMING: Final = (
    framing("<|start|>assistant"),
    framing("<|channel|>commentary<|message|>"),
    BlockSyntax(
        opener="<|channel|>final",
        body=(
            (Branch(literal="<|message|>"), Branch(literal="<|constrain|>json", then=1)),
            (Branch(literal="<|message|>"),),
        ),
    ),
    framing("<|end|>"),
    framing("<|return|>"),
)

GRAMMAR: Final = Grammar(
    syntaxes=(
        *(
            BlockSyntax(opener=f"<|channel|>{channel} {_TO}", closer="<|call|>", body=((_NAME,), *_call(1)))
            for channel in ("commentary", "analysis")
        ),
        BlockSyntax(opener="<|start|>assistant", closer="<|call|>", body=_HEADED),
        BlockSyntax(opener="", anchor="answer", body=_HEADED),
        *_FRAMING,
    ),
    reasoning=(("<|channel|>analysis<|message|>", "<|end|>"),),
)

FORMAT: Final = written(
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
BEAM: Final = written(
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
)
