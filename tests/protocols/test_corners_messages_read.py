"""Corners of the reader of Messages: block x neighbour x way of coming x end.

The oracle is `read_reply`: however the frames of an answer come, they amount to the whole answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import every
from tests.protocols.corners import mark, marks, read_by, read_by_frames, sse
from toolwire.events import Event
from toolwire.folding import fold
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.messages.reader import MessagesReader
from toolwire.stream_grammar import check, normalise

Wire = dict[str, Any]


def cited(n: int, word: str) -> Wire:
    return {"type": "char_location", "cited_text": mark(n, word), "document_index": 0}


BLOCKS: dict[str, Callable[[int], Wire]] = {
    "text": lambda n: {"type": "text", "text": f"text {n}"},
    "blank": lambda n: {"type": "text", "text": " \n"},
    "cited": lambda n: {"type": "text", "text": f"cited {n}", "citations": [cited(n, "one"), cited(n, "two")]},
    "cached": lambda n: {"type": "text", "text": f"cached {n}", "cache_control": {"x": mark(n, "cache")}},
    "only_cited": lambda n: {"type": "text", "text": "", "citations": [cited(n, "one")]},
    "thought": lambda n: {"type": "thinking", "thinking": f"thought {n}", "signature": mark(n, "signature")},
    "unsigned": lambda n: {"type": "thinking", "thinking": f"unsigned {n}"},
    "sealed": lambda n: {"type": "thinking", "thinking": "", "signature": mark(n, "signature")},
    "redacted": lambda n: {"type": "redacted_thinking", "data": mark(n, "data")},
    "call": lambda n: {"type": "tool_use", "id": f"toolu_{n}", "name": f"f{n}", "input": {"a": [n, "é"]}},
    "caller": lambda n: {"type": "tool_use", "id": f"toolu_{n}", "name": "f", "input": {}, "caller": {"x": mark(n, "caller")}},
    "searched": lambda n: {"type": "server_tool_use", "id": f"srv_{n}", "name": "web_search", "input": {"q": mark(n, "query")}},
    "unknown": lambda n: {"type": "x_block", "x": n, "citations": [cited(n, "one"), cited(n, "two")]},
    "found": lambda n: {"type": "web_search_tool_result", "tool_use_id": f"srv_{n}", "content": [{"x": mark(n, "result")}]},
}  # fmt: skip
TEXTS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}


def deltas(wire: Wire, size: int) -> list[Wire]:
    """The deltas of a block whose text comes so many characters at a time, and what comes behind the text."""
    out: list[Wire] = []
    key, kind = TEXTS.get(wire["type"], ("partial_json", "input_json_delta"))
    text = json.dumps(wire["input"], separators=(",", ":"), ensure_ascii=False) if wire.get("input") else ""
    text = wire.get(key, "") if key != "partial_json" else text
    out += [{"type": kind, key: text[at : at + size]} for at in range(0, len(text), size)]
    out += [{"type": "citations_delta", "citation": citation} for citation in wire.get("citations", ())]
    if wire["type"] == "thinking" and "signature" in wire:
        out.append({"type": "signature_delta", "signature": wire["signature"]})
    return out


def first(wire: Wire) -> Wire:
    """A block as it begins."""
    if wire["type"] == "text":
        return {**wire, "text": "", "citations": [] if "citations" in wire else None}
    if wire["type"] == "thinking":
        return {**wire, "thinking": "", "signature": ""}
    if wire["type"] == "x_block":
        return {"type": "x_block", "x": wire["x"]}
    return {**wire, "input": {}} if "input" in wire else wire


def usual(n: int, wire: Wire, size: int = 4) -> list[Wire]:
    """As Anthropic streams."""
    middle = [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas(wire, size)]
    start = {"type": "content_block_start", "index": n, "content_block": first(wire)}
    return [start, *middle, {"type": "content_block_stop", "index": n}]


def by_characters(n: int, wire: Wire) -> list[Wire]:
    """A delta for each character, an empty one and a ping behind each."""
    out = []
    for frame in usual(n, wire, 1):
        out.append(frame)
        delta = frame.get("delta")
        if delta and delta["type"] in ("text_delta", "thinking_delta", "input_json_delta"):
            emptied = {key: value if key == "type" else "" for key, value in delta.items()}
            out += [{**frame, "delta": emptied}, {"type": "ping"}]
    return out


def at_once(n: int, wire: Wire) -> list[Wire]:
    """Everything in the first frame of the block."""
    start = {"type": "content_block_start", "index": n, "content_block": wire}
    return [start, {"type": "content_block_stop", "index": n}]


def unstopped(n: int, wire: Wire) -> list[Wire]:
    """Without the end of the block, unless it is one that is not modelled: that is given when it is whole."""
    return usual(n, wire)[: -1 if wire["type"] in ("text", "thinking", "redacted_thinking", "tool_use") else None]


def unnumbered(n: int, wire: Wire) -> list[Wire]:
    """Without indices: a frame is about the block before."""
    return [{key: value for key, value in frame.items() if key != "index"} for frame in usual(n, wire)]


def unannounced(n: int, wire: Wire) -> list[Wire]:
    """Without the beginning of the block, where its deltas say what it is."""
    says_all = {key for key in wire if key not in ("type", "citations", "signature")} in ({"text"}, {"thinking"})
    return usual(n, wire)[1:] if says_all and (wire.get("text") or wire.get("thinking")) else usual(n, wire)


WAYS = [usual, by_characters, at_once, unstopped, unnumbered, unannounced]
ENDS: dict[str, Wire] = {
    "end": {"stop_reason": "end_turn", "stop_sequence": None},
    "sequence": {"stop_reason": "stop_sequence", "stop_sequence": "m9-stop"},
    "pause": {"stop_reason": "pause_turn", "stop_sequence": None, "container": {"id": "m9-box"}},
    "refusal": {"stop_reason": "refusal", "stop_sequence": None},
}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "x_top": "m9-top"}
READ = {"input_tokens": 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "service_tier": "m9-tier"}
WROTE = {"input_tokens": None, "output_tokens": 4, "output_tokens_details": {"thinking_tokens": 1}}


def answer(names: tuple[str, ...], end: str = "end") -> Wire:
    """The whole answer with these blocks."""
    content = [BLOCKS[name](n) for n, name in enumerate(names)]
    return {**HEAD, "content": content, **ENDS[end], "usage": {**WROTE, **READ}}


def frames(names: tuple[str, ...], way: Callable[[int, Wire], list[Wire]], end: str = "end") -> list[Wire]:
    """The frames of the same."""
    message = {**HEAD, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**READ, "output_tokens": 1}}
    blocks = [frame for n, name in enumerate(names) for frame in way(n, BLOCKS[name](n))]
    last = {"type": "message_delta", "delta": ENDS[end], "usage": WROTE}
    return [{"type": "message_start", "message": message}, *blocks, last, {"type": "message_stop"}]


def read(data: bytes) -> list[Event]:
    """The events of a stream, which are the same however its bytes are cut at frames."""
    events = read_by(MessagesReader(1 << 20), data)
    check(events)
    assert normalise(read_by_frames(MessagesReader(1 << 20), data)) == normalise(events)
    return events


@every("way", WAYS)
@every("second", BLOCKS)
def test_a_stream_amounts_to_the_whole_answer(second: str, way: Callable[[int, Wire], list[Wire]]) -> None:
    """Between two of each other one, unless the way makes no difference to neighbours."""
    neighbours = ("text", "call") if way in (by_characters, at_once) else BLOCKS
    for names in ((second,), *((first_name, second, first_name) for first_name in neighbours)):
        whole = answer(names)
        reply = fold(read(sse(*frames(names, way))))
        assert reply == MessagesProtocol().read_reply(json.dumps(whole).encode())
        assert marks(reply) == marks(whole)


@pytest.mark.parametrize("end", ENDS)
def test_why_it_ended_and_what_is_said_of_the_end(end: str) -> None:
    for name in BLOCKS:
        whole = answer((name,), end)
        for last in (
            frames((name,), usual, end),
            frames((name,), usual, end)[:-1],
        ):  # the last frame is left out by some
            streamed = fold(read(sse(*last)))
            assert streamed.choices == MessagesProtocol().read_reply(json.dumps(whole).encode()).choices
            assert marks(streamed) == marks(whole)


@every("first_name", BLOCKS)
def test_blocks_whose_frames_come_in_turn(first_name: str) -> None:
    for second in BLOCKS:
        whole = answer((first_name, second))
        one, two = (usual(n, block) for n, block in enumerate(whole["content"]))
        turns = [frame for n in range(max(len(one), len(two))) for side in (one, two) for frame in side[n : n + 1]]
        head, *_, last, stop = frames((first_name, second), usual)
        reply = fold(read(sse(head, *turns, last, stop)))
        wanted = MessagesProtocol().read_reply(json.dumps(whole).encode())
        # A block that is not modelled is given when it is whole.
        assert sorted(map(repr, reply.choices[0].parts)) == sorted(map(repr, wanted.choices[0].parts))
