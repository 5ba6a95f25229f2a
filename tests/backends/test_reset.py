"""A connection that is reset is no end of an answer, also where the end of the connection would be one."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from tests.backends.peers import OK
from toolwire.config import BackendConfig
from toolwire.errors import BackendFault
from toolwire.upstream.client.wire_client import WireClient

STREAM = b"data: 1\n\n"


@asynccontextmanager
async def server(*, resets: bool, seen: asyncio.Event) -> AsyncIterator[URL]:
    """Sends an answer without a stated length, and ends the connection once that was `seen`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Type: text/event-stream\r\nConnection: close\r\n\r\n" + STREAM)
        await writer.drain()
        await seen.wait()
        if resets:
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield URL(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/chat/completions")


@pytest.mark.parametrize("resets", [False, True])
async def test_an_answer_that_ends_with_its_connection(resets: bool) -> None:
    seen = asyncio.Event()
    got: list[bytes] = []

    def take(data: bytes) -> None:
        got.append(data)
        seen.set()

    async with server(resets=resets, seen=seen) as url:
        client = WireClient(url, {}, BackendConfig())
        answer = await client.post(b"{}", stream=True, request_id="r")
        if resets:
            with pytest.raises(BackendFault) as caught:
                await answer.pump(take)
            assert caught.value.code == "upstream_disconnected"
        else:
            await answer.pump(take)
        await client.close()
    assert b"".join(got) == STREAM
