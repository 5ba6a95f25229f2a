"""Syntaxes for calls in forms that were not taught (R23.1).

The taught grammar is unchanged. These syntaxes are added to it as `untaught`: their blocks are calls only if they pass
the call policy's test, and ordinary text otherwise.

There are two kinds: the markers of all known families, which count anywhere; and JSON and Python without markers, which
count only if nothing follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ...scan.first_key import CONTENT, ROLE, THOUGHTS
from ..base import ToolFormat, families
from ..engine.keys import ARGUMENTS, LISTINGS, METADATA, NAMES, WRAPPERS
from ..engine.syntaxes import elements, framing, section
from ..families import hermes
from .slips import SLIPS

Mode = Literal["any", "whole", "taught"]

BARE: Final = "bare"
FENCE: Final = "fence"
"""Families of calls without markers: bare, or in a Markdown fence."""

RECOVERED: Final = "recovered"
"""The family of calls in damaged and unknown forms (R30.1)."""

FAMILIES: Final[tuple[ToolFormat, ...]] = tuple(family for family in families() if family.elsewhere)
"""The formats whose calls are recognised. Where two have the same form, the first one is used."""

_KEYS: Final = tuple(
    dict.fromkeys((*NAMES, *ARGUMENTS, *WRAPPERS, *LISTINGS, *THOUGHTS, CONTENT, ROLE, *sorted(METADATA)))
)
"""The possible first keys of an object that is a call."""


def _printed(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Returns the nodes for calls one after another, perhaps separated by a comma or semicolon, and then one of
    `ends`."""
    call = Branch(read="printed", field="calls", then=base + 1)
    return (
        (call,),
        (*(Branch(literal=separator, then=base) for separator in ";,"), *ends, call),
    )


_END: Final = Branch(read="end")

_STOP_TOKENS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>")
"""Stop tokens that servers should remove but sometimes do not."""

_CLOSER: Final = "</tool_call>"
"""A closer whose opener the model or the server omitted."""


_BRACE: Final = "}"
"""One brace more than was opened, behind an object."""


def _ends(then: int, *further: str) -> tuple[Branch, ...]:
    return (*(Branch(literal=literal, then=then) for literal in (*_STOP_TOKENS, _BRACE, *further)), _END)


def _bare() -> tuple[Node, ...]:
    ends = _ends(2, _CLOSER)
    first, *others = _printed(0, *ends)
    return ((*first, Branch(literal="functools", read="list", field="calls", then=1)), *others, ends)


_BARE: Final = BlockSyntax(
    opener="",
    anchor="answer",
    body=_bare(),
    first_keys=_KEYS,
    parameters=("arguments", "parameters"),
    family=BARE,
    untaught=True,
)
"""The whole answer consists of calls."""


def _behind_prose(*closers: str) -> BlockSyntax:
    """Returns the syntax of objects that begin at the start of a line and reach to the end of the answer."""
    ends = _ends(2, *closers)
    separators = (Branch(literal=separator, then=0) for separator in ";,")
    call = Branch(read="object", field="calls", then=1)
    return replace(_BARE, anchor="margin", body=((call,), (*separators, *ends, call), ends))


_FENCED: Final = replace(
    _BARE,
    anchor="margin",
    body=(
        (Branch(literal="```", read="word", then=1),),
        (Branch(literal="\n", then=2),),
        *_printed(2, Branch(literal="```", then=4), Branch(literal=_BRACE, then=3), _END),
        (Branch(literal="```", read="word", then=1), _END),
    ),
    family=FENCE,
)
"""Fences with calls, up to the end of the answer. The last fence may be unclosed."""

_FENCED_ANSWER: Final = replace(_FENCED, anchor="answer")

_CODE_TAG: Final = replace(
    _BARE,
    anchor="margin",
    body=(
        (Branch(literal="<code>", then=1),),
        *_printed(1, Branch(literal="</code>", then=3), _END),
        _ends(3),
    ),
    family=FENCE,
)
"""SmolLM3's Python calls in a tag, up to the end of the answer."""


_LOOSE: Final = BlockSyntax(
    opener="",
    anchor="margin",
    body=((Branch(read="loose", field="calls"),),),
    family=RECOVERED,
    untaught=True,
)
"""Text with a tool's name in brackets, up to the end of the answer; tried where no other syntax begins."""

_LOOSE_BLOCK: Final = replace(_LOOSE, anchor="after")
"""`_LOOSE`, but only where a block turned out not to be a call: used after a call of a family."""


def _tagged(opener: str, closer: str) -> BlockSyntax:
    return BlockSyntax(
        opener=opener,
        closer=closer,
        parameters=("arguments", "parameters"),
        family=opener.strip("<[>]"),
        untaught=True,
    )


_FURTHER: Final = (
    *SLIPS,
    _tagged("<tools>", "</tools>"),
    _tagged("<|python_start|>", "<|python_end|>"),
    _tagged("<|tool_call|>", "<|/tool_call|>"),
    _tagged("[TOOL_CALL]", "[/TOOL_CALL]"),
    _tagged("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
)
"""Forms that belong to no family."""


_WRAPPERS: Final = ("<tool_calls>", "<tool_use>", "<tool_call>", "<tml:function_calls>", "<tvoe_calls>", "<calls>")
"""Sections that models invent around `<invoke name=...>`."""

_BEHIND: Final = (
    BlockSyntax(
        opener="</", anchor="after", ends_section=True, body=((Branch(read="word", then=1),), (Branch(literal=">"),))
    ),
    *(
        framing(literal, "after")
        for literal in (
            *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>", "<|eot|>", "<|eom|>"),
            *("<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_msg|>"),
            *("<turn|>", "<end_of_turn>", "<eos>", "<tool_call|>", "<|tool_response>", "<|tool_call_end|>"),
            *("<|/tool_call|>", "<|tool_calls_section_end|>", "<｜end▁of▁sentence｜>", "<|observation|>", "<|user|>"),
            *("<|assistant_end|>", "<|hy_eos|>", "<|role_end|>", "<|end_of_sentence|>", "<|im:end|>", "<seed:eos>"),
            *("[/TOOL_CALLS]", "[END_TOOL_REQUEST]", "[e~[", "[|endofturn|]"),
        )
    ),
)
"""Text that belongs to a call if it follows directly: closers of any name without an opener, and tokens that end a turn
(R30.3). Elsewhere it stays text."""


def _reads(syntax: BlockSyntax) -> bool:
    """Returns True if a syntax reads more than framing."""
    return any(branch.field not in ("", "said") for node in syntax.nodes for branch in node)


def _untaught(syntaxes: Iterable[BlockSyntax], family: str) -> list[BlockSyntax]:
    return [replace(syntax, family=family, untaught=True) for syntax in syntaxes]


def _own(family: str, syntaxes: Iterable[BlockSyntax]) -> Iterator[BlockSyntax]:
    """Yields a family's syntaxes with markers, without duplicates of the hermes syntax."""
    plain = hermes.GRAMMAR.syntaxes[0].opener
    for syntax in syntaxes:
        if syntax.opener and (family == hermes.FORMAT.name or syntax.opener != plain or syntax.body):
            yield syntax


def _plain(base: int) -> tuple[Node, ...]:
    return elements(base, "parameter", "</invoke>")


_INVOKE: Final = (
    *section("<function_calls>", "<invoke name=", _plain, "</function_calls>", closer="</invoke>")[:2],
    *(
        BlockSyntax(opener=wrapper, closer="</invoke>", body=((Branch(literal="<invoke name=", then=1),), *_plain(1)))
        for wrapper in _WRAPPERS
    ),
)

_OF_FAMILIES: Final = {f.name: _untaught(_own(f.name, f.grammar.syntaxes), f.name) for f in FAMILIES} | {
    "invoke": _untaught(_INVOKE, "invoke")
}

_MARKED: Final = (
    *(
        syntax
        for family in FAMILIES
        for syntax in _untaught(_own(family.name, family.elsewhere), family.name)
        if _reads(syntax) and syntax.anchor != "after"
    ),
    *_OF_FAMILIES["invoke"],
    *_FURTHER,
)


def _slips(family: str) -> Iterator[BlockSyntax]:
    return (syntax for syntax in SLIPS if syntax.family == family and syntax.opener)


def reasoning_tags(families: Iterable[ToolFormat]) -> tuple[tuple[str, str], ...]:
    """Returns the reasoning tags of these families, without those that begin like a word."""
    tags = (tags for family in families for tags in family.grammar.reasoning)
    return tuple(dict.fromkeys(pair for pair in tags if not pair[0][0].isalpha()))


@lru_cache(maxsize=256)  # a pure function; grammars are looked up as the very same object
def recognising(grammar: Grammar, mode: Mode) -> Grammar:
    """Returns the grammar extended by untaught forms. `whole`: forms with markers, and answers that consist of calls
    only. `any`: also calls after prose. After a call of one family the other families' markers no longer count, and its
    framing is removed."""
    if mode == "taught":
        return grammar
    taught = tuple(syntax for syntax in grammar.syntaxes if not syntax.untaught)
    own = tuple(syntax for syntax in grammar.syntaxes if syntax.untaught)
    printed = (_BARE, _behind_prose(_CLOSER), _FENCED, _CODE_TAG, _LOOSE) if mode == "any" else (_BARE, _FENCED_ANSWER)
    elsewhere = (
        (_BARE, _behind_prose(), _FENCED, _CODE_TAG, _LOOSE_BLOCK) if mode == "any" else printed
    )  # without `_CLOSER`: after a family's call its opener precedes it, as text
    behind = _untaught(_BEHIND, "")
    families = {
        family: replace(
            grammar,
            syntaxes=(
                *(s for s in taught if s.family in ("", family)),
                *syntaxes,
                *_slips(family),
                *behind,
                *elsewhere,
            ),
            families=None,
        )
        for family, syntaxes in _OF_FAMILIES.items()
    }
    return replace(grammar, syntaxes=(*taught, *behind, *own, *_MARKED, *printed), families=families)


@lru_cache(maxsize=8)
def recognised_markers(mode: Mode) -> tuple[str, ...]:
    """Returns the openers of all blocks in untaught forms."""
    return tuple(
        dict.fromkeys(
            syntax.opener.strip()
            for syntax in recognising(Grammar(syntaxes=()), mode).syntaxes
            if syntax.opener and syntax.anchor != "after"
        )
    )
