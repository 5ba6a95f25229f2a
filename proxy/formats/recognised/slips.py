"""Frequent mistakes of known families: calls with a missing or wrong marker.

Rules of this module:

1. Only regular mistakes are listed: frequent, and readable without guessing. Damage in a single answer is left to
   schema-guided recovery.
2. These syntaxes are not taught, so a call counts only if it passes the call policy's test (R23.1, R30.6).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Node
from ..engine.syntaxes import DONE, section
from ..families import gemma, kimi

_END: Final = Branch(read="end")


def _braces(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Returns the nodes after a name in Gemma's calls."""
    return (
        (Branch(read="braces", field="arguments", then=base + 1),),
        (*(Branch(literal=closer) for closer in ("<tool_call|>", "</call>", "</tool_call>", "<turn|>")), *ends),
    )


def _solar(base: int) -> tuple[Node, ...]:
    """Returns the nodes after `<|tool_call:begin|>`. The id may be missing."""
    name = Branch(literal="<|tool_call:name|>", read="word", field="name", then=base + 2)
    return (
        (name, Branch(read="word", field="id", then=base + 1)),
        (name,),
        (Branch(literal="<|tool_call:args|>", read="object", field="arguments", then=base + 3),),
        (Branch(literal="<|tool_call:end|>"),),
    )


_ACTION: Final = Branch(literal="Action:", then=7)

# An agent's steps at the end of an answer: a thought, a tool, its input (ReAct); or a plan, and a fence with a list of
# calls (Command R). If an observation follows, the model describes a past call.
_STEPS: Final = BlockSyntax(
    opener="",
    anchor="answer",
    body=(
        (
            _ACTION,
            Branch(literal="Thought:", read="text", field="said", then=5),
            Branch(literal="Plan:", read="word", field="said", then=5),  # short: other answers begin so, too
        ),
        (Branch(literal="\nAction Input:", then=2),),
        (Branch(literal="```", read="word", then=3), Branch(read="object", field="arguments", then=4)),
        (Branch(read="object", field="arguments", then=6),),
        (_END, _ACTION),
        (replace(_ACTION, literal="\nAction:"),),
        (Branch(literal="```", then=4),),
        (Branch(literal="```", read="word", then=8), Branch(read="word", field="name", then=1)),
        (Branch(read="array", field="calls", then=9),),
        (Branch(literal="```", then=10),),
        (_END,),
    ),
    family="react",
    untaught=True,
)


SLIPS: Final[tuple[BlockSyntax, ...]] = (
    # Gemma 4: another tag; or no marker at all, at the beginning of an answer or after a thought.
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
    # Kimi K2: the markers before the call's id are lost, at the beginning of an answer.
    BlockSyntax(
        opener="",
        anchor="answer",
        body=(
            (Branch(literal="functions.", read="word", field="id", then=1),),
            (Branch(literal=kimi.ARGUMENTS, read="object", field="arguments", then=2),),
            (Branch(literal=kimi.CALL_END, then=3), Branch(literal=kimi.SECTION_END), _END),
            (Branch(literal="functions.", read="word", field="id", then=1), Branch(literal=kimi.SECTION_END), _END),
        ),
        family=kimi.K2.name,
        untaught=True,
    ),
    # Solar Open. Solar Open 2 is a family.
    *(
        replace(syntax, family="solar_open", untaught=True)
        for syntax in section("<|tool_calls|>", "<|tool_call:begin|>", _solar, "<|calls|>", closer="<|tool_call:end|>")
    ),
    # Qwen 2 with Qwen-Agent, whose prompt asks for these words.
    BlockSyntax(
        opener="✿FUNCTION✿:",
        body=(
            (Branch(read="word", field="name", then=1),),
            (Branch(literal="✿ARGS✿:", read="object", field="arguments", then=2),),
            (Branch(literal="✿RESULT✿", then=3), DONE),
            (Branch(literal=":"), DONE),
        ),
        family="qwen2",
        untaught=True,
    ),
    _STEPS,
)
