"""Audits see an answer to its end and change no byte of it, in every path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from proxy.errors import BackendFault
from proxy.events import Delta, Event, Fault, Finish, Kind
from proxy.model import Message, ModelRequest, Text
from proxy.pipeline.middleware import Middleware
from proxy.pipeline.relay import Relay
from proxy.pipeline.stages import Chain, Settle, Watch
from proxy.pipeline.stream_paths import Audit, PassThrough
from proxy.protocols.base import WriteOptions
from proxy.protocols.chat.protocol import ChatProtocol
from proxy.protocols.chat.reader import ChatReader
from proxy.protocols.chat.writer import ChatWriter
from proxy.registry import registries
from proxy.testing import Answer, Asked, Script, Upstream, chunk, frame
from tests.chunks import reads
from tests.e2e.conftest import USER, post, serving, upstream_config

FRAME_BYTES = 4096
WRITE = WriteOptions(request=ModelRequest("m", (Message("user", (Text("hi"),)),)), created=1)
DONE = b"data: [DONE]\n\n"
END = re.compile(rb"data: ?\[DONE\]")


class Seen:
    """What an audit saw: the text, and the events for which it was asked to wait."""

    def __init__(self) -> None:
        self.text = ""
        self.last: list[Event] = []

    def see(self, event: Event) -> None:
        if isinstance(event, Delta):
            self.text += event.text

    async def settle(self, last: Event) -> None:
        await asyncio.sleep(0)
        self.last.append(last)


async def passed(pieces: Sequence[bytes], seen: Seen | None, error: BackendFault | None = None) -> tuple[bytes, bytes]:
    """What goes out of these bytes: before the audit has settled, and after."""
    audit = None
    if seen is not None:

        async def settle(last: Event) -> Event:
            await seen.settle(last)
            return last

        audit = Audit(ChatReader(FRAME_BYTES), Chain([Watch(seen.see, None), Settle(settle, None)]))
    path = PassThrough(Relay(ChatProtocol(), FRAME_BYTES), ChatWriter(WRITE), audit)
    out = b""
    for piece in pieces:
        out += path.feed(piece)
        if path.over:
            break
    if not path.over:
        out += path.finish(error)
    return out, await path.settle()


@settings(max_examples=200)
@given(stream=reads())
def test_law_an_audit_changes_no_byte(stream: list[bytes]) -> None:
    seen = Seen()
    plain = b"".join(asyncio.run(passed(stream, None)))
    audited = b"".join(asyncio.run(passed(stream, seen)))
    assert plain == audited or (plain.startswith(audited) and END.search(audited))  # what follows the end may be lost
    assert len(seen.last) <= 1


TEXT = frame(chunk({"content": "Hello"}))
USAGE = frame({**chunk({}), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})


@pytest.mark.parametrize(
    "pieces",
    [
        [TEXT + frame(chunk({}, "stop")) + USAGE + DONE],
        [TEXT, frame(chunk({}, "stop")), USAGE, DONE],
        [TEXT, frame(chunk({}, "stop")), USAGE],
    ],
    ids=["in one read", "frame by frame", "without a marker"],
)
async def test_the_end_waits_until_the_audit_has_settled(pieces: list[bytes]) -> None:
    seen = Seen()
    before, after = await passed(pieces, seen)
    assert DONE not in before
    assert after.endswith(DONE)
    assert before + after == b"".join(pieces) + (b"" if DONE in pieces[-1] else DONE)
    (last,) = seen.last
    assert isinstance(last, Finish)
    assert last.usage is not None
    assert (seen.text, last.usage.total_tokens) == ("Hello", 9)


@pytest.mark.parametrize("broken", [False, True], ids=["an error frame", "broken off"])
async def test_a_fault_is_seen_once(broken: bool) -> None:
    seen = Seen()
    error = frame({"error": {"message": "no memory"}})
    fault = BackendFault("reset", code="upstream_disconnected") if broken else None
    before, after = await passed([TEXT] if broken else [TEXT, error], seen, fault)
    assert before == TEXT
    assert b'"error"' in after
    assert after.endswith(DONE)
    (last,) = seen.last
    assert isinstance(last, Fault)


BODY: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "created": 5,
    "model": "m",
    "timings": {"x": 1.0},
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a", "annotations": []},
            "logprobs": {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
}


def turn(asked: Asked) -> Answer:
    """What no gateway would write in the same way."""
    if asked.json.get("stream"):
        frames = [frame({**chunk({"content": "a"}), "timings": {"x": 1.0}}), frame(chunk({}, "stop")), USAGE, DONE]
        return Answer(frames, headers={"Content-Type": "text/event-stream"})
    return Answer([orjson.dumps(BODY)], headers={"Content-Type": "application/json"})


class Audits(Middleware):
    seen: list[Seen]

    def declare(self, exchange: Any, reply: Any) -> None:
        self.seen.append(Seen())
        reply.audit(self.seen[-1].see, self.seen[-1].settle)


class Loud(Middleware):
    wants = Kind.TEXT

    def on_event(self, exchange: Any, event: Any) -> Any:
        return Delta(event.block, event.text.upper()) if isinstance(event, Delta) else event


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "touched"])
async def test_through_the_gateway(stream: bool, touched: bool) -> None:
    plugins = registries()
    audits = type("Here", (Audits,), {"seen": []})
    plugins.middlewares.register("audits", audits)
    plugins.middlewares.register("loud", Loud)
    script: list[Script] = [turn, turn]
    async with Upstream(script) as upstream:
        bodies = []
        for audited in (False, True):
            # An audit sees what the client gets, wherever it stands in the chain.
            chain = [*(["loud"] if touched else []), *(["audits"] if audited else []), "forwarding"]
            config = upstream_config(upstream.url, chain=chain)
            async with serving(config, plugins) as server:
                options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
                bodies.append((await post(server, {"messages": USER, **options})).body)
    (seen,) = audits.seen  # type: ignore[attr-defined]
    assert b'"timings"' in bodies[0]  # what the server says beside is passed on, touched or not
    if not touched:
        assert bodies[0] == bodies[1]
    assert seen.text == ("A" if touched else "a")
    (last,) = seen.last
    assert last.usage.total_tokens == (9 if stream else 8)
