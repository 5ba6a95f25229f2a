"""The first bytes tell a stream from a whole answer, whatever its label and however it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.conftest import ask, bytes_of
from tests.cases import every, examples
from tests.strategies import split
from toolwire.config import LimitsConfig
from toolwire.folding import fold
from toolwire.model import ModelReply
from toolwire.registry import usual_server
from toolwire.testing import chunk, frame
from toolwire.upstream.client.connections import UpstreamAnswer
from toolwire.upstream.servers.http_source import HttpSource
from toolwire.upstream.servers.private_data import NOTHING

CHAT = usual_server()
STREAM = frame(chunk({"content": "Hel"})) + frame(chunk({"content": "lo"}, "stop")) + frame("[DONE]")
WHOLE = orjson.dumps({"id": "c", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
BEFORE = (b"", b"\n\n", b"\xef\xbb\xbf", b": ping\n\n", b":\n\n", b"id: 1\n", b"retry: 3\n\n", b"event: message\n")


class Parts:
    """An answer that arrives in these parts."""

    queued_s = 0.0

    def __init__(self, parts: list[bytes], content_type: str) -> None:
        self.content_type = content_type
        self._parts = parts
        self._sink: Callable[[bytes], None]

    async def reads(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part

    async def read(self, limit: int) -> bytes:
        return b"".join(self._parts)

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        self.redirect(sink)
        for part in self._parts:
            self._sink(part)

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink


def source_of(answer: Any, *, stream: bool) -> HttpSource:
    return HttpSource(ask(stream=stream), cast("UpstreamAnswer", answer), CHAT, LimitsConfig(), NOTHING)


async def read(source: HttpSource, way: str) -> ModelReply:
    match way:
        case "pump":
            reader = CHAT.reader(frame_bytes=4096)
            return fold([*reader.feed(await bytes_of(source)), *reader.finish()])
        case "batches":
            return fold([event async for batch in source.batches() for event in batch])
        case "parts":
            return CHAT.read_reply(b"".join([part async for part in source.body_in_parts()]))
        case "body":
            return CHAT.read_reply(await source.body())
    return await source.reply()


@every("way", ["pump", "batches", "parts", "body", "reply"])
@examples(0.5)
@given(
    body=st.sampled_from([*(before + STREAM for before in BEFORE), WHOLE, b"\r\n \n" + WHOLE, b"\n" * 100 + WHOLE]),
    kind=st.sampled_from(["text/event-stream", "application/json", "text/plain", ""]),
    cuts=st.lists(st.integers(0, 130), max_size=4),
)
def test_law_first_bytes_tell_what_an_answer_is(way: str, body: bytes, kind: str, cuts: list[int]) -> None:
    answer: Any = Parts(split(body, cuts), kind)
    source = source_of(answer, stream=way in ("pump", "batches"))
    assert asyncio.run(read(source, way)).text == "Hello"


@every("cut", [1, 3, 4, 8, 20])
def test_a_field_that_nobody_knows_begins_a_stream_too(cut: int) -> None:
    """Where the label says that it is one."""
    for way in ("pump", "batches"):
        answer: Any = Parts(split(b"x-y: z\n\n" + STREAM, [cut]), "text/event-stream")
        source = source_of(answer, stream=True)
        assert asyncio.run(read(source, way)).text == "Hello"
