"""Compressed bodies, and bodies that nobody wants: what is inflated, when and how much, and what becomes of the
connection. Real sockets and the real server; an application in somebody else's server has the same rules."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e import edge
from tests.e2e.conftest import CHAT, Gateway, mock_config, post, read_config
from tests.e2e.edge import BODY, Start, answered, check, head
from tests.waiting import GUARD_S, until
from toolwire.app import create_app
from toolwire.ingress import receiving
from toolwire.support.codings import PIECE_BYTES, Decoder

MIB = 1024 * 1024
KEYS = {"auth": {"keys": ["right"]}}


def gzipped(megabytes: int) -> bytes:
    """A gzip of so many megabytes of blanks in front of a good body, made without making them."""
    writer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return b"".join([*(writer.compress(b" " * MIB) for _ in range(megabytes)), writer.compress(BODY), writer.flush()])


def bare(data: bytes) -> bytes:
    writer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return writer.compress(data) + writer.flush()


class Seen(list[int]):
    """How much came out of each step of inflating."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Watches every step of inflating."""
    seen = Seen()

    class Watched(Decoder):
        def feed(self, data: bytes) -> Iterator[bytes]:
            for piece in super().feed(data):
                seen.append(len(piece))
                yield piece

    monkeypatch.setattr(receiving, "Decoder", Watched)
    return seen


# --- what is taken --------------------------------------------------------------------------------------------------

GOOD = {
    "gzip": ("gzip", gzip.compress(BODY)),
    "x-gzip": ("X-GZip", gzip.compress(BODY)),
    "two members": ("gzip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:])),
    "bare deflate": ("deflate", bare(BODY)),
    "nothing": ("", BODY),
    "identity and gzip": ("identity, gzip", gzip.compress(BODY)),
}


def compressed(wire: bytes, coding: str = "gzip", *fields: str) -> bytes:
    """A request with this body."""
    return head(len(wire), f"Content-Encoding: {coding}", *fields) + wire


async def answer_to(gateway: edge.Gateway, request: bytes) -> int:
    """The status of the answer."""
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        writer.write(request)
        return await answered(reader)


async def refusal_of(gateway: edge.Gateway, request: bytes) -> tuple[dict[str, str], dict[str, Any]]:
    """The fields of the answer, and the error in it."""
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        writer.write(request)
        return await refused(reader)


async def test_what_is_taken(start: Start) -> None:
    gateway = await start()
    for name, (coding, wire) in GOOD.items():
        async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
            for cut in (None, -5):  # at once and in two pieces; the connection goes on
                request = compressed(wire, coding)
                writer.write(request[:cut])
                if cut is not None:
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    writer.write(request[cut:])
                assert await answered(reader) == 200, name
        assert gateway.body_bytes == 0


# --- how much -------------------------------------------------------------------------------------------------------


async def test_nothing_is_inflated_without_a_key(start: Start, steps: Seen) -> None:
    gateway = await start(**KEYS)
    bomb = gzipped(20)
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        writer.write(compressed(bomb))
        assert await answered(reader) == 401
        fields = ("Content-Encoding: gzip", "Authorization: Bearer wrong")
        check(await gateway.said(head(50 * MIB, *fields) + bomb), 401, "invalid_api_key")
    assert steps == []


@every(
    "request_line, fields",
    [
        ("POST /v1/nothing HTTP/1.1", ""),
        ("PUT /v1/chat/completions HTTP/1.1", ""),
        ("GET /health HTTP/1.1", ""),
        ("POST /v1/chat/completions HTTP/1.1", "Content-Type: text/plain\r\n"),
    ],
)
async def test_nothing_is_inflated_for_nobody(start: Start, steps: Seen, request_line: str, fields: str) -> None:
    bomb = gzipped(20)
    head = f"{request_line}\r\nHost: x\r\n{fields}Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    assert await answer_to(await start(), head.encode() + bomb) in (200, 404, 405, 415)
    assert steps == []


async def test_no_more_than_the_limit_comes_out(start: Start, steps: Seen) -> None:
    gateway = await start(limits={"body_bytes": 3 * MIB})
    assert (await refusal_of(gateway, compressed(gzipped(20))))[1]["code"] == "request_too_large"
    assert 3 * MIB < sum(steps) <= 3 * MIB + PIECE_BYTES
    assert max(steps) <= PIECE_BYTES
    assert gateway.body_bytes == 0


async def test_others_have_their_turn_between_two_steps(start: Start, steps: Seen) -> None:
    """Of many bodies that are inflated at once, one step is taken in a turn of the loop."""
    gateway = await start()
    wire = gzipped(4)
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> int:
        async with gateway.connection() as (reader, writer):
            writer.write(compressed(wire))
            return await answered(reader)

    async with asyncio.timeout(GUARD_S):
        looking = asyncio.create_task(other())
        assert await asyncio.gather(*(ask() for _ in range(5))) == [200] * 5
        done = True
        await looking
    assert len(steps) >= 5 * 4 * MIB // PIECE_BYTES
    assert turns >= len(steps)


# --- bodies that nobody wants ---------------------------------------------------------------------------------------

UNWANTED = {
    "401": (head(5 * MIB, "Authorization: Bearer wrong"), "invalid_api_key"),
    "404": (head(5 * MIB, "Authorization: Bearer right", path="/v1/nothing"), "not_found"),
    "405": (head(5 * MIB, "Authorization: Bearer right", path="/v1/models"), "method_not_allowed"),
    "413": (head(50 * MIB, "Authorization: Bearer right"), "request_too_large"),
    "415": (
        head(5 * MIB, "Authorization: Bearer right").replace(b"application/json", b"text/plain"),
        "unsupported_media_type",
    ),
    "417": (head(5 * MIB, "Authorization: Bearer right", "Expect: foo"), "expectation_failed"),
    "400": (head(5 * MIB, "Authorization: Bearer right", "Content-Encoding: foo"), "malformed_request"),
    "400 two keys": (head(5 * MIB, "Authorization: Bearer right", "Authorization: Bearer right"), "malformed_request"),
    "401 in chunks": (head(None) + b"400000\r\n", "invalid_api_key"),
}


async def test_a_refused_body_ends_the_connection(start: Start) -> None:
    """The client reads why, and that it is over, while it still sends."""
    gateway = await start(**KEYS)
    for name, (request, code) in UNWANTED.items():
        async with asyncio.timeout(GUARD_S):
            check(await gateway.said(request + b"x" * 100_000), int(name[:3]), code)
        await until(lambda: not gateway.host.server.open)


async def test_nobody_who_is_refused_is_told_to_send(start: Start) -> None:
    gateway = await start(**KEYS)
    for name in ("401", "413", "415", "400"):
        request = UNWANTED[name][0].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        async with asyncio.timeout(GUARD_S):
            got = await gateway.said(request)
        assert got.count(b"HTTP/1.1 ") == 1, got
        assert got.startswith(b"HTTP/1.1 " + name.encode())


async def test_who_waits_to_be_told_is_told(start: Start) -> None:
    wire = gzip.compress(BODY)
    gateway = await start(**KEYS)
    fields = ("Authorization: Bearer right", "Content-Encoding: gzip", "Expect: 100-Continue")
    async with asyncio.timeout(GUARD_S), gateway.connection() as (reader, writer):
        for _ in range(2):
            writer.write(head(len(wire), *fields))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(wire)
            assert await answered(reader) == 200
        writer.write(head(len(wire), *fields) + wire)  # it did not wait: nobody needs to be told
        assert await answered(reader) == 200


# --- in another server ----------------------------------------------------------------------------------------------


async def test_an_application_in_aiohttps_own_server(gateway: Gateway, steps: Seen) -> None:
    server = await gateway(read_config({"backends": {"m": {"kind": "mock", "script": ["hi"]}}, **KEYS}))
    bomb = gzipped(50)
    answer = await post(server, bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status, steps) == (401, [])
    answer = await post(server, bomb, headers={"Content-Encoding": "gzip", "Authorization": "Bearer right"})
    assert answer.status == 413
    right = {"Authorization": "Bearer right", "Content-Encoding": "gzip"}
    assert (await post(server, gzip.compress(BODY), headers=right)).status == 200


async def test_a_part_of_another_application() -> None:
    """Whose server inflates bodies by itself: they are not inflated again."""
    outer = web.Application()
    outer.add_subapp("/inner", create_app(mock_config(["hi"])))
    async with TestServer(outer) as server:
        answer = await post(server, gzip.compress(BODY), path=f"/inner{CHAT}", headers={"Content-Encoding": "gzip"})
    assert answer.status == 200


async def refused(reader: asyncio.StreamReader) -> tuple[dict[str, str], dict[str, Any]]:
    """Read one answer: its status and fields, and the error in it."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(fields["content-length"]))
    return {**fields, "status": lines[0].split()[1]}, json.loads(body)["error"]
