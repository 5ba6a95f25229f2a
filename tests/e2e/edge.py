"""The real server of the gateway in this process, and clients that write and read bytes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

from tests.e2e.conftest import CHAT, read_config
from toolwire.app import create_app
from toolwire.config import GatewayConfig
from toolwire.ingress.budget import BODY_BUDGET
from toolwire.observability.telemetry import Metrics
from toolwire.server.clients import limit_unsent
from toolwire.server.hosting import AppHost

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAMED = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'


def head(length: int | None, *fields: str, path: str = CHAT) -> bytes:
    """A request's head. `length` of its body; None: it comes in chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", framing, *fields]
    return "\r\n".join([*lines, "", ""]).encode()


class Gateway:
    """The real server in this process."""

    def __init__(self, host: AppHost, metrics: Metrics, port: int) -> None:
        self.host = host
        self.metrics = metrics
        self.port = port

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    @contextmanager
    def asking(self, request: bytes, buffer: int = 65536) -> Iterator[socket.socket]:
        """A connection whose request is there before the gateway accepts it, so that no limit passes before."""
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.connect(("127.0.0.1", self.port))
            client.sendall(request)
            client.setblocking(False)
            yield client

    async def said(self, *pieces: bytes) -> bytes:
        """All that one connection gets until the gateway closes it."""
        async with self.connection() as (reader, writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies of requests that arrive or run."""
        return self.host._current.app[BODY_BUDGET].bytes

    def number(self, name: str, *labels: str) -> float:
        """A metric's value."""
        page, _ = self.metrics.page()
        wanted = [f'"{label}"' for label in labels]
        lines = [
            line for line in page.decode().splitlines() if line.startswith(name) and all(w in line for w in wanted)
        ]
        return sum(float(line.split()[-1]) for line in lines)


Start = Callable[..., Any]


@asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """`await start(server={...}, limits={...})`: a gateway in front of the mock, or of `url`."""
    async with AsyncExitStack() as stack:

        async def start(*, url: str | None = None, script: Any = ("Hello.",), **sections: Any) -> Gateway:
            backend = {"kind": "mock", "script": list(script)} if url is None else {"url": url}
            return await stack.enter_async_context(running(read_config({"backends": {"b": backend}, **sections})))

        yield start


@asynccontextmanager
async def running(config: GatewayConfig) -> AsyncIterator[Gateway]:
    metrics = Metrics()
    host = AppHost(lambda c, m, before: create_app(c, metrics=m, before=before), metrics)
    await host.start(config)
    runner = web.ServerRunner(host.server, shutdown_timeout=1)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        limit_unsent(listener)
        await web.SockSite(runner, listener).start()
        try:
            yield Gateway(host, metrics, listener.getsockname()[1])
        finally:
            await runner.cleanup()
            await host.close()
            assert not host.server.open


async def answered(reader: asyncio.StreamReader) -> int:
    """Read one whole answer; its status."""
    fields = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(fields.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
    return int(fields.split()[1])


def check(answer: bytes, status: int, code: str) -> None:
    first, _, rest = answer.partition(b"\r\n")
    fields, _, body = rest.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"connection: close" in fields.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
