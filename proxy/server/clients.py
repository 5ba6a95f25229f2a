"""Client connections: their maximum number, the time limits of each phase, and the answers after a violation.

aiohttp limits the fields of a request's head and the time between two requests. This module adds limits for the number
of connections, the size of a whole head and the time for it, a limit for clients that do not read their answer, and
error answers in the gateway's own form. The time for a body is limited in `toolwire.ingress.receiving`.

Rules of this module:

1. An error before the request is known has the default protocol's error envelope, because no path tells the protocol.
   After it, and after an answer to a request whose body has not arrived, no further request is read, and the connection
   stays open for `LINGER_S`, so that a TCP reset does not destroy the answer.
2. A client is stuck if no written data was sent to it for `server.write_stall_s`. Its connection is closed, and its
   exchange ends as if the client had disconnected.
3. One timer checks all connections; there is none without connections. Per request this costs two comparisons.
4. Large bodies are read in turns: at most `READS_AT_ONCE` reads of `READ_BYTES` per iteration of the event loop, for
   all clients together. Small reads need no turn.
5. A client may close its sending side after a request and still gets its answer; `toolwire.ingress.liveness` finds out
   whether it still reads.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError

from ..config import LimitsConfig, ServerConfig
from ..errors import ClientFault, Defect, GatewayError, Unavailable, quote
from ..ingress.loop_pacing import LoopPacer
from ..observability.logs import log_fields
from ..observability.metrics import Counter, Gauge
from ..pipeline.exchange.response_head import request_id
from ..protocols.shared.wire import dump
from .closing import LINGER_S, ClosingProtocol, closing_answer, malformed
from .descriptors import Shortage, connection_limits, files_allowed
from .parsing import SLICE_BYTES, SlicingHandler

LOG: Final = logging.getLogger("toolwire.clients")

WriteError = Callable[[GatewayError, web.BaseRequest | None, str], bytes]
"""Returns the body of an error answer to a request (None if there is none), with this request id."""

PATROL_S: Final = 1.0
"""Maximum interval between checks of all connections. The interval is a quarter of the shortest limit if that is
less."""

REFUSALS: Final = 256
"""Maximum number of refused connections that linger, if there are enough file descriptors; further ones are reset."""

NEVER_S: Final = 365 * 86_400.0
"""Stands for no limit, because with 0 aiohttp would close a connection after its first answer."""

ENDED_S: Final = 0.05
"""Interval of checks whether a client that has closed its sending side has received its answer."""

UNSENT_BYTES: Final = 128 * 1024
"""Maximum number of unsent bytes that the operating system buffers per client. By default it is megabytes, and a client
that stopped reading is only noticed when the buffer is full."""


READ_BYTES: Final = 64 * 1024
"""Maximum size of a read. asyncio reads up to 256 KiB."""

READS_AT_ONCE: Final = 4
"""Maximum number of full reads per iteration of the event loop. With memory allocation one may take a millisecond."""


class ClientServer(web.Server):
    """aiohttp's server with limits. Call `configure` before the first connection."""

    def __init__(self, handler: Any, open: Gauge, refused: Counter, **options: Any) -> None:
        super().__init__(handler, **options)
        self.open: set[ClientConnection] = set()
        self._refusals: set[ClosingProtocol] = set()
        self.reads = LoopPacer(READS_AT_ONCE)
        """Turns for reads of `READ_BYTES`. A connection without a turn is paused until it gets one."""
        self.shortage = Shortage()
        self._gauge = open
        self._refused = refused
        self._full_said = -math.inf
        self._full_unsaid = 0
        self._timer: asyncio.TimerHandle | None = None
        self.write_error: WriteError = usual_envelope

    def configure(self, server: ServerConfig, limits: LimitsConfig) -> None:
        """Sets the limits for new connections, and the time limits for all."""
        self.head_bytes = limits.head_bytes
        self.head_s = server.head_s
        self.write_stall_s = server.write_stall_s
        self.body_bytes = limits.body_bytes
        self._most = connection_limits(files_allowed(), limits.connections, REFUSALS)
        self._options: dict[str, Any] = {
            "access_log": None,  # the gateway writes its own record of each exchange
            "auto_decompress": False,
            "lingering_time": 0.0,
            "keepalive_timeout": NEVER_S if server.idle_s is None else server.idle_s,
            "max_line_size": limits.head_bytes,
            "max_field_size": limits.head_bytes,
            "max_headers": limits.header_fields,
        }
        times = [limit / 4 for limit in (server.head_s, server.write_stall_s) if limit is not None]
        self._patrol_s = max(0.01, min([PATROL_S, *times]))

    def set_handler(self, handler: Any, request_factory: Any) -> None:
        """Sets who creates and answers requests from now on, also on open connections."""
        self.request_handler, self.request_factory = handler, request_factory
        for connection in self.open:
            connection.set_handler(handler, request_factory)

    def __call__(self) -> Any:
        """Returns the protocol of a new connection."""
        if len(self.open) < self._most.clients:
            return ClientConnection(self, loop=asyncio.get_running_loop(), **self._options)
        ident = self._note_full()
        full = Unavailable(f"The gateway has {self._most.clients} connections open, and takes no more.")
        return self._closing_protocol(closing_answer(full, self.write_error(full, None, ident), ident))

    def pre_shutdown(self) -> None:
        """Closes idle connections, and the others after their answer. A WebSocket closes by itself, because aiohttp
        would stop reading from it."""
        for connection in list(self.open):
            if not connection.is_websocket:
                connection.close()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Closes all connections."""
        for refusal in list(self._refusals):
            refusal.end()
        await super().shutdown(timeout)

    def opened(self, connection: ClientConnection) -> None:
        """Called when a connection was accepted."""
        connection.set_handler(
            self.request_handler, self.request_factory
        )  # they may have changed since the object was created
        self.open.add(connection)
        self._gauge.inc()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patrol_s, self._patrol)

    def closed(self, connection: ClientConnection) -> None:
        """Called when a connection is closed."""
        if connection in self.open:
            self.open.remove(connection)
            self._gauge.inc(by=-1)

    def refuse(
        self,
        connection: ClientConnection,
        transport: asyncio.Transport,
        cause: str,
        why: GatewayError,
        request: web.BaseRequest | None = None,
        ident: str | None = None,
    ) -> None:
        """Answers with an error and ends the connection. `request` is None if there is none yet; `ident` is the request
        id, if known."""
        connection.forget()
        ident = self.note_refused(cause, transport, ident)
        self._close_with(transport, closing_answer(why, self.write_error(why, request, ident), ident))

    def leave(self, connection: ClientConnection, transport: asyncio.Transport) -> None:
        """Ends a connection after its last answer although the client is still sending."""
        connection.forget()
        self._close_with(transport, b"")

    def note_refused(self, cause: str, transport: asyncio.Transport, ident: str | None = None) -> str:
        """Counts and logs a client that violated a limit. Returns the request id."""
        self._refused.inc(cause)
        ident = ident or request_id(None)
        address = transport.get_extra_info("peername")
        known = {"client": address[0]} if address else {}
        log_fields(LOG, "client refused", {"request_id": ident, "cause": cause, **known})
        return ident

    def _note_full(self) -> str:
        """Like `note_refused`, for connections beyond the maximum. Logs at most one per second, with the number of
        those not logged."""
        now = asyncio.get_running_loop().time()
        ident = request_id(None)
        self._refused.inc("connections")
        if now - self._full_said < 1.0:
            self._full_unsaid += 1
        else:
            log_fields(
                LOG, "client refused", {"request_id": ident, "cause": "connections", "others": self._full_unsaid}
            )
            self._full_said, self._full_unsaid = now, 0
        return ident

    def _close_with(self, transport: asyncio.Transport, words: bytes) -> None:
        closing = self._closing_protocol(words)
        transport.set_protocol(closing)
        closing.connection_made(transport)

    def _closing_protocol(self, words: bytes) -> ClosingProtocol:
        linger_s = LINGER_S if len(self._refusals) < self._most.refused else 0.0
        return ClosingProtocol(words, self._refusals, linger_s, self.body_bytes, self.reads)

    def _patrol(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.open):
            connection.check_limits(now)
        self.shortage.check(now)
        self._timer = loop.call_later(self._patrol_s, self._patrol) if self.open else None


class ClientConnection(SlicingHandler):
    """One client connection: aiohttp's protocol with limits.

    It relies on internals of aiohttp: `_waiter` is a pending future only while the next head is awaited; a malformed
    request is an error in `_messages`; the factory and handler of requests are looked up for each request.
    """

    __slots__ = (
        "_awaits_turn",
        "_clients",
        "_head_bytes",
        "_head_since",
        "_moved",
        "_socket",
        "_unsent",
        "ended_at",
        "frames",
    )

    def __init__(self, clients: ClientServer, **options: Any) -> None:
        super().__init__(clients, barren_bytes=clients.head_bytes, **options)
        self._awaits_turn = False
        self._clients = clients
        self._socket: asyncio.Transport  # aiohttp forgets its own when it closes it
        self._head_bytes = 0
        self._head_since = 0.0
        self._unsent = 0
        self._moved = 0.0
        self.ended_at: float | None = None
        """When the client closed its sending side, by the monotonic clock."""
        self.frames: Callable[[int], bool] | None = None
        """Called with the number of bytes that a WebSocket received; they are dropped if it returns False."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection."""
        self._socket = cast(asyncio.Transport, transport)  # uvloop's transport has no common base class
        if hasattr(transport, "max_size"):  # asyncio's transport only
            transport.max_size = READ_BYTES
        super().connection_made(transport)
        self._clients.opened(self)

    def set_handler(self, handler: Any, request_factory: Any) -> None:
        """Sets who creates and answers the following requests."""
        self._request_handler, self._request_factory = handler, request_factory

    def connection_lost(self, exc: BaseException | None) -> None:
        """Unregisters the connection."""
        self._clients.closed(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's never wants to keep it open
        """Called when the client closes its sending side. Returns True if the connection stays open, because an answer
        is pending.

        With HTTP/1.0 it does not, because there is no way to find out whether the client still reads
        (`toolwire.ingress.liveness`).
        """
        waiter = self._waiter
        newest = self.newest
        if self.is_websocket or newest is None or (waiter is not None and not waiter.done()):
            return False
        if not newest[1].is_eof():
            self.break_body("the client ended it")
            # The request is incomplete, so no answer is pending unless there is an earlier request.
            if not self._messages or (len(self._messages) == 1 and not self._request_in_progress):
                return False
        if newest[0].version != HttpVersion11:
            return False
        self.ended_at = time.monotonic()
        self._loop.call_later(ENDED_S, self._close_when_answered)
        return True

    def _close_when_answered(self) -> None:
        """Closes the connection of a client that has closed its sending side, after its last answer."""
        if self.transport is None:
            return
        if self._waiter is not None and not self._waiter.done():
            self.force_close()
        else:
            self._loop.call_later(ENDED_S, self._close_when_answered)

    def forget(self) -> None:
        """Stops serving without closing the transport, which gets another protocol."""
        self.transport = None
        self.connection_lost(None)

    def close(self) -> None:
        """Like aiohttp's, which calls this after an answer to a request whose body has not arrived. There the
        connection lingers instead of being reset."""
        newest = self.newest
        unread = newest is not None and not newest[1].is_eof()
        waits = bool(self._messages) and self._messages[-1] is newest
        if not unread or waits or self._current_request is not None or self.transport is None:
            super().close()
        elif not self.transport.is_closing():
            self._task_handler = None  # the task ends by itself
            self._clients.leave(self, self._socket)

    def data_received(self, data: bytes) -> None:
        """Takes the next bytes."""
        if not data:
            super().data_received(data)  # aiohttp continues with buffered data
        elif not (self.held or len(data) > SLICE_BYTES) or self.is_websocket or not self.hold(data):
            self.take(data)
            if len(data) >= READ_BYTES and not self._clients.reads.take():
                self._awaits_turn = True
                self._pause_transport_reading()
                self._clients.reads.next().add_done_callback(self._read_on)

    def _read_on(self, turn: asyncio.Future[None]) -> None:
        self._awaits_turn = False
        if not self._is_paused():
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        """Like aiohttp's, but only after the connection's turn."""
        if not self._awaits_turn:
            super()._resume_transport_reading()

    def take(self, data: bytes) -> None:
        """Parses the next bytes and enforces the limits of a head."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            if self.frames is not None and not self.frames(len(data)):
                return
            self.parse(data)  # a body, or a pipelined request
            if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
                self.break_body("it breaks the rules of HTTP")
            if self.newest is not None and self.newest[0].chunked:
                self.look_at_body(self.newest[1], len(data))
            return
        room = self._clients.head_bytes - self._head_bytes
        self.parse(data if len(data) <= room else data[:room])
        if waiter.done():
            self._head_bytes = 0
            if len(data) > room:
                self.parse(data[room:])
            return
        if len(data) > room:
            size = self._clients.head_bytes
            fault = ClientFault(f"The request's head has more than {size} bytes.", code="headers_too_large")
            self._clients.refuse(self, self._socket, "head_too_large", fault)
            return
        if not self._head_bytes:
            self._head_since = self._loop.time()
        self._head_bytes += len(data)

    def check_limits(self, now: float) -> None:
        """Enforces the time limits."""
        clients = self._clients
        stall_s, head_s = clients.write_stall_s, clients.head_s
        unsent = self._socket.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent = unsent
            self._moved = now
        elif stall_s is not None and now - self._moved >= stall_s:
            clients.note_refused("write_stall", self._socket)
            self._socket.abort()
            return
        waiter = self._waiter
        if not self._head_bytes or head_s is None or waiter is None or waiter.done():
            return
        if now - self._head_since >= head_s:
            fault = ClientFault(f"The request's head did not arrive within {head_s:g} s.", code="request_timeout")
            clients.refuse(self, self._socket, "head_timeout", fault)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns the answer to malformed HTTP, or to a failure outside of the gateway's own handlers. Raises
        `ConnectionError` if the connection was refused or is closed."""
        if request.writer.output_size > 0 or self.transport is None or self.transport.is_closing():
            raise ConnectionError("the answer has begun, or the connection is closed")
        ident = request_id(request.headers.get("X-Request-Id"))
        if isinstance(exc, HttpProcessingError | GatewayError):
            fault = malformed(exc) if isinstance(exc, HttpProcessingError) else exc
            cause = "head_too_large" if fault.code == "headers_too_large" else "malformed"
            self._clients.refuse(self, self._socket, cause, fault, request, ident)
            raise ConnectionError(fault.message)
        LOG.error("%s %s failed (%s)", request.method, request.path, ident, exc_info=exc)
        fault = Defect("The gateway failed.", hint="The log has the reason under this request's id.")
        response = web.Response(
            status=fault.status, body=self._clients.write_error(fault, request, ident), content_type="application/json"
        )
        response.headers["X-Request-Id"] = ident
        response.force_close()
        return response


def usual_envelope(fault: GatewayError, request: web.BaseRequest | None, ident: str) -> bytes:
    """Returns the body of an error in the default protocol (OpenAI's error object), for any path."""
    return dump(fault.envelope())


def check_head(request: web.BaseRequest) -> None:
    """Raises `GatewayError` for a head that the parser accepts but the gateway does not.

    Another major version of HTTP is refused with 400 rather than 505, which RFC 9110 (2.5) permits: clients retry after
    5xx.
    """
    version = request.version
    if version == HttpVersion11:
        expected = request.headers.get("Expect")
        if expected is not None and expected.strip().lower() != "100-continue":
            raise ClientFault(
                f"The gateway does not support `Expect`: {quote(expected)}.",
                code="expectation_failed",
                hint="Send `100-continue`, or leave `Expect` out.",
            )
    elif version != HttpVersion10:
        raise ClientFault(
            f"HTTP/{version.major}.{version.minor} is not supported.", code="malformed_request", hint="Use HTTP/1.1."
        )
    elif "Transfer-Encoding" in request.headers:  # RFC 9112, 6.1: its end cannot be trusted
        raise ClientFault("A request of HTTP/1.0 must not have `Transfer-Encoding`.", code="malformed_request")


def limit_unsent(listener: socket.socket) -> None:
    """Limits the data that the operating system buffers for slow clients; connections of `listener` inherit it."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
