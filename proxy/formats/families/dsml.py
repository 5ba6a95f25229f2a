"""DeepSeek from V3.2 on: tags with the prefix DSML between bars (U+FF5C). GigaChat 3.5 uses the prefix GCML.

V3.2, V4 and V4.1 have different words for the section; V4.1 writes a space after the bar in every tag. Models and
servers also write the bars doubled, in ASCII, or with blanks, and V4 puts `r:` before the words of opening tags. Every
format reads all variants of its prefix: after the prefix, an opening tag is read bar by bar. A call without a section
counts too. A value's or a call's closing tag without the prefix is read as well, not one after the other, and a
section's where a call's is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...scan._grammar import END, BlockSyntax, Branch, Grammar, Node
from ..base import VERBATIM, Models, ToolFormat, make_format
from ..engine.layout import Layout, Tagged
from ..engine.listing import signatures
from ..engine.results import ResultForm
from ..engine.syntaxes import GIGACHAT_FRAMING
from ..engine.templates import DEEPSEEK, GIGACHAT
from ..engine.words import Words, around

_DEEPSEEK_V32_WORDS: Final = Words(
    template=around("Here are the functions available in JSONSchema format:\n<functions>\n", "\n</functions>"),
    tools=signatures,
    results=ResultForm("<result>", "</result>", first="<function_results>\n", last="\n</function_results>"),
)

_DEEPSEEK_V4_WORDS: Final = replace(_DEEPSEEK_V32_WORDS, results=ResultForm("<tool_result>", "</tool_result>"))


_SECTIONS: Final = (
    *("function_calls>", "tool_calls>", "tool_call>", "toolcalls>", "toolcall>", "tool_use>", "tool>", "calls>"),
)
"""Words for a section: V3.2, V4, frequent slips, V4.1."""

_BARS: Final = {
    "｜": ("｜", "｜ "),
    "｜｜": ("｜｜", "｜｜ "),
    "|": ("|", "| "),
    "||": ("||", "|| "),
    "‖": ("‖", "‖ "),
    " | ": (" | ",),
    " ｜ ": (" ｜ ",),
}
"""Bars between `<` and the prefix, with the bars that then follow the prefix."""

_Step = tuple[Branch, str]
"""A branch and the label of the next node (empty: the block ends)."""


def _tag(label: str, *words: _Step) -> dict[str, tuple[_Step, ...]]:
    """Returns the nodes after the prefix of a tag: one or two bars, perhaps `r:`, then one of the words. Whitespace is
    ignored."""
    more, word = f"{label}, more", f"{label}, word"
    marked = (Branch(literal="r:"), word)
    return {
        label: tuple((Branch(literal=bar), more) for bar in "｜|‖"),
        more: (*((Branch(literal=bar), word) for bar in "｜|‖"), marked, *words),
        word: (*words, marked),
    }


def _body(prefix: str, bars: Mapping[str, Sequence[str]]) -> tuple[Node, ...]:
    """Returns the nodes after the prefix of the first tag: a call, or a section with its first call. Closing tags of
    values and calls are single literals, so that a value may contain other closing tags."""

    def tags(slash: str, then: str) -> tuple[_Step, ...]:
        return tuple((Branch(literal=f"<{slash}{bar}{prefix}"), then) for bar in bars)

    def closers(word: str, then: str) -> tuple[_Step, ...]:
        return tuple((Branch(literal=f"</{a}{prefix}{z}{word}>"), then) for a in bars for z in bars[a])

    def plain(word: str, then: str) -> _Step:
        return Branch(literal=f"</{word}>", slip=True), then

    sections = tuple(Branch(literal=word) for word in _SECTIONS)
    invoke = (Branch(literal="invoke name="), "name")
    ends = (
        *closers("invoke", ""),
        *(end for word in ("tool_call", "tool_calls", "calls") for end in closers(word, "")),
    )
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
            "ended": (*closers("parameter", "more"), plain("parameter", "slipped")),
            "more": (*tags("", "key"), *ends, plain("invoke", "")),
            "slipped": (*tags("", "key"), *ends),
            "last": (*ends, plain("invoke", "")),
        }
    )


def _placed(nodes: Mapping[str, tuple[_Step, ...]]) -> tuple[Node, ...]:
    places = {label: place for place, label in enumerate(nodes)}
    return tuple(tuple(replace(branch, then=places.get(to, END)) for branch, to in node) for node in nodes.values())


def _grammar(prefix: str, *more: BlockSyntax, bars: Mapping[str, Sequence[str]] = _BARS, space: str = "") -> Grammar:
    """Returns the grammar for a prefix. `space` follows the bar in the closer that is searched for after a malformed
    call."""
    body = _body(prefix, bars)
    end = _placed(_tag("end", *((Branch(literal=word), "") for word in ("parameter>", "invoke>", *_SECTIONS))))
    return Grammar(
        syntaxes=(
            *(
                BlockSyntax(opener=f"<{a}{prefix}", closer=f"</{a}{prefix}{z[0]}{space}invoke>", body=body)
                for a, z in bars.items()
            ),
            *(BlockSyntax(opener=f"</{a}{prefix}", body=end, ends_section=True) for a in bars),
            *more,
        )
    )


def _format(
    name: str,
    grammar: Grammar,
    bar: str,
    word: str,
    *,
    models: Models,
    template_tokens: tuple[str, ...],
    words: Words | None = None,
    aliases: tuple[str, ...] = (),
    elsewhere: Sequence[BlockSyntax] | None = None,
    framing: Sequence[BlockSyntax] = (),
) -> ToolFormat:
    """Returns a format that is taught with this section word, and with its space in every tag."""
    prefix = bar + " " * word.startswith(" ")
    end = f"</{prefix}parameter>"
    return make_format(
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
        models=models,
        template_tokens=template_tokens,
        words=words,
        aliases=aliases,
        elsewhere=elsewhere,
    )


GRAMMAR: Final = _grammar("DSML")
V32: Final = _format(
    "deepseek_v32",
    GRAMMAR,
    "｜DSML｜",
    "function_calls",
    models=Models(
        call='`<｜DSML｜function_calls>` with `<｜DSML｜invoke name="NAME">`',
        text="DeepSeek V3.2",
        names=(r"deepseek[-_.]?v3[._p-]2(?![0-9])",),
        templates=(("｜DSML｜",),),
    ),
    aliases=("dsml",),
    template_tokens=DEEPSEEK,
    words=_DEEPSEEK_V32_WORDS,
)
V4: Final = _format(
    "deepseek_v4",
    GRAMMAR,
    "｜DSML｜",
    "tool_calls",
    models=Models(
        call="as `deepseek_v32`, inside `<｜DSML｜tool_calls>`",
        text="DeepSeek V4",
        names=(r"deepseek[-_.]?(v4(?![0-9])|chat(?!-)|reasoner)",),
        templates=(("｜DSML｜", "tool_calls"),),
    ),
    template_tokens=DEEPSEEK,
    words=_DEEPSEEK_V4_WORDS,
    elsewhere=(),
)
V41: Final = _format(
    "deepseek_v41",
    _grammar("DSML", space=" "),
    "｜DSML｜",
    " calls",
    models=Models(
        call="as `deepseek_v32`, inside `<｜DSML｜ calls>` and with a space behind the bar of every tag; each of the three reads all, "
        "with the bars doubled, in ASCII or between blanks",
        text="DeepSeek V4.1",
        names=(r"deepseek[-_.]?v4[._p-][1-9](?![0-9])",),
        templates=(("｜DSML｜ ",), ("｜DSML｜ ", "｜DSML｜", "tool_calls")),
    ),
    template_tokens=DEEPSEEK,
    words=_DEEPSEEK_V4_WORDS,
    elsewhere=(),
)

GIGACHAT35: Final = _format(
    "gigachat35",
    _grammar("GCML", *GIGACHAT_FRAMING, bars={"｜": ("｜",)}),
    "｜GCML｜",
    "tool_calls",
    framing=GIGACHAT_FRAMING,
    models=Models(
        call="as `deepseek_v4`, with `GCML`",
        text="GigaChat 3.5",
        names=(r"gigachat[-_]?3[._p]5",),
        templates=(("｜GCML｜",),),
    ),
    template_tokens=GIGACHAT,
)
