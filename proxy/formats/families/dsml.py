"""DeepSeek from V3.2 on: tags with a prefix of their own, between bars U+FF5C. GigaChat 3.5 writes the same with
another prefix.

V3.2, V4 and V4.1 differ in the section's word; V4.1 writes a space behind the bar in every tag. Models and the servers
between write the bars in other ways, too: doubled, in ASCII, with blanks around them; and V4 puts `r:` before the words
of opening tags. All formats with one prefix read all of that: behind the prefix an opening tag is read bar by bar.
Without a section a call counts as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolwire.formats.base import VERBATIM, ToolFormat, written
from toolwire.formats.engine.layout import Layout, Tagged
from toolwire.formats.engine.syntaxes import GIGACHAT_FRAMING
from toolwire.scan._grammar import END, BlockSyntax, Branch, Grammar, Node

_SECTIONS: Final = (
    *("function_calls>", "tool_calls>", "tool_call>", "toolcalls>", "toolcall>", "tool_use>", "tool>", "calls>"),
)
"""What names a section: V3.2, V4, slips, V4.1."""

_BARS: Final = {
    "｜": ("｜", "｜ "),
    "｜｜": ("｜｜", "｜｜ "),
    "|": ("|", "| "),
    "||": ("||", "|| "),
    "‖": ("‖", "‖ "),
    " | ": (" | ",),
    " ｜ ": (" ｜ ",),
}
"""What stands between `<` and the prefix, and what behind it then."""

_Step = tuple[Branch, str]
"""A branch, and the label of the node behind it; none: the block ends."""


def _tag(label: str, *words: _Step) -> dict[str, tuple[_Step, ...]]:
    """The nodes of what follows the prefix in a tag: one bar or two, perhaps `r:`, then one of the words. Whitespace
    does not matter."""
    more, word = f"{label}, more", f"{label}, word"
    marked = (Branch(literal="r:"), word)
    return {
        label: tuple((Branch(literal=bar), more) for bar in "｜|‖"),
        more: (*((Branch(literal=bar), word) for bar in "｜|‖"), marked, *words),
        word: (*words, marked),
    }


def _body(prefix: str, bars: Mapping[str, Sequence[str]]) -> tuple[Node, ...]:
    """What follows the prefix of the first tag: a section, of which the first call is read, or a call. The tags that
    close a value or a call are single literals, so that one is found behind another one that is data."""

    def tags(slash: str, then: str) -> tuple[_Step, ...]:
        return tuple((Branch(literal=f"<{slash}{bar}{prefix}"), then) for bar in bars)

    def closers(word: str, then: str) -> tuple[_Step, ...]:
        return tuple((Branch(literal=f"</{a}{prefix}{z}{word}>"), then) for a in bars for z in bars[a])

    sections = tuple(Branch(literal=word) for word in _SECTIONS)
    invoke = (Branch(literal="invoke name="), "name")
    key = (Branch(literal="parameter name=", read="word", field="key"), "value")
    return _placed(
        {
            **_tag("first", invoke, *((branch, "section") for branch in sections)),
            "section": (*tags("", "call"), *tags("/", "empty")),
            **_tag("call", invoke),
            **_tag("empty", *((branch, "") for branch in sections)),
            "name": ((Branch(read="word", field="name"), "named"),),
            "named": ((Branch(literal=">"), "arguments"), (Branch(literal="/>"), "")),
            "arguments": (
                *tags("", "key"),
                *closers("invoke", ""),
                (Branch(read="object", field="arguments"), "last"),
            ),
            **_tag("key", key, invoke),  # another call, if the closer of this one is missing
            "value": ((Branch(literal=">", read="text", field="value"), "ended"),),
            "ended": closers("parameter", "more"),
            "more": (*tags("", "key"), *closers("invoke", "")),
            "last": closers("invoke", ""),
        }
    )


def _placed(nodes: Mapping[str, tuple[_Step, ...]]) -> tuple[Node, ...]:
    places = {label: place for place, label in enumerate(nodes)}
    return tuple(tuple(replace(branch, then=places.get(to, END)) for branch, to in node) for node in nodes.values())


def _grammar(prefix: str, *more: BlockSyntax, bars: Mapping[str, Sequence[str]] = _BARS, space: str = "") -> Grammar:
    """`space` stands behind the bar where the closer of a call is looked for that is not what it should be."""
    body = _body(prefix, bars)
    end = _placed(_tag("end", *((Branch(literal=word), "") for word in _SECTIONS)))
    return Grammar(
        syntaxes=(
            *(
                BlockSyntax(opener=f"<{a}{prefix}", closer=f"</{a}{prefix}{z[0]}{space}invoke>", body=body)
                for a, z in bars.items()
            ),
            *(BlockSyntax(opener=f"</{a}{prefix}", anchor="after", body=end, ends_section=True) for a in bars),
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


GRAMMAR: Final = _grammar("DSML")
V32: Final = _format("deepseek_v32", GRAMMAR, "｜DSML｜", "function_calls")
V4: Final = _format("deepseek_v4", GRAMMAR, "｜DSML｜", "tool_calls")
V41: Final = _format("deepseek_v41", _grammar("DSML", space=" "), "｜DSML｜", " calls")

GIGACHAT35: Final = _format(
    "gigachat35",
    _grammar("GCML", *GIGACHAT_FRAMING, bars={"｜": ("｜",)}),
    "｜GCML｜",
    "tool_calls",
    GIGACHAT_FRAMING,
)
