"""A gateway without sockets: both ends of its connections are simulated in one process.

Used where the whole path of a request is needed without a network: the rehearsal at the start, and benchmarks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final

from aiohttp import web

from ..app import BACKENDS
from ..config import GatewayConfig
from ..observability.telemetry import Metrics
from ..upstream.client.wire_client import WireClient
from ..upstream.client.wire_connection import HttpConnection
from ..upstream.servers.http import HttpBackend
from .hosting import AppFactory, AppHost

SimulatedAnswer = Callable[[bytes], Sequence[bytes]]
"""Returns the reads that a model server sends for the bytes of a request."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class SimulatedGateway:
    """A gateway for a configuration, running inside `async with`. `answer` replaces its HTTP model servers."""

    def __init__(self, create: AppFactory, config: GatewayConfig, answer: SimulatedAnswer) -> None:
        self._create = create
        self._config = config
        self._answer = answer
        self._protocols: list[asyncio.BaseProtocol] = []

    async def __aenter__(self) -> SimulatedGateway:
        self._host = AppHost(self._create, Metrics(), logs_servers=False)
        await self._host.start(self._config)
        for backend in self.app[BACKENDS]:
            client = backend.client if isinstance(backend, HttpBackend) else None
            if isinstance(client, WireClient):
                client.dial = partial(self._dial, client)
                client.settle_s = 0.0  # the simulated server never sends unrequested answers
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for protocol in self._protocols:
            protocol.connection_lost(None)
        await self._host.close()

    @property
    def app(self) -> web.Application:
        """The application."""
        return self._host.app

    def client(self) -> Callable[[bytes], Awaitable[bytes]]:
        """Returns a client with a connection of its own: a function that returns the whole answer to the bytes of a
        request. Call it for one request at a time."""
        transport, protocol = _ClientTransport(), self._host.server()
        protocol.connection_made(transport)
        self._protocols.append(protocol)
        loop = asyncio.get_running_loop()

        async def ask(request: bytes) -> bytes:
            transport.done = loop.create_future()
            transport.answer = bytearray()
            protocol.data_received(request)
            await transport.done
            return bytes(transport.answer)

        return ask

    async def _dial(self, client: WireClient) -> HttpConnection:
        connection = HttpConnection(client, client.scratch)
        connection.connection_made(_ServerTransport(connection, self._answer))
        return connection


class _ClientTransport(asyncio.Transport):
    """The client's end of a connection to the gateway. Waits for the end of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = bytearray()
        self.done: asyncio.Future[None] | None = None

    def write(self, data: Any) -> None:
        """Receives a piece of an answer."""
        self.answer += data
        assert self.done is not None
        if not self.done.done() and (
            b"Content-Length: " in self.answer[:400] or self.answer.endswith(b"\r\n0\r\n\r\n")
        ):
            self.done.set_result(None)

    def writelines(self, pieces: Any) -> None:
        """Receives several pieces."""
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        """Returns 0."""
        return 0

    def is_closing(self) -> bool:
        """Returns False."""
        return False

    def close(self) -> None:
        """Does nothing."""


class _ServerTransport(asyncio.Transport):
    """The model server's end of a connection. Delivers one read per iteration of the event loop."""

    def __init__(self, connection: HttpConnection, answer: SimulatedAnswer) -> None:
        super().__init__()
        self._connection = connection
        self._answer = answer
        self._request: list[bytes] = []
        self._missing = 0
        self._reads: Sequence[bytes] = ()
        self._next = 0
        self._paused = False

    def write(self, data: Any) -> None:
        """Receives a request, or a part of it: the body of a long one may come after its head."""
        part = bytes(data)
        if not self._request:
            end = part.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(part, 0, end)
            self._missing = end + (0 if length is None else int(length[1]))
        self._request.append(part)
        self._missing -= len(part)
        if self._missing > 0:
            return
        self._reads = self._answer(part if len(self._request) == 1 else b"".join(self._request))
        self._request = []
        self._next = 0
        asyncio.get_running_loop().call_soon(self._bring)

    def _bring(self) -> None:
        if self._paused or self._next == len(self._reads):
            return
        data = self._reads[self._next]
        self._connection.get_buffer(-1)[: len(data)] = data
        self._next += 1
        if self._next < len(self._reads):
            asyncio.get_running_loop().call_soon(self._bring)
        self._connection.buffer_updated(len(data))

    def get_write_buffer_size(self) -> int:
        """Returns 0."""
        return 0

    def pause_reading(self) -> None:
        """Pauses delivery."""
        self._paused = True

    def resume_reading(self) -> None:
        """Continues delivery."""
        if self._paused:
            self._paused = False
            if self._next < len(self._reads):
                asyncio.get_running_loop().call_soon(self._bring)

    def is_closing(self) -> bool:
        """Returns False."""
        return False

    def abort(self) -> None:
        """Does nothing."""
