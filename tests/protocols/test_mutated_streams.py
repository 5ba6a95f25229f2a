"""Streams of servers with a frame dropped, repeated, moved or cut: a call is still whole and named, or none (R29.2).

The streams are those that real engines gave, where they are to be had, and one of each protocol that the gateway writes
itself. What is lost inside of a string nobody can see; so the law is about names, ids, the number of calls and JSON.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.protocols.published import SHARED
from toolwire.errors import GatewayError
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Open
from toolwire.folding import unfold
from toolwire.model import ModelReply, ModelRequest, ReplyChoice, Text, ToolUse, Usage
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.streams import WriteOptions
from toolwire.stream_grammar import check

READING: Final = tuple(ToolUse(f"call_{at}", "read", f'{{"path": "{at}", "lines": [1, 2]}}') for at in range(2))
SAID: Final = ModelReply("id_1", "m", 1, (ReplyChoice((Text("Now."), *READING), "tool_calls"),), Usage(3, 4))
OPTIONS: Final = WriteOptions(request=ModelRequest("m", (), stream=True, include_usage=True), created=1)
SERVERS: Final = {"chat": ChatProtocol(), "messages": MessagesProtocol(), "responses": ResponsesProtocol()}
RECORDED: Final = {
    "tools_*_stream.sse": "chat",
    "messages_any_stream.sse": "messages",
    "responses_*_stream.sse": "responses",
}
Frames = list[bytes]


def frames(data: bytes) -> Frames:
    return [frame + b"\n\n" for frame in data.replace(b"\r\n", b"\n").split(b"\n\n") if frame.strip()]


def written(protocol: str) -> Frames:
    """The stream of the same answer, its arguments in pieces."""
    events: list[Event] = []
    for event in unfold(SAID):
        texts = [event.text[at : at + 9] for at in range(0, len(event.text), 9)] if isinstance(event, Delta) else []
        events += [Delta(event.block, text) for text in texts] if isinstance(event, Delta) else [event]
    return frames(SERVERS[protocol].writer(OPTIONS).feed(events))


def recorded() -> list[Any]:
    """None without `TOOLWIRE_SHARED`."""
    return [
        (kind, frames(path.read_bytes()))
        for pattern, kind in RECORDED.items()
        for path in sorted((SHARED / "engines").glob(f"*/{pattern}"))
    ]


STREAMS: Final = [*((kind, written(kind)) for kind in SERVERS), *recorded()]


def read(kind: str, stream: Frames) -> tuple[list[ToolUse], GatewayError | None]:
    """The calls that are not cut off, and the error, if it ends with one."""
    reader = SERVERS[kind].reader(frame_bytes=1 << 20)
    events = [event for frame in stream for event in reader.feed(frame)]
    events += reader.finish()
    check(events)
    last = events[-1]
    opened = {event.block: event for event in events if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL}
    calls = []
    for event in events:
        if isinstance(event, Close) and event.block in opened and event.status == "complete":
            begun = opened[event.block]
            text = "".join(one.text for one in events if isinstance(one, Delta) and one.block == event.block)
            calls.append(ToolUse(begun.call_id or "", begun.name or "", text))
    assert all(begun.name and begun.name.strip() and begun.call_id for begun in opened.values())
    return calls, last.error if isinstance(last, Fault) else None


def mutated(stream: Frames, how: str, at: int, to: int) -> Frames:
    at, to = at % len(stream), to % len(stream)
    match how:
        case "drop":
            return stream[:at] + stream[at + 1 :]
        case "repeat":
            return [*stream[: at + 1], stream[at], *stream[at + 1 :]]
        case "repeat later":
            return [*stream[:to], stream[at], *stream[to:]]
        case "move":
            rest = stream[:at] + stream[at + 1 :]
            return [*rest[:to], stream[at], *rest[to:]]
        case "cut":
            return [*stream[:at], stream[at][: to * len(stream[at]) // len(stream)]]
        case _:
            return stream[:at]


HOW: Final = ("drop", "repeat", "repeat later", "move", "cut", "end")


@every(("kind", "stream"), STREAMS)
@examples(0.2)
@given(data=st.data())
def test_no_mutation_makes_a_call(kind: str, stream: Frames, data: st.DataObject) -> None:
    known, error = read(kind, stream)
    assert error is None
    spot = st.integers(0, len(stream) - 1)
    how = data.draw(st.sampled_from(HOW))
    calls, error = read(kind, mutated(stream, how, data.draw(spot), data.draw(spot)))
    if error is not None:
        assert error.code in ("upstream_disconnected", "upstream_invalid_response")
        return
    assert len(calls) <= len(known)
    assert {call.name for call in calls} <= {call.name for call in known}
    if how in ("cut", "end"):  # nothing is missing in the middle
        made = [json.loads(call.arguments) for call in calls]
        assert made == [json.loads(call.arguments) for call in known][: len(made)]


@every(("kind", "stream"), STREAMS)
@every("how", ["repeat later", "move"])
def test_frames_out_of_order_make_no_call(kind: str, stream: Frames, how: str) -> None:
    """Each frame, at about three other places or at half of them: those with arguments may spoil these, and none makes
    another call, or one without its arguments."""
    known, _ = read(kind, stream)
    step = max(2, len(stream) // 3)
    for at, to in product(range(len(stream)), repeat=2):
        if (at + to) % step != 1:
            continue
        calls, error = read(kind, mutated(stream, how, at, to))
        assert error is not None or len(calls) <= len(known), (at, to)
        assert error is not None or "{}" not in [call.arguments for call in calls], (at, to)
