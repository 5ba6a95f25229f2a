"""DeepSeek from V3.2 on: tags with a prefix of their own, between bars U+FF5C. GigaChat 3.5 writes the same with
another prefix.

V3.2, V4 and V4.1 differ in the section's word; V4.1 writes a space behind the bar in every tag. All formats with one
prefix read the same. Without a section a call counts as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..scan._grammar import BlockSyntax, Branch, Grammar
from .base import VERBATIM, ToolFormat, written
from .layout import Layout, Tagged
from .syntaxes import ELEMENTS, GIGACHAT_FRAMING, elements, framing

_WORDS: Final = ("function_calls", "tool_calls", "toolcalls", "tool", " calls")
"""Of sections; the third and the fourth are slips that models make."""

_SPACES: Final = ("", " ")


def _grammar(bar: str, words: Sequence[str], *more: BlockSyntax) -> Grammar:
    """Sections of these words hold calls with or without the space."""
    calls = [(f"<{bar}{space}invoke name=", f"</{bar}{space}invoke>", f"{bar}{space}parameter") for space in _SPACES]
    nodes = [elements(1 + number * ELEMENTS, tag, closer) for number, (_, closer, tag) in enumerate(calls)]
    inside = (
        tuple(Branch(literal=opener, then=1 + number * ELEMENTS) for number, (opener, _, _) in enumerate(calls)),
        *(node for call in nodes for node in call),
    )
    ends = [f"</{bar}{word}>" for word in words]
    return Grammar(
        syntaxes=(
            *(
                BlockSyntax(
                    opener=f"<{bar}{word}>",
                    closer=calls[word.startswith(" ")][1],
                    body=((*inside[0], Branch(literal=end)), *inside[1:]),
                )
                for word, end in zip(words, ends, strict=True)
            ),
            *(
                BlockSyntax(opener=opener, closer=closer, body=elements(0, tag, closer))
                for opener, closer, tag in calls
            ),
            *(framing(end, "after") for end in ends),
            *more,
        )
    )


def _format(name: str, grammar: Grammar, bar: str, word: str, framing: Sequence[BlockSyntax] = ()) -> ToolFormat:
    """Taught with that word, and with its space in every tag."""
    prefix = bar + " " * word.startswith(" ")
    end = f"</{prefix}parameter>"
    return written(
        name,
        grammar,
        Layout(
            first=f"<{bar}{word}>\n",
            opener=f'<{prefix}invoke name="',
            name="plain",
            middle='">\n',
            arguments=Tagged(
                opener=f'<{prefix}parameter name="',
                strings='" string="true">',
                others='" string="false">',
                closer=f"{end}\n",
                stops=(end,),
            ),
            closer=f"</{prefix}invoke>",
            separator="\n",
            last=f"\n</{bar}{word}>",
        ),
        notes=f'{VERBATIM} `string="true"` says that the value is a string, `string="false"` that it is JSON.',
        framing=framing,
    )


GRAMMAR: Final = _grammar("｜DSML｜", _WORDS)
V32: Final = _format("deepseek_v32", GRAMMAR, "｜DSML｜", "function_calls")
V4: Final = _format("deepseek_v4", GRAMMAR, "｜DSML｜", "tool_calls")
V41: Final = _format("deepseek_v41", GRAMMAR, "｜DSML｜", " calls")

GIGACHAT35: Final = _format(
    "gigachat35",
    _grammar("｜GCML｜", ("tool_calls",), *GIGACHAT_FRAMING),
    "｜GCML｜",
    "tool_calls",
    GIGACHAT_FRAMING,
)
