"""The connections of clients: how many there may be, how long each phase may take, and what is said to those that overstep.

aiohttp bounds the fields of a request's head and the time between two requests. Added here are the number of connections, the
size of a whole head, the time for it, clients that do not take their answer, and answers in the gateway's own form. The time for
a body is kept where bodies are read (`proxy.delivery`).

Rules of this module:

1. An answer to what is not a request yet is the OpenAI error envelope: no path says which protocol was meant. After it nothing
   more is read, and the connection stays for `LINGER_S`, so that the answer is not lost to a reset.
2. A client is stuck when the system has taken nothing of what was written for it for `server.write_stall_s`. It is cut off;
   its exchange ends as that of a client that went away.
3. One timer looks at all connections, and there is none while nothing is open. A request costs two comparisons.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..config import LimitsConfig, ServerConfig
from ..errors import ClientFault, Defect, GatewayError, Unavailable
from ..observability.logs import log_fields
from ..observability.metrics import Counter, Gauge
from ..protocols.wire import dump

LOG: Final = logging.getLogger("toolwire.clients")

PATROL_S: Final = 1.0
"""How often all connections are looked at, at least; four times as often as the shortest limit passes."""

LINGER_S: Final = 2.0
"""How long a client that was refused is given to read why."""

REFUSALS: Final = 256
"""So many may linger at once; further ones are reset without a word."""

NEVER_S: Final = 365 * 86_400.0
"""What aiohttp calls no limit, 0, closes a connection after its first answer."""

UNSENT_BYTES: Final = 128 * 1024
"""The system keeps so much for a client that it could not send yet: without a bound it is megabytes, and a client that
stopped reading is noticed only when they are full."""


class ClientServer(web.Server):
    """aiohttp's server with bounds. `configure` must be called before the first connection."""

    def __init__(self, handler: Any, open: Gauge, refused: Counter, **options: Any) -> None:
        super().__init__(handler, **options)
        self.open: set[ClientConnection] = set()
        self._refusals: set[Refusal] = set()
        self._gauge = open
        self._refused = refused
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, server: ServerConfig, limits: LimitsConfig) -> None:
        """Bounds for the connections that come, and times for all."""
        self.head_bytes = limits.head_bytes
        self.head_s = server.head_s
        self.write_stall_s = server.write_stall_s
        self._most = limits.connections
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

    def __call__(self) -> Any:
        """The protocol of a new connection."""
        if len(self.open) < self._most:
            return ClientConnection(self, loop=asyncio.get_running_loop(), **self._options)
        self.note_refused("connections", None)
        full = Unavailable(f"The gateway has {self._most} connections open, and takes no more.")
        return Refusal(full, self._refusals, LINGER_S if len(self._refusals) < REFUSALS else 0.0)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        for refusal in list(self._refusals):
            refusal.end()
        await super().shutdown(timeout)

    def opened(self, connection: ClientConnection) -> None:
        """A connection is there."""
        self.open.add(connection)
        self._gauge.inc()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patrol_s, self._patrol)

    def closed(self, connection: ClientConnection) -> None:
        """A connection is gone."""
        if connection in self.open:
            self.open.remove(connection)
            self._gauge.inc(by=-1)

    def refuse(self, connection: ClientConnection, transport: asyncio.Transport, cause: str, why: GatewayError) -> None:
        """Answer a connection on which there is no request, and be done with it."""
        self.note_refused(cause, transport)
        connection.forget()
        refusal = Refusal(why, self._refusals, LINGER_S if len(self._refusals) < REFUSALS else 0.0)
        transport.set_protocol(refusal)
        refusal.connection_made(transport)

    def note_refused(self, cause: str, transport: asyncio.Transport | None) -> None:
        """Count a client that overstepped, and log its address if it is known."""
        self._refused.inc(cause)
        address = transport.get_extra_info("peername") if transport is not None else None
        log_fields(LOG, "client refused", {"cause": cause, **({"client": address[0]} if address else {})})

    def _patrol(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.open):
            connection.look(now)
        self._timer = loop.call_later(self._patrol_s, self._patrol) if self.open else None


class ClientConnection(web.RequestHandler):
    """One connection, from its first byte to its last; aiohttp's protocol, watched.

    It knows of aiohttp's that `_waiter` is a future that is not done exactly while the next head is awaited, and that what is no
    request is put into `_messages` as an error.
    """

    __slots__ = ("_clients", "_head_bytes", "_head_since", "_moved", "_socket", "_unsent")

    def __init__(self, clients: ClientServer, **options: Any) -> None:
        super().__init__(clients, **options)
        self._clients = clients
        self._socket: asyncio.Transport  # aiohttp forgets its own when it closes it
        self._head_bytes = 0
        self._head_since = 0.0
        self._unsent = 0
        self._moved = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._socket = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        super().connection_made(transport)
        self._clients.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._clients.closed(self)
        super().connection_lost(exc)

    def forget(self) -> None:
        """Stop serving, and leave the connection open: it belongs to somebody else."""
        self.transport = None
        self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes, and see to it that a head stays within its bounds."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            super().data_received(data)  # a body, or a request that waits for its turn
            if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
                self._break_body()
            return
        room = self._clients.head_bytes - self._head_bytes
        super().data_received(data if len(data) <= room else data[:room])
        if waiter.done():
            self._head_bytes = 0
            if len(data) > room:
                super().data_received(data[room:])
            return
        if len(data) > room:
            size = self._clients.head_bytes
            fault = ClientFault(f"The request's head has more than {size} bytes.", code="headers_too_large")
            self._clients.refuse(self, self._socket, "head_too_large", fault)
            return
        if not self._head_bytes:
            self._head_since = self._loop.time()
        self._head_bytes += len(data)

    def _break_body(self) -> None:
        """What came is no body: whoever reads it is told, whom aiohttp 3.14 would let wait for the rest."""
        request = self._current_request
        if request is not None and not request.content.is_eof():
            request.content.set_exception(web.RequestPayloadError("the body breaks the rules of HTTP"))

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
        if isinstance(exc, HttpProcessingError):
            fault = _malformed(exc)
            cause = "head_too_large" if fault.code == "headers_too_large" else "malformed"
            self._clients.refuse(self, self._socket, cause, fault)
            raise ConnectionError(fault.message)
        LOG.error("%s %s failed", request.method, request.path, exc_info=exc)
        fault = Defect("The gateway failed.", hint="The log has the reason.")
        response = web.Response(status=fault.status, body=dump(fault.envelope()), content_type="application/json")
        response.force_close()
        return response


def _malformed(error: HttpProcessingError) -> GatewayError:
    text = error.message or ""
    if isinstance(error, LineTooLong) or "Too many headers" in text:
        return ClientFault(
            "The request's head is too large: a line, or the number of its fields.", code="headers_too_large"
        )
    reason = text.partition("\n")[0].strip(" :.")[:200]
    return ClientFault(f"The request is not valid HTTP: {reason}.", code="malformed_request")


class Refusal(asyncio.Protocol):
    """Says one thing, listens to nothing, and is gone after `linger_s`; with 0 it does not even say it. In `alive` meanwhile."""

    def __init__(self, why: GatewayError, alive: set[Refusal], linger_s: float) -> None:
        self._why = why
        self._alive = alive
        self._linger_s = linger_s
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say it."""
        self._transport = socket = cast(asyncio.Transport, transport)
        if not self._linger_s:
            socket.abort()
            return
        self._alive.add(self)
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.end)
        if not socket.is_reading():
            socket.resume_reading()
        socket.write(_answer(self._why))
        if socket.can_write_eof():
            socket.write_eof()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has gone, or time is up."""
        self._alive.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Close."""
        self._transport.abort()


def _answer(fault: GatewayError) -> bytes:
    body = dump(fault.envelope())
    fields = {
        **fault.headers,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def bound_unsent(listener: socket.socket) -> None:
    """Have the system keep little for clients that do not read; the connections of `listener` inherit it."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def allow_files() -> None:
    """Raise the number of files that this process may have open to what the system allows: a connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            LOG.warning("only %d files may be open at once: %s", soft, error)
