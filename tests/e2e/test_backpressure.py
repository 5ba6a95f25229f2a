"""A client that reads nothing while the model server sends 200 MB, streamed or in a whole answer that passes: what the
gateway keeps is bounded, and the server waits.

Also the other side: answers without end that the client does read, which must end at a limit where the protocol makes
the gateway keep them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, overload

import pytest

from tests.e2e.conftest import CHAT, USER, function, read_config
from tests.e2e.edge import Gateway, head, running
from tests.e2e.speaking import JSON
from tests.e2e.speaking import SSE as SSE
from tests.waiting import GUARD_S, until
from toolwire.config import GatewayConfig
from toolwire.events import Event, Kind
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.testing import Answer, Asked, Say, Step, Upstream, chunk, frame

pytestmark = pytest.mark.usefixtures("earlier_frozen")

MB = 1024 * 1024
SENT_BYTES = 200 * MB
SYSTEM_BYTES = 16 * MB
"""What the systems' own buffers between the model server and the gateway may take; the gateway's end of them is
adjusted to the flow and gets as large as 6 MB."""
KEPT_BYTES = 8 * MB
"""What the gateway itself may keep for one client. Most is text that came before the client was full: Responses says
all of it again at the end, so it has to be kept."""

BEGIN = frame(chunk({"role": "assistant", "content": ""}))
TEXT = frame(chunk({"content": "word " * 10_000}))
WORDS = frame(chunk({"content": "word "})) * 200
ARGUMENTS = [
    frame(
        chunk({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"'}}]})
    ),
    frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 50_000}}]})),
]  # fmt: skip


class Flood(Sequence[Step]):
    """`first`, then `again` until 200 MB went out; `sent` counts."""

    def __init__(self, *first: bytes, again: bytes) -> None:
        self.first = first
        self.again = again
        self.sent = 0

    def __iter__(self) -> Iterator[Step]:
        for step in self.first:
            self.sent += len(step)
            yield step
        while self.sent < SENT_BYTES:
            self.sent += len(self.again)
            yield self.again

    def __len__(self) -> int:
        return SENT_BYTES

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        raise NotImplementedError


class Looks(Middleware):
    """Wants to see the text, which takes an answer off the stream paths that do not read it."""

    wants = Kind.TEXT

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        return event


TOOLS = [function("f", a="string")]
RESPONSE_TOOLS = [{"type": "function", **TOOLS[0]["function"]}]
CHAT_BODY = {"model": "m", "stream": True, "messages": USER}
RESPONSES_BODY = {"model": "m", "stream": True, "input": "hi"}
LOOKS = {"chain": [{"use": f"{__name__}:Looks"}, "transformation", "injection", "forwarding"]}
LARGE = {"limits": {"reply_bytes": 400 * MB}}
VECTOR = b'{"data":[{"embedding":['
NUMBERS = b"-0.0123456789," * 5_000

UNREAD: dict[str, tuple[str, dict[str, Any], Callable[[], Flood], dict[str, Any]]] = {
    "raw": (CHAT, CHAT_BODY, lambda: Flood(BEGIN, again=WORDS), {}),
    "gate": (CHAT, {**CHAT_BODY, "tools": TOOLS}, lambda: Flood(BEGIN, again=WORDS), {}),
    "events": (CHAT, {**CHAT_BODY, "tools": TOOLS}, lambda: Flood(BEGIN, again=WORDS), LOOKS),
    "Responses": (
        "/v1/responses",
        {**RESPONSES_BODY, "tools": RESPONSE_TOOLS},
        lambda: Flood(BEGIN, again=WORDS),
        LOOKS,
    ),
    "retry": (CHAT, {**CHAT_BODY, "tools": TOOLS}, lambda: Flood(BEGIN, again=WORDS), {}),
    "vectors": ("/v1/embeddings", {"model": "m", "input": "hi"}, lambda: Flood(VECTOR, again=NUMBERS), LARGE),
}  # fmt: skip
FIRST = {"retry": [Say('<tool_call>{"name":"g","arguments":{}}</tool_call>')]}
"""Answers in place of which the client gets the next one."""


def config(url: str, **sections: Any) -> GatewayConfig:
    return read_config({"backends": {"up": {"url": url}}, **sections})


@asynccontextmanager
async def traced() -> AsyncIterator[Callable[[], int]]:
    """How much more memory is in use than at the start."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


async def stands_still(flood: Flood) -> None:
    """Until the server has not got rid of anything for a while: it waits."""
    async with asyncio.timeout(GUARD_S):
        seen, quiet = -1, 0
        while quiet < 20:
            quiet = quiet + 1 if flood.sent == seen else 0
            seen = flood.sent
            await asyncio.sleep(0.02)


def unread(gateway: Gateway) -> int:
    """What lies in the gateway's own buffers towards clients."""
    return sum(connection._socket.get_write_buffer_size() for connection in gateway.host.server.open)


@pytest.mark.parametrize("name", UNREAD)
async def test_a_client_that_reads_nothing_costs_little(name: str) -> None:
    path, body, make, sections = UNREAD[name]
    flood = make()
    answer = Answer(flood, headers=SSE if "stream" in body else JSON)
    script = [*FIRST.get(name, ()), answer]
    async with Upstream(script) as upstream, running(config(upstream.url, **sections)) as gateway:
        raw = json.dumps(body).encode()
        async with traced() as grown:
            with gateway.asking(head(len(raw), path=path) + raw, buffer=8192):
                for _ in script:
                    asked = await upstream.next_request()
                await stands_still(flood)
                assert 0 < flood.sent < SYSTEM_BYTES
                assert unread(gateway) < MB
                assert grown() < KEPT_BYTES
                assert not asked.dropped.is_set()
            async with asyncio.timeout(GUARD_S):
                await asked.dropped.wait()  # and when the client goes, so does the server's work
                await until(lambda: not gateway.host.server.open)


LIMITED: dict[str, tuple[str, dict[str, Any], Callable[[], Flood], dict[str, Any]]] = {
    "a call of the server": (
        CHAT,
        {**CHAT_BODY, "tools": TOOLS},
        lambda: Flood(*ARGUMENTS, again=ARGUMENTS[1]),
        {"defaults": {"mode": "native"}},
    ),
    "text for Chat": (CHAT, {**CHAT_BODY, "tools": TOOLS}, lambda: Flood(BEGIN, again=TEXT), {}),
    "text for Responses": ("/v1/responses", RESPONSES_BODY, lambda: Flood(BEGIN, again=TEXT), {}),
    "one frame": (CHAT, {**CHAT_BODY, "tools": TOOLS}, lambda: Flood(b"data: ", again=b"x" * 50_000), {}),
    "one frame, raw": (CHAT, CHAT_BODY, lambda: Flood(b"data: ", again=b"x" * 50_000), {}),
}  # fmt: skip
"""Answers of which the gateway has to keep something, to a client that reads as fast as it can."""


@pytest.mark.parametrize("name", LIMITED)
async def test_what_has_to_be_kept_is_limited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body, make, sections = LIMITED[name]
    monkeypatch.setattr("toolwire.pipeline.answers.mapping.HELD_CHARS", 2 * MB)
    flood = make()
    limits = {"stream_bytes": 4 * MB, "frame_bytes": MB}
    async with (
        Upstream([Answer(flood, headers=SSE)]) as upstream,
        running(config(upstream.url, limits=limits, **sections)) as gateway,
    ):
        asked, got = await ask(gateway, upstream, path, body)
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
    assert flood.sent < 4 * MB + SYSTEM_BYTES
    assert b"upstream_invalid_response" in got
    end = b"event: response.failed\n" if path != CHAT else b"data: [DONE]\n"
    if got.startswith(b"HTTP/1.1 200"):
        assert got.count(end) == 1
    else:
        assert got.startswith(b"HTTP/1.1 502")


WHOLE: dict[str, tuple[str, dict[str, Any], bool]] = {
    "raw": (CHAT, {"model": "m", "messages": USER}, False),
    "scanned, streamed all the same": (CHAT, {"model": "m", "messages": USER, "tools": TOOLS}, True),
    "Responses": ("/v1/responses", {"model": "m", "input": "hi"}, False),
    "Responses, streamed all the same": ("/v1/responses", {"model": "m", "input": "hi"}, True),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_without_end_is_given_up(name: str) -> None:
    path, body, streams = WHOLE[name]
    begin = b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"'
    flood = Flood(BEGIN, again=TEXT) if streams else Flood(begin, again=b"word " * 10_000)
    limits = {"reply_bytes": 4 * MB, "stream_bytes": 4 * MB}
    async with (
        Upstream([Answer(flood, headers=SSE if streams else JSON)]) as upstream,
        running(config(upstream.url, limits=limits)) as gateway,
        traced() as grown,
    ):
        asked, got = await ask(gateway, upstream, path, body)
        assert got.startswith(b"HTTP/1.1 502")
        assert b"upstream_invalid_response" in got
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
        assert grown() < 4 * KEPT_BYTES
    assert flood.sent < 4 * MB + SYSTEM_BYTES


async def ask(gateway: Gateway, upstream: Upstream, path: str, body: dict[str, Any]) -> tuple[Asked, bytes]:
    """The request that arrived at the server, and all that the client got; its connection ends with it."""
    raw = json.dumps(body).encode()
    async with gateway.connection() as (reader, writer):
        writer.write(head(len(raw), "Connection: close", path=path) + raw)
        got = bytearray()
        async with asyncio.timeout(GUARD_S):
            while piece := await reader.read(1 << 20):
                got += piece
        return await upstream.next_request(), bytes(got)
