"""The beginning of a streamed answer: kept until it says something, and then given as it came."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.strategies import split
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.testing import chunk, frame
from toolwire.upstream.pool.first_content import MOST_BYTES, FirstContentBuffer

ROLE = chunk({"role": "assistant", "content": ""})
CHAT, RESPONSES = ChatProtocol(), ResponsesProtocol()
SILENT: list[Any] = [
    ROLE,
    chunk({"role": "assistant"}),
    chunk({"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "reasoning_content": ""}),
    chunk({"role": "assistant", "content": "", "tool_calls": []}),
    chunk({}),
    {"id": "", "choices": [], "prompt_filter_results": [{}]},
    {"id": "x", "choices": [{"index": 0, "text": ""}]},
    {**ROLE, "usage": {"prompt_tokens": 3}},
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.in_progress", "response": {"id": "r"}},
    {"id": "x", "choices": ["what"]},
    {"id": "x", "choices": [{"delta": "what"}]},
    {"id": "x", "choices": None},
    {"type": "progress"},
]
SPEAKING: list[Any] = [
    chunk({"content": " "}),
    chunk({"role": "assistant", "content": "Hi"}),
    chunk({"reasoning_content": "hm"}),
    chunk({"refusal": "no"}),
    chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}),
    chunk({"audio": {"id": "a"}}),
    chunk({}, "stop"),
    {"id": "x", "choices": [{"index": 0, "text": "a"}]},
    {"id": "x", "choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"content": "a"}}]},
    {"error": {"message": "full"}},
    {**ROLE, "error": "full"},
    {"object": "error", "message": "full", "choices": []},
    {"type": "response.output_text.delta", "delta": "a"},
    [],
    "text",
]


def is_empty_frame(name: str | None, data: bytes) -> bool:
    return (RESPONSES if b'"response.' in data else CHAT).is_empty_frame(name, data)


@every("value", SILENT)
def test_what_says_nothing(value: Any) -> None:
    assert is_empty_frame(None, orjson.dumps(value))


@every("data", [*map(orjson.dumps, SPEAKING), b"[DONE]", b"no json"])
def test_what_says_something(data: bytes) -> None:
    assert not is_empty_frame(None, data)


LASTS = [*map(frame, SPEAKING[:8]), frame("[DONE]"), b"data: no json\n\n", b"event: error\ndata: {}\n\n"]


@examples(2)
@given(
    last=st.sampled_from(LASTS),
    silent=st.lists(st.sampled_from([*map(frame, SILENT), b": hello\n\n", b"\n", b"id: 1\n\n"]), max_size=5),
    cuts=st.lists(st.integers(0, 5000), max_size=6),
)
def test_all_comes_with_the_first_that_says_something(last: bytes, silent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(silent) + last
    beginning = FirstContentBuffer(is_empty_frame)
    got = [beginning.feed(piece) for piece in split(data, cuts)]
    assert b"".join(got) == data
    assert beginning.over
    assert all(not piece for piece in got[:-1])


def test_a_last_frame_needs_no_blank_line() -> None:
    for end in (b"data: [DONE]", b"data: [DONE]\n", frame(chunk({"content": "a"})).rstrip()):
        beginning = FirstContentBuffer(is_empty_frame)
        assert beginning.feed(frame(ROLE) + end) == b""
        assert beginning.finish() == frame(ROLE) + end
    beginning = FirstContentBuffer(is_empty_frame)
    assert beginning.feed(frame(ROLE)) == b""
    assert beginning.finish() == b""
    assert not beginning.over


@every("endless", [b": hello\n\n", frame(ROLE), b": " + b"x" * 99])
def test_not_much_is_kept(endless: bytes) -> None:
    beginning = FirstContentBuffer(is_empty_frame)
    fed = 0
    while not beginning.feed(endless):
        fed += len(endless)
        assert fed <= MOST_BYTES + len(endless)
