"""aiohttp client sessions for the gateway's own queries and for WebSockets (docs/adr/0007). Answers to clients use
`wire_client`.

Every request opens a new connection: aiohttp would take data that arrives on an idle connection for the beginning of
the next answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from ...config import BackendConfig
from ...errors import BackendFault
from .connections import disconnected, not_http, redirected, undecodable, unreachable
from .tls import tls_context, tls_fault
from .wire_proxy import proxy_for

PIECE_BYTES: Final = 64 * 1024
"""Bytes of a request body that are written at once."""


def open_session(
    url: URL, headers: Mapping[str, str], config: BackendConfig, *middlewares: aiohttp.ClientMiddlewareType
) -> aiohttp.ClientSession:
    """Returns a session for the server at `url`, whose requests have these headers and go through `middlewares`."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=config.pool.connections,
            force_close=True,
            ssl=tls_context(verify=config.verify_tls) if url.scheme == "https" else True,
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.timeouts.connect_s),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy_for(url, config),
        middlewares=middlewares,
    )


class BodyInPieces(aiohttp.Payload):
    """A request body that is sent in pieces, so that the event loop can serve others meanwhile. aiohttp writes bytes at
    once, and copies a `BytesIO` at once."""

    _autoclose = True  # there is nothing to close

    def __init__(self, body: bytes) -> None:
        super().__init__(body, content_type="application/json")
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return str(self._value, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Sends the body."""
        for at in range(0, len(self._value), PIECE_BYTES):
            await writer.write(self._value[at : at + PIECE_BYTES])


async def refuse_redirect(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """A client middleware that raises `BackendFault` for a redirect. Otherwise aiohttp would follow it when it opens a
    WebSocket, and send the configured headers there."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise redirected(response.status)
    return response


def connection_fault(error: Exception) -> BackendFault:
    """Returns the error for a failed connection or an answer that is not HTTP."""
    if isinstance(error, aiohttp.ClientSSLError):
        assert isinstance(error.__cause__, ssl.SSLError)
        return tls_fault(error.host, error.__cause__)
    if isinstance(error, aiohttp.ClientConnectorError):
        return unreachable()
    if isinstance(error, aiohttp.ClientPayloadError) and "not completed" not in str(error):
        return undecodable()
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientConnectionError | OSError):
        return disconnected()
    return not_http()
