"""An `UpstreamClient` for Responses servers over WebSocket: streams arrive as frames.

Rules:

1. A connection answers one request at a time, and is reused after that answer has ended. Data that arrives on an idle
   connection closes it.
2. If the server does not offer a WebSocket, HTTP is used, and the WebSocket is not tried again for `AGAIN_S`. HTTP is
   also used if the handshake is refused for another reason, because its answer explains the error better, and for
   requests that do not stream.
3. A request is resent only if nothing arrived for it: the connection was closed while idle, or the server says that it
   is too old.
4. A redirect of the handshake is an error, because the headers would be sent along.
5. The reader gets server-sent events, as over HTTP: each frame is one event.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ...config import BackendConfig, LimitsConfig, Timeouts
from ...protocols.base import ServerSide
from ...protocols.shared.wire import dump, load
from ...support.tasks import BackgroundTasks
from .connections import CONNECTING, UpstreamAnswer, UpstreamClient, disconnected, timed_out, too_large
from .iterated_answer import IteratedAnswer
from .sessions import connection_fault, open_session, refuse_redirect

AGAIN_S: Final = 600.0
NOT_OFFERED: Final = frozenset({200, 400, 404, 405, 426, 501})
"""Handshake statuses of a server that has no WebSocket at this path."""
AGE_S: Final = 55 * 60.0
"""Maximum age of a reused connection. OpenAI closes connections after an hour."""
TOO_OLD: Final = "websocket_connection_limit_reached"
HEARTBEAT_S: Final = 30.0
CLOSING_S: Final = 2.0
_TYPE: Final = re.compile(rb'\{"type":"([\w.]{1,80})"')

Socket = aiohttp.ClientWebSocketResponse[Any]


class SocketClient(UpstreamClient):
    """WebSocket connections to the Responses server at `url`. All other requests go to `over_http`."""

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        config: BackendConfig,
        limits: LimitsConfig,
        over_http: UpstreamClient,
        wire: ServerSide,
    ) -> None:
        self._wire = wire
        self._url = url.with_scheme("wss" if url.scheme == "https" else "ws")
        self._timeouts = config.timeouts
        self._pool = config.pool
        self._frame_bytes = limits.frame_bytes
        self._http = over_http
        self._session = open_session(url, headers, config, refuse_redirect)
        self._http_until = 0.0
        self._idle: list[SocketConnection] = []
        self._closing = BackgroundTasks()

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> UpstreamAnswer:
        further = {} if headers is None else dict(headers)
        for fresh in (False, True):
            if not stream or time.monotonic() < self._http_until:
                break
            connection = None if fresh else await self._unused(further)
            used = connection is not None
            connection = connection or await self._connect(request_id, further)
            if connection is None:
                break
            answer = await connection.ask(body, again=not fresh, used=used)
            if answer is not None:
                return answer
        return await self._http.post(body, stream=stream, request_id=request_id, headers=headers)

    async def close(self) -> None:
        for connection in list(self._idle):
            self.discard(connection)
        await self._closing.idle()
        await self._session.close()
        await self._http.close()

    def keep(self, connection: SocketConnection) -> None:
        """Keeps a connection for another request, if there is room."""
        if len(self._idle) < self._pool.idle_connections and connection.become_idle(self._pool.idle_s):
            self._idle.append(connection)
        else:
            self.discard(connection)

    def discard(self, connection: SocketConnection) -> None:
        """Closes a connection in the background."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._closing.start(connection.close())

    async def _unused(self, further: Mapping[str, str]) -> SocketConnection | None:
        """Returns an idle connection whose handshake had the same headers, or None."""
        for connection in self._idle[::-1]:
            if connection.further == further and connection in self._idle:
                self._idle.remove(connection)
                if await connection.wake():
                    return connection
                self.discard(connection)
        return None

    async def _connect(self, request_id: str, further: Mapping[str, str]) -> SocketConnection | None:
        """Returns a new connection; None if the server refuses. Raises `BackendFault`."""
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                socket = await self._session.ws_connect(
                    self._url,
                    headers={**further, "X-Request-Id": request_id},
                    max_msg_size=self._frame_bytes,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSING_S),
                    decode_text=False,
                )
        except aiohttp.WSServerHandshakeError as refused:
            if refused.status in NOT_OFFERED:
                self._http_until = time.monotonic() + AGAIN_S
            return None
        except TimeoutError:
            raise timed_out(CONNECTING, self._timeouts.connect_s) from None
        except (aiohttp.ClientError, OSError) as error:
            raise connection_fault(error) from error
        return SocketConnection(self, socket, further, self._timeouts, self._frame_bytes, self._wire)


class SocketConnection:
    """One WebSocket to a server."""

    def __init__(
        self,
        client: SocketClient,
        socket: Socket,
        further: Mapping[str, str],
        timeouts: Timeouts,
        frame_bytes: int,
        wire: ServerSide,
    ) -> None:
        self.wire = wire
        self.further = further
        self._client = client
        self._socket = socket
        self._timeouts = timeouts
        self._frame_bytes = frame_bytes
        self._made = self._asked = time.monotonic()
        self._watch: asyncio.Task[Any] | None = None

    async def ask(self, body: bytes, *, again: bool, used: bool) -> UpstreamAnswer | None:
        """Sends a request and returns its answer after the first frame. `used`: the connection has answered an earlier
        request. `again`: the request may be resent; then returns None if the connection ended before any frame. Raises
        `BackendFault`."""
        self._asked = time.monotonic()
        try:
            await self._socket.send_frame(b'{"type":"response.create",%b' % body[1:], aiohttp.WSMsgType.TEXT)
            first = await self.frame("waiting for the first byte", self._timeouts.first_byte_s)
        except ConnectionError:
            first = None
        except BaseException:
            self._client.discard(self)
            raise
        kind = None if first is None else type_of(first)
        if first is None or kind is None:
            self._client.discard(self)
            if used and again:
                return None
            raise disconnected()
        if kind != "error":
            return StreamAnswer(self, first, kind)
        event = load(first)
        error = event.get("error") or event
        status = event.get("status")
        if error.get("code") == TOO_OLD or not isinstance(status, int) or not 400 <= status < 600:
            self._client.discard(self)
            if error.get("code") == TOO_OLD and again:
                return None
            status = 502
        else:
            self._client.keep(self)
        return RefusedAnswer(status, dump({"error": error}), _headers(event.get("headers")))

    async def frame(self, phase: str, seconds: float | None) -> bytes | None:
        """Returns the next frame; None if the connection has ended. Raises `BackendFault` if it does not arrive in
        time."""
        total = self._timeouts.total_s
        left = None if total is None else max(0.0, self._asked + total - time.monotonic())
        if left is not None and (seconds is None or left < seconds):
            phase, seconds = "total", left
        try:
            async with asyncio.timeout(seconds):
                message = await self._socket.receive()
        except TimeoutError:
            raise timed_out(phase, total if phase == "total" else seconds) from None
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            return bytes(message.data)
        if self._socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            raise too_large(self._frame_bytes)
        return None

    async def next(self) -> bytes | None:
        """Returns the next frame of a stream. Raises like `frame`."""
        return await self.frame("idle", self._timeouts.idle_s)

    def become_idle(self, seconds: float) -> bool:
        """Marks the connection as idle, for at most `seconds`. Returns False if it must not be reused."""
        if self._socket.closed or time.monotonic() - self._made > AGE_S:
            return False
        self._watch = asyncio.get_running_loop().create_task(self._wait_unused(seconds))
        return True

    async def _wait_unused(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._socket.receive()
        except TimeoutError:
            pass
        self._client.discard(self)

    async def wake(self) -> bool:
        """Returns True if the idle connection can be reused, because nothing arrived on it."""
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.wait({self._watch})
        return self._watch.cancelled() and not self._socket.closed

    def ended(self, well: bool) -> None:
        """Called when a stream is over. `well`: it ended without error."""
        if well:
            self._client.keep(self)
        else:
            self._client.discard(self)

    async def close(self) -> None:
        """Closes the connection."""
        if self._watch is not None and self._watch is not asyncio.current_task():
            self._watch.cancel()
            await asyncio.wait({self._watch})
        await self._socket.close()


class StreamAnswer(IteratedAnswer):
    """A stream of events. Implements `UpstreamAnswer`."""

    status = 200
    content_type = "text/event-stream"
    queued_s = 0.0
    headers: Mapping[str, str] = {}

    def __init__(self, connection: SocketConnection, first: bytes, kind: str) -> None:
        super().__init__()
        self._connection = connection
        self._next: tuple[bytes, str] | None = (first, kind)
        self._over = self._closed = False

    @property
    def ended(self) -> bool:
        """True if the response has ended."""
        return self._over

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """Yields each frame as a server-sent event."""
        while not self._over:
            if self._next is None:
                data = await self._connection.next()
                if data is None:
                    raise disconnected()
                self._next = data, type_of(data) or "message"
            (data, kind), self._next = self._next, None
            wire = self._connection.wire
            self._over = any(mark in data for mark in wire.end_marks) and wire.is_end(kind, data)
            yield b"event: %b\ndata: %b\n\n" % (kind.encode(), data.replace(b"\r", b" ").replace(b"\n", b" "))

    async def close(self, *, linger_s: float = 0.0) -> None:
        if not self._closed:
            self._closed = True
            self._connection.ended(self._over)


class RefusedAnswer(IteratedAnswer):
    """An error event instead of a stream, presented as an HTTP error answer. Implements `UpstreamAnswer`."""

    content_type = "application/json"
    queued_s = 0.0
    ended = True

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__()
        self.status = status
        self.headers = headers
        self._body = body

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """Yields the body."""
        yield self._body

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Does nothing: the connection stays open."""


def _headers(value: Any) -> Mapping[str, str]:
    """Returns the header fields in an event as those of an answer."""
    fields = value.items() if isinstance(value, dict) else ()
    return CIMultiDict([(name, value) for name, value in fields if isinstance(value, str)])


def type_of(frame: bytes) -> str | None:
    """Returns the type of an event, or None if the frame is no valid event."""
    match = _TYPE.match(frame)
    if match is not None:
        return match[1].decode()
    try:
        value = load(frame)
    except ValueError:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and "\n" not in kind else None
