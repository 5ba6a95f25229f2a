"""Syntaxes that several formats share: plain functions from literals to values of `toolwire.scan._grammar`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from ...scan._grammar import END, KEY_CLOSER, Anchor, BlockSyntax, Branch, Framing, Grammar, Node

Nodes = Callable[[int], tuple[Node, ...]]
"""Returns the nodes of a call, given the index of the first one."""

DONE: Final = Branch()
"""A branch with which a block may end, whatever follows: servers often remove the stop token that would end it."""


def framing(literal: str, anchor: Anchor = "anywhere", *, kind: Framing = "mark") -> BlockSyntax:
    """Returns the syntax of a literal that is framing: markup without content, removed where it frames something."""
    return BlockSyntax(opener=literal, anchor=anchor, body=((DONE,),), framing=kind)


GIGACHAT_FRAMING: Final = (framing("<|message_sep|>"), framing("</s>"))
"""The framing of GigaChat 3 and 3.5. Their calls differ."""


def listed(
    opener: str, closer: str = "", *, read: Literal["array", "list"] = "array", optional: bool = False, **more: Any
) -> BlockSyntax:
    """Returns the syntax of all calls of an answer in one pair of brackets, then the closer, which is `optional` if it
    is a stop token."""
    end: Node = (DONE,)
    if closer:
        end = (Branch(literal=closer), DONE) if optional else (Branch(literal=closer),)
    return BlockSyntax(opener=opener, closer=closer, body=((Branch(read=read, field="calls", then=1),), end), **more)


def bare(read: Literal["array", "list"], **more: Any) -> BlockSyntax:
    """Returns the syntax of an answer that is one pair of brackets."""
    return BlockSyntax(opener="", anchor="answer", body=((Branch(read=read, field="calls", then=1),), ()), **more)


def opened_by(grammar: Grammar, *openers: str) -> tuple[BlockSyntax, ...]:
    """Returns the syntaxes of a grammar that have one of these openers."""
    return tuple(syntax for syntax in grammar.syntaxes if syntax.opener in openers)


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
    """Returns the syntaxes of calls, each beginning with the literal `call`, in one section.

    The section's opener and the first call are one syntax, so that a mention of the opener stays text. Further calls
    are found at the anchor `after`, and the section's end is removed after a call. `tokens`: opener and end are special
    tokens, which occur in text only where it explains them. Then a section without a call is removed too where it
    frames something, and the text in it stays.
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


def _attribute(parameter: str, base: int, then: int) -> tuple[Node, ...]:
    """Returns the node after a key, whose value may also be an attribute of the tag, and the nodes after such a value:
    in either kind of quotes, after a further attribute, and after the tag. `base` is the index of the first of them."""
    values = tuple(
        Branch(literal=f" value={quote}", read="text", field="value", then=base + at, slip=True)
        for at, quote in enumerate("\"'")
    )
    tag_ends = (Branch(literal="/>", then=then), Branch(literal=">", then=base + 3))
    ends = (
        (
            *(replace(end, literal=f"{quote}{end.literal}") for end in tag_ends),
            Branch(literal=f"{quote} />", then=then),
            *(
                Branch(literal=f"{quote} {key}={quote}{word}{quote}", then=base + 2)
                for key, word in _FURTHER_ATTRIBUTES
            ),
        )
        for quote in "\"'"
    )
    return (values, *ends, tag_ends, (Branch(literal=f"</{parameter}>", then=then),))


_FURTHER_ATTRIBUTES: Final = (
    *(("type", name) for name in ("string", "integer", "number", "boolean", "array", "object", "null")),
    *(("string", word) for word in ("true", "false")),
)
"""Attributes that models write after a value in a tag, with their words: any others may be part of the value."""


_WRONG_CLOSERS: Final = ("\n</param>", "\n</arg>", "\n</arg_value>")
"""Closers of other families, which models write in place of `</parameter>`."""


def function_tags(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Returns the nodes after `<function=`: the name, `<parameter=KEY>VALUE</parameter>` for each argument or all of
    them in one JSON object, `</function>`, and the `ends` of the block; or `/>` right after the name. Models omit
    `</parameter>` or `</function>`, and write `<parameter name=` like other families, also with the value as an
    attribute."""
    values, *attributes = _attribute("parameter", base + 8, base + 7)
    end = Branch(literal="</function>", then=base + 5)
    # Behind the others anything may follow: there a part of a value would pass for the end.
    invoked = () if DONE in ends else (Branch(literal="</invoke>", then=base + 5, slip=True),)
    early = tuple(replace(other, slip=True) for other in ends if other.literal not in ("", end.literal))
    keys = tuple(
        Branch(literal=f"<parameter{sign}", read="word", field="key", then=base + 3) for sign in ("=", " name=")
    )
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (Branch(literal=">", then=base + 2), Branch(literal="/>", then=base + 5)),
        (*keys, end, Branch(read="object", field="arguments", then=base + 6)),
        (Branch(literal=">", read="text", field="value", then=base + 4), *values),
        (
            Branch(literal="</parameter>", then=base + 7),
            Branch(literal="\n<parameter=", read="word", field="key", then=base + 3),
            Branch(literal="\n</function>", then=base + 5),
            *(Branch(literal=closer, then=base + 7, slip=True) for closer in (*_WRONG_CLOSERS, KEY_CLOSER)),
        ),
        ends,
        (end, *invoked),
        (*keys, end, *early, *invoked),
        *attributes,
    )


FUNCTION_STOPS: Final = ("</parameter>", "\n<parameter=", "\n</function>", *_WRONG_CLOSERS)
"""Literals that end a value in `function_tags`."""


ELEMENTS: Final = 11
"""The number of nodes that `elements` returns."""


def elements(base: int, parameter: str, closer: str, then: int = END) -> tuple[Node, ...]:
    """Returns the nodes after `<invoke name=`: the name, `<parameter name="KEY">VALUE</parameter>` for each argument or
    all of them in one JSON object, the closer; or `/>` right after the name. A value may also be an attribute:
    `<parameter name="KEY" value="VALUE"/>`.

    `parameter` is the word of the tag with its prefix. Quotes may be missing, and attributes may follow, because the
    name and key fields are the rest of their tags.
    """
    values, *attributes = _attribute(parameter, base + 7, base + 6)
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (Branch(literal=">", then=base + 2), Branch(literal="/>", then=then)),
        (
            Branch(literal=f"<{parameter} name=", read="word", field="key", then=base + 3),
            Branch(literal=closer, then=then),
            Branch(read="object", field="arguments", then=base + 5),
        ),
        (Branch(literal=">", read="text", field="value", then=base + 4), *values),
        (Branch(literal=f"</{parameter}>", then=base + 6), Branch(literal=KEY_CLOSER, then=base + 6, slip=True)),
        (Branch(literal=closer, then=then),),
        (
            Branch(literal=f"<{parameter} name=", read="word", field="key", then=base + 3),
            Branch(literal=closer, then=then),
        ),
        *attributes,
    )


def pairs(base: int, key: str, middle: str, value_end: str, closer: str) -> tuple[Node, ...]:
    """Returns the nodes after a call's name: `key KEY middle VALUE value_end` for each argument, then the closer."""
    return (
        (Branch(literal=key, read="word", field="key", then=base + 1), Branch(literal=closer)),
        (Branch(literal=middle, read="text", field="value", then=base + 2),),
        (Branch(literal=value_end, then=base),),
    )
