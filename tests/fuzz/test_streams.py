"""Any bytes from a model server: readers and scanners never raise, and what they give is a stream by the grammar of
events."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import open_scanner
from toolwire.errors import GatewayError
from toolwire.events import Event, Fault, Finish, Start
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.stream_grammar import check
from toolwire.testing import chunk, frame

FORMATS = ["sentinel", "hermes", "fenced_json", "bare_json"]
PROTOCOLS = [ChatProtocol(), CompletionsProtocol()]
GOOD = [
    frame(chunk({"role": "assistant", "content": ""})),
    frame(chunk({"content": "Hello <tool_call>"})),
    frame(
        chunk(
            {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]}
        )
    ),
    frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})),
    frame(chunk({"reasoning_content": "hm"})),
    frame({"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": None}]}),
    frame(chunk({}, "stop")),
    frame({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    frame({"error": {"message": "m"}}),
    frame("[DONE]"),
    b": comment\n\n",
    b"event: error\n",
    b"\r\n",
    b"\xef\xbb\xbf",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "tool_calls",
                    "index",
                    "id",
                    "function",
                    "name",
                    "arguments",
                    "finish_reason",
                    "usage",
                    "text",
                    "error",
                    "message",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
FRAMES = st.one_of(
    st.sampled_from(GOOD),
    JSON.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    JSON.map(lambda value: b"data: " + json.dumps({"choices": [{"index": 0, "delta": value}]}).encode() + b"\n\n"),
    st.binary(max_size=12),
)


@st.composite
def wires(draw: st.DrawFn) -> list[bytes]:
    """Frames, good and bad, damaged in places and cut anywhere."""
    wire = b"".join(draw(st.lists(FRAMES, max_size=8)))
    for at, new in draw(st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=2)), max_size=3)):
        wire = wire[: at % (len(wire) + 1)] + new + wire[at % (len(wire) + 1) + 1 :]
    points = sorted(
        {0, len(wire), *(cut % (len(wire) + 1) for cut in draw(st.lists(st.integers(0, 4000), max_size=5)))}
    )
    return [wire[a:b] for a, b in pairwise(points)]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
@given(wire=wires())
def test_readers_take_anything(protocol: ServerSide, wire: list[bytes]) -> None:
    reader = protocol.reader(frame_bytes=2000)
    events: list[Event] = [event for data in wire for event in reader.feed(data)]
    events += reader.finish()
    assert isinstance(events[-1], Finish | Fault)
    if isinstance(events[-1], Finish) or any(isinstance(event, Start) for event in events):
        check(events)


def frames_of(wire: bytes) -> list[bytes]:
    return re.split(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)", wire)


@given(wire=wires())
def test_a_relay_takes_anything_and_invents_nothing(wire: list[bytes]) -> None:
    relay = Relay(ChatProtocol(), frame_bytes=2000)
    out = b"".join(relay.feed(data) for data in wire)
    said = iter(frames_of(b"".join(wire)))
    for one in filter(None, frames_of(out)):  # in their order, some left out (R29.1)
        assert one in said or b'"delta":{}' in one
    if relay.fault is None:
        relay.finish()
    assert relay.ended or relay.fault is not None or b"finish_reason" in out


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
@given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whole_answers_are_read_or_refused(protocol: ServerSide, body: bytes) -> None:
    try:
        assert protocol.read_reply(body).choices
    except GatewayError as error:
        code = error.code
    else:
        return
    assert code in ("upstream_invalid_response", "upstream_error", "context_length_exceeded")


TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.sampled_from(
            [
                b"<tool_call>",
                b"</tool_call>",
                b'{"name":"f","arguments":',
                b'"{}"',
                b"{",
                b"}",
                b'"',
                b"\\",
                b"```json\n",
                b"```",
                b"<think>",
                b"</think>",
                b'{"tool_calls":[',
                b"\xf0\x9f",
                b"\xed\xa0\xbd",
                b" \n",
            ]
        ),
    ),
    max_size=14,
)


@pytest.mark.parametrize("format", FORMATS)
@given(pieces=TEXTS, truncated=st.booleans())
def test_scanners_take_anything(format: str, pieces: list[bytes], truncated: bool) -> None:
    """As bytes in these pieces; and as one text the same comes out."""
    scanner = open_scanner(format, ["f"])
    events: list[Event] = [event for piece in pieces for event in scanner.feed(piece)]
    events += scanner.finish(truncated=truncated)
    check([Start("a", "b", 0), *events, Finish()])
    whole = open_scanner(format, ["f"])
    at_once = [*whole.feed(b"".join(pieces).decode("utf-8", "replace")), *whole.finish(truncated=truncated)]
    assert said(events) == said(at_once)


def said(events: list[Event]) -> tuple[str, int]:
    """All text, that of calls included, and the number of blocks that are not text."""
    text = "".join(getattr(event, "text", "") for event in events)
    return text, sum(getattr(event, "name", None) is not None for event in events)
