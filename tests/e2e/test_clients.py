"""Clients that overstep: too many, too slow in some phase, too large a head, no HTTP. Real sockets and the real
server."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, lines_in
from tests.e2e.edge import BODY, STREAMED, Start, answered, check, head
from tests.waiting import GUARD_S, until
from toolwire.server.clients import REFUSALS, ClientConnection
from toolwire.testing import Answer, Upstream, chunk, frame

# --- time -----------------------------------------------------------------------------------------------------------


async def test_a_head_that_does_not_end(start: Start) -> None:
    """Nor is one that drips saved by dripping."""
    gateway = await start(server={"head_s": 0.2})
    for number, begin in enumerate((b"P", head(9)[:-3], b"GET /health HTTP/1.1\r\nHost: x\r\nA"), 1):
        async with asyncio.timeout(GUARD_S):
            check(await gateway.said(begin), 408, "request_timeout")
        assert gateway.number("toolwire_clients_refused_total", "head_timeout") == number
        await until(lambda: not gateway.host.server.open)
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):

        async def drip() -> None:
            writer.write(b"GET /health HTTP/1.1\r\n")
            while True:
                writer.write(b"A: b\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        check(await reader.read(), 408, "request_timeout")
        dripping.cancel()
        await asyncio.wait({dripping})


async def test_a_connection_without_a_request_is_closed(start: Start) -> None:
    """Without a word, before the first request and after one: whoever keeps connections expects that."""
    gateway = await start(server={"idle_s": 0.2})
    for first in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
        with gateway.asking(first) as client:
            got = b""
            async with asyncio.timeout(GUARD_S):
                while piece := await asyncio.get_running_loop().sock_recv(client, 65536):
                    got += piece
        assert got == b"" if not first else got.startswith(b"HTTP/1.1 200")
        await until(lambda: not gateway.host.server.open)


async def test_a_body_that_does_not_come(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")
    gateway = await start(server={"body_s": 0.2})
    for path in (CHAT, "/v1/responses"):
        async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
            writer.write(head(len(BODY), path=path) + BODY[:10])
            check(await reader.readuntil(b'"}}'), 408, "request_timeout")
    assert gateway.number("toolwire_requests_total", "408") == 2
    assert lines_in(caplog) == [(408, "request_timeout")] * 2


async def test_a_connection_serves_on_after_a_slow_head(start: Start) -> None:
    """The time for a head counts anew for each request, and bytes of bodies do not count for heads."""
    gateway = await start(limits={"head_bytes": 400})
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        for _ in range(3):
            whole = head(len(BODY)) + BODY
            for at in range(0, len(whole), 17):
                writer.write(whole[at : at + 17])
                await writer.drain()
                await asyncio.sleep(0.001)
            assert await answered(reader) == 200


# --- size -----------------------------------------------------------------------------------------------------------

HEADS = {
    "one field": head(0, "A: " + "x" * 3000),
    "the request line": head(0, path="/" + "x" * 3000),
    "all fields together": head(0, *[f"A{n}: {'x' * 90}" for n in range(30)]),
    "the number of fields": head(0, *[f"A{n}: b" for n in range(60)]),
}


@every("size", [10_000, 100, 1])
async def test_a_head_that_is_too_large(start: Start, size: int) -> None:
    gateway = await start(limits={"head_bytes": 2000, "header_fields": 50})
    for number, (name, whole) in enumerate(HEADS.items(), 1):
        async with asyncio.timeout(GUARD_S):
            got = await gateway.said(*(whole[at : at + size] for at in range(0, len(whole), size)))
        check(got, 431, "headers_too_large")
        assert gateway.number("toolwire_clients_refused_total", "head_too_large") == number, name


async def test_a_head_of_just_the_limit_with_its_body_in_one_piece(start: Start) -> None:
    limit = 600
    filled = head(len(BODY), "A: " + "x" * (limit - len(head(len(BODY), "A: "))))
    assert len(filled) == limit
    gateway = await start(limits={"head_bytes": limit})
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        writer.write(filled + BODY + filled + BODY)
        for _ in range(2):
            assert await answered(reader) == 200
    async with asyncio.timeout(GUARD_S):
        check(await gateway.said(filled.replace(b"A: x", b"A: xx") + BODY), 431, "headers_too_large")


async def test_what_is_not_http(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    gateway = await start()
    garbage = (b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")
    for number, sent in enumerate(garbage, 1):
        async with asyncio.timeout(GUARD_S):
            check(await gateway.said(sent), 400, "malformed_request")
        assert gateway.number("toolwire_clients_refused_total", "malformed") == number, sent
    for fields, body in (
        ("Transfer-Encoding: chunked", b"5\r\nhello\r\nzz\r\n"),
        ("Content-Encoding: gzip\r\nContent-Length: 9", b"\x1f\x8b\x08garbage"),
    ):
        begin = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{fields}\r\n\r\n".encode()
        async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
            writer.write(begin)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(body)
            check(await reader.readuntil(b'"}}'), 400, "malformed_request")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- number ---------------------------------------------------------------------------------------------------------


async def test_too_many_connections(start: Start) -> None:
    gateway = await start(limits={"connections": 2})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        first = await stack.enter_async_context(gateway.connection())
        await stack.enter_async_context(gateway.connection())
        await until(lambda: len(gateway.host.server.open) == 2)
        answer = await gateway.said(head(len(BODY)) + BODY)
        check(answer, 503, "overloaded")
        assert b"Retry-After: 1\r\n" in answer
        assert gateway.number("toolwire_client_connections") == 2
        first[1].close()
        await until(lambda: len(gateway.host.server.open) == 1)
        assert (await gateway.said(b"GET /health HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200")
    assert gateway.number("toolwire_clients_refused_total", "connections") == 1
    await until(lambda: gateway.number("toolwire_client_connections") == 0)


async def test_those_that_are_refused_are_few_as_well(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.server.clients.REFUSALS", 3)
    assert REFUSALS > 3
    gateway = await start(limits={"connections": 0})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        for _ in range(3):
            reader, _ = await stack.enter_async_context(gateway.connection())
            check(await reader.readuntil(b'"}}'), 503, "overloaded")
        reader, _ = await stack.enter_async_context(gateway.connection())
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_of_many_connections_beyond_the_maximum_one_is_logged_with_the_number_of_the_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolwire.clients")
    gateway = await start(limits={"connections": 0})
    async with asyncio.timeout(GUARD_S):
        for last_logged in (-math.inf, math.inf, math.inf, -math.inf, -math.inf):  # long ago, or right now
            gateway.host.server._full_said = last_logged
            check(await gateway.said(b""), 503, "overloaded")
    assert gateway.number("toolwire_clients_refused_total", "connections") == 5
    assert [record.fields["others"] for record in caplog.records if hasattr(record, "fields")] == [0, 2, 0]


# --- clients that do not read -----------------------------------------------------------------------------------------

FLOOD = [frame(chunk({"content": "word " * 4000}))] * 2000
"""40 MB: more than all buffers between the two."""


async def test_a_client_that_does_not_take_its_stream_is_dropped(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with asyncio.timeout(GUARD_S), Upstream([Answer(FLOOD, headers={"Content-Type": "text/event-stream"})]) as up:
        gateway = await start(url=up.url, server={"write_stall_s": 0.3})
        async with gateway.connection() as (_, writer):
            cast(asyncio.ReadTransport, writer.transport).pause_reading()
            writer.write(head(len(STREAMED)) + STREAMED)
            asked = await up.next_request()
            await asked.dropped.wait()
            await until(lambda: not gateway.host.server.open)
        await until(lambda: gateway.number("toolwire_requests_total", "499") == 1)
    assert gateway.number("toolwire_clients_refused_total", "write_stall") == 1
    assert lines_in(caplog) == [(499, "client_closed_request")]


def test_a_client_that_is_slow_but_reads_is_not_stuck() -> None:
    class Transport:
        unsent = 100_000
        aborted = False

        def get_write_buffer_size(self) -> int:
            return self.unsent

        def get_extra_info(self, name: str) -> None:
            return None

        def abort(self) -> None:
            self.aborted = True

    counted: list[str] = []
    clients = SimpleNamespace(write_stall_s=10.0, head_s=None, note_refused=lambda reason, _: counted.append(reason))
    transport = Transport()
    connection = cast(
        Any, SimpleNamespace(_clients=clients, _socket=transport, _unsent=0, _moved=0.0, _head_bytes=0, _waiter=None)
    )
    for now in range(0, 100, 9):  # something goes out between any two looks
        ClientConnection.check_limits(connection, now)
        transport.unsent -= 1
    transport.unsent += 1
    ClientConnection.check_limits(connection, 108)
    assert not transport.aborted
    ClientConnection.check_limits(connection, 109)
    assert transport.aborted
    assert counted == ["write_stall"]
