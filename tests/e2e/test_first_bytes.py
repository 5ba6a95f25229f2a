"""What a client may write on a connection, before and around its requests: versions, expectations, upgrades, many small
chunks, and an end of its own side. Real sockets and the real server."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, cast

import pytest
from aiohttp import web

from tests.cases import every, first_and_in_turn, named
from tests.e2e.conftest import CHAT
from tests.e2e.edge import BODY, STREAMED, Gateway, Start, answered, check, head
from tests.e2e.speaking import SSE
from tests.e2e.test_compressed import refused
from tests.waiting import GUARD_S, until
from toolwire.ingress.liveness import LivenessMonitor
from toolwire.server.parsing import SLICE_BYTES
from toolwire.testing import Answer, Asked, Say, Upstream, chunk, frame

KEYS = {"auth": {"keys": ["right", "other"]}}
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


# --- refused before anybody is asked --------------------------------------------------------------------------------


def line(version: str, *fields: str) -> bytes:
    return head(len(BODY), *fields).replace(b"HTTP/1.1", version.encode()) + BODY


def chunked_head(*fields: str, coding: str = "chunked") -> bytes:
    return head(None, *fields).replace(b"chunked", coding.encode())


def zeros(*fields: str) -> bytes:
    """A request whose length has more digits than Python's `int` reads."""
    return (
        head(len(BODY), *fields, f"Content-Length: {len(BODY):05000}").replace(
            f"Content-Length: {len(BODY)}\r\n".encode(), b"", 1
        )
        + BODY
    )


def in_chunks(body: bytes) -> bytes:
    """A request whose body comes byte by byte."""
    return chunked_head() + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


def long_body(size: int) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * size}]}).encode()


ONE_CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


REFUSED = {
    "HTTP/2.0": (line("HTTP/2.0"), 400, "malformed_request"),
    "HTTP/0.9": (line("HTTP/0.9"), 400, "malformed_request"),
    "HTTP/1.2": (line("HTTP/1.2"), 400, "malformed_request"),
    "HTTP/3.0": (line("HTTP/3.0"), 400, "malformed_request"),
    "no version": (b"GET /health\r\n\r\n", 400, "malformed_request"),
    "HTTP/2 taken for granted": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request"),
    "an unknown expectation": (head(len(BODY), "Expect: foo") + BODY, 417, "expectation_failed"),
    "at a path that is none": (head(len(BODY), "Expect: foo", path="/none") + BODY, 417, "expectation_failed"),
    "two expectations": (head(len(BODY), "Expect: 100-continue, foo") + BODY, 417, "expectation_failed"),
    "chunks in HTTP/1.0": (chunked_head().replace(b"HTTP/1.1", b"HTTP/1.0") + ONE_CHUNK, 400, "malformed_request"),
    "chunks and a length in HTTP/1.0": (line("HTTP/1.0", "Transfer-Encoding: chunked"), 400, "malformed_request"),
    "a length of thousands of digits": (zeros(), 400, "malformed_request"),
    "and an upgrade": (zeros("Connection: Upgrade", "Upgrade: h2c"), 400, "malformed_request"),
    "another transfer coding": (
        chunked_head(coding="gzip, chunked") + b"3\r\nabc\r\n0\r\n\r\n",
        400,
        "malformed_request",
    ),
}


async def test_what_is_refused(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """In the envelope, with a request id, in words of HTTP/1.1, and it is the connection's end."""
    gateway = await start()
    for name, (request, status, code) in REFUSED.items():
        async with asyncio.timeout(GUARD_S):
            got = await gateway.said(request)
        with named({"name": name}):
            check(got, status, code)
            assert re.search(rb"\r\nX-Request-Id: req_[0-9a-f]{32}\r\n", got)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    async with asyncio.timeout(GUARD_S):
        got = await gateway.said(head(len(BODY), "Expect: foo", "X-Request-Id: mine.1") + BODY)
    assert b"X-Request-Id: mine.1\r\n" in got, "the client's own id is kept"
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        writer.write(head(len(BODY)) + BODY + line("HTTP/2.0"))
        assert await answered(reader) == 200, "what came before is answered first"
        check(await reader.read(), 400, "malformed_request")


@every("keys", [{}, KEYS])
async def test_who_somebody_is_is_said_once(start: Start, keys: dict[str, Any]) -> None:
    gateway = await start(**keys)
    twice = [
        ("Authorization: Bearer right", "Authorization: Bearer other"),
        ("Authorization: Bearer right", "authorization: Bearer right"),
        ("x-api-key: right", "X-Api-Key: other"),
    ]
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        for path, fields in product((CHAT, "/none"), twice):  # it is well-formed, so the connection goes on
            writer.write(head(len(BODY), *fields, path=path) + BODY)
            answer, error = await refused(reader)
            assert (answer["status"], error["code"]) == ("400", "malformed_request"), (path, fields)
            assert "more than once" in error["message"]


# --- upgrades -------------------------------------------------------------------------------------------------------

UPGRADE = ("Connection: Upgrade", "Upgrade: {}")


def upgrading(to: str, first: str) -> bytes:
    fields = tuple(field.format(to) for field in UPGRADE)
    match first:
        case "POST":
            return head(len(BODY), *fields) + BODY
        case "chunks":
            return chunked_head(*fields) + ONE_CHUNK
        case _:
            return HEALTH[:-2] + "".join(f"{field}\r\n" for field in fields).encode() + b"\r\n"


@every("to, first", first_and_in_turn(["h2c", "websocket", "TLS/1.0, HTTP/1.1", "nothing"], ["GET", "POST", "chunks"]))
async def test_what_follows_an_upgrade_is_the_next_request(start: Start, to: str, first: str) -> None:
    gateway = await start()
    request, follows = upgrading(to, first), head(len(BODY)) + BODY
    whole = (request + follows) * 2
    for cut, cuts in (("at once", []), ("in two", [len(request) + 20]), ("byte by byte", list(range(1, len(whole))))):
        async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
            for a, b in pairwise([0, *cuts, len(whole)]):
                writer.write(whole[a:b])
                if cut == "in two":
                    await asyncio.sleep(0.01)
                elif a % 50 == 0:
                    await asyncio.sleep(0)
            for _ in range(4):
                assert await answered(reader) == 200, cut


# --- many small chunks ----------------------------------------------------------------------------------------------


async def test_a_body_in_very_many_chunks_is_parsed_in_slices(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much one read brings: what is parsed in a turn of the loop is bounded, and others have their turn in
    between."""
    sizes: list[int] = []
    turns: list[int] = []
    turn = 0
    real = web.RequestHandler.data_received

    def watched(self: web.RequestHandler, data: bytes) -> None:
        if data:
            sizes.append(len(data))
            turns.append(turn)
        real(self, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", watched)
    gateway = await start()
    request = in_chunks(long_body(60_000))
    counting = True

    async def count() -> None:
        nonlocal turn
        while counting:
            turn += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(GUARD_S):
        counter = asyncio.create_task(count())
        reader, writer = await _connected(gateway)
        accepted = next(iter(gateway.host.server.open))
        accepted.data_received(request)  # as one read
        assert await answered(reader) == 200
        accepted.data_received(request + HEALTH)  # and what follows is not lost
        assert await answered(reader) == 200
        assert await answered(reader) == 200
        counting = False
        await counter
        writer.transport.abort()
    assert max(sizes) <= SLICE_BYTES
    assert len(sizes) >= 2 * len(request) // SLICE_BYTES
    assert len(set(turns)) > len(sizes) // 2


async def _connected(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = await asyncio.open_connection("127.0.0.1", gateway.port)
    await until(lambda: len(gateway.host.server.open) == 1)
    return connection


async def test_what_stands_between_chunks_is_bounded(start: Start) -> None:
    gateway = await start(limits={"head_bytes": 2000})
    begin = chunked_head() + b"3\r\n{  \r\n"
    loop = asyncio.get_running_loop()
    for name, filling in {
        "an extension": b"1;" + b"x" * 20_000,
        "a long one": b"1;a=" + b"y" * 700_000,
        "a trailer": b"0\r\n" + b"A: b\r\n" * 100 + b"C: " + b"d" * 20_000,
    }.items():
        async with asyncio.timeout(GUARD_S):
            with socket.create_connection(("127.0.0.1", gateway.port)) as client:
                client.setblocking(False)
                with suppress(ConnectionError):  # once it is answered, nobody listens any more
                    await loop.sock_sendall(client, begin)
                    for at in range(0, len(filling), 900):
                        await loop.sock_sendall(client, filling[at : at + 900])
                        await asyncio.sleep(0.001)
                got = await all_of(client)
        with named({"name": name}):
            check(got, 400, "malformed_request")


# --- clients that end their side ------------------------------------------------------------------------------------


def half_closed(gateway: Gateway, request: bytes) -> socket.socket:
    """A client that has asked, and said that it will say no more."""
    client = socket.create_connection(("127.0.0.1", gateway.port))
    client.sendall(request)
    client.shutdown(socket.SHUT_WR)
    client.setblocking(False)
    return client


async def all_of(client: socket.socket) -> bytes:
    got = b""
    with suppress(ConnectionError):
        while piece := await asyncio.get_running_loop().sock_recv(client, 65536):
            got += piece
    return got


def later(gate: asyncio.Event) -> Any:
    def answer(asked: Asked) -> Answer:
        return replace(Say("Hello.")(asked), wait=gate)

    return answer


@every("case", ["whole", "streamed", "streamed, slow", "streamed, begun"])
async def test_a_client_that_ends_its_side_gets_its_answer(
    start: Start, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.ingress.liveness.PROBE_S", 0.1)
    gate = asyncio.Event()
    body = BODY if case == "whole" else STREAMED
    begun = [frame(chunk({"content": "Hel"})), gate, frame(chunk({"content": "lo."})), frame(chunk({}, "stop"))]
    turn = Answer([*begun, frame("[DONE]")], headers=SSE) if case.endswith("begun") else later(gate)
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as up:
        gateway = await start(url=up.url)
        with half_closed(gateway, head(len(body)) + body) as client:
            asked = await up.next_request()
            got = await asyncio.get_running_loop().sock_recv(client, 65536) if case.endswith("begun") else b""
            if case.startswith("streamed, "):
                await asyncio.sleep(0.3)  # so that it has been looked whether it is still there
            assert not asked.dropped.is_set()
            gate.set()
            got += await all_of(client)
    interim, _, rest = got.rpartition(b"HTTP/1.1 200 OK\r\n")
    assert interim in (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    assert rest.endswith(b"}" if case == "whole" else b"data: [DONE]\n\n\r\n0\r\n\r\n")
    for said in (b"Hel", b"lo."):
        assert said in rest
    await until(lambda: not gateway.host.server.open)


async def test_who_has_not_asked_is_gone(start: Start) -> None:
    gateway = await start()
    for request in (b"", b"GET /he", HEALTH[:-2], head(len(BODY)) + BODY[:-3]):
        async with asyncio.timeout(GUARD_S):
            with half_closed(gateway, request) as client:
                assert await all_of(client) == b"", request
        await until(lambda: not gateway.host.server.open)


@pytest.mark.parametrize("when", ["whole", "streamed", "begun"])
async def test_a_client_that_is_gone_takes_the_servers_work_along(start: Start, when: str) -> None:
    """It ended its side, and closed the other one without a word: the same to the gateway, until it writes."""
    gate = asyncio.Event()
    steps = [frame(chunk({"content": "Hel"})), gate]
    begun = Answer(steps, headers=SSE)
    body = BODY if when == "whole" else STREAMED
    async with asyncio.timeout(GUARD_S), Upstream([begun if when == "begun" else later(gate)]) as up:
        gateway = await start(url=up.url)
        client = half_closed(gateway, head(len(body)) + body)
        asked = await up.next_request()
        if when == "begun":
            await asyncio.get_running_loop().sock_recv(client, 65536)
        client.close()
        await asked.dropped.wait()
        await until(lambda: gateway.number("toolwire_requests_total", "499") == 1)
        await until(lambda: not gateway.host.server.open)


class Client:
    """The transport and the connection of a client that has ended its side, for a `LivenessMonitor`."""

    def __init__(self) -> None:
        self.error = 0
        self.wrote: list[bytes] = []
        self.aborted = False
        self.ended_at: float | None = 100.0

    def getsockopt(self, level: int, name: int) -> int:
        return self.error

    def get_extra_info(self, name: str) -> Client:
        return self

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.wrote.append(data)

    def abort(self) -> None:
        self.aborted = True


async def test_a_client_that_will_say_no_more_is_asked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    request: Any = type("R", (), {"transport": client, "protocol": client, "writer": type("W", (), {"output_size": 0})})
    now = 100.0
    monkeypatch.setattr("toolwire.ingress.liveness.time.monotonic", lambda: now)
    monitor = LivenessMonitor(cast(web.Request, request), 10.0, set(), set())
    monitor._task = None
    asked = {}
    for tick in range(300):
        now = 100.0 + tick / 10
        assert monitor.tick()
        asked[tick / 10] = len(client.wrote)
    assert (asked[0.5], asked[0.7], asked[10.5], asked[11.0], asked[29.0]) == (0, 1, 1, 2, 3)
    assert set(client.wrote) == {b"HTTP/1.1 100 Continue\r\n\r\n"}
    client.error = 32  # it answered with a reset
    assert not monitor.tick()
    assert client.aborted
