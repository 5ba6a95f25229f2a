"""How models of known families write calls when they lose a marker, or put another one in its place.

Rules of this module:

1. Only what is regular stands here: seen often, and read without a guess. Damage of one answer is for schema-guided
   recovery.
2. Nothing here is taught, so it is a call only if it passes the call policy's test (R23.1, R30.6).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolwire.formats.engine.syntaxes import DONE
from toolwire.formats.families import gemma, kimi
from toolwire.scan._grammar import BlockSyntax, Branch, Node

_END: Final = Branch(read="end")


def _braces(base: int, *ends: Branch) -> tuple[Node, ...]:
    """What follows a name in Gemma's calls."""
    return (
        (Branch(read="braces", field="arguments", then=base + 1),),
        (*(Branch(literal=closer) for closer in ("<tool_call|>", "</call>", "</tool_call>", "<turn|>")), *ends),
    )


def _react(*steps: str) -> BlockSyntax:
    """An agent's steps: a thought, a tool, its input. `steps` are the words of the last two."""
    action, given = steps
    call = Branch(literal=f"{action}:", read="word", field="name", then=1)
    return BlockSyntax(
        opener="",
        anchor="answer",
        body=(
            (call, Branch(literal="Thought:", read="text", field="said", then=5)),
            (Branch(literal=f"\n{given}:", then=2),),
            (Branch(literal="```", read="word", then=3), Branch(read="object", field="arguments", then=4)),
            (Branch(read="object", field="arguments", then=6),),
            (_END, call),
            (replace(call, literal=f"\n{action}:"),),
            (Branch(literal="```", then=4),),
        ),
        family="react",
        untaught=True,
    )


SLIPS: Final[tuple[BlockSyntax, ...]] = (
    # Gemma 4: another tag; no marker at all, at the beginning of an answer or behind a thought.
    BlockSyntax(
        opener="<call>",
        quote=gemma.QUOTE,
        body=(
            (Branch(literal="call:", read="word", field="name", then=1), Branch(read="name", field="name", then=1)),
            *_braces(1, DONE),
        ),
        family=gemma.GEMMA4.name,
        untaught=True,
    ),
    BlockSyntax(
        opener="",
        anchor="answer",
        quote=gemma.QUOTE,
        body=((Branch(literal="call:", read="word", field="name", then=1),), *_braces(1, _END)),
        family=gemma.GEMMA4.name,
        untaught=True,
    ),
    # Kimi K2: the markers before the call's id are lost.
    BlockSyntax(
        opener="",
        anchor="answer",
        body=(
            (Branch(literal="functions.", read="word", field="id", then=1),),
            (Branch(literal=kimi.ARGUMENTS, read="object", field="arguments", then=2),),
            (Branch(literal=kimi.CALL_END, then=3), Branch(literal=kimi.SECTION_END), _END),
            (Branch(literal=kimi.SECTION_END), _END),
        ),
        family=kimi.K2.name,
        untaught=True,
    ),
    # ReAct, with nothing behind it: where an observation follows, the model tells of a call.
    _react("Action", "Action Input"),
)
