"""aiohttp's sessions, for what is no answer to a client: questions of the gateway's own, and WebSockets
(docs/adr/0064).

Every request gets a connection of its own: aiohttp hands what arrives on an unused connection to the next request as
the beginning of its answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from ..config import BackendConfig
from ..errors import BackendFault
from .connections import disconnected, not_http, undecodable, unreachable, untrusted
from .tls import log_untrusted, tls_context
from .upstream_errors import redirected

PIECE_BYTES: Final = 64 * 1024
"""Of a request body that are sent at once."""


def open_session(
    url: URL, headers: Mapping[str, str], config: BackendConfig, *middlewares: aiohttp.ClientMiddlewareType
) -> aiohttp.ClientSession:
    """A session for the server at `url`, whose requests have these headers and go through `middlewares`."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=config.pool.connections,
            force_close=True,
            ssl=tls_context(verify=config.verify_tls) if url.scheme == "https" else True,
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.timeouts.connect_s),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=config.trust_env,
        middlewares=middlewares,
    )


class BodyInPieces(aiohttp.Payload):
    """A request body that is sent in pieces, so that others are served meanwhile. aiohttp sends bytes at once, and
    copies a `BytesIO` at once."""

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
    """A client middleware. Raises `BackendFault` for an answer that is a redirect, which aiohttp follows where it opens
    a WebSocket, with the configured headers."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise redirected(response.status)
    return response


def broken(error: Exception) -> BackendFault:
    """The error for a connection that failed, or an answer that is not HTTP."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        if isinstance(error.__cause__, ssl.SSLError):
            log_untrusted(error.host, error.__cause__)
        return untrusted()
    if isinstance(error, aiohttp.ClientConnectorError):
        return unreachable()
    if isinstance(error, aiohttp.ClientPayloadError) and "not completed" not in str(error):
        return undecodable()
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientConnectionError | OSError):
        return disconnected()
    return not_http()
