"""The HTTP client: requests to one model server over kept connections (docs/adr/0007).

It does what the hot path needs, POST of a JSON body over HTTP/1.1 with or without TLS, perhaps through a proxy, and
nothing else. What it costs
is a write, a read and one future for a whole answer; a stream that is pumped costs nothing per read but its parsing.

Rules:

1. A request is sent a second time only if it went out on a kept connection that died before any byte of an answer (the
   server had closed it while it was idle), or that gave bytes before the whole request was written. In both cases the
   server cannot have worked on the request. The second time it goes out on a new connection.
2. A connection is in use, settling, unused, or closed. Connections in use are bounded by a semaphore, settling and
   unused ones by number and age.
3. One timer per client looks at all answers and all unused connections; there is no timer and no task per request.
4. HTTP/1.1 does not say to which request an answer belongs. A connection is therefore used again only after it has been
   silent for `SETTLE_S` since its last answer ended, and only if nothing has arrived on it by then. Bytes that arrive
   on a connection without a request close it. The server is then out of step: every request gets a new connection
   until the server has behaved for `OUT_OF_STEP_S`.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import aiohappyeyeballs
from yarl import URL

from ..config import BackendConfig
from ..errors import BackendFault
from .connections import (
    CONNECTING,
    OUT_OF_STEP_S,
    check_header,
    disconnected,
    shortest,
    timed_out,
    unreachable,
    untrusted,
)
from .tls import log_untrusted, tls_context
from .wire_answer import WireAnswer
from .wire_connection import READ_BYTES, Connection
from .wire_proxy import authorization, open_tunnel, proxy_for

PIECE_BYTES: Final = 256 * 1024
"""Larger request bodies are sent in pieces of this size, each when the last one is mostly gone."""

PATROL_S: Final = 1.0
"""How often the limits are looked at, at least; four times as often as the shortest of them passes."""

EYEBALLS_S: Final = 0.25
"""An address is given so long before the next one is tried as well (RFC 8305)."""

SETTLE_S: Final = 0.1
"""A connection is silent for so long before it is used again (rule 4). An answer that nobody asked for follows the one
that was asked for at once, or a network's delay later."""

_OURS: Final = frozenset({"content-length", "transfer-encoding", "content-type", "accept", "x-request-id"})


class WireClient:
    """Connections to the server at `url`; `headers` go with every request. Made inside a running loop.

    `report` is called for every answer that no request asked for, with True for the first one of a server that was not
    known to be out of step. Raises `ValueError` for headers that cannot be sent.
    """

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        config: BackendConfig,
        report: Callable[[bool], None] = lambda first: None,
    ) -> None:
        self.timeouts = config.timeouts
        self._url = url
        self._pool = config.pool
        self._tls = tls_context(verify=config.verify_tls) if url.scheme == "https" else None
        self._loop = asyncio.get_running_loop()
        self.scratch = memoryview(bytearray(READ_BYTES))
        self._proxy = proxy_for(url) if config.trust_env else None
        reads = None if self._tls is not None else self._proxy
        self._heads = {stream: request_head(url, headers, stream=stream, proxy=reads) for stream in (False, True)}
        self._slots = asyncio.Semaphore(self._pool.connections) if self._pool.connections else None
        self._settling: deque[Connection] = deque()
        self._unused: deque[Connection] = deque()
        self.settle_s = SETTLE_S
        self._report = report
        self._in_step_at = -math.inf
        """When the server counts as in step again."""
        self._now = self._loop.time
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._answers: set[WireAnswer] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.dial: Callable[[], Awaitable[Connection]] = self._dial
        """Opens a connection. Who plays the server sets another."""
        limits = [self.timeouts.first_byte_s, self.timeouts.idle_s, self.timeouts.total_s, self._pool.idle_s]
        self._patrol_s = max(0.01, min([PATROL_S, *(limit / 4 for limit in limits if limit is not None)]))

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> WireAnswer:
        """Send a request and wait for the answer's headers. Raises `ValueError` for `headers` that cannot be sent."""
        if not request_id.isprintable():
            raise ValueError("a request id is one line of text")
        further = further_fields(headers) if headers else b""
        head = b"%s%s%s\r\nContent-Length: %d\r\n\r\n" % (self._heads[stream], request_id.encode(), further, len(body))
        started = self._loop.time()
        fresh = False
        while True:
            connection = await self._connection(started, fresh=fresh)
            answer = WireAnswer(self, connection, started)
            self._answers.add(answer)
            if self._timer is None:
                self._timer = self._loop.call_later(self._patrol_s, self._look)
            connection.expect(answer)
            try:
                if len(body) <= PIECE_BYTES:
                    connection.transport.write(head + body)
                else:
                    await _send(answer, connection, head, body)
                await answer.head()
                return answer
            except BaseException as error:
                await answer.close()
                if fresh or not (isinstance(error, BackendFault) and connection.reused and answer.lost):
                    raise
            fresh = True

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in list(self._answers):
            answer.fail(disconnected())
        self._drop_unused()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    def patrol(self) -> None:
        """Fail the answers that are overdue, and close connections that were unused for too long."""
        now = self._loop.time()
        for answer in list(self._answers):
            fault = answer.overdue(now)
            if fault is not None:
                answer.fail(fault)
        now = self._now()
        for waiting in (self._unused, self._settling):
            while waiting and now - waiting[0].since >= self._pool.idle_s:
                waiting.popleft().transport.abort()

    # --- the connections' side

    def give_back(self, answer: WireAnswer, connection: Connection) -> None:
        """The answer needs its connection no more: keep or close it."""
        self._answers.discard(answer)
        connection.answer = None
        now = self._now()
        room = len(self._unused) + len(self._settling) < self._pool.idle_connections
        if connection.keep and room and now >= self._in_step_at and not self._closed:
            connection.reused = True
            connection.since = now
            self._settling.append(connection)
        else:
            connection.transport.abort()
        if self._slots is not None:
            self._slots.release()

    def lost(self, connection: Connection) -> None:
        """The connection is closed."""
        for waiting in (self._unused, self._settling):
            if connection in waiting:
                waiting.remove(connection)

    def out_of_step(self) -> None:
        """The server sent an answer that no request asked for."""
        now = self._now()
        first = now >= self._in_step_at
        self._in_step_at = now + OUT_OF_STEP_S
        self._drop_unused()
        self._report(first)

    # --- requests

    async def _connection(self, started: float, *, fresh: bool) -> Connection:
        """A connection to send on, which counts as in use from now on."""
        slots = self._slots
        if not fresh and (slots is None or not slots.locked()) and (kept := self._kept()) is not None:
            if slots is not None:
                await slots.acquire()  # does not wait
            kept.queued_s = 0.0
            return kept
        limit, phase = shortest(self.timeouts)
        deadline = asyncio.timeout_at(None if limit is None else started + limit)
        try:
            async with deadline:
                queued_s = 0.0
                if slots is not None:
                    before = self._loop.time()
                    await slots.acquire()
                    queued_s = self._loop.time() - before
                try:
                    connection = (None if fresh else self._kept()) or await self._connect()
                    connection.queued_s = queued_s
                    return connection
                except BaseException:
                    if slots is not None:
                        slots.release()
                    raise
        except TimeoutError:
            raise timed_out(phase, limit) from None

    def _kept(self) -> Connection | None:
        """An unused connection that has settled, the youngest first."""
        now = self._now()
        while self._settling and now - self._settling[0].since >= self.settle_s:
            self._unused.append(self._settling.popleft())
        while self._unused:
            connection = self._unused.pop()
            if connection.transport.is_closing() or now - connection.since >= self._pool.idle_s:
                connection.transport.abort()
            elif self._has_arrivals(connection):
                connection.since = now  # the loop reads what it is in its next turn, and closes the connection
                self._settling.append(connection)
            else:
                return connection
        return None

    def _has_arrivals(self, connection: Connection) -> bool:
        """Whether the system holds bytes, or the end, of a connection that the loop has not read yet."""
        if self._poll is None or connection.fd < 0:
            return False
        self._poll.register(connection.fd, select.POLLIN)
        arrived = bool(self._poll.poll(0))
        self._poll.unregister(connection.fd)
        return arrived

    def _drop_unused(self) -> None:
        for waiting in (self._unused, self._settling):
            while waiting:
                waiting.pop().transport.abort()

    async def _connect(self) -> Connection:
        limit = self.timeouts.connect_s
        try:
            async with asyncio.timeout(limit) as connecting:
                connection = await self.dial()
        except ssl.SSLError as error:
            log_untrusted(self._url.host, error)
            raise untrusted() from None
        except (OSError, UnicodeError):  # the latter for names that cannot be looked up
            raise (timed_out(CONNECTING, limit) if connecting.expired() else unreachable()) from None
        if self._closed:
            connection.transport.abort()
            raise disconnected()
        return connection

    async def _dial(self) -> Connection:
        host = self._url.raw_host
        assert host is not None
        first = self._proxy or self._url
        kind = socket.SOCK_STREAM
        try:
            # An address: no look-up.
            infos = socket.getaddrinfo(first.raw_host, first.port, type=kind, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            infos = await self._loop.getaddrinfo(first.raw_host, first.port, type=kind)
        sock = await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=EYEBALLS_S, interleave=1)
        try:
            if self._proxy is not None and self._tls is not None:
                await open_tunnel(sock, self._url, self._proxy)
            _, connection = await self._loop.create_connection(
                lambda: Connection(self, self.scratch),
                sock=sock,
                ssl=self._tls,
                server_hostname=None if self._tls is None else host.rstrip("."),
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _look(self) -> None:
        self.patrol()
        idle = not self._answers and not self._unused and not self._settling
        self._timer = None if idle else self._loop.call_later(self._patrol_s, self._look)


async def _send(answer: WireAnswer, connection: Connection, head: bytes, body: bytes) -> None:
    """Write a large request in pieces, as fast as they are taken. A refusal that comes early ends it."""
    answer.sending = True
    connection.transport.write(head)
    rest = memoryview(body)
    while rest and not answer.ended and answer.status in (0, 200):
        connection.transport.write(rest[:PIECE_BYTES])
        rest = rest[PIECE_BYTES:]
        answer.sending = bool(rest)
        await connection.writable()
    if rest:
        connection.keep = False


def request_head(url: URL, headers: Mapping[str, str], *, stream: bool, proxy: URL | None = None) -> bytes:
    """The request line and the header up to the value of `X-Request-Id`, for the proxy that is to read them, or for the
    server. Raises `ValueError` for what cannot be sent."""
    fields = {"Host": url.host_port_subcomponent or "", "Content-Type": "application/json"}
    fields["Accept"] = "text/event-stream" if stream else "application/json"
    if (known := authorization(url)) is not None:
        fields["Authorization"] = known
    if proxy is not None and (known := authorization(proxy)) is not None:
        fields["Proxy-Authorization"] = known
    for name, value in headers.items():
        check_header(name, value)
        if name.lower() in _OURS:
            continue
        known = next((known for known in fields if known.lower() == name.lower()), name)
        fields[known] = value
    target = url.raw_path_qs if proxy is None else str(url.with_user(None))
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "X-Request-Id: "]).encode()


def further_fields(headers: Mapping[str, str]) -> bytes:
    """Header lines, each after a line end. Raises `ValueError` for what cannot be sent."""
    for name, value in headers.items():
        check_header(name, value)
    return "".join(f"\r\n{name}: {value}" for name, value in headers.items()).encode()
