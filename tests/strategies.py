"""Hypothesis strategies for the model and the event algebra, shared by all suites."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import AnyStr

from hypothesis import strategies as st

from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.model import (
    COMMON,
    EMPTY,
    Attempt,
    Image,
    Message,
    ModelReply,
    OpaquePart,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)

texts = st.text(st.characters(codec="utf-8"), max_size=30)
some_text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
call_ids = st.from_regex(r"call_[0-9a-f]{8}", fullmatch=True)
json_objects = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
arguments = json_objects.map(lambda value: json.dumps(value, ensure_ascii=False))
usages = st.builds(
    Usage, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)
)
uses = st.builds(ToolUse, call_ids, names, arguments)

protocol_names = st.sampled_from(["chat", "messages", "responses"])
fields = st.dictionaries(st.sampled_from(["x_a", "x_b"]), json_objects, min_size=1, max_size=2)
extras = st.just(EMPTY) | st.dictionaries(protocol_names, fields, max_size=2)
"""What protocols say beside, see rule 3 of `toolwire.model`."""


def _merge_texts(parts: list[object]) -> tuple[object, ...]:
    """Neighbouring text parts read as one in a whole reply, so a canonical reply has none."""
    out: list[object] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, Text) and isinstance(last, Text) and not (part.extra or last.extra):
            out[-1] = Text(last.text + part.text)
        else:
            out.append(part)
    return tuple(out)


parts = st.one_of(some_text.map(Text), some_text.map(Reasoning), some_text.map(Refusal), uses)
choices = st.builds(
    ReplyChoice, st.lists(parts, max_size=5).map(_merge_texts), st.sampled_from(["stop", "length", "content_filter"])
)
replies = st.builds(
    ModelReply,
    st.just("chatcmpl-1"),
    st.just("m"),
    st.just(1),
    st.lists(choices, min_size=1, max_size=2).map(tuple),
    st.none() | usages,
)

rich_parts = st.one_of(
    st.builds(Text, texts, extras),
    st.builds(Reasoning, texts, extras),
    st.builds(Refusal, texts, extras),
    st.builds(ToolUse, call_ids, names, arguments, st.sampled_from(["function", "custom"]), extra=extras),
).filter(lambda part: isinstance(part, ToolUse) or bool(part.text or part.extra))
rich_choices = st.builds(
    ReplyChoice,
    st.lists(rich_parts, max_size=5).map(_merge_texts),
    st.sampled_from(["stop", "length", "content_filter", "pause_turn"]),
    st.builds(
        lambda extra, stopped: {**extra, "stop_sequence": stopped} if stopped else extra, extras, st.none() | some_text
    ),
)
rich_replies = st.builds(
    ModelReply,
    st.just("id"),
    st.just("m"),
    st.just(1),
    st.lists(rich_choices, min_size=1, max_size=3).map(tuple),
    st.none() | st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9), extra=extras),
    extras,
)
"""Replies that say all that the algebra carries; no protocol can say all of it."""

every_extra = st.builds(
    lambda extra, common: {**extra, **common},
    extras,
    st.dictionaries(st.sampled_from(sorted(COMMON)), json_objects | texts | st.integers(0, 9), max_size=1),
).map(lambda extra: extra or EMPTY)
maybe = st.none() | texts
_flat_parts = st.one_of(
    st.builds(Text, texts, every_extra),
    st.builds(Attempt, texts, every_extra),
    st.builds(Refusal, texts, every_extra),
    st.builds(Reasoning, texts, every_extra),
    st.builds(Image, texts, maybe, every_extra),
    st.builds(ToolUse, texts, texts, texts, st.sampled_from(["function", "custom"]), maybe, maybe, every_extra),
    st.builds(OpaquePart, protocol_names | texts, json_objects | st.lists(json_objects, max_size=2) | maybe),
)
every_part = st.recursive(
    _flat_parts,
    lambda inner: st.builds(
        ToolResult,
        texts,
        st.lists(inner, max_size=3).map(tuple),
        maybe,
        st.booleans(),
        st.sampled_from(["function", "custom"]),
        every_extra,
    ),
    max_leaves=4,
)
every_message = st.builds(
    Message,
    st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    st.lists(every_part, max_size=4).map(tuple),
    maybe,
    every_extra,
)
"""All that the model can hold of a message, whatever protocol could say it."""


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """`text` cut into pieces anywhere; pieces may be empty."""
    points = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]


@st.composite
def rich_streams(draw: st.DrawFn) -> list[Event]:
    """A whole stream in which everything may say something beside: its start, blocks at both ends, each answer's
    end."""
    body: list[Event] = []
    choices = draw(st.integers(1, 2))
    for block in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(list(BlockKind)))
        call = kind is BlockKind.TOOL_CALL
        name, call_id = (draw(names), f"call_{block:08x}") if call else (None, None)
        choice = draw(st.integers(0, choices - 1))
        body.append(Open(block, kind, name=name, call_id=call_id, choice=choice, extra=draw(extras)))
        body += [Delta(block, piece) for piece in draw(cuts(draw(arguments if call else texts)))]
        body.append(Close(block, extra=draw(extras)))
    ends = tuple(draw(extras) for _ in range(choices)) if draw(st.booleans()) else ()
    others = ("length",) * (choices - 1)
    finish = Finish("pause_turn", draw(st.none() | usages), others, draw(extras), ends)
    return [Start("id", "m", 1, draw(extras), draw(st.none() | usages)), *body, finish]


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """A whole stream of one choice by the grammar of events, blocks interleaved, deltas cut anywhere."""
    count = draw(st.integers(0, 4))
    blocks: list[list[Event]] = []
    for block in range(count):
        kind = draw(st.sampled_from(list(BlockKind)))
        if kind is BlockKind.TOOL_CALL:
            opened = Open(block, kind, name=draw(names), call_id=f"call_{block:08x}")
            text = draw(arguments)
        else:
            opened, text = Open(block, kind), draw(some_text)
        deltas = [Delta(block, piece) for piece in draw(cuts(text))]
        blocks.append([opened, *deltas, Close(block)])
    body: list[Event] = []
    if draw(st.booleans()):
        queues = [list(block) for block in blocks]
        while any(queues):
            queue = draw(st.sampled_from([q for q in queues if q]))
            body.append(queue.pop(0))
    else:
        body = [event for block in blocks for event in block]
    finish = Finish(draw(st.sampled_from(["stop", "length"])), draw(st.none() | usages))
    return [Start("chatcmpl-1", "m", 1), *body, finish]


def split(text: AnyStr, cuts: list[int]) -> list[AnyStr]:
    """`text` in pieces: cut at these places, counted round and round."""
    return [text[a:b] for a, b in pairwise(sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)}))]


def apart(text: str) -> tuple[str, str]:
    """What is thought and what is said, without white space. An opening tag counts at the start of a line, and where
    nothing but blanks stands before it since a closing one."""
    thought = said = ""
    while text:
        before, *behind = re.split(r"(?:\A[ \t\r\n]*|(?<=\n))<think>", text, maxsplit=1)
        inside, _, text = "".join(behind).partition("</think>")
        said, thought = said + before, thought + inside
    return "".join(thought.split()), "".join(said.split())
