"""Frames, items and blocks that are neither answer nor error (R29.1): left out and counted by every reader, and where
bytes pass, and never in a client's stream or a stored answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.protocols.corners import folded, read_by
from toolwire.events import Event, Fault, Finish, Opaque
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.proxied.protocol import ProxiedProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.shared.noise import KINDS, LEFT_OUT
from toolwire.support.offload import OFFLOAD_BYTES
from toolwire.upstream.pool.first_content import FirstContentBuffer

CHAT, TEXT, PASSED = ChatProtocol(), CompletionsProtocol(), ProxiedProtocol("/v1/completions")
MESSAGES, RESPONSES = MessagesProtocol(), ResponsesProtocol()
SERVERS: dict[str, ServerSide] = {
    "chat": CHAT,
    "completions": TEXT,
    "passed": PASSED,
    "messages": MESSAGES,
    "responses": RESPONSES,
}

ODD: dict[str, tuple[bytes, str]] = {
    "comment in data": (b"data: : keepalive\n\n", "comment"),
    "comment without space": (b"data::keep-alive\n\n", "comment"),
    "a word": (b"data: keep-alive\n\n", "keepalive"),
    "a quoted word": (b'data: "ping"\n\n', "keepalive"),
    "blank": (b"data:    \n\n", "empty"),
    "null": (b"data: null\n\n", "empty"),
    "an empty object": (b"data: {}\n\n", "empty"),
    "a spaced empty object": (b"data:  { }\n\n", "empty"),
    "keepalive": (b'data: {"type":"keepalive"}\n\n', "keepalive"),
    "keepalive with a number": (b'data: {"type": "keepalive", "sequence_number": 3}\n\n', "keepalive"),
    "heartbeat": (b'event: heartbeat\ndata: {"type":"vendor.heart_beat"}\n\n', "keepalive"),
    "a named event": (b"event: keepalive\ndata: {}\n\n", "keepalive"),
    "limits": (b'event: codex.rate_limits\ndata: {"type":"codex.rate_limits","plan_type":"pro"}\n\n', "limits"),
    "a warning": (b'data: {"warning":"deprecated"}\n\n', "warning"),
}
CHUNKS: dict[str, tuple[bytes, str]] = {
    "no delta": (b'data: {"id":"x","choices":[{"index":0}]}\n\n', "no_delta"),
    "delta null": (b'data: {"id":"x","choices":[{"index":0,"delta":null,"finish_reason":null}]}\n\n', "no_delta"),
    "Azure's filter": (b'data: {"id":"x","choices":[{"index":0,"finish_reason":null,"content_filter_results":{"hate":{}}}]}\n\n', "no_delta"),
    "no choices": (b'data: {"id":"x","object":"chat.completion.chunk"}\n\n', "other"),
    "ping": (b'data: {"type":"ping"}\n\n', "keepalive"),
    "progress": (b'data: {"type":"progress","percent":3}\n\n', "other"),
}  # fmt: skip
EVENTS: dict[str, tuple[bytes, str]] = {
    "ping": (b'data: {"type":"ping"}\n\n', "keepalive"),
    "its own": (b'data: {"type":"vendor.note","x":1}\n\n', "other"),
    "in their name": (b'data: {"type":"response.heartbeat"}\n\n', "keepalive"),
}
FIT: dict[str, dict[str, tuple[bytes, str]]] = {
    "chat": ODD | CHUNKS,
    "completions": ODD | CHUNKS,
    "passed": {name: odd for name, odd in ODD.items() if odd[1] != "warning"},
    "messages": ODD,
    "responses": ODD | EVENTS,
}
CASES = [
    pytest.param(server, *odd, id=f"{server}-{name}")
    for server, several in FIT.items()
    for name, odd in several.items()
]


def frame(value: Any, event: str | None = None) -> bytes:
    return (b"" if event is None else b"event: %b\n" % event.encode()) + b"data: " + orjson.dumps(value) + b"\n\n"


def of_chat(key: str, said: Any, reason: str | None = None) -> bytes:
    return frame({"id": "x", "model": "m", "choices": [{"index": 0, key: said, "finish_reason": reason}]})


def event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, kind)


DONE = b"data: [DONE]\n\n"
TEXTS = [of_chat("text", "Hel"), of_chat("text", "lo"), of_chat("text", "", "stop"), DONE]
ITEM = {"type": "message", "id": "i", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
USAGE = {"input_tokens": 1, "output_tokens": 1}
STREAMS: dict[str, list[bytes]] = {
    "chat": [of_chat("delta", {"content": "Hel"}), of_chat("delta", {"content": "lo"}), of_chat("delta", {}, "stop"), DONE],
    "completions": TEXTS,
    "passed": TEXTS,
    "messages": [
        event("message_start", message={"id": "msg_1", "model": "m", "content": [], "usage": USAGE}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=USAGE),
        event("message_stop"),
    ],
    "responses": [
        event("response.created", response={"id": "resp_1", "model": "m"}),
        event("response.output_item.added", output_index=0, item={**ITEM, "content": []}),
        event("response.output_text.delta", output_index=0, item_id="i", content_index=0, delta="Hello"),
        event("response.output_item.done", output_index=0, item=ITEM),
        event("response.completed", response={"id": "resp_1", "status": "completed", "output": [ITEM]}),
    ],
}  # fmt: skip


def between(frames: list[bytes], odd: bytes) -> bytes:
    """With `odd` before each frame."""
    return b"".join(odd + one for one in frames)


def read(protocol: ServerSide, data: bytes, step: int) -> tuple[list[Event], Counter[tuple[str, str]]]:
    noted: Counter[tuple[str, str]] = Counter()
    reader = protocol.reader(frame_bytes=1 << 20, note=lambda what, detail: noted.update([(what, detail)]))
    return read_by(reader, data, step), noted


@every(("server", "odd", "kind"), CASES)
def test_every_reader_leaves_it_out_and_counts_it(server: str, odd: bytes, kind: str) -> None:
    frames = STREAMS[server]
    plain, none = read(SERVERS[server], b"".join(frames), 1 << 20)
    assert not none
    for step in (7, 1 << 20):
        events, noted = read(SERVERS[server], between(frames, odd), step)
        assert folded(events) == folded(plain)
        assert [one for one in events if isinstance(one, Opaque | Fault)] == []
        assert isinstance(events[-1], Finish)
        assert noted == {(LEFT_OUT, kind): len(frames)}


@every(("server", "odd", "kind"), CASES)
def test_it_does_not_pass_as_bytes(server: str, odd: bytes, kind: str) -> None:
    frames, data = STREAMS[server], between(STREAMS[server], odd)
    for step in (5, 1 << 20):
        noted: Counter[tuple[str, str]] = Counter()
        relay = Relay(SERVERS[server], 1 << 20, note=lambda what, detail, noted=noted: noted.update([(what, detail)]))  # type: ignore[misc]
        out = b"".join(relay.feed(data[at : at + step]) for at in range(0, len(data), step)) + relay.finish()
        assert (relay.fault, out) == (None, b"".join(frames))
        assert noted == {(LEFT_OUT, kind): len(frames)}


@every(("server", "odd", "kind"), CASES)
def test_another_server_may_still_be_asked(server: str, odd: bytes, kind: str) -> None:
    """It is no beginning of an answer."""
    beginning = FirstContentBuffer(SERVERS[server].is_empty_frame)
    assert beginning.feed(odd) == b""
    assert kind in KINDS


@pytest.mark.parametrize("server", SERVERS)
def test_streams_without_it_pass_byte_for_byte(server: str) -> None:
    data = b": comment\n\n" + b"".join(STREAMS[server])
    for ends in (data, data.replace(b"\n", b"\r\n")):
        relay = Relay(SERVERS[server], 1 << 20)
        assert relay.feed(ends) + relay.finish() == ends


@pytest.mark.parametrize("server", SERVERS)
def test_it_is_bounded_like_anything_else(server: str) -> None:
    """A large frame is looked at in a thread, one beyond the limit is a fault (R29.4)."""
    odd = b'data: {"type":"keepalive","x":"' + b"y" * (2 * OFFLOAD_BYTES)
    relay = Relay(SERVERS[server], 1 << 20)
    assert relay.feed(odd) == b""
    assert relay.large
    assert relay.feed(b'"}\n\n') == b""
    assert not relay.large
    assert relay.fault is None
    relay = Relay(SERVERS[server], OFFLOAD_BYTES)
    assert relay.feed(odd) == b""
    assert relay.fault is not None
    events, _ = read(SERVERS[server], odd * 20, 1 << 20)
    assert isinstance(events[-1], Fault)


def test_a_ping_of_messages_is_its_clients_own() -> None:
    ping = event("ping")
    frames = STREAMS["messages"]
    relay = Relay(MESSAGES, 1 << 20)
    data = frames[0] + ping + b"".join(frames[1:])
    assert relay.feed(data) == data
    events, noted = read(MESSAGES, data, 1 << 20)
    assert not noted
    assert isinstance(events[-1], Finish)


@pytest.mark.parametrize(
    "last", [{"index": 0, "finish_reason": "stop"}, {"index": 0, "delta": None, "finish_reason": "stop"}]
)
def test_an_end_without_a_delta_gets_one(last: dict[str, Any]) -> None:
    """A strict client would fail at it, and must see the end."""
    relay = Relay(CHAT, 1 << 20)
    out = relay.feed(STREAMS["chat"][0] + frame({"id": "x", "choices": [last], "usage": None}) + DONE)
    chunk = orjson.loads(out.split(b"\n\n")[1].removeprefix(b"data: "))
    assert chunk == {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}
    assert relay.ended


@pytest.mark.parametrize(
    "frame_",
    [b'data: {"error":{"message":"no"}}\n\n', b'data: {"object":"error","message":"no"}\n\n', b"data: <html>\n\n"],
)
def test_errors_are_no_noise(frame_: bytes) -> None:
    for protocol in (CHAT, TEXT, PASSED, RESPONSES):
        if b"object" in frame_ and protocol is RESPONSES:
            continue
        events = protocol.reader(frame_bytes=1 << 20).feed(frame_)
        assert isinstance(events[-1], Fault), protocol.name


@pytest.mark.parametrize("detail", ["Burnt.", [{"msg": "Burnt.", "loc": ["body"]}]])
def test_the_error_of_a_framework_is_one(detail: Any) -> None:
    said = frame({"detail": detail})
    relay = Relay(CHAT, 1 << 20)
    assert relay.feed(STREAMS["chat"][0] + said + STREAMS["chat"][1]) == STREAMS["chat"][0]
    (*_, last), noted = read(CHAT, STREAMS["chat"][0] + said, 1 << 20)
    assert isinstance(last, Fault)
    assert noted == {}
    for error in (relay.fault, last.error):
        assert error is not None
        assert "Burnt." in error.message


@pytest.mark.parametrize("odd", [b"", ODD["a warning"][0], b": a comment\n\n"])
def test_a_stream_of_nothing_is_no_answer(odd: bytes) -> None:
    relay = Relay(CHAT, 1 << 20)
    assert relay.feed(odd + DONE).removeprefix(odd) == b""
    events, _ = read(CHAT, odd + DONE, 1 << 20)
    assert isinstance(events[-1], Fault)
    for error in (relay.fault, events[-1].error):
        assert error is not None
        assert error.code == "upstream_invalid_response"


def test_counts_beside_nothing_count() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    odd = frame({"id": "x", "choices": [{"index": 0}], "usage": usage})
    events, noted = read(CHAT, b"".join((STREAMS["chat"][0], odd, *STREAMS["chat"][2:])), 1 << 20)
    assert isinstance(events[-1], Finish)
    assert events[-1].usage is not None
    assert (events[-1].usage.input_tokens, noted) == (3, {(LEFT_OUT, "no_delta"): 1})


@pytest.mark.parametrize("odd", [{}, {"type": "keepalive"}, {"type": "codex.rate_limits"}, {"warning": "old"}])
def test_items_of_whole_answers(odd: dict[str, Any]) -> None:
    """Also of the last event of a stream, which holds the whole answer, and of items that come one by one."""
    noted: list[tuple[str, str]] = []
    body = orjson.dumps({"id": "r", "status": "completed", "output": [odd, ITEM, odd]})
    reply = RESPONSES.read_reply(body, note=lambda *one: noted.append(one))
    assert [type(part).__name__ for part in reply.choices[0].parts] == ["Text"]
    assert len(noted) == 2
    block = {"type": "text", "text": "Hello"}
    body = orjson.dumps({"id": "m", "content": [odd, block, odd], "stop_reason": "end_turn", "usage": USAGE})
    reply = MESSAGES.read_reply(body, note=lambda *one: noted.append(one))
    assert [type(part).__name__ for part in reply.choices[0].parts] == ["Text"]
    assert len(noted) == 4
    added = event("response.output_item.done", output_index=1, item=odd)
    last = event("response.completed", response={"id": "r", "status": "completed", "output": [ITEM, odd]})
    events, counts = read(RESPONSES, b"".join((*STREAMS["responses"][:4], added, last)), 1 << 20)
    assert not any(isinstance(one, Opaque) for one in events)
    assert sum(counts.values()) >= 1
