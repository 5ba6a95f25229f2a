"""Corners of the reader of Responses: item x neighbour x way of coming x end.

The oracle is `read_reply`: however the events of an answer come, and whichever a server leaves out, they amount to the
resource at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cases import every
from tests.protocols.corners import mark, marks, read_by, read_by_frames, sse
from toolwire.events import Delta, Event
from toolwire.folding import fold
from toolwire.model import EMPTY, ModelReply
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.responses.reader import ResponsesReader
from toolwire.stream_grammar import check, normalise

Wire = dict[str, Any]


def message(n: int, *content: Wire, **fields: Any) -> Wire:
    item = {"type": "message", "id": f"msg_{n}", "status": "completed", "role": "assistant"}
    return {**item, "content": list(content), **fields}


def part(text: str, **fields: Any) -> Wire:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [], **fields}


def called(n: int, **fields: Any) -> Wire:
    return {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": f"f{n}", "status": "completed", **fields}  # fmt: skip


def thought(n: int, *summary: str, text: str = "", **fields: Any) -> Wire:
    content = {"content": [{"type": "reasoning_text", "text": text}]} if text else {}
    shown = [{"type": "summary_text", "text": piece} for piece in summary]
    return {"type": "reasoning", "id": f"rs_{n}", "summary": shown, **content, **fields}


def note(n: int) -> list[Wire]:
    return [{"type": "url_citation", "url": mark(n, "note"), "start_index": 0, "end_index": 1, "title": "t"}]


def token(n: int) -> list[Wire]:
    return [{"token": mark(n, "token"), "logprob": -0.5, "bytes": [], "top_logprobs": []}]


ITEMS: dict[str, Callable[[int], Wire]] = {
    "text": lambda n: message(n, part(f"text {n}")),
    "blank": lambda n: message(n, part(" \n")),
    "two_texts": lambda n: message(n, part(f"one {n}"), part(f"two {n}")),
    "text_and_refusal": lambda n: message(n, part(f"text {n}"), {"type": "refusal", "refusal": f"no {n}"}),
    "cited": lambda n: message(n, part(f"cited {n}", annotations=note(n))),
    "likely": lambda n: message(n, part(f"likely {n}", logprobs=token(n))),
    "phase": lambda n: message(n, part(f"phase {n}"), phase=mark(n, "phase")),
    "refusal": lambda n: message(n, {"type": "refusal", "refusal": f"no {n}", "x_why": mark(n, "why")}),
    "thought": lambda n: thought(n, text=f"thought {n}"),
    "summary": lambda n: thought(n, f"one {n}", f"two {n}"),
    "sealed": lambda n: thought(n, encrypted_content=mark(n, "sealed")),
    "sealed_summary": lambda n: thought(n, f"sum {n}", text=f"text {n}", encrypted_content=mark(n, "sealed")),
    "call": lambda n: called(n, arguments='{"a":[1,"é"]}'),
    "call_beside": lambda n: called(n, arguments="{}", x_caller=mark(n, "caller")),
    "grouped": lambda n: called(n, arguments='{"a":1}', namespace=f"group{n}"),
    "no_arguments": lambda n: called(n, arguments=""),
    "custom": lambda n: {"type": "custom_tool_call", "id": f"ctc_{n}", "call_id": f"call_{n}", "name": "g", "input": f"raw {n}", "x_field": mark(n, "field")},
    "own_shell": lambda n: {"type": "shell_call", "id": f"sh_{n}", "call_id": f"call_{n}", "status": "completed", "action": {"commands": [f"ls {n}"], "timeout_ms": None, "max_output_length": None}, "environment": {"type": "local"}, "created_by": mark(n, "by")},
    "own_patch": lambda n: {"type": "apply_patch_call", "id": f"apc_{n}", "call_id": f"call_{n}", "status": "completed", "operation": {"type": "delete_file", "path": f"a{n}"}},
    "searched": lambda n: {"type": "web_search_call", "id": f"ws_{n}", "action": {"query": mark(n, "query")}},
}  # fmt: skip


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def begun(item: Wire) -> Wire:
    """An item as it is announced."""
    shown = {**item, "status": "in_progress"}
    empty = {"content": [], "summary": [], "arguments": "", "input": ""}
    return {**shown, **{key: value for key, value in empty.items() if key in item}}


def deltas(index: int, item: Wire, size: int) -> list[Wire]:
    """The events between the first and the last of an item."""
    about = {"item_id": item.get("id"), "output_index": index}
    out: list[Wire] = []

    def say(kind: str, key: str, text: str, **place: Any) -> None:
        chances = place.pop("logprobs", [])
        for n, piece in enumerate(pieces(text, size)):
            beside = {"logprobs": chances if n == 0 else []} if kind == "output_text" else {}
            out.append({"type": f"response.{kind}.delta", **about, **place, "delta": piece, **beside})
        out.append({"type": f"response.{kind}.done", **about, **place, key: text})

    for place, shown in enumerate(item.get("summary", ())):
        out.append({"type": "response.reasoning_summary_part.added", **about, "summary_index": place, "part": shown})
        say("reasoning_summary_text", "text", shown["text"], summary_index=place)
    for place, shown in enumerate(item.get("content", ())):
        match shown["type"]:
            case "output_text":
                say("output_text", "text", shown["text"], content_index=place, logprobs=shown["logprobs"])
            case "refusal":
                say("refusal", "refusal", shown["refusal"], content_index=place)
            case "reasoning_text":
                say("reasoning_text", "text", shown["text"], content_index=place)
    if "arguments" in item:
        say("function_call_arguments", "arguments", item["arguments"])
    if "input" in item:
        say("custom_tool_call_input", "input", item["input"])
    return out


def usual(index: int, item: Wire, size: int = 4) -> list[Wire]:
    """As OpenAI streams."""
    added = {"type": "response.output_item.added", "output_index": index, "item": begun(item)}
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    return [added, *deltas(index, item, size), done]


def by_characters(index: int, item: Wire) -> list[Wire]:
    """A delta for each character, and an empty one behind each."""
    out = []
    for frame in usual(index, item, 1):
        out.append(frame)
        if frame["type"].endswith(".delta"):
            out.append({**frame, "delta": "", **({"logprobs": []} if "logprobs" in frame else {})})
    return out


def unfinished(index: int, item: Wire) -> list[Wire]:
    """Deltas only, with nothing that ends them. An item that has none would come behind all others."""
    begun_only = [frame for frame in usual(index, item) if not frame["type"].endswith(".done")]
    return begun_only if len(begun_only) > 1 else usual(index, item)


def only_done(index: int, item: Wire) -> list[Wire]:
    """The whole item at once."""
    return usual(index, item)[-1:]


def half_said(index: int, item: Wire) -> list[Wire]:
    """Some of the deltas: the whole item says the rest."""
    added, *middle, done = usual(index, item)
    return [added, *[frame for frame in middle if frame["type"].endswith(".delta")][:1], done]


def again(index: int, item: Wire) -> list[Wire]:
    """Everything between its ends once more behind them."""
    return [*(events := usual(index, item)), *events[1:-1]]


def unindexed(index: int, item: Wire) -> list[Wire]:
    """Without places: a frame says by an id which item it is about."""
    return [{key: value for key, value in frame.items() if key != "output_index"} for frame in usual(index, item)]


def unnamed(index: int, item: Wire) -> list[Wire]:
    """Without ids."""
    return [{key: value for key, value in frame.items() if key != "item_id"} for frame in usual(index, item)]


def unsaid(index: int, item: Wire) -> list[Wire]:
    """Nothing before the resource."""
    return []


WAYS = [usual, by_characters, unfinished, only_done, half_said, again, unindexed, unnamed, unsaid]
ENDS: dict[str, Wire] = {
    "completed": {"status": "completed", "completed_at": 7},
    "cut": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    "filtered": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    "tier": {"status": "completed", "service_tier": "m9-tier", "x_end": "m9-end"},
}
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 1}}


def resource(names: tuple[str, ...], end: str = "completed") -> Wire:
    """The whole answer with these items."""
    output = [ITEMS[name](n) for n, name in enumerate(names)]
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "x_top": "m9-top"}
    return {**head, "output": output, "usage": USAGE, **ENDS[end]}


def frames(whole: Wire, way: Callable[[int, Wire], list[Wire]]) -> list[Wire]:
    """The events of the same."""
    early = {key: value for key, value in whole.items() if key not in ("usage", "completed_at", "incomplete_details")}
    start = {**early, "status": "in_progress", "output": []}
    items = [frame for index, item in enumerate(whole["output"]) for frame in way(index, item)]
    last = {"type": f"response.{whole['status']}", "response": whole}
    return [{"type": "response.created", "response": start}, *items, last]


def read(data: bytes) -> list[Event]:
    """The events of a stream, which are the same however its bytes are cut at frames."""
    events = read_by(ResponsesReader(1 << 20), data)
    check(events)
    assert normalise(read_by_frames(ResponsesReader(1 << 20), data)) == normalise(events)
    return events


def told(reply: ModelReply) -> ModelReply:
    """Without probabilities of tokens: a stream has them beside its deltas."""
    (choice,) = reply.choices
    return replace(reply, choices=(replace(choice, extra=EMPTY),))


@every("way", WAYS)
@every("second", ITEMS)
def test_a_stream_amounts_to_the_resource_at_its_end(second: str, way: Callable[[int, Wire], list[Wire]]) -> None:
    """Between two of each other one, unless the way makes no difference to neighbours."""
    neighbours = ("text", "call") if way in (by_characters, only_done, half_said, again, unsaid) else ITEMS
    for names in ((second,), *((first, second, first) for first in neighbours)):
        whole = resource(names)
        events = read(sse(*frames(whole, way)))
        wanted = ResponsesProtocol().read_reply(json.dumps(whole).encode())
        assert told(fold(events)) == told(wanted)
        assert {*marks([repr(event) for event in events])} == {*marks(whole)}


@every("name", ITEMS)
@every("end", ENDS)
def test_why_it_ended_and_what_is_said_of_the_end(end: str, name: str) -> None:
    whole = resource((name,), end)
    wanted = ResponsesProtocol().read_reply(json.dumps(whole).encode())
    for way in (usual, unfinished, unsaid):
        assert told(fold(read(sse(*frames(whole, way))))) == told(wanted)


def test_probabilities_stand_beside_their_deltas() -> None:
    for names in (("likely",), ("text", "likely"), ("likely", "likely"), ("likely", "call", "likely")):
        events = read(sse(*frames(resource(names), usual)))
        beside = [event.extra for event in events if isinstance(event, Delta) and event.extra]
        wanted = [{"logprobs": {"content": token(n), "refusal": None}} for n, name in enumerate(names) if name == "likely"]  # fmt: skip
        assert beside == wanted


@every("first", [name for name in ITEMS if name != "text_and_refusal"])  # whose end comes too late
def test_items_whose_events_come_in_turn(first: str) -> None:
    for second in ITEMS:
        whole = resource((first, second))
        one, two = (usual(n, item) for n, item in enumerate(whole["output"]))
        turns = [frame for n in range(max(len(one), len(two))) for side in (one, two) for frame in side[n : n + 1]]
        start, *_, last = frames(whole, unsaid)
        reply = fold(read(sse(start, *turns, last)))
        wanted = ResponsesProtocol().read_reply(json.dumps(whole).encode())
        assert sorted(map(repr, reply.choices[0].parts)) == sorted(map(repr, wanted.choices[0].parts))
