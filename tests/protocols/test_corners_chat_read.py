"""Corners of the reader of Chat: chunk x neighbour x third x end.

The oracle is the table: each chunk says itself which deltas it stands for. A server's extras come out beside the very
delta that they came with, whichever chunk is before or behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from tests.cases import every
from tests.protocols import wires
from tests.protocols.corners import Said, by_kind, mark, marks, read_by, read_by_frames, said, sse
from toolwire.events import Event, Finish, Opaque, Start
from toolwire.folding import fold
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.chat.reader import ChatReader
from toolwire.stream_grammar import check

Chunk = dict[str, Any]
Piece = Callable[[int], tuple[Chunk, list[Said]]]
"""By its place: what a chunk holds beside its `index`, and the deltas that it stands for."""


def logprobs(n: int) -> dict[str, Any]:
    token = {"token": mark(n, "token"), "logprob": -0.5, "bytes": None, "top_logprobs": []}
    return {"content": [token], "refusal": None}


def text(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"content": f"t{n}"}}, [("text", f"t{n}", None)]


def text_with_role(n: int) -> tuple[Chunk, list[Said]]:
    nulls = {"refusal": None, "reasoning_content": None, "tool_calls": None}
    return {"delta": {"role": "assistant", "content": f"r{n}", **nulls}}, [("text", f"r{n}", None)]


def text_with_logprobs(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"content": f"l{n}"}, "logprobs": logprobs(n)}, [("text", f"l{n}", {"logprobs": logprobs(n)})]


def text_beside(n: int) -> tuple[Chunk, list[Said]]:
    beside = {"x_delta": mark(n, "delta")}
    return {"delta": {"content": f"b{n}", **beside}}, [("text", f"b{n}", {"chat": {"delta": beside}})]


def text_in_parts(n: int) -> tuple[Chunk, list[Said]]:
    parts = [{"type": "thinking", "thinking": f"h{n}"}, {"type": "text", "text": f"p{n}"}]
    return {"delta": {"content": parts}}, [("reasoning", f"h{n}", None), ("text", f"p{n}", None)]


def thought(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"reasoning_content": f"h{n}"}}, [("reasoning", f"h{n}", None)]


def thought_with_logprobs(n: int) -> tuple[Chunk, list[Said]]:
    beside = {"logprobs": logprobs(n)}
    return {"delta": {"reasoning": f"h{n}"}, **beside}, [("reasoning", f"h{n}", beside)]


def thought_and_text(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"reasoning_content": f"h{n}", "content": f"t{n}"}}, [
        ("reasoning", f"h{n}", None),
        ("text", f"t{n}", None),
    ]


def thought_and_text_beside(n: int) -> tuple[Chunk, list[Said]]:
    beside = {"x_delta": mark(n, "delta")}
    said_once = [("reasoning", f"h{n}", {"chat": {"delta": beside}}), ("text", f"t{n}", None)]
    return {"delta": {"reasoning_content": f"h{n}", "content": f"t{n}", **beside}}, said_once


def refusal(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"content": None, "refusal": f"n{n}"}}, [("refusal", f"n{n}", None)]


def call(n: int) -> tuple[Chunk, list[Said]]:
    wire = {"index": n, "id": f"c{n}", "type": "function", "function": {"name": f"f{n}", "arguments": '{"a":1}'}}
    return {"delta": {"tool_calls": [wire]}}, [("call", f"f{n} c{n} function", None), ("tool_call", '{"a":1}', None)]


def call_beside(n: int) -> tuple[Chunk, list[Said]]:
    chunk, _ = call(n)
    beside = {"extra_content": {"signature": mark(n, "signature")}}
    chunk["delta"]["tool_calls"][0] |= beside
    return chunk, [("call", f"f{n} c{n} function", {"chat": beside}), ("tool_call", '{"a":1}', None)]


def custom_call(n: int) -> tuple[Chunk, list[Said]]:
    wire = {"index": n, "id": f"c{n}", "type": "custom", "custom": {"name": f"g{n}", "input": "raw"}}
    return {"delta": {"tool_calls": [wire]}}, [("call", f"g{n} c{n} custom", None), ("tool_call", "raw", None)]


def call_with_logprobs(n: int) -> tuple[Chunk, list[Said]]:
    chunk, deltas = call(n)
    return {**chunk, "logprobs": logprobs(n)}, deltas


def empty(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"content": ""}, "logprobs": None}, []


def nothing(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {}}, []


def only_beside(n: int) -> tuple[Chunk, list[Said]]:
    return {"delta": {"annotations": [mark(n, "note")]}}, []


def only_logprobs(n: int) -> tuple[Chunk, list[Said]]:
    """A token without text, such as the first bytes of a character."""
    return {"delta": {"content": ""}, "logprobs": logprobs(n)}, []


PIECES: dict[str, Piece] = {
    piece.__name__: piece
    for piece in (
        *(text, text_with_role, text_with_logprobs, text_beside, text_in_parts, thought, thought_with_logprobs),
        *(thought_and_text, thought_and_text_beside, refusal, call, call_beside, call_with_logprobs, custom_call),
        *(empty, nothing, only_beside, only_logprobs),
    )
}
SILENT = ("empty", "nothing", "only_beside", "only_logprobs")
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def chunks(names: tuple[str, ...], reason: str | None = None, pieces: dict[str, Piece] = PIECES) -> list[Chunk]:
    """The chunks of these pieces; the last one has the reason for the end, if there is one."""
    made = [{**HEAD, "choices": [{"index": 0, **pieces[name](n)[0]}]} for n, name in enumerate(names)]
    if reason:
        made[-1]["choices"][0]["finish_reason"] = reason
    return made


END = {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USED = {**HEAD, "choices": [], "usage": COUNTS}


def read(data: bytes) -> list[Event]:
    """The events of a stream, which are the same however its bytes are cut at frames."""
    events = read_by(ChatReader(1 << 20), data)
    check(events)
    assert [*map(repr, read_by_frames(ChatReader(1 << 20), data))] == [*map(repr, events)]
    return events


def all_marks(events: list[Event]) -> list[str]:
    """The marks of all that a stream says."""
    return marks([repr(event) for event in events])


@every("second", PIECES)
def test_each_chunk_says_what_it_says_alone(second: str) -> None:
    """Behind each other one, also if one that says nothing is between them."""
    for first, between in product(PIECES, ((), *((name,) for name in SILENT))):
        names = (first, *between, second)
        events = read(sse(*chunks(names), END, USED, "[DONE]"))
        assert said(events) == [delta for n, name in enumerate(names) for delta in PIECES[name](n)[1]]
        assert all_marks(events) == marks(chunks(names))
        assert isinstance(events[-1], Finish)
        assert (events[-1].reason, events[-1].choices) == ("stop", ())


@every("first", PIECES)
def test_the_end_in_the_same_chunk_loses_nothing(first: str) -> None:
    """What stands beside the last delta is said of the delta or of the end."""
    for last in PIECES:
        names = (first, last)
        for reason, ends in (("stop", [USED, "[DONE]"]), ("content_filter", ["[DONE]"]), ("stop", [])):
            events = read(sse(*chunks(names, reason), *ends))
            wanted = [delta for n, name in enumerate(names) for delta in PIECES[name](n)[1]]
            assert [delta[:2] for delta in said(events)] == [delta[:2] for delta in wanted]
            assert all_marks(events) == marks(chunks(names))
            assert isinstance(events[-1], Finish)
            assert events[-1].reason == reason
            assert (events[-1].usage is None) == (USED not in ends)


@every("first", PIECES)
def test_a_stream_says_what_the_whole_answer_says(first: str) -> None:
    for second in PIECES:
        names = (first, second)
        message: dict[str, Any] = {"role": "assistant", "content": [], "reasoning_content": "", "refusal": ""}
        for n, name in enumerate(names):
            delta = PIECES[name](n)[0]["delta"]
            content = delta.get("content") or []
            message["content"] += [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["reasoning_content"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
            message["refusal"] += delta.get("refusal") or ""
            message.setdefault("tool_calls", []).extend(delta.get("tool_calls") or ())
        whole = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": COUNTS}
        streamed = fold(read(sse(*chunks(names), END, USED, "[DONE]")))
        read_whole = ChatProtocol().read_reply(json.dumps(whole).encode())
        (ours,), (theirs,) = streamed.choices, read_whole.choices
        wanted = by_kind(theirs)
        if "text_in_parts" in names and any(name.startswith("thought") for name in names):
            del wanted["Reasoning"]  # two places of one message, whose order it cannot say
        assert {key: by_kind(ours)[key] for key in wanted} == wanted
        assert streamed.usage == read_whole.usage


# --- what stands beside the choices ---------------------------------------------------------------------------------

TOPS: dict[str, Chunk] = {
    "nothing": {},
    "counts": {"usage": COUNTS},
    "no_counts": {"usage": None},
    "fingerprint": {"system_fingerprint": "m9-print"},
    "field": {"x_top": "m9-top"},
    "noise": {"obfuscation": "zzz"},
}


@every("place", [0, 1, 2])
@every("piece", ["text", "text_with_logprobs", "thought", "call", "empty", "only_beside"])
@every("top", TOPS)
def test_a_field_of_a_chunk_takes_nothing_from_its_deltas(top: str, piece: str, place: int) -> None:
    names = ("text", "text", "text")
    names = (*names[:place], piece, *names[place + 1 :])
    made = chunks(names)
    made[place] |= TOPS[top]
    events = read(sse(*made, END, "[DONE]"))
    assert said(events) == [delta for n, name in enumerate(names) for delta in PIECES[name](n)[1]]
    start, last = events[0], events[-1]
    assert isinstance(start, Start)
    assert isinstance(last, Finish)
    assert (last.usage is not None) == (top == "counts")
    if place == 0:
        assert marks(start.extra) == marks(TOPS[top])
    elif piece in ("empty", "call"):
        assert marks(last.extra) == marks(TOPS[top])
    elif piece == "only_beside":
        assert {*marks(TOPS[top])} <= {*marks([repr(event) for event in events if isinstance(event, Opaque | Finish)])}
    else:  # it is about the chunk's tokens: rule 5
        assert not marks(last.extra)


# --- calls that come in several chunks ------------------------------------------------------------------------------

ID, NAME = {"id": "c"}, {"function": {"name": "f", "arguments": ""}}
HALF, REST = {"function": {"arguments": '{"a":'}}, {"function": {"arguments": "1}"}}
FIRST, SECOND, THIRD = ({f"x_{word}": f"m0-{word}"} for word in ("first", "second", "third"))
WAYS: dict[str, list[dict[str, Any]]] = {
    "at once": [{**ID, **FIRST, **SECOND, **THIRD, "function": {"name": "f", "arguments": '{"a":1}'}}],
    "fields with each": [{**ID, **NAME, **FIRST}, {**HALF, **SECOND}, {**REST, **THIRD}],
    "fields alone": [{**ID, **NAME}, FIRST, HALF, SECOND, REST, THIRD],
    "fields before the name": [{**ID, **FIRST}, SECOND, {**NAME, **THIRD}, HALF, REST],
    "arguments before the name": [{**ID, **HALF, **FIRST}, {**NAME, **SECOND}, {**REST, **THIRD}],
    "id and name each time": [{**ID, **NAME, **way} for way in (FIRST, SECOND, THIRD)] + [HALF, REST],
    "everything so far each time": [
        {**ID, **field, "function": {"name": "f", "arguments": so_far}}
        for so_far, field in (('{"a"', FIRST), ('{"a":1', SECOND), ('{"a":1}', THIRD))
    ],
}


@every("between", ["", *PIECES])
@every("way", WAYS)
def test_a_call_in_pieces_is_the_call(way: str, between: str) -> None:
    """With other chunks between its own, all its fields kept."""
    deltas = [{"tool_calls": [{"index": 9, **wire}]} for wire in WAYS[way]]
    frames: list[Chunk] = []
    for n, delta in enumerate(deltas):
        frames.append({**HEAD, "choices": [{"index": 0, "delta": delta}]})
        frames += [{**HEAD, "choices": [{"index": 0, **PIECES[between](n)[0]}]}] if between else []
    for ends in ([END], []):
        if not ends:
            frames[-1]["choices"][0]["finish_reason"] = "stop"
        events = read(sse(*frames, *ends, "[DONE]"))
        (use,) = [use for use in fold(events).calls if use.call_id == "c"]
        assert (use.name, use.arguments) == ("f", '{"a":1}')
        assert use.extra == {"chat": {**FIRST, **SECOND, **THIRD}}


# --- several answers ------------------------------------------------------------------------------------------------


@every("together", [True, False])
@every("first", PIECES)
def test_two_answers_keep_their_own(first: str, together: bool) -> None:
    """Whether their chunks come in turn or hold a piece of each. A limit cuts what comes last: half a text of a custom
    tool is left out (C18)."""
    for second in PIECES:
        pairs = [(first, second), (second, first), (first, first)]
        made = [{**HEAD, "choices": [{"index": i, **PIECES[name](2 * n + i)[0]} for i, name in enumerate(pair)]} for n, pair in enumerate(pairs)]  # fmt: skip
        if not together:
            made = [{**HEAD, "choices": [choice]} for chunk in made for choice in chunk["choices"]]
        ends = [{**HEAD, "choices": [{"index": i, "delta": {}, "finish_reason": why}]} for i, why in ((1, "length"), (0, "stop"))]  # fmt: skip
        events = read(sse(*made, *ends, "[DONE]"))
        reply = fold(events)
        assert [choice.reason for choice in reply.choices] == ["stop", "length"]
        for index, choice in enumerate(reply.choices):
            wanted = [delta for n, pair in enumerate(pairs) for delta in PIECES[pair[index]](2 * n + index)[1]]
            for kind, place in (("Text", "text"), ("Reasoning", "reasoning"), ("Refusal", "refusal")):
                assert by_kind(choice)[kind] == "".join(delta[1] for delta in wanted if delta[0] == place)
            spoke = [pair[index] for n, pair in enumerate(pairs) if PIECES[pair[index]](2 * n + index)[1]]
            cut = choice.reason == "length" and spoke[-1:] == ["custom_call"]
            assert len(by_kind(choice)["calls"]) == sum(delta[0] == "call" for delta in wanted) - cut
        assert all_marks(events) == marks(made)


# --- and written again ----------------------------------------------------------------------------------------------


@every("first", PIECES)
def test_what_was_read_is_written_with_all_that_stands_beside(first: str) -> None:
    """Of each delta, and of an end in the same chunk."""
    for second in PIECES:
        for reason, ends in (("stop", []), (None, [END])):
            events = read(sse(*chunks((first, second, first), reason), *ends, USED, "[DONE]"))
            again = read(wires.write(events, wires.options(usage=True)))
            assert said(again) == said(events)
            assert all_marks(again) == all_marks(events)
            assert fold(again).usage == fold(events).usage
