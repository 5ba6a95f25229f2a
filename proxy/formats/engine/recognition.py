"""Forms in which models write calls although nobody taught them (R23.1).

What is taught stays as it is: these are further syntaxes beside it, all of them `untaught`, so that a block of one is a
call only if it passes the call policy's test, and ordinary text if not.

Two kinds: the markers of any known family, which count anywhere; and what has no markers, JSON and Python, which count
only where nothing follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.keys import ARGUMENTS, METADATA, NAMES, WRAPPERS
from toolwire.formats.engine.slips import SLIPS
from toolwire.formats.engine.syntaxes import elements, framing, function_tags, listed, section
from toolwire.formats.families import (
    cwm,
    deepseek,
    dsml,
    gemma,
    glm,
    harmony,
    hermes,
    invoke,
    json_tags,
    kimi,
    messages,
    minimax,
    mistral,
    plamo,
    pythonic,
    qwen,
)
from toolwire.scan._grammar import BlockSyntax, Branch, Grammar, Node

Mode = Literal["any", "whole", "taught"]

BARE: Final = "bare"
FENCE: Final = "fence"
"""Families of what has no markers: it stands there as it is, or in a Markdown fence."""

RECOVERED: Final = "recovered"
"""The family of calls in damaged and unknown forms (R30.1)."""

FAMILIES: Final[tuple[ToolFormat, ...]] = (
    hermes.FORMAT,
    qwen.QWEN3_CODER,
    qwen.SEED_OSS,
    glm.GLM47,
    glm.IQUEST,
    glm.IQUEST_CODER,
    glm.HUNYUAN3,
    glm.K2_HORIZON,
    glm.SOLAR_OPEN2,
    mistral.FORMAT,
    deepseek.V31,
    dsml.V32,
    dsml.GIGACHAT35,
    kimi.K2,
    kimi.K3,
    invoke.MINIMAX_M2,
    minimax.M3,
    invoke.DOTS,
    invoke.STEP3,
    invoke.MINICPM5,
    invoke.MUSE,
    pythonic.PYTHONIC,
    pythonic.LFM2,
    pythonic.OLMO3,
    pythonic.SARASHINA,
    cwm.FORMAT,
    gemma.GEMMA4,
    gemma.FUNCTIONGEMMA,
    harmony.FORMAT,
    harmony.LLM_JP,
    messages.INKLING,
    plamo.FORMAT,
    json_tags.LLAMA3_JSON,
    json_tags.GRANITE,
    json_tags.JAMBA,
    json_tags.MINIMAX_M1,
    json_tags.STEP_AUDIO2,
    json_tags.NEMOTRON,
    json_tags.APERTUS,
    json_tags.COHERE,
    json_tags.INTERNLM,
    json_tags.LONGCAT,
    json_tags.GIGACHAT,
    json_tags.HYPERCLOVAX,
)
"""The known families, but for those whose markers are ordinary text: nothing could be told from a call in what a model
copies. Where two write the same, the first one is meant."""

_KEYS: Final = tuple(dict.fromkeys((*NAMES, *ARGUMENTS, *WRAPPERS, "tool_calls", *sorted(METADATA))))
"""With which of these an object begins that may be a call."""


def _printed(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Calls one after another, perhaps with a comma or a semicolon between them, then what `ends` them."""
    call = Branch(read="printed", field="calls", then=base + 1)
    return (
        (call,),
        (*(Branch(literal=separator, then=base) for separator in ";,"), *ends, call),
    )


_END: Final = Branch(read="end")

_STOP_TOKENS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>")
"""A server should have left them out."""

_CLOSER: Final = "</tool_call>"
"""Of an opener that the model or the server left out."""


def _ends(then: int, *further: str) -> tuple[Branch, ...]:
    return (*(Branch(literal=literal, then=then) for literal in (*_STOP_TOKENS, *further)), _END)


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
"""The whole answer is calls."""


def _behind_prose(*closers: str) -> BlockSyntax:
    """Objects at the start of a line, up to the end of the answer."""
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
        *_printed(2, Branch(literal="```", then=4), _END),
        (Branch(literal="```", read="word", then=1), _END),
    ),
    family=FENCE,
)
"""Fences with calls, up to the end of the answer. The last one need not be closed."""

_FENCED_ANSWER: Final = replace(_FENCED, anchor="answer")


_LOOSE: Final = BlockSyntax(
    opener="",
    anchor="margin",
    body=((Branch(read="loose", field="calls"),),),
    family=RECOVERED,
    untaught=True,
)
"""Whatever names a tool between brackets, up to the end of the answer; tried where nothing else begins."""

_LOOSE_BLOCK: Final = replace(_LOOSE, anchor="after")
"""The same, only where a block turned out to be none: after a call of a family."""


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
    BlockSyntax(
        opener="<function=",
        closer="</function>",
        body=function_tags(0, Branch()),
        framed=True,
        family=qwen.QWEN3_CODER.name,
        untaught=True,
    ),
    BlockSyntax(
        opener="<|message_sep|>",
        body=(
            (Branch(literal="function call<|role_sep|>", read="object", field="call", then=1),),
            (Branch(literal="</s>"), Branch()),
        ),
        family=json_tags.GIGACHAT.name,
        untaught=True,
    ),
    replace(
        listed("<|im_start|>assistant -> tool/function_call", "<|im_end|>", optional=True),
        parameters=("arguments", "parameters"),
        family=json_tags.HYPERCLOVAX.name,
        untaught=True,
    ),
    replace(harmony.MESSAGE, family=harmony.FORMAT.name, untaught=True),
    replace(harmony.LLM_JP_MESSAGE, family=harmony.LLM_JP.name, untaught=True),
    _tagged("<tools>", "</tools>"),
    _tagged("<|python_start|>", "<|python_end|>"),
    _tagged("<|tool_call|>", "<|/tool_call|>"),
    _tagged("[TOOL_CALL]", "[/TOOL_CALL]"),
    _tagged("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
)
"""Forms of no family."""


_WRAPPERS: Final = ("<tool_calls>", "<tool_use>", "<tool_call>", "<tml:function_calls>", "<tvoe_calls>", "<calls>")
"""Sections around `<invoke name=...>` that models invent."""

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
            *("[/TOOL_CALLS]", "[END_TOOL_REQUEST]", "[e~["),
        )
    ),
)
"""What may stand right behind a call, and then belongs to it: closers that nothing opened, whatever their name, tokens
that end a turn (R30.3). Elsewhere they are text."""


def _reads(syntax: BlockSyntax) -> bool:
    """It is more than framing."""
    return any(branch.field not in ("", "said") for node in syntax.nodes for branch in node)


def _untaught(syntaxes: Iterable[BlockSyntax], family: str) -> list[BlockSyntax]:
    return [replace(syntax, family=family, untaught=True) for syntax in syntaxes]


def _own(family: ToolFormat) -> Iterator[BlockSyntax]:
    """Its syntaxes with markers; not those that are hermes, whoever else writes so."""
    plain = hermes.GRAMMAR.syntaxes[0].opener
    for syntax in family.grammar.syntaxes:
        if syntax.opener and (family is hermes.FORMAT or syntax.opener != plain or syntax.body):
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

_OF_FAMILIES: Final = {f.name: _untaught(_own(f), f.name) for f in FAMILIES} | {"invoke": _untaught(_INVOKE, "invoke")}

_PLAIN: Final = frozenset(("function call<|role_sep|>", "-> tool/function_call"))
"""Openers that begin like ordinary text; what stands before them in an answer is among `_FURTHER`."""

_ELSEWHERE: Final = {
    glm.HUNYUAN3.name: ("<tool_calls>", "<tool_calls:"),
    invoke.DOTS.name: ("<dots_function_call>",),
    invoke.MUSE.name: ("<atem:function_calls>", "<atem:invoke name="),
}
"""Of these families only the syntaxes with these openers: what the others begin with means something else elsewhere."""

_MARKED: Final = (
    *(
        syntax
        for family, syntaxes in _OF_FAMILIES.items()
        for syntax in syntaxes
        if _reads(syntax)
        and syntax.anchor != "after"
        and syntax.opener not in _PLAIN
        and syntax.opener in _ELSEWHERE.get(family, (syntax.opener,))
    ),
    *_FURTHER,
)


def _slips(family: str) -> Iterator[BlockSyntax]:
    return (syntax for syntax in SLIPS if syntax.family == family and syntax.opener)


def reasoning_tags(families: Iterable[ToolFormat]) -> tuple[tuple[str, str], ...]:
    """The tags around reasoning that models of these families write."""
    return tuple(dict.fromkeys(tags for f in families if f.name not in _ELSEWHERE for tags in f.grammar.reasoning))


@lru_cache(maxsize=256)  # a pure function; grammars are looked up as the very same object
def recognising(grammar: Grammar, mode: Mode) -> Grammar:
    """The grammar, in which other forms are read besides what was taught: `whole`, those with markers, and answers that
    are nothing but calls; `any`, also calls behind prose. After a call of a family no other one's markers count, and
    its framing vanishes."""
    if mode == "taught":
        return grammar
    taught = tuple(syntax for syntax in grammar.syntaxes if not syntax.untaught)
    own = tuple(syntax for syntax in grammar.syntaxes if syntax.untaught)
    printed = (_BARE, _behind_prose(_CLOSER), _FENCED, _LOOSE) if mode == "any" else (_BARE, _FENCED_ANSWER)
    elsewhere = (
        (_BARE, _behind_prose(), _FENCED, _LOOSE_BLOCK) if mode == "any" else printed
    )  # there the opener stands before it, and is text
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
    """What opens a block in one of these forms."""
    return tuple(
        dict.fromkeys(
            syntax.opener.strip()
            for syntax in recognising(Grammar(syntaxes=()), mode).syntaxes
            if syntax.opener and syntax.anchor != "after"
        )
    )
