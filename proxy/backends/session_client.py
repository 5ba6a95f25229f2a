"""The client for what the fast one does not do (docs/adr/0007): aiohttp's `ClientSession`.

It takes the proxy variables of the environment, and serves without `httptools`. Every request gets a connection of its
own: aiohttp hands what arrives on an unused connection to the next request as the beginning of its answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from ..config import BackendConfig, Timeouts
from ..errors import BackendFault
from .connections import (
    CONNECTING,
    VERSIONS,
    disconnected,
    not_http,
    shortest,
    timed_out,
    too_large,
    undecodable,
    unreachable,
    untrusted,
)
from .tls import log_untrusted, tls_context
from .upstream_errors import redirected

PIECE_BYTES: Final = 64 * 1024
"""Of a request body that are sent at once."""

_PATROL_S: Final = 1.0
"""How often a waiting answer is looked at, at least."""


class SessionClient:
    """Connections to the server at `url`. `session` may be used for other requests as well, which go through
    `middlewares`."""

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        config: BackendConfig,
        *middlewares: aiohttp.ClientMiddlewareType,
    ) -> None:
        self._url = url
        self._timeouts = config.timeouts
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=config.pool.connections,
                force_close=True,
                ssl=tls_context(verify=config.verify_tls) if url.scheme == "https" else True,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=config.trust_env,
            middlewares=middlewares,
        )

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> SessionAnswer:
        """Send a request and wait for the answer's headers."""
        started = time.monotonic()
        fields = {
            **(headers or {}),
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if stream else "application/json",
            "X-Request-Id": request_id,
        }
        limit, phase = shortest(self._timeouts)
        try:
            async with asyncio.timeout(limit):
                response = await self.session.post(
                    self._url, data=BodyInPieces(body), headers=fields, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            raise timed_out(CONNECTING, self._timeouts.connect_s) from None
        except TimeoutError:
            raise timed_out(phase, limit) from None
        except (aiohttp.ClientError, OSError) as error:
            raise broken(error) from error
        version = response.version
        if not 200 <= response.status < 600 or version is None or f"{version.major}.{version.minor}" not in VERSIONS:
            response.close()
            raise not_http()
        return SessionAnswer(response, Watch(response, self._timeouts, time.monotonic() - started))

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()


class PulledAnswer:
    """Base of answers (`connections.Answer`) that a task reads, one item of `reads` at a time."""

    def __init__(self) -> None:
        self._sink: Callable[[bytes], None]
        self._flows = asyncio.Event()
        self._flows.set()

    def reads(self) -> AsyncGenerator[bytes, None]:
        """See `Answer`."""
        raise NotImplementedError

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises `BackendFault` beyond `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        async for data in self.reads():
            size += len(data)
            if size > limit:
                raise too_large(limit)
            parts.append(data)
        return b"".join(parts)

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Give each read to `sink`, from this task."""
        self._sink = sink
        async for data in self.reads():
            self._sink(data)
            await self._flows.wait()

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """See `Answer`."""
        self._sink = sink

    def pause(self) -> None:
        """Give nothing more to the sink."""
        self._flows.clear()

    def resume(self) -> None:
        """Go on."""
        self._flows.set()


class SessionAnswer(PulledAnswer):
    """One answer of a `ClientSession`."""

    def __init__(self, response: aiohttp.ClientResponse, watch: Watch) -> None:
        super().__init__()
        self.status = response.status
        self.content_type = response.content_type
        self.queued_s = 0.0  # aiohttp does not say
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._watch = watch

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self._response.content.at_eof()

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """What the socket gives, one item per read."""
        content = self._response.content
        watch = self._watch
        try:
            while True:
                watch.waits()
                data = await content.readany()
                if not data:
                    return
                watch.got()
                yield data
        except aiohttp.ClientError as error:
            raise watch.fault or broken(error) from error
        except OSError as error:
            raise broken(error) from error
        finally:
            watch.stop()

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Close the connection."""
        try:
            if linger_s and not self.ended:
                async with asyncio.timeout(linger_s):
                    while await self._response.content.readany():
                        pass
        except (aiohttp.ClientError, OSError):
            pass  # it did not end in time, or badly
        finally:
            self._watch.stop()
            self._response.close()


class Watch:
    """The time limits of one answer while it is read: one timer, whatever the number of reads, right to about a second.

    Only a reader that waits can find the server idle: a slow client holds back the reads, and that is not the server's
    fault.

    It also looks after a case in which aiohttp 3.14 lets a reader wait for ever: a malformed chunk size in a later read
    closes the connection without telling the reader.
    """

    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts, elapsed_s: float) -> None:
        self.fault: BackendFault | None = None
        self._response = response
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._started = self._last = self._loop.time() - elapsed_s
        self._waiting = self._waiting_for_first = True
        self._timer = self._loop.call_later(self._pause(), self._look)

    def waits(self) -> None:
        """A read begins."""
        if not self._waiting_for_first:
            self._last = self._loop.time()
        self._waiting = True

    def got(self) -> None:
        """A read gave something."""
        self._waiting = self._waiting_for_first = False

    def stop(self) -> None:
        """Nothing more is read."""
        self._timer.cancel()

    def _limits(self) -> list[tuple[float, str, float]]:
        """Moment, phase and length of each limit that applies now."""
        t = self._timeouts
        silence = ("waiting for the first byte", t.first_byte_s) if self._waiting_for_first else ("idle", t.idle_s)
        out = []
        if silence[1] is not None and self._waiting:
            out.append((self._last + silence[1], silence[0], silence[1]))
        if t.total_s is not None:
            out.append((self._started + t.total_s, "total", t.total_s))
        return out

    def _pause(self) -> float:
        now = self._loop.time()
        return max(0.0, min([_PATROL_S, *(moment - now for moment, _, _ in self._limits())]))

    def _look(self) -> None:
        content = self._response.content
        if content.is_eof() or content.exception() is not None:
            return
        connection = self._response.connection
        now = self._loop.time()
        passed = next(((phase, s) for moment, phase, s in self._limits() if moment <= now), None)
        if passed is not None:
            self.fault = timed_out(*passed)
        elif connection is not None and connection.closed:
            self.fault = not_http()
        else:
            self._timer = self._loop.call_later(self._pause(), self._look)
            return
        content.set_exception(aiohttp.ClientPayloadError(self.fault.message))


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
