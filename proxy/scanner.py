"""Finding calls in text without a server: `open_scanner` for programs, `build_scanner` from resolved parts.

Nothing here waits, opens anything or imports aiohttp. `_pyparse.py` describes the scanner, `policy.py` the decision on
a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from .call_policy.policy import CallPolicy
from .config import CallsConfig, LimitsConfig, ReasoningConfig, RouteOptions
from .errors import ClientFault, quote
from .fastparse import CallScanner
from .formats.base import ToolFormat
from .formats.engine.markers import any_of
from .formats.recognised.recognition import recognising
from .model import ModelRequest, ToolChoice, ToolSpec
from .registry import registries
from .scan._grammar import SPACE, BlockPolicy, Grammar
from .scan._plan import GrammarPlan, plan
from .scan.loose_head import BRACKETS, WORDS
from .scan.spans import SpanObserver

PRINTED_BEGINS: Final = (
    "{",
    "[",
    "print(",
    "await ",
    "functools",
    "call:",
    "functions.",
    "Action:",
    "Thought:",
    "analysis",
    "commentary",
)
"""Beginnings of a call without markers, besides a tool's name."""

Tool = ToolSpec | Mapping[str, Any] | str
"""A tool: a `ToolSpec`, OpenAI's object (nested or flat, R3.1), or just its name."""


def open_scanner(
    format: str | ToolFormat = "sentinel",
    tools: Sequence[Tool] | None = None,
    *,
    choice: ToolChoice | None = None,
    parallel: bool = True,
    options: RouteOptions | None = None,
    limits: LimitsConfig | None = None,
    count: Callable[[str], object] | None = None,
    scanner: type[CallScanner] = CallScanner,
) -> CallScanner:
    """Returns a scanner for one answer: call `feed(data: str | bytes) -> list[Event]`, then `finish(truncated=False) ->
    list[Event]`.

    `format` is a format or its name. `tools` are those on offer: with None any name is a call and nothing is strict;
    with an empty list (or `choice` none) nothing is a call. `options` are those of a route; by default only calls in
    `format` are read, otherwise `options.calls.recognise` decides about other forms if the tools are known. `count` is
    called with the name of each counter, see `CallPolicy`. `scanner` is the class to use (default: the one that
    `toolwire.fastparse` chose). Raises `ConfigError` for an unknown format, `ClientFault` for a tool without a name.
    """
    chosen = registries().formats.get(format) if isinstance(format, str) else format
    options = options or RouteOptions(calls=CallsConfig(recognise="taught"))
    limits = limits or LimitsConfig()
    choice = choice or ToolChoice()
    specs = None if tools is None else tuple(read_tool(tool) for tool in tools)
    grammar = chosen.grammar
    if specs is not None and ModelRequest("", (), specs, choice).callable_tools:
        grammar = recognising(grammar, options.calls.recognise)
    elif specs is not None:
        grammar = chosen.framing or replace(grammar, syntaxes=())  # R1.7: blocks are ordinary text then
    policy = CallPolicy(specs, choice=choice, parallel=parallel, options=options, limits=limits, count=count)
    return build_scanner(grammar, policy, options, limits, stream_after=stream_after(options), scanner=scanner)


def stream_after(options: RouteOptions) -> int | None:
    """Returns how many bytes of arguments a call has before it is streamed (R6.13); None if calls are buffered."""
    return None if options.calls.argument_streaming == "buffered" else options.calls.argument_streaming


def build_scanner(
    grammar: Grammar,
    policy: BlockPolicy,
    options: RouteOptions,
    limits: LimitsConfig,
    *,
    choice: int = 0,
    first_block: int = 0,
    stream_after: int | None = None,
    trim: bool = True,
    inside: tuple[str, str] | None = None,
    on_span: SpanObserver | None = None,
    scanner: type[CallScanner] = CallScanner,
) -> CallScanner:
    """Returns a scanner with a route's options and limits. `stream_after`: see `CallScanner`. `trim`: allows
    trimming if the options want it. `inside`: the answer begins inside this pair of reasoning tags, whatever the
    options say."""
    reasoning = options.reasoning
    tags = reasoning_tags(grammar, reasoning)
    return scanner(
        grammar,
        policy,
        block_bytes=limits.block_bytes,
        trim_edges=trim and options.calls.trim == "edge",
        reasoning=tags if inside is None else tuple(dict.fromkeys((inside, *tags))),
        preopened=bool(reasoning.preopened) or inside is not None,
        scan_calls=reasoning.scan_calls or grammar.calls_in_reasoning,
        choice=choice,
        first_block=first_block,
        stream_after=stream_after,
        on_span=on_span,
    )


@lru_cache(maxsize=256)  # asked for every whole answer
def triggers(grammar: Grammar, config: ReasoningConfig) -> tuple[str, ...] | None:
    """Returns literals of which a text must contain one, in one piece, for a scanner to change it; None if any text may
    be changed."""
    if config.preopened:
        return None
    scan_calls = config.scan_calls or grammar.calls_in_reasoning
    looked_for = plan(grammar, reasoning_tags(grammar, config), scan_calls)
    if looked_for.answer is not None or looked_for.printed is not None or looked_for.loose is not None:
        return None
    return tuple(_beginnings(looked_for))


def _beginnings(found: GrammarPlan) -> list[str]:
    """Returns the markers that can begin something; the others only follow a block."""
    return [marker.literal.decode() for marker in found.text if marker.anchor != "after"]


class Signs(NamedTuple):
    """Finds the first place where a scanner may change a text: the first characters of its triggers, and a pattern
    (None: anywhere). `printed`: the whole text may be a call without markers. `loose`: a line may begin a call in any
    form (R30.1)."""

    firsts: tuple[str, ...]
    pattern: re.Pattern[str] | None
    printed: bool = False
    loose: bool = False


@lru_cache(maxsize=256)  # asked for every offer
def signs_of(grammar: Grammar, config: ReasoningConfig) -> Signs:
    """Returns the triggers of a route as a pattern."""
    if config.preopened:
        return Signs((), None)
    looked_for = plan(grammar, reasoning_tags(grammar, config), config.scan_calls or grammar.calls_in_reasoning)
    if looked_for.answer is not None:
        return Signs((), None)
    loose = looked_for.loose is not None
    words = _beginnings(looked_for)
    firsts = tuple(dict.fromkeys(word[0] for word in (*words, *(BRACKETS if loose else ()))))
    lines = rf"|(?m:^)[ \t]*{any_of(BRACKETS)}" if loose else ""
    return Signs(firsts, re.compile(any_of(words) + lines), looked_for.printed is not None, loose)


def stays_unchanged(text: str, signs: Signs, names: tuple[str, ...]) -> bool:
    """Returns True if it is certain that a scanner returns `text` unchanged. `names` are the callable tools."""
    firsts, pattern, printed, loose = signs
    if pattern is None:
        return False
    at = len(text)
    for first in firsts:
        if first in text:  # much faster than the pattern, and usually False
            at = min(at, text.index(first))
    if at < len(text) and pattern.search(text, text.rfind("\n", 0, at) + 1):
        return False
    if loose and _begins_line(text, (*WORDS, *names)):
        return False
    if not printed:
        return True
    beginning = text.lstrip(SPACE)
    return not (beginning.startswith(PRINTED_BEGINS) or beginning.startswith(names))


def _begins_line(text: str, words: tuple[str, ...]) -> bool:
    """Returns True if a line begins with one of the words, after indentation."""
    if "\n" not in text:
        return text.lstrip(" \t").startswith(words)
    return any(line.lstrip(" \t").startswith(words) for line in text.split("\n"))


@lru_cache(maxsize=256)
def reasoning_tags(grammar: Grammar, config: ReasoningConfig) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of reasoning tags to look for. The first pair is the one that an answer may begin inside: the
    route's own tags come before the format's, but the default tags after them."""
    if config.tags is None:
        return ()
    default = config.tags == ReasoningConfig().tags
    tags = (*grammar.reasoning, config.tags) if default else (config.tags, *grammar.reasoning)
    return tuple(dict.fromkeys(tags))


def read_tool(tool: Tool) -> ToolSpec:
    """Returns the tool as a `ToolSpec`. Raises `ClientFault` `invalid_tool_schema` if it has no name."""
    if isinstance(tool, ToolSpec):
        return tool
    if isinstance(tool, str):
        return ToolSpec(tool)
    kind = tool.get("type", "function")
    inner = tool.get(kind)
    fields = {**inner, **{k: v for k, v in tool.items() if v is not None}} if isinstance(inner, Mapping) else tool
    name = fields.get("name")
    if kind not in ("function", "custom"):
        return ToolSpec(name if isinstance(name, str) else str(kind), kind="hosted", extra=tool)
    if not isinstance(name, str) or not name:
        raise ClientFault(f"A tool has no name: {quote(dict(tool))}", code="invalid_tool_schema")
    return ToolSpec(
        name, fields.get("description"), fields.get("parameters"), fields.get("strict"), kind=kind, extra=tool
    )
