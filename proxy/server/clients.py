"""The connections of clients: how many there may be, how long each phase may take, and what is said to those that
overstep.

aiohttp bounds the fields of a request's head and the time between two requests. Added here are the number of
connections, the size of a whole head, the time for it, clients that do not take their answer, and answers in the
gateway's own form. The time for a body is kept where bodies are read (`toolwire.ingress.receiving`).

Rules of this module:

1. An answer to what is not a request yet has the usual error envelope: no path says which protocol was meant. After it,
   and after an answer to a request whose body has not come, nothing more is taken for a request, and the connection
   stays for `LINGER_S`, so that the answer is not lost to a reset.
2. A client is stuck when the system has taken nothing of what was written for it for `server.write_stall_s`. It is cut
   off; its exchange ends as that of a client that went away.
3. One timer looks at all connections, and there is none while nothing is open. A request costs two comparisons.
4. Bodies that arrive together are read in turns: at most `READS_AT_ONCE` reads of `READ_BYTES` in one iteration of the
   event loop, whoever sends them. A slow or small request takes no turn.
5. A client may end its side of the connection when it has asked, and gets its answer; that it is still there is for
   `toolwire.ingress.liveness` to find out.
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

from toolwire.config import LimitsConfig, ServerConfig
from toolwire.errors import ClientFault, Defect, GatewayError, Unavailable, quote
from toolwire.ingress.turns import Turns
from toolwire.observability.logs import log_fields
from toolwire.observability.metrics import Counter, Gauge
from toolwire.pipeline.exchange.heads import request_id
from toolwire.protocols.shared.wire import dump
from toolwire.server.descriptors import files_allowed, room
from toolwire.server.farewell import LINGER_S, Refusal, answer, malformed
from toolwire.server.parsing import SLICE_BYTES, SlicingHandler

LOG: Final = logging.getLogger("toolwire.clients")

WriteError = Callable[[GatewayError, web.BaseRequest | None, str], bytes]
"""The body of an error answer to a request, or to what is none, with this id."""

PATROL_S: Final = 1.0
"""How often all connections are looked at, at least; four times as often as the shortest limit passes."""

REFUSALS: Final = 256
"""So many may linger at once, if there are files for them; further ones are reset without a word."""

NEVER_S: Final = 365 * 86_400.0
"""What aiohttp calls no limit, 0, closes a connection after its first answer."""

ENDED_S: Final = 0.05
"""How often it is looked whether a client that has ended its side of the connection has its answer."""

UNSENT_BYTES: Final = 128 * 1024
"""The system keeps so much for a client that it could not send yet: without a bound it is megabytes, and a client that
stopped reading is noticed only when they are full."""


READ_BYTES: Final = 64 * 1024
"""Read from a connection at once. asyncio reads up to 256 KiB."""

READS_AT_ONCE: Final = 4
"""Such reads in one iteration of the event loop. With the memory that the system provides for it, one may take a
millisecond."""


class ClientServer(web.Server):
    """aiohttp's server with bounds. `configure` must be called before the first connection."""

    def __init__(self, handler: Any, open: Gauge, refused: Counter, **options: Any) -> None:
        super().__init__(handler, **options)
        self.open: set[ClientConnection] = set()
        self._refusals: set[Refusal] = set()
        self.reads = Turns(READS_AT_ONCE)
        """For reads that brought `READ_BYTES`. Behind one without a turn nothing is read until its turn comes."""
        self._gauge = open
        self._refused = refused
        self._full_said = -math.inf
        self._full_unsaid = 0
        self._timer: asyncio.TimerHandle | None = None
        self.write_error: WriteError = usual

    def configure(self, server: ServerConfig, limits: LimitsConfig) -> None:
        """Bounds for the connections that come, and times for all."""
        self.head_bytes = limits.head_bytes
        self.head_s = server.head_s
        self.write_stall_s = server.write_stall_s
        self.body_bytes = limits.body_bytes
        self._room = room(files_allowed(), limits.connections, REFUSALS)
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

    def answer_by(self, handler: Any, request_factory: Any) -> None:
        """From now on requests are made and answered by these, also on connections that are open."""
        self.request_handler, self.request_factory = handler, request_factory
        for connection in self.open:
            connection.answer_by(handler, request_factory)

    def __call__(self) -> Any:
        """The protocol of a new connection."""
        if len(self.open) < self._room.clients:
            return ClientConnection(self, loop=asyncio.get_running_loop(), **self._options)
        ident = self._note_full()
        full = Unavailable(f"The gateway has {self._room.clients} connections open, and takes no more.")
        return self._farewell(answer(full, self.write_error(full, None, ident), ident))

    def pre_shutdown(self) -> None:
        """Close what is idle, and the others after their answer. A WebSocket closes by itself: aiohttp would stop
        listening to it."""
        for connection in list(self.open):
            if not connection.is_websocket:
                connection.close()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        for refusal in list(self._refusals):
            refusal.end()
        await super().shutdown(timeout)

    def opened(self, connection: ClientConnection) -> None:
        """A connection is there."""
        connection.answer_by(self.request_handler, self.request_factory)  # others than when it was made, perhaps
        self.open.add(connection)
        self._gauge.inc()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patrol_s, self._patrol)

    def closed(self, connection: ClientConnection) -> None:
        """A connection is gone."""
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
        """Answer a connection on which there is no request, or such a `request`, and be done with it. `ident` is the
        request id, if one is known."""
        connection.forget()
        ident = self.note_refused(cause, transport, ident)
        self._part(transport, answer(why, self.write_error(why, request, ident), ident))

    def leave(self, connection: ClientConnection, transport: asyncio.Transport) -> None:
        """Be done with a connection whose last answer has been written, although its client goes on sending."""
        connection.forget()
        self._part(transport, b"")

    def note_refused(self, cause: str, transport: asyncio.Transport, ident: str | None = None) -> str:
        """Count a client that overstepped, and log its address if it is known; the request id."""
        self._refused.inc(cause)
        ident = ident or request_id(None)
        address = transport.get_extra_info("peername")
        known = {"client": address[0]} if address else {}
        log_fields(LOG, "client refused", {"request_id": ident, "cause": cause, **known})
        return ident

    def _note_full(self) -> str:
        """As `note_refused`, for a connection too many. The log tells of one in a second, and how many came before
        it."""
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

    def _part(self, transport: asyncio.Transport, words: bytes) -> None:
        farewell = self._farewell(words)
        transport.set_protocol(farewell)
        farewell.connection_made(transport)

    def _farewell(self, words: bytes) -> Refusal:
        linger_s = LINGER_S if len(self._refusals) < self._room.refused else 0.0
        return Refusal(words, self._refusals, linger_s, self.body_bytes, self.reads)

    def _patrol(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.open):
            connection.look(now)
        self._timer = loop.call_later(self._patrol_s, self._patrol) if self.open else None


class ClientConnection(SlicingHandler):
    """One connection, from its first byte to its last; aiohttp's protocol, watched.

    It knows of aiohttp's that `_waiter` is a future that is not done exactly while the next head is awaited, that what
    is no request is put into `_messages` as an error, and where it looks for each request who makes and answers it.
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
        """When the client ended its side of the connection, on the monotonic clock."""
        self.frames: Callable[[int], bool] | None = None
        """Told how many bytes a WebSocket has brought; they are dropped where it returns False."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._socket = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if hasattr(transport, "max_size"):  # asyncio's
            transport.max_size = READ_BYTES
        super().connection_made(transport)
        self._clients.opened(self)

    def answer_by(self, handler: Any, request_factory: Any) -> None:
        """Have the requests that come from now on made and answered by these."""
        self._request_handler, self._request_factory = handler, request_factory

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._clients.closed(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's never wants to keep it open
        """The client says no more; whether it may wait for an answer, because it has asked.

        With HTTP/1.0 it may not: there is no way to find out whether it is still there (see
        `toolwire.ingress.liveness`)."""
        waiter = self._waiter
        newest = self.newest
        if self.is_websocket or newest is None or (waiter is not None and not waiter.done()):
            return False
        if not newest[1].is_eof():
            self.break_body("the client ended it")
            # Half a request: nobody waits, unless another came before it.
            if not self._messages or (len(self._messages) == 1 and not self._request_in_progress):
                return False
        if newest[0].version != HttpVersion11:
            return False
        self.ended_at = time.monotonic()
        self._loop.call_later(ENDED_S, self._close_when_answered)
        return True

    def _close_when_answered(self) -> None:
        """Close the connection of a client that has ended its side, once it has all of its answers."""
        if self.transport is None:
            return
        if self._waiter is not None and not self._waiter.done():
            self.force_close()
        else:
            self._loop.call_later(ENDED_S, self._close_when_answered)

    def forget(self) -> None:
        """Stop serving, and leave the connection open: it belongs to somebody else."""
        self.transport = None
        self.connection_lost(None)

    def close(self) -> None:
        """As aiohttp's, which calls this after an answer to a request whose body has not come, and would reset the
        client."""
        newest = self.newest
        unread = newest is not None and not newest[1].is_eof()
        waits = bool(self._messages) and self._messages[-1] is newest
        if not unread or waits or self._current_request is not None or self.transport is None:
            super().close()
        elif not self.transport.is_closing():
            self._task_handler = None  # it ends by itself
            self._clients.leave(self, self._socket)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes."""
        if not data:
            super().data_received(data)  # aiohttp goes on with what its parser has
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
        """As aiohttp's, but in turn."""
        if not self._awaits_turn:
            super()._resume_transport_reading()

    def take(self, data: bytes) -> None:
        """Parse the next bytes, and see to it that a head stays within its bounds."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            if self.frames is not None and not self.frames(len(data)):
                return
            self.parse(data)  # a body, or a request that waits for its turn
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

    def look(self, now: float) -> None:
        """Look for limits that have passed."""
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
            fault = ClientFault(f"The request's head did not come within {head_s:g} s.", code="request_timeout")
            clients.refuse(self, self._socket, "head_timeout", fault)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is not HTTP, or to a failure outside of the gateway's own handlers."""
        if request.writer.output_size > 0 or self.transport is None or self.transport.is_closing():
            raise ConnectionError("the answer has begun, or nobody is there to read it")
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


def usual(fault: GatewayError, request: web.BaseRequest | None, ident: str) -> bytes:
    """The usual envelope, whatever was asked."""
    return dump(fault.envelope())


def check_head(request: web.BaseRequest) -> None:
    """Raise `GatewayError` for a head that the parser takes and the gateway does not.

    Another major version is refused with 400 and not with 505, which RFC 9110 (2.5) leaves open: clients repeat what
    was answered with 5xx.
    """
    version = request.version
    if version == HttpVersion11:
        expected = request.headers.get("Expect")
        if expected is not None and expected.strip().lower() != "100-continue":
            raise ClientFault(
                f"The gateway cannot do what {quote(expected)} expects.",
                code="expectation_failed",
                hint="Of `Expect` it knows `100-continue`.",
            )
    elif version != HttpVersion10:
        raise ClientFault(
            f"HTTP/{version.major}.{version.minor} is not spoken here.", code="malformed_request", hint="Use HTTP/1.1."
        )
    elif "Transfer-Encoding" in request.headers:  # RFC 9112, 6.1: its end cannot be trusted
        raise ClientFault("A request of HTTP/1.0 has no `Transfer-Encoding`.", code="malformed_request")


def bound_unsent(listener: socket.socket) -> None:
    """Have the system keep little for clients that do not read; the connections of `listener` inherit it."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
