"""A request without a connection, for an exchange that continues in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from ..chain.plain import set_unread_body
from ..exchange.request_state import EXCHANGE


class _NoConnection(asyncio.Transport):
    """A stand-in for the client's transport. It is always open."""

    def is_closing(self) -> bool:
        """Returns False."""
        return False

    def abort(self) -> None:
        """Does nothing."""


class _NoClient:
    """The attributes of a connection that a request reads."""

    writing_paused = False

    def __init__(self, request: web.Request) -> None:
        self.transport = _NoConnection()
        protocol = request.protocol
        self.ssl_context, self.peername, self.sockname = protocol.ssl_context, protocol.peername, protocol.sockname


class ResponseSink(AbstractStreamWriter):
    """A response writer that passes the body of an answer to `take`."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Takes a piece of the body."""
        self.output_size += len(chunk)
        self._take(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        """Takes the last piece of the body, if there is one."""
        if chunk:
            await self.write(chunk)

    async def drain(self) -> None:
        """Returns at once: everything has been taken."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Does nothing: no network is involved."""

    def enable_chunking(self) -> None:
        """Does nothing: no network is involved."""

    async def write_headers(self, status_line: str, headers: Any) -> None:
        """Does nothing: a detached request has no reader."""


def without_connection(request: web.Request, sink: ResponseSink) -> web.Request:
    """Returns the same request without its connection; its answer is written to `sink`."""
    client: Any = _NoClient(request)
    alone = web.Request(
        request._message,
        request._payload,
        client,
        sink,
        request.task,
        asyncio.get_running_loop(),
        client_max_size=request._client_max_size,
        state=dict(request._state),
    )
    alone._match_info = request._match_info
    origin = alone[EXCHANGE].received.origin
    set_unread_body(alone, b"" if origin is None else origin.body)
    return alone
