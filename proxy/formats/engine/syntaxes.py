"""Syntaxes that several formats share. Plain functions from literals to values of `toolwire.scan._grammar`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from toolwire.scan._grammar import END, Anchor, BlockSyntax, Branch, Framing, Node

Nodes = Callable[[int], tuple[Node, ...]]
"""The nodes of a call, the first one of index `base`."""

DONE: Final = Branch()
"""The block may end here whatever comes: stop tokens are often cut off."""


def framing(literal: str, anchor: Anchor = "anywhere", *, kind: Framing = "mark") -> BlockSyntax:
    """A literal that says nothing and vanishes where it frames something."""
    return BlockSyntax(opener=literal, anchor=anchor, body=((DONE,),), framing=kind)


GIGACHAT_FRAMING: Final = (framing("<|message_sep|>"), framing("</s>"))
"""Of GigaChat 3 and 3.5, whose calls have nothing in common."""


def listed(
    opener: str, closer: str = "", *, read: Literal["array", "list"] = "array", optional: bool = False, **more: Any
) -> BlockSyntax:
    """All calls of an answer in one pair of brackets, then the closer, which is `optional` where it is a stop token."""
    end: Node = (DONE,)
    if closer:
        end = (Branch(literal=closer), DONE) if optional else (Branch(literal=closer),)
    return BlockSyntax(opener=opener, closer=closer, body=((Branch(read=read, field="calls", then=1),), end), **more)


def bare(read: Literal["array", "list"], **more: Any) -> BlockSyntax:
    """The whole answer is one pair of brackets."""
    return BlockSyntax(opener="", anchor="answer", body=((Branch(read=read, field="calls", then=1),), ()), **more)


def section(
    opener: str,
    call: str,
    nodes: Nodes,
    end: str,
    *,
    after: Anchor = "anywhere",
    tokens: bool = False,
    **more: Any,
) -> list[BlockSyntax]:
    """Calls that begin with the literal `call` in one section.

    The section's opener and the first call are one syntax, so that a mere mention of the opener stays text. The other
    calls stand for themselves, where `after` says, and the section's end vanishes behind a call. `tokens`: opener and
    end are special tokens, which stand in ordinary text only where they are explained; then a section without a call
    vanishes too where it frames something, and what was said in it is text.
    """
    opening: tuple[Node, ...] = ((Branch(literal=call, then=1),),)
    if tokens:
        first: Node = (Branch(literal=call, then=2), Branch(literal=end))
        opening = ((*first, Branch(read="word", field="said", then=1)), first)
    return [
        BlockSyntax(opener=opener, body=(*opening, *nodes(len(opening))), **more),
        BlockSyntax(opener=call, anchor=after, body=nodes(0), **more),
        replace(framing(end, "anywhere" if tokens else "after"), ends_section=True),
    ]


def function_tags(base: int, *ends: Branch) -> tuple[Node, ...]:
    """What follows `<function=`: the name, `<parameter=KEY>VALUE</parameter>` for each argument or all of them in one
    JSON object, `</function>`, and what `ends` the block. Models leave out `</parameter>`, and write `<parameter name=`
    as other families do."""
    keys = tuple(
        Branch(literal=f"<parameter{sign}", read="word", field="key", then=base + 3) for sign in ("=", " name=")
    )
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (Branch(literal=">", then=base + 2),),
        (*keys, Branch(literal="</function>", then=base + 5), Branch(read="object", field="arguments", then=base + 6)),
        (Branch(literal=">", read="text", field="value", then=base + 4),),
        (
            Branch(literal="</parameter>", then=base + 7),
            Branch(literal="\n<parameter=", read="word", field="key", then=base + 3),
            Branch(literal="\n</function>", then=base + 5),
        ),
        ends,
        (Branch(literal="</function>", then=base + 5),),
        (*keys, Branch(literal="</function>", then=base + 5)),
    )


FUNCTION_STOPS: Final = ("</parameter>", "\n<parameter=", "\n</function>")
"""With what a value in `function_tags` ends."""


ELEMENTS: Final = 7
"""How many nodes `elements` are."""


def elements(base: int, parameter: str, closer: str, then: int = END) -> tuple[Node, ...]:
    """What follows `<invoke name=`: the name, `<parameter name="KEY">VALUE</parameter>` for each argument or all of
    them in one JSON object, the closer; or `/>` right behind the name.

    `parameter` is the word of the tag, prefix included. Quotes may be missing, and attributes may follow: name and key
    are the rest of their tags.
    """
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (Branch(literal=">", then=base + 2), Branch(literal="/>", then=then)),
        (
            Branch(literal=f"<{parameter} name=", read="word", field="key", then=base + 3),
            Branch(literal=closer, then=then),
            Branch(read="object", field="arguments", then=base + 5),
        ),
        (Branch(literal=">", read="text", field="value", then=base + 4),),
        (Branch(literal=f"</{parameter}>", then=base + 6),),
        (Branch(literal=closer, then=then),),
        (
            Branch(literal=f"<{parameter} name=", read="word", field="key", then=base + 3),
            Branch(literal=closer, then=then),
        ),
    )


def pairs(base: int, key: str, middle: str, value_end: str, closer: str, then: int = END) -> tuple[Node, ...]:
    """What follows a call's name: `key KEY middle VALUE value_end` for each argument, the closer."""
    return (
        (Branch(literal=key, read="word", field="key", then=base + 1), Branch(literal=closer, then=then)),
        (Branch(literal=middle, read="text", field="value", then=base + 2),),
        (Branch(literal=value_end, then=base),),
    )
