"""Bodies that are still arriving: they count against the budget of bytes, `concurrent` and `in_flight`, and no key can
take the places of others by sending slowly. Real sockets; bytes and requests are counted, never time."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from tests.cases import every
from tests.e2e import edge
from tests.e2e.conftest import CHAT
from tests.e2e.edge import BODY, Gateway, Start, answered
from tests.e2e.test_compressed import refused
from tests.waiting import GUARD_S, until
from toolwire.errors import Unavailable
from toolwire.ingress.budget import BodyShare
from toolwire.ingress.liveness import INTERIM, LIVENESS
from toolwire.testing import Answer, Asked, Say, Upstream

MIB = 1024 * 1024
KEYS = {"auth": {"keys": ["slow", "other", "third"]}}
LIMITS = {"limits": {"total_body_bytes": 4 * MIB, "body_bytes": MIB}}

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def head(size: int | None, *fields: str, key: str = "slow", path: str = CHAT) -> bytes:
    """A request's head with a key: see `tests.e2e.edge.head`."""
    return edge.head(size, f"Authorization: Bearer {key}", *fields, path=path)


def padded(size: int) -> bytes:
    """A good body of so many bytes."""
    return b" " * (size - len(BODY)) + BODY


async def open_(stack: AsyncExitStack, gateway: Gateway, *pieces: bytes) -> Client:
    """A connection on which these bytes are sent."""
    client = await stack.enter_async_context(gateway.connection())
    for piece in pieces:
        client[1].write(piece)
    await client[1].drain()
    return client


async def ask(gateway: Gateway, key: str, body: bytes = BODY) -> int:
    """The status of a request that is sent at once."""
    async with gateway.connection() as (reader, writer):
        writer.write(head(len(body), key=key) + body)
        return await answered(reader)


class Highest:
    """The most bytes that were counted at once."""

    bytes = 0


@pytest.fixture
def highest(monkeypatch: pytest.MonkeyPatch) -> Highest:
    """Watches every change of a budget."""
    seen = Highest()
    take = BodyShare.take

    def watched(share: BodyShare, size: int) -> None:
        take(share, size)
        seen.bytes = max(seen.bytes, share.budget.bytes)

    monkeypatch.setattr(BodyShare, "take", watched)
    return seen


# --- bytes ----------------------------------------------------------------------------------------------------------


async def test_bytes_count_as_they_come_and_no_longer_than_the_request(start: Start) -> None:
    gateway = await start(**KEYS, **LIMITS)
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        body = padded(300_000)
        reader, writer = await open_(stack, gateway, head(len(body)), body[:100_000])
        await until(lambda: gateway.body_bytes == 100_000)
        assert gateway.number("toolwire_request_body_bytes") == 100_000
        writer.write(body[100_000:])
        assert await answered(reader) == 200
        await until(lambda: gateway.body_bytes == 0)
        assert gateway.number("toolwire_request_body_bytes") == 0


REFUSED_AT = {
    CHAT: "503",
    "/v1/responses": "503",
    "/v1/messages": "529",
    "/v1/messages/count_tokens": "529",
    "/v1/responses/input_tokens": "503",
    "/v1/embeddings": "503",
    "/tokenize": "503",
    "/inspect/try/hermes/v1/chat/completions": "503",
    "/inspect/api/check": "503",
    "/inspect/api/view": "503",
    "/inspect/api/formats": "503",
}


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_slow_clients_of_one_key_leave_room_for_others(start: Start, chunked: bool, highest: Highest) -> None:
    """A key gets half of the budget; its next bytes are refused, and another key is served."""
    gateway = await start(**KEYS, **LIMITS, inspect={"on": True})
    piece = b" " * (MIB // 2 - 1)
    size = None if chunked else len(piece) + 1
    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        for number in range(4):
            await open_(stack, gateway, head(size), framed)
            await until(lambda number=number: gateway.body_bytes == (number + 1) * len(piece))
        for path, status in REFUSED_AT.items():
            reader, _ = await open_(stack, gateway, head(size, path=path), framed)
            fields, error = await refused(reader)
            assert (fields["status"], fields["retry-after"], fields["connection"]) == (status, "1", "close"), path
            assert "limits.total_body_bytes" in error["message"]
        for key in ("other", "third"):
            assert await ask(gateway, key, padded(MIB)) == 200
        assert highest.bytes <= 4 * MIB
    await until(lambda: gateway.body_bytes == 0)


async def test_a_body_counts_until_its_request_is_answered(start: Start) -> None:
    """Compressed ones as what they hold. A refused one never counts, and its connection goes on."""
    gate = asyncio.Event()

    def later(asked: Asked) -> Answer:
        return replace(Say("Hello.")(asked), wait=gate)

    packed = gzip.compress(padded(MIB))
    for body, fields in ((padded(MIB), ()), (packed, ("Content-Encoding: gzip",))):
        request = head(len(body), *fields) + body
        gate.clear()
        async with asyncio.timeout(GUARD_S), Upstream([later]) as up, AsyncExitStack() as stack:
            gateway = await start(url=up.url, **KEYS, **LIMITS)
            clients = [await open_(stack, gateway, request) for _ in range(2)]
            for _ in clients:
                await up.next_request()
            assert gateway.body_bytes == 2 * MIB
            reader, writer = await open_(stack, gateway, request)
            answer, error = await refused(reader)
            assert (answer["status"], error["code"], answer["retry-after"]) == ("503", "overloaded", "1")
            assert "limits.total_body_bytes" in error["message"]
            assert gateway.body_bytes == 2 * MIB
            if fields:
                writer.write(head(len(BODY), key="other") + BODY)
                await up.next_request()
                clients.append((reader, writer))
            gate.set()
            for reader, _ in clients:
                assert await answered(reader) == 200
            await until(lambda gateway=gateway: gateway.body_bytes == 0)


async def test_a_client_without_room_is_not_told_to_send(start: Start) -> None:
    gateway = await start(**KEYS, limits={"total_body_bytes": 2 * MIB, "body_bytes": MIB})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        await open_(stack, gateway, head(MIB), b" " * (MIB // 2))
        await until(lambda: gateway.body_bytes == MIB // 2)
        reader, _ = await open_(stack, gateway, head(MIB, "Expect: 100-continue"))
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")


async def test_a_client_that_was_told_to_send_is_told_of_a_stop(start: Start) -> None:
    """The interim response is not yet the beginning of its answer."""
    async with asyncio.timeout(GUARD_S), Upstream([Say("Hello.", hang=True)]) as up, AsyncExitStack() as stack:
        gateway = await start(url=up.url)
        reader, writer = await open_(stack, gateway, edge.head(len(BODY), "Expect: 100-continue"))
        assert await reader.readuntil(b"\r\n\r\n") == INTERIM
        writer.write(BODY)
        await up.next_request()
        assert gateway.host._current.app[LIVENESS].stop(Unavailable("It stops.")) == 1
        assert await answered(reader) == 503


async def test_a_refused_body_holds_nothing(start: Start, highest: Highest) -> None:
    """Only of a body that had to be read before it could be refused anything was counted, and no longer."""
    keys = ["slow", {"key": "busy", "requests_per_min": 1}]
    gateway = await start(auth={"keys": keys}, limits={"total_body_bytes": 4 * MIB, "body_bytes": MIB})
    body = padded(MIB)
    assert await ask(gateway, "busy") == 200
    for status, request in {
        b"400": head(MIB) + b"[" * MIB,
        b"401": head(MIB, key="wrong") + body,
        b"404": head(MIB, path="/v1/nothing") + body,
        b"413": head(MIB + 1) + body,
        b"415": head(MIB).replace(b"application/json", b"text/plain") + body,
        b"429": head(MIB, key="busy") + body,
    }.items():
        highest.bytes = 0
        async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
            reader, _ = await open_(stack, gateway, request)
            assert (await reader.readline()).split()[1] == status
            await until(lambda: gateway.body_bytes == 0)
        assert highest.bytes == (MIB if status in (b"400", b"429") else 0), status


# --- requests at the same time --------------------------------------------------------------------------------------


@every("path", [CHAT, "/v1/embeddings", "/v1/messages/count_tokens", "/inspect/api/check"])
async def test_an_arriving_body_takes_a_place_of_its_key(start: Start, path: str) -> None:
    keys = {"auth": {"keys": [{"key": "slow", "concurrent": 2}, "other"]}}
    gateway = await start(**keys, inspect={"on": True})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        clients = [await open_(stack, gateway, head(1000)) for _ in range(2)]
        await until(lambda: gateway.number("toolwire_inflight_requests") == 2)
        reader, _ = await open_(stack, gateway, head(1000, path=path))  # before its body has come
        fields, error = await refused(reader)
        assert (fields["status"], fields["retry-after"]) == ("429", "1")
        assert "concurrent requests: Limit 2" in error["message"]
        assert await ask(gateway, "other") == 200
        clients[0][1].transport.abort()
        await until(lambda: gateway.number("toolwire_inflight_requests") == 1)
        assert await ask(gateway, "slow") == 200
        clients[1][1].write(padded(1000))
        assert await answered(clients[1][0]) == 200
        assert await ask(gateway, "slow") == 200


async def test_slow_bodies_do_not_keep_others_out_of_the_gateway(start: Start) -> None:
    gateway = await start(**KEYS, rate_limits={"in_flight": 3})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        slow = []
        for number in range(3):
            slow.append(await open_(stack, gateway, head(1000), b" "))
            await until(lambda number=number: gateway.number("toolwire_inflight_requests") == number + 1)
        assert await ask(gateway, "other") == 200
        fields, error = await refused(slow[0][0])  # the oldest gave way
        assert (fields["status"], error["code"], fields["retry-after"]) == ("503", "overloaded", "1")
        for reader, writer in slow[1:]:
            writer.write(padded(999))
            assert await answered(reader) == 200
