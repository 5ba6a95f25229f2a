"""Numbers of model servers that are too large, too small, or none: every number of every frame and body, one at a time.

The wires are what servers really send, so a field that is added to one of them is covered by itself. Bounded is what
the reading makes (events, bytes, memory), not how long it takes.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from tests.protocols import responses_wires, wires
from tests.protocols.corners import read_by
from tests.protocols.messages_wires import MESSAGES
from tests.protocols.responses_wires import RESPONSES
from tests.protocols.test_corners_messages_read import answer
from tests.protocols.wires import CHAT
from toolwire.errors import BackendFault, GatewayError
from toolwire.events import BlockKind, Event, Fault, Finish, Open, Start, StreamGrammarError
from toolwire.folding import fold, unfold
from toolwire.model import ModelReply
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.protocols.responses.writer import ResponsesWriter
from toolwire.protocols.shared.call_deltas import CallDeltas
from toolwire.protocols.shared.numbers import MAX_CALLS, MAX_CHOICES, MAX_PARTS, index_of, usage_of, whole_number
from toolwire.protocols.shared.wire import MAX_ANSWER_DEPTH, dump, load
from toolwire.stream_grammar import check

GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = CompletionsProtocol()
LARGE = "30000000"
HOSTILE = (
    *(LARGE, "-1", "-0", "1", "127", "128", "1023", "1024", "4095", "4096", "2147483648", "1000000000000"),
    *("9007199254740993", "9223372036854775808", "1" + "0" * 30, "-1" + "0" * 30, "1" + "0" * 400, "-1" + "0" * 400),
    *("0.0", "0.5", "1e3", "1e12", "1e308", "-1e308", "1e400", "-1e400", "NaN", "Infinity", "-Infinity"),
    *("true", "false", "null", '"0"', '"1000000000000"', "[]", "[0]", "{}"),
)
"""What may stand in the place of a number."""

MEMORY_BYTES = 3_000_000
"""More than any of it takes: 4096 items of nothing are two megabytes."""
_MARK = "@number@"

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
USAGE = {
    "prompt_tokens": 1,
    "completion_tokens": 2,
    "total_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 1, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 0},
}
LOGPROBS = {
    "content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1.5}]}]
}


def _choice(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "logprobs": None, "finish_reason": None, **fields}


def _chunk(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [*choices],
        **fields,
    }


CHAT_STREAM: list[dict[str, Any]] = [
    _chunk(_choice(delta={"role": "assistant", "content": ""}), prompt_filter_results=[{"prompt_index": 0}]),
    _chunk(_choice(delta={"reasoning_content": "hm"}, logprobs=LOGPROBS)),
    _chunk(_choice(delta={"content": "Hello"}, logprobs=LOGPROBS, token_ids=[1, 2]), usage=USAGE),
    _chunk(_choice(index=1, delta={"content": "other"})),
    _chunk(_choice(delta={"tool_calls": [CALL, {**CALL, "index": 1, "id": "d"}]}), timings={"predicted_ms": 1.5}),
    _chunk(_choice(delta={"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}], "function_call": None})),
    _chunk(_choice(delta={"audio": {"expires_at": 1}})),
    _chunk(_choice(delta={}, finish_reason="stop", stop_reason=5), _choice(index=1, delta={}, finish_reason="length")),
    _chunk(usage=USAGE, service_tier="x"),
    {"x": 1, "unknown": {"size": 5}},
]
TEXT_STREAM: list[dict[str, Any]] = [
    {"id": "cmpl-1", "created": 1, "choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"], "text_offset": [0]}}]},
    {"id": "cmpl-1", "created": 1, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": USAGE},
]  # fmt: skip
CHAT_WHOLE: list[dict[str, Any]] = [
    {
        **_chunk(
            _choice(
                message={"role": "assistant", "content": "Hi", "tool_calls": [CALL]},
                logprobs=LOGPROBS,
                finish_reason="stop",
            ),
            _choice(index=1, message={"content": "Ho", "function_call": {"name": "f", "arguments": {"n": 1}}}),
        ),
        "usage": USAGE,
        "timings": {"prompt_n": 1, "predicted_ms": 0.5},
    },
    {"id": "x", "created": 1, "choices": [{"index": 0, "text": "older", "finish_reason": "stop"}], "usage": USAGE},
]


def _golden(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def _responses_whole() -> list[dict[str, Any]]:
    return [
        event["response"] for name in ("all-kinds", "incomplete") for event in _golden(f"responses-{name}.sse")[-1:]
    ]


STREAMS: dict[str, tuple[ServerSide, list[list[dict[str, Any]]]]] = {
    "chat": (CHAT, [CHAT_STREAM, *(_golden(path.name) for path in sorted(GOLDEN.glob("chat-*.sse")))]),
    "completions": (TEXT, [TEXT_STREAM]),
    "messages": (MESSAGES, [_golden(path.name) for path in sorted(GOLDEN.glob("messages-*.sse"))]),
    "responses": (RESPONSES, [_golden(path.name) for path in sorted(GOLDEN.glob("responses-*.sse"))]),
}
WHOLES: list[tuple[ServerSide, dict[str, Any]]] = [
    *((CHAT, body) for body in CHAT_WHOLE),
    *((TEXT, body) for body in CHAT_WHOLE),
    (MESSAGES, answer(("text", "thought", "call"))),
    *((RESPONSES, body) for body in _responses_whole()),
]


def variants(value: Any, seen: set[str]) -> Iterator[tuple[str, str]]:
    """The JSON text of `value` with a mark in the place of one number, for each number in a place that was not `seen`,
    and the place."""

    def visit(node: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(node, bool):
            return
        if isinstance(node, int | float):
            yield path, _MARK
        for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            for where, changed in visit(item, f"{path}.{key}"):
                copy = dict(node) if isinstance(node, dict) else list(node)
                copy[key] = changed
                yield where, copy

    for where, changed in visit(value, value.get("type") or re.sub(r"[^a-z_]+", " ", json.dumps(value.get("choices")))):
        if where not in seen:
            seen.add(where)
            yield where, json.dumps(changed)


def some(turn: int) -> tuple[str, ...]:
    """The largest that would still end, and a sixth of the others in turn."""
    return (LARGE, *HOSTILE[1 + turn % 6 :: 6])


def marked(text: str, number: str) -> bytes:
    return text.replace(f'"{_MARK}"', number).encode()


def wire_of(frames: Sequence[bytes]) -> bytes:
    return b"".join(b"data: %b\n\n" % frame for frame in frames) + b"data: [DONE]\n\n"


class Measured:
    """What it took: Python's memory at its highest. Measured for the largest number that would still end; others would
    take longer."""

    peak = 0

    def __init__(self, number: str = LARGE) -> None:
        self._on = number == LARGE

    def __enter__(self) -> Measured:
        if self._on:
            tracemalloc.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._on:
            _, self.peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()


def check_events(events: list[Event], usual: int) -> None:
    """A whole answer or a clean fault, which every writer can write, and not much of it."""
    check(events)
    assert len(events) <= usual + 20
    last = events[-1]
    if isinstance(last, Fault):
        check_fault(last.error)
    else:
        assert isinstance(last, Finish)
        reply = fold(events)
        assert len(reply.choices) <= MAX_CHOICES
        check_written(events, reply)
    assert len(ChatWriter(wires.options(usage=True)).feed(events)) < 200_000
    assert len(ResponsesWriter(responses_wires.options()).feed(events)) < 200_000


def check_written(events: list[Event], reply: ModelReply) -> None:
    usage = reply.usage
    assert usage is None or 0 <= usage.total_tokens < 2**31
    assert 0 <= reply.created < 2**53
    assert len(CHAT.write_reply(reply, wires.options())) < 200_000
    assert len(RESPONSES.write_reply(reply, responses_wires.options())) < 200_000
    assert len(unfold(reply)) <= len(events) + 3 * len(reply.choices) + 3


def check_fault(error: GatewayError) -> None:
    assert isinstance(error, BackendFault)
    assert error.code in ("upstream_invalid_response", "upstream_error")
    if error.code == "upstream_invalid_response":
        assert re.search(r"index|choices|call|items|JSON", error.message)
    assert len(error.message) < 500


@pytest.mark.parametrize("name", STREAMS)
def test_law_a_number_in_a_stream_costs_nothing(name: str) -> None:
    """Each place of a protocol's streams once."""
    protocol, streams = STREAMS[name]

    def read(data: bytes) -> list[Event]:
        return read_by(protocol.reader(frame_bytes=1 << 20), data)

    seen: set[str] = set()
    turn = 0
    for frames in streams:
        plain = [json.dumps(frame).encode() for frame in frames]
        usual = len(read(wire_of(plain)))
        check_events(read(wire_of(plain)), usual)  # what is made on first use is no affair of a number
        for place, frame in enumerate(frames):
            for where, text in variants(frame, seen):
                turn += 1
                for number in some(turn):
                    data = wire_of([*plain[:place], marked(text, number), *plain[place + 1 :]])
                    with Measured(number) as measured:
                        events = read(data)
                        check_events(events, usual)
                    assert measured.peak < MEMORY_BYTES, (where, number)
    assert seen


def test_law_a_number_in_a_whole_answer_costs_nothing() -> None:
    seen: dict[ServerSide, set[str]] = {CHAT: set(), TEXT: set(), MESSAGES: set(), RESPONSES: set()}
    turn = 0
    for protocol, body in WHOLES:
        usual = len(unfold(protocol.read_reply(json.dumps(body).encode())))
        check_events(unfold(protocol.read_reply(json.dumps(body).encode())), usual)
        for where, text in variants(body, seen[protocol]):
            turn += 1
            for number in some(turn):
                with Measured(number) as measured:
                    try:
                        reply = protocol.read_reply(marked(text, number))
                    except GatewayError as error:
                        check_fault(error)
                    else:
                        check_events(unfold(reply), usual)
                assert measured.peak < MEMORY_BYTES, (where, number)


@every("number", HOSTILE)
def test_a_stream_and_a_whole_answer_agree(number: str) -> None:
    """On the index of a choice: both are a fault, or both hold the same."""
    whole = b'{"id":"x","choices":[{"index":%b,"message":{"content":"Hi"},"finish_reason":"stop"}]}' % number.encode()
    stream = b'{"id":"x","choices":[{"index":%b,"delta":{"content":"Hi"},"finish_reason":"stop"}]}' % number.encode()
    for choices in (1, 3, MAX_CHOICES):
        events = read_by(CHAT.reader(frame_bytes=1 << 20, choices=choices), wire_of([stream]))
        if isinstance(events[-1], Fault):
            with pytest.raises(BackendFault) as caught:
                CHAT.read_reply(whole, choices=choices)
            assert caught.value.message == events[-1].error.message
        else:
            reply = CHAT.read_reply(whole, choices=choices)
            assert fold(events).choices == reply.choices
            assert len(reply.choices) <= choices


def test_choices_that_come_in_another_order_are_put_in_theirs() -> None:
    body = {"choices": [{"index": 2, "message": {"content": "c"}}, {"index": 0, "message": {"content": "a"}}]}
    reply = CHAT.read_reply(json.dumps(body).encode())
    assert [[getattr(part, "text", None) for part in choice.parts] for choice in reply.choices] == [["a"], [], ["c"]]


def test_more_than_was_asked_for_is_a_fault() -> None:
    frames = [json.dumps(_chunk(_choice(index=i, delta={"content": "x"}))).encode() for i in range(3)]
    reader = CHAT.reader(frame_bytes=1 << 20, choices=2)
    *_, last = reader.feed(wire_of(frames))
    assert isinstance(last, Fault)
    assert "a choice with the index 2: expected a whole number from 0 to 1" in last.error.message
    unnumbered = json.dumps({"choices": [{"delta": {"content": "x"}}] * 3}).encode()
    *_, last = CHAT.reader(frame_bytes=1 << 20, choices=2).feed(wire_of([unnumbered]))
    assert isinstance(last, Fault)
    assert "more than 2 choices" in last.error.message
    whole = {"choices": [{"message": {"content": "x"}}] * 3}
    with pytest.raises(BackendFault, match="more than 2 choices"):
        CHAT.read_reply(json.dumps(whole).encode(), choices=2)


@every("streamed", [True, False])
def test_calls_and_items_without_end(streamed: bool) -> None:
    """One frame may hold thousands of them."""
    calls = [{"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}} for i in range(MAX_CALLS + 1)]
    items = [{"type": "x", "id": f"i{i}"} for i in range(MAX_PARTS + 1)]
    block = {"type": "text", "text": "x"}
    starts = [{"type": "content_block_start", "index": i % 2, "content_block": block} for i in range(MAX_PARTS + 1)]
    for protocol, whole, frames in (
        (CHAT, {"choices": [{"message": {"tool_calls": calls}}]}, [{"choices": [{"delta": {"tool_calls": calls}}]}]),
        (RESPONSES, {"output": items}, [{"type": "response.completed", "response": {"output": items}}]),
        (MESSAGES, {"type": "message", "content": [block] * len(starts)}, starts),
    ):
        if streamed:
            wire = wire_of([json.dumps(frame).encode() for frame in frames])
            *_, last = protocol.reader(frame_bytes=1 << 24).feed(wire)
            assert isinstance(last, Fault)
            error: GatewayError = last.error
        else:
            with pytest.raises(BackendFault) as caught:
                protocol.read_reply(json.dumps(whole).encode())
            error = caught.value
        assert error.code == "upstream_invalid_response"
        assert re.search(rf"more than ({MAX_CALLS} calls|{MAX_PARTS} (items|blocks))", error.message)


def test_items_without_a_number_cost_no_more_the_more_there_are() -> None:
    """An item is found by its id, not by looking at all."""
    looked_at = 0

    class Ident(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    reader = RESPONSES.reader(frame_bytes=1 << 20)
    for number in range(1000):
        item = {"type": "message", "id": Ident(f"i{number}")}
        reader._item({"item": item})  # type: ignore[attr-defined]  # what a frame of this kind leads to
    assert len(reader._items) == 1000  # type: ignore[attr-defined]
    assert looked_at < 5000


def test_an_announced_item_never_takes_the_place_of_a_numbered_one() -> None:
    frames = [
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "a"}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "one"},
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "id": "b", "name": "f", "call_id": "c"},
        },
        {"type": "response.function_call_arguments.delta", "item_id": "b", "delta": "{}"},
        {"type": "response.completed", "response": {}},
    ]
    reply = fold(responses_wires.read(wire_of([json.dumps(frame).encode() for frame in frames])))
    assert [type(part).__name__ for part in reply.choices[0].parts] == ["Text", "ToolUse"]


def test_pieces_that_look_like_an_end_are_not_parsed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gives no ids and repeats the name may begin another call with each piece."""
    from toolwire.protocols.shared import call_deltas as module

    parsed = 0

    def counting(text: str) -> bool:
        nonlocal parsed
        parsed += len(text)
        return is_json(text)

    is_json = module.is_json
    monkeypatch.setattr(module, "is_json", counting)
    drafts = CallDeltas()
    pieces = ['{"a":"}', *["{}" * 10] * 20_000]
    for piece in pieces:
        drafts.of(0, 0, "", "f").take(piece)
    assert len(drafts.drafts) == 1
    assert parsed < 20 * sum(map(len, pieces))


def test_repeated_names_begin_a_call_where_the_one_before_is_whole() -> None:
    drafts = CallDeltas()
    for piece in ('{"code":"if x { y }', " } else { z }", '"}', '{"b":', "[1]}", " "):
        drafts.of(0, 0, "", "f").take(piece)
    assert [draft.arguments for draft in drafts.drafts] == ['{"code":"if x { y } } else { z }"}', '{"b":[1]}', " "]


def test_events_of_a_choice_that_cannot_be() -> None:
    """Backends of plug-ins give events, not frames."""
    events = [Start("x", "m", 1), Open(0, BlockKind.TEXT, choice=10**12), Finish()]
    with pytest.raises(StreamGrammarError, match="choice 1000000000000"):
        fold(events)


def test_what_an_index_is() -> None:
    assert [index_of(value, 3, "a call") for value in (0, 2, 2.0, None, True, "1", [0], "x", "", "-1", "9" * 5000)] == [
        *(0, 2, 2, None, None, 1, None, None, None, None, None),
    ]
    for value in (3, "3", -1, 0.5, 10**400, -1e308, float("inf"), float("nan")):
        with pytest.raises(BackendFault, match=r"a call with the index .* from 0 to 2\.") as caught:
            index_of(value, 3, "a call")
        assert caught.value.code == "upstream_invalid_response"
        assert len(caught.value.message) < 400


def test_what_a_count_is() -> None:
    assert [
        whole_number(v) for v in (5, 5.9, 0, -1, True, "5", None, 2**53 + 1, float("inf"), float("nan"), 10**400)
    ] == [*(5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    usage = usage_of(1, 2.0, cached=None, stored="3", reasoning=True)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (1, 2, 0, 0)
    for wrong in (-1, 10**9, 1e300, float("nan")):
        assert usage_of(1, wrong, cached=0, stored=0, reasoning=0) is None


def test_what_was_read_can_be_written() -> None:
    assert dump(load('{"a":[NaN,-Infinity,1e400,1.5],"b":"\\ud83d"}')) == '{"a":[null,null,null,1.5],"b":"�"}'.encode()
    deep = "[" * MAX_ANSWER_DEPTH + "]" * MAX_ANSWER_DEPTH
    assert dump(load(deep)) == deep.encode()
    for text in ("[" + deep + "]", b"[" * 900 + b"]" * 900, "[" * 10**5 + "]" * 10**5):
        with pytest.raises(ValueError, match="nested more than 200 levels deep"):
            load(text)
    assert load("[" + ",".join(["[]"] * 1000) + "]") == [[]] * 1000
