"""Answers read by the fast client, whatever their bytes are and however they are cut (docs/adr/0007)."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from tests.backends.peers import CHUNKED, LIMIT, OK, Peer, Step, chunked, sized
from tests.cases import every
from toolwire.config import BackendConfig, Timeouts
from toolwire.errors import BackendFault
from toolwire.testing import Answer as Scripted
from toolwire.testing import Upstream
from toolwire.upstream.client.wire_answer import INBOX_BYTES, HttpAnswer
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.client.wire_connection import (
    FIRST_READ_BYTES,
    HEAD_BYTES,
    LEAST_READ_BYTES,
    LONG_S,
    READ_BYTES,
    HttpConnection,
)

BODY = b'{"id":"x","choices":[{"message":{"content":"gr\xc3\xbc\xc3\x9fe"}}]}'
STREAM = [b": hi\n\n", b'data: {"a":1}\n\n', b"data: [DONE]\n\n"]
WHOLE = sized(BODY, b"Content-Type: application/json; charset=utf-8")
PUSHED = CHUNKED + chunked(*STREAM)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


async def post(peer: Peer, **config: Any) -> tuple[Any, HttpAnswer]:
    client = peer.client(**config)
    return client, await client.post(b"{}", stream=True, request_id="r")


async def fault_of(answer: HttpAnswer) -> BackendFault:
    with pytest.raises(BackendFault) as caught:
        await answer.read(LIMIT)
    return caught.value


# --- cuts, over sockets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "body"),
    [(WHOLE, BODY), (PUSHED, b"".join(STREAM)), (INTERIM + PUSHED, b"".join(STREAM))],
    ids=["length", "chunked", "interim"],
)
async def test_every_cut_in_two(wire: bytes, body: bytes) -> None:
    """All on one connection, so that the parser's next answer finds nothing of the last one."""
    async with Peer(*([wire[:at], wire[at:]] for at in range(1, len(wire)))) as peer:
        client = peer.client()
        for at in range(1, len(wire)):
            answer = await client.post(b"{}", stream=True, request_id="r")
            got: list[bytes] = []
            if at % 2:
                await answer.pump(got.append)
            else:
                got.append(await answer.read(LIMIT))
            assert (answer.status, b"".join(got)) == (200, body), at
        await client.close()
        assert peer.connections == 1


# --- cuts, without sockets ------------------------------------------------------------------------------------------


class Reads:
    """A connection whose reads are given by a test. In place of a client."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.connection = HttpConnection(self, memoryview(bytearray(READ_BYTES)))
        self.connection.connection_made(cast(asyncio.Transport, self.transport))
        self.answer = HttpAnswer(self.connection, Timeouts(), 0.0, self.give_back)
        self.connection.expect(self.answer)

    def feed(self, data: bytes) -> None:
        """One read; several if reads became smaller because one took long."""
        while data and not self.transport.closed:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def give_back(self, answer: HttpAnswer) -> None:
        """As a client does that keeps nothing."""
        self.connection.answer = None
        self.transport.abort()

    def lost(self, connection: HttpConnection) -> None:
        """Nothing is kept."""

    def out_of_step(self) -> None:
        """Nothing is kept."""


async def test_a_read_is_as_large_as_it_takes_few_milliseconds_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kilobyte costs is known only when it has been worked on; what did not fill its read says nothing."""
    took_s = 0.0
    now = 0.0

    def clock() -> float:
        return now

    monkeypatch.setattr("toolwire.upstream.client.wire_connection.perf_counter", clock)
    reads = Reads()
    connection = reads.connection

    def sink(data: bytes) -> None:
        nonlocal now
        now += took_s

    reads.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    reading = asyncio.create_task(reads.answer.pump(sink))
    await asyncio.sleep(0)

    def size() -> int:
        return len(connection.get_buffer(-1))

    def read(cost_s: float, full: bool = True) -> int:
        nonlocal took_s
        took_s = cost_s
        reads.feed(b"x" * (size() if full else size() - 1))
        return size()

    assert size() == FIRST_READ_BYTES
    assert [read(0.0001) for _ in range(5)] == [16384, 32768, READ_BYTES, READ_BYTES, READ_BYTES]
    assert read(LONG_S / 2) == READ_BYTES
    assert [read(2 * LONG_S) for _ in range(7)] == [32768, 16384, 8192, 4096, 2048, LEAST_READ_BYTES, LEAST_READ_BYTES]
    assert read(2 * LONG_S, full=False) == LEAST_READ_BYTES
    assert read(0.0001, full=False) == LEAST_READ_BYTES
    assert read(0.0001) == 2 * LEAST_READ_BYTES
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


class Transport:
    """What a `Connection` asks of a transport."""

    closed = False

    def get_extra_info(self, name: str) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def cut(wire: bytes, places: Sequence[int]) -> list[bytes]:
    """`wire` cut at these places, modulo its length, into pieces that are not empty."""
    edges = sorted({0, len(wire), *(place % len(wire) for place in places)})
    return [wire[a:b] for a, b in pairwise(edges)]


async def outcome(answer: HttpAnswer) -> BackendFault | None:
    """How an answer ends that has ended."""
    try:
        await answer.head()
        await answer.read(LIMIT)
    except BackendFault as fault:
        return fault
    return None


PLACES = st.lists(st.integers(0, 1 << 16), max_size=20)
PIECES = st.lists(st.binary(min_size=1, max_size=200), max_size=10)


@given(PIECES, PLACES, st.sampled_from(["chunked", "length", "close"]), st.sampled_from([None, "gzip", "deflate"]))
def test_law_cuts_change_nothing(pieces: list[bytes], places: list[int], framing: str, coding: str | None) -> None:
    async def check() -> None:
        body = b"".join(pieces)
        packed = {None: bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding](body)
        fields = b"" if coding is None else b"Content-Encoding: %s\r\n" % coding.encode()
        if framing == "chunked":
            parts = cut(packed, [7, 70, 170]) if packed else []
            wire = OK + fields + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*parts)
        else:
            length = b"Content-Length: %d\r\n" % len(packed) if framing == "length" else b""
            wire = OK + fields + length + b"\r\n" + packed
        reads = Reads()
        got: list[bytes] = []
        pump = asyncio.create_task(reads.answer.pump(got.append))
        await asyncio.sleep(0)
        segments = cut(wire, places)
        for segment in segments:
            reads.feed(segment)
        reads.connection.connection_lost(None)
        await pump
        assert b"".join(got) == body
        assert len(got) <= len(segments)

    asyncio.run(check())


@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 40), PLACES, st.sampled_from([WHOLE, PUSHED]))
@example(b"-", 84, 1, [], PUSHED)
def test_law_nothing_waits_for_ever(noise: bytes, at: int, gone: int, places: list[int], wire: bytes) -> None:
    """Whatever is put in place of some bytes: when the connection ends, so has the answer, well or with a known
    fault."""

    async def check() -> None:
        reads = Reads()
        for segment in cut(wire[:at] + noise + wire[at + gone :] or b"x", places):
            reads.feed(segment)
        reads.connection.connection_lost(None)
        assert reads.answer.ended
        fault = await outcome(reads.answer)
        assert fault is None or fault.code in ("upstream_invalid_response", "upstream_disconnected")

    asyncio.run(check())


# --- bad framing ----------------------------------------------------------------------------------------------------

BAD_CHUNKS = {
    "no number": b"ZZ\r\nx\r\n",
    "negative": b"-1\r\nx\r\n",
    "too much for its size": b"5\r\nfar more than five\r\n",
    "overflow": b"f" * 20 + b"\r\n",
    "hexadecimal prefix": b"0x5\r\nhello\r\n",
    "empty": b"\r\n",
}


@every("read", ["first", "later"])
@every("name", BAD_CHUNKS)
async def test_bad_chunk_sizes(name: str, read: str) -> None:
    """The server hangs and the time limits are far away: only the parser can end this."""
    good = CHUNKED + chunked(b"good", end=False)
    steps = [good + BAD_CHUNKS[name]] if read == "first" else [good, BAD_CHUNKS[name]]
    async with Peer(steps, after="hang") as peer:
        client, answer = await post(peer)
        got: list[bytes] = []
        with pytest.raises(BackendFault) as caught:
            await answer.pump(got.append)
        assert caught.value.code == "upstream_invalid_response"
        assert b"".join(got).startswith(b"good")
        await peer.all_closed()
        await client.close()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: -2\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"No colon\r\n",
    ],
)
async def test_bad_heads(head: bytes) -> None:
    async with Peer([OK + head + b"\r\nhi"], after="hang") as peer:
        client = peer.client()
        with pytest.raises(BackendFault) as caught:
            await client.post(b"{}", stream=False, request_id="r")
        assert caught.value.code == "upstream_invalid_response"
        await peer.all_closed()
        await client.close()


@pytest.mark.parametrize("resets", [False, True])
async def test_an_answer_that_ends_with_its_connection(resets: bool) -> None:
    """A connection that is reset is no end of an answer, also where the end of the connection would be one."""
    seen = asyncio.Event()
    got: list[bytes] = []

    def take(data: bytes) -> None:
        got.append(data)
        seen.set()

    turn = Scripted([STREAM[0], seen], framing="close", cut=resets, reset=resets)
    async with Upstream([turn]) as server:
        client = WireClient(URL(server.url), {}, BackendConfig())
        answer = await client.post(b"{}", stream=True, request_id="r")
        with pytest.raises(BackendFault, match="closed") if resets else nullcontext():
            await answer.pump(take)
        await client.close()
    assert b"".join(got) == STREAM[0]


@pytest.mark.parametrize("surplus", [b"XX", WHOLE, b"HTT"], ids=["noise", "another answer", "half of one"])
@pytest.mark.parametrize("read", ["same", "later"])
async def test_more_than_the_length_promised(surplus: bytes, read: str) -> None:
    """The answer is what the length says; the rest is nobody's, and its connection is not used again."""
    steps = [sized(b"ok") + surplus] if read == "same" else [sized(b"ok"), surplus]
    async with Peer(steps, [sized(b"next")]) as peer:
        client, answer = await post(peer)
        assert await answer.read(LIMIT) == b"ok"
        await peer.all_closed()
        answer = await client.post(b"{}", stream=False, request_id="r")
        assert await answer.read(LIMIT) == b"next"
        assert peer.connections == 2
        await client.close()


async def test_a_request_to_switch_protocols() -> None:
    steps = [b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nxx"]
    async with Peer(steps, after="hang") as peer:
        client = peer.client()
        with pytest.raises(BackendFault) as caught:
            await client.post(b"{}", stream=False, request_id="r")
        assert caught.value.code == "upstream_invalid_response"
        await client.close()


@pytest.mark.parametrize(
    ("steps", "after", "body", "connections"),
    [
        ([OK + b"Upgrade: h2\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok"], "keep", b"ok", 1),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"], "keep", b"ok", 2),
        ([b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"], "keep", b"ok", 1),
        ([OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"], "keep", b"ok", 2),
        ([OK + b"Content-Type: x/y\r\n\r\no", b"k"], "close", b"ok", 2),
        ([OK + b"Transfer-Encoding: identity\r\n\r\nok"], "close", b"ok", 2),
        ([CHUNKED + b"2;name=value\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n"], "keep", b"ok", 1),
        ([CHUNKED + b"2  \r\nok\r\n0\r\n\r\n"], "keep", b"ok", 1),
        ([b"HTTP/1.1 204 Nothing\r\n\r\n"], "keep", b"", 1),
        ([b"\r\n" + sized(b"ok")], "keep", b"ok", 1),
    ],
)
async def test_ways_to_frame_an_answer(steps: list[Step], after: str, body: bytes, connections: int) -> None:
    async with Peer(steps, after=after) as peer:
        client = peer.client()
        for _ in range(2):
            answer = await client.post(b"{}", stream=False, request_id="r")
            assert await answer.read(LIMIT) == body
        assert peer.connections == connections
        await client.close()


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
async def test_an_interim_answer_has_no_body(framing: bytes) -> None:
    """It would become the beginning of the answer, or be waited for."""
    async with Peer([b"HTTP/1.1 103 Early Hints\r\n" + framing + WHOLE], after="hang") as peer:
        client = peer.client()
        with pytest.raises(BackendFault, match="not valid HTTP"):
            await client.post(b"{}", stream=True, request_id="r")
        await client.close()


# --- too much -------------------------------------------------------------------------------------------------------

BOMBS = {
    "a long line": (OK + b"A: ", b"x" * 8192),
    "many lines": (OK, b"A: b\r\n" * 1000),
    "one field again and again": (OK, b"Set-Cookie: b\r\n" * 500),
    "a long reason": (b"HTTP/1.1 200 ", b"x" * 8192),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 300),
    "a long trailer": (CHUNKED + chunked(b"x", end=False) + b"0\r\nA: ", b"x" * 8192),
    "a chunk extension": (CHUNKED + b"5;", b"x" * 8192),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_what_is_no_body_is_bounded(name: str) -> None:
    first, more = BOMBS[name]
    taken = 0
    reads = Reads()
    reads.feed(first or more)
    while not reads.answer.ended:
        reads.feed(more)
        taken += len(more)
        assert taken < 2 * HEAD_BYTES
    fault = await outcome(reads.answer)
    assert fault is not None
    assert fault.code == "upstream_invalid_response"


async def test_what_is_no_body_is_bounded_anew_behind_each_piece_of_one() -> None:
    reads = Reads()
    for piece in (CHUNKED, *[b"1;" + b"x" * 8000, b"\r\na\r\n"] * 20, b"0\r\n\r\n"):
        reads.feed(piece)
    assert await outcome(reads.answer) is None


@pytest.mark.parametrize("size", ["stated", "not stated"])
async def test_a_whole_answer_beyond_the_limit(size: str) -> None:
    body = b"x" * 5000
    wire = sized(body) if size == "stated" else CHUNKED + chunked(body, end=False)
    async with Peer([wire[:3000], wire[3000:]], after="hang") as peer:
        client, answer = await post(peer)
        with pytest.raises(BackendFault, match="4000 bytes"):
            await answer.read(4000)
        await client.close()


async def test_a_slow_reader_holds_the_server_back() -> None:
    """What nobody takes stays with the server: the inbox is bounded, and nothing is lost."""
    parts = [bytes([i % 256]) * READ_BYTES for i in range(200)]
    async with Peer([CHUNKED, *(chunked(part, end=False) for part in parts), b"0\r\n\r\n"]) as peer:
        client, answer = await post(peer)
        got = b""
        async for data in answer.reads():
            assert len(data) <= INBOX_BYTES + READ_BYTES
            got += data
            await asyncio.sleep(0.001)
        assert got == b"".join(parts)
        await client.close()


# --- compression ----------------------------------------------------------------------------------------------------


def packed(encoding: bytes, body: bytes) -> bytes:
    return sized(body, b"Content-Encoding: " + encoding)


def bare(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(data) + deflate.flush()


@pytest.mark.parametrize(
    "wire",
    [
        packed(b"gzip", gzip.compress(BODY)),
        packed(b"GZip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:])),
        packed(b"gzip", gzip.compress(BODY) + bytes(8)),
        packed(b"deflate", zlib.compress(BODY)),
        packed(b"deflate", bare(BODY)),
        packed(b"identity", BODY),
        packed(b"gzip, identity", gzip.compress(BODY)),
        packed(b"", BODY),
        OK + b"Transfer-Encoding: identity, Chunked\r\n\r\n" + chunked(BODY),
    ],
)
async def test_compressed_answers(wire: bytes) -> None:
    async with Peer([wire], [wire[i : i + 1] for i in range(len(wire))]) as peer:
        client = peer.client()
        for _ in range(2):
            answer = await client.post(b"{}", stream=False, request_id="r")
            assert await answer.read(LIMIT) == BODY
        await client.close()


@pytest.mark.parametrize(
    "wire",
    [
        packed(b"gzip", b"no gzip at all"),
        packed(b"gzip", gzip.compress(BODY)[:-9]),
        packed(b"gzip", gzip.compress(bytes(1 << 24))),
        packed(b"br", b"\x0b\x02\x80"),
        packed(b"gzip, br", gzip.compress(BODY)),
        packed(b"gzip, gzip", gzip.compress(gzip.compress(BODY))),
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(gzip.compress(BODY)),
    ],
    ids=["none", "cut off", "bomb", "unknown", "another", "twice", "by the transfer"],
)
async def test_compression_that_cannot_be_undone(wire: bytes) -> None:
    async with Peer([wire]) as peer:
        client, answer = await post(peer)
        fault = await fault_of(answer)
        assert fault.code == "upstream_invalid_response"
        assert "decoded" in fault.message
        await client.close()
