"""One exchange of a WebSocket: the application answers the request as if it came over HTTP, and the answer is written
into frames.

The request has the head of the handshake, without headers of the connection, and a complete body. Everything else, from
the key to the metrics, is the same as over HTTP. `EventWriter` replaces aiohttp's writer; its `write`, and the sender
of the stream, wait for a slow client.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import WSMsgType
from multidict import CIMultiDict

from ...errors import Defect
from ...fastparse import SseFramer
from ...protocols.shared.socket_messages import SUCCEEDED, error_event, fault_event, named
from ...protocols.shared.wire import load

FRAME_BYTES: Final = 1024 * 1024 * 1024
"""Maximum size of an event. Streams of model servers are already limited where they are read."""

CONNECTION_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "x-request-id"),
    }
)
"""Headers of the handshake that requests do not inherit, besides those that begin with `Sec-WebSocket-`."""


class EventWriter(AbstractStreamWriter):
    """Takes an HTTP answer. Sends the events of a stream unchanged, and any other answer as an error event.

    `succeeded`: a response was sent that can be continued.
    """

    def __init__(self, socket: web.WebSocketResponse[bool], stream_id: str | None) -> None:
        self._socket = socket
        self._stream_id = stream_id
        self._framer = SseFramer(FRAME_BYTES)
        self._streams = False
        self._status = 0
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._body = b""
        self._error: bytes | None = None
        self.succeeded = False

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Takes status and headers of the answer."""
        self._status = int(status_line.split(" ", 2)[1])
        self._headers = headers
        self._streams = self._status == 200 and headers.get("Content-Type", "").startswith("text/event-stream")

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Sends the events that are complete now. Raises `ConnectionError` if the client has disconnected."""
        data = bytes(chunk)
        self.output_size += len(data)
        if not self._streams:
            self._body += data
            return
        for name, event in self._framer.feed(data):
            await self._take(name, event)

    async def write_eof(self, chunk: bytes = b"") -> None:
        """Sends the remaining events, or an answer that is no stream as an error event."""
        if chunk:
            await self.write(chunk)
        if not self._streams and self._status < 400:  # a middleware's own response
            await self._send(fault_event(Defect("The answer is no stream of events."), self._stream_id))
        elif not self._streams:
            await self._send(error_event(self._status, self._body, self._headers, self._stream_id))
        elif self._error is not None:
            await self._send(error_event(None, self._error, self._headers, self._stream_id))

    async def _take(self, name: str | None, event: bytes) -> None:
        """Sends one event. An `error` event is sent only at the end of the answer, unless `response.failed` follows it:
        one response must not have two ends on a connection that continues."""
        kind = name or _type_of(event)
        if kind is None:
            return  # such as `[DONE]`
        if kind == "error":
            self._error = event
            return
        if kind == "response.failed":
            self._error = None
        self.succeeded = self.succeeded or kind in SUCCEEDED
        await self._send(named(event, self._stream_id))

    async def _send(self, event: bytes) -> None:
        await self._socket.send_frame(event, WSMsgType.TEXT)

    async def drain(self) -> None:
        """Returns at once, because each `write` waits."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Does nothing: frames are not compressed."""

    def enable_chunking(self) -> None:
        """Does nothing: frames need no chunks."""


def _type_of(event: bytes) -> str | None:
    """Returns the type in the data of an event without a name; None if the data is no event."""
    try:
        value = load(event)
    except ValueError:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def request_of(handshake: web.Request, body: bytes, writer: EventWriter) -> web.Request:
    """Returns a POST request at the path of the handshake, on its connection."""
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in handshake.headers.items():
        lower = name.lower()
        if lower not in CONNECTION_HEADERS and not lower.startswith("sec-websocket-"):
            headers.add(name, value)
    headers["Content-Type"] = "application/json"
    request = handshake.clone(method="POST", headers=headers)
    request._state.clear()  # the clone has that of the handshake
    request._payload_writer = writer
    request._read_bytes = body
    request._task = asyncio.current_task()  # type: ignore[assignment]
    return request


async def answer_message(handshake: web.Request, request: web.Request) -> None:
    """Lets the application answer `request` and sends the whole answer. Raises `ConnectionError` if the client has
    disconnected."""
    try:
        try:
            response = await handshake.match_info.apps[0]._handle(request)
        except web.HTTPException as raised:
            response = raised
        await response.prepare(request)
        await response.write_eof()
    finally:
        request._state.clear()  # breaks the cycle with the request
        request._read_bytes = None
