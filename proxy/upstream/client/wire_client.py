"""The HTTP client for model servers: requests over kept-alive connections (docs/adr/0007).

It supports only what the hot path needs: POST of a JSON body over HTTP/1.1, with or without TLS, optionally through a
proxy. A whole answer costs one write, one read and one future; a pumped stream costs nothing per read but its parsing.

Rules:

1. A request is resent only if it was sent on a reused connection that died before any byte of an answer (the server had
   closed it while idle), or that received bytes before the whole request was written. In both cases the server cannot
   have processed the request. It is resent on a new connection.
2. A connection is in use, settling, unused, or closed. A semaphore bounds those in use; number and age bound the
   others.
3. One timer per client checks all answers and unused connections; no request has a timer or a task of its own.
4. HTTP/1.1 does not say which request an answer belongs to. So a connection is reused only if it was silent for
   `SETTLE_S` after its last answer, and nothing arrived on it by then. Bytes that arrive without a request close the
   connection. The server is then *out of step*: every request gets a new connection until the server has behaved for
   `OUT_OF_STEP_S`.
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

from ...config import BackendConfig
from ...errors import BackendFault
from ...support.allocator import GIVE_BACK_BYTES, LARGE_BYTES, MemoryReturner
from .connections import (
    CONNECTING,
    OUT_OF_STEP_S,
    check_header,
    disconnected,
    shortest,
    timed_out,
    unreachable,
)
from .tls import tls_context, tls_fault
from .wire_answer import HttpAnswer
from .wire_connection import READ_BYTES, HttpConnection
from .wire_proxy import authorization, open_tunnel, proxy_for

PIECE_BYTES: Final = 256 * 1024
"""Larger request bodies are sent in pieces of this size, each when the previous one is mostly sent."""

PATROL_S: Final = 1.0
"""Maximum interval between checks of the time limits. The interval is a quarter of the shortest limit if that is
less."""

EYEBALLS_S: Final = 0.25
"""Head start of an address before the next one is tried in parallel (RFC 8305)."""

SETTLE_S: Final = 0.1
"""Time that a connection must be silent before it is reused (rule 4). An unrequested answer follows the requested one
at once, or after the network's delay."""

OURS: Final = frozenset({"content-length", "transfer-encoding", "content-type", "accept", "x-request-id"})


class WireClient:
    """Connections to the server at `url`; `headers` are sent with every request. Must be created in a running event
    loop.

    `report` is called for every answer that no request asked for; its argument is True if the server was in step
    before. The constructor raises `ValueError` for headers that cannot be sent.
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
        self._proxy = proxy_for(url, config)
        reads = None if self._tls is not None else self._proxy
        self._heads = {stream: request_head(url, headers, stream=stream, proxy=reads) for stream in (False, True)}
        self._slots = asyncio.Semaphore(self._pool.connections) if self._pool.connections else None
        self._settling: deque[HttpConnection] = deque()
        self._unused: deque[HttpConnection] = deque()
        self.settle_s = SETTLE_S
        self._report = report
        self._in_step_at = -math.inf
        """Time from which the server counts as in step again."""
        self._now = self._loop.time
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._answers: dict[HttpAnswer, HttpConnection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._memory = MemoryReturner(GIVE_BACK_BYTES)
        self.dial: Callable[[], Awaitable[HttpConnection]] = self._dial
        """Opens a connection. Tests and rehearsals replace it by a simulated server."""
        limits = [self.timeouts.first_byte_s, self.timeouts.idle_s, self.timeouts.total_s, self._pool.idle_s]
        self._patrol_s = max(0.01, min([PATROL_S, *(limit / 4 for limit in limits if limit is not None)]))

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Sends a request and waits for the answer's head. Raises `BackendFault`, and `ValueError` for `headers` that
        cannot be sent."""
        if not request_id.isprintable():
            raise ValueError("a request id must be one line of text")
        further = further_fields(headers) if headers else b""
        head = b"%s%s%s\r\nContent-Length: %d\r\n\r\n" % (self._heads[stream], request_id.encode(), further, len(body))
        started = self._loop.time()
        fresh = False
        while True:
            connection = await self._connection(started, fresh=fresh)
            answer = HttpAnswer(connection, self.timeouts, started, self._give_back)
            self._answers[answer] = connection
            if self._timer is None:
                self._timer = self._loop.call_later(self._patrol_s, self._on_timer)
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
        """Closes all connections."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in list(self._answers):
            answer.fail(disconnected())
        self._drop_unused()
        await asyncio.sleep(0)  # transports close their sockets in the next iteration of the loop

    def patrol(self) -> None:
        """Fails overdue answers and closes connections that were unused for too long."""
        now = self._loop.time()
        for answer in list(self._answers):
            fault = answer.overdue(now)
            if fault is not None:
                answer.fail(fault)
        now = self._now()
        for waiting in (self._unused, self._settling):
            while waiting and now - waiting[0].since >= self._pool.idle_s:
                waiting.popleft().transport.abort()

    def _give_back(self, answer: HttpAnswer) -> None:
        """Takes back the connection of an answer that no longer needs it: keeps or closes it."""
        connection = self._answers.pop(answer)
        connection.answer = None
        if connection.bulk_bytes >= LARGE_BYTES:
            self._memory.free(connection.bulk_bytes)
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

    # --- called by connections

    def lost(self, connection: HttpConnection) -> None:
        """Called when a connection is closed."""
        for waiting in (self._unused, self._settling):
            if connection in waiting:
                waiting.remove(connection)

    def out_of_step(self) -> None:
        """Called when the server sent an answer that no request asked for."""
        now = self._now()
        first = now >= self._in_step_at
        self._in_step_at = now + OUT_OF_STEP_S
        self._drop_unused()
        self._report(first)

    # --- requests

    async def _connection(self, started: float, *, fresh: bool) -> HttpConnection:
        """Returns a connection for a request and counts it as in use. `fresh`: it must be new. Raises
        `BackendFault`."""
        slots = self._slots
        if not fresh and (slots is None or not slots.locked()) and (reusable := self._reusable()) is not None:
            if slots is not None:
                await slots.acquire()  # does not wait
            reusable.queued_s = 0.0
            return reusable
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
                    connection = (None if fresh else self._reusable()) or await self._connect()
                    connection.queued_s = queued_s
                    return connection
                except BaseException:
                    if slots is not None:
                        slots.release()
                    raise
        except TimeoutError:
            raise timed_out(phase, limit) from None

    def _reusable(self) -> HttpConnection | None:
        """Returns a settled unused connection, the most recent first, or None."""
        now = self._now()
        while self._settling and now - self._settling[0].since >= self.settle_s:
            self._unused.append(self._settling.popleft())
        while self._unused:
            connection = self._unused.pop()
            if connection.transport.is_closing() or now - connection.since >= self._pool.idle_s:
                connection.transport.abort()
            elif self._has_arrivals(connection):
                connection.since = now  # the loop will read it next, and close the connection
                self._settling.append(connection)
            else:
                return connection
        return None

    def _has_arrivals(self, connection: HttpConnection) -> bool:
        """True if the operating system holds unread bytes, or the end, of a connection."""
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

    async def _connect(self) -> HttpConnection:
        limit = self.timeouts.connect_s
        try:
            async with asyncio.timeout(limit) as connecting:
                connection = await self.dial()
        except ssl.SSLError as error:
            raise tls_fault(self._url.host, error) from None
        except (OSError, UnicodeError):  # UnicodeError: a name that cannot be looked up
            raise (timed_out(CONNECTING, limit) if connecting.expired() else unreachable()) from None
        if self._closed:
            connection.transport.abort()
            raise disconnected()
        return connection

    async def _dial(self) -> HttpConnection:
        host = self._url.raw_host
        assert host is not None
        first = self._proxy or self._url
        kind = socket.SOCK_STREAM
        try:
            # succeeds for IP addresses only, without a lookup
            infos = socket.getaddrinfo(first.raw_host, first.port, type=kind, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            infos = await self._loop.getaddrinfo(first.raw_host, first.port, type=kind)
        sock = await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=EYEBALLS_S, interleave=1)
        try:
            if self._proxy is not None and self._tls is not None:
                await open_tunnel(sock, self._url, self._proxy)
            _, connection = await self._loop.create_connection(
                lambda: HttpConnection(self, self.scratch),
                sock=sock,
                ssl=self._tls,
                server_hostname=None if self._tls is None else host.rstrip("."),
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _on_timer(self) -> None:
        self.patrol()
        idle = not self._answers and not self._unused and not self._settling
        self._timer = None if idle else self._loop.call_later(self._patrol_s, self._on_timer)


async def _send(answer: HttpAnswer, connection: HttpConnection, head: bytes, body: bytes) -> None:
    """Writes a large request in pieces, as fast as the server reads them. Stops when an error answer comes early."""
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
    """Returns the request line and the header up to the value of `X-Request-Id`, in the form for the `proxy` if there
    is one. Raises `ValueError` for headers that cannot be sent."""
    fields = {"Host": url.host_port_subcomponent or "", "Content-Type": "application/json"}
    fields["Accept"] = "text/event-stream" if stream else "application/json"
    if (known := authorization(url)) is not None:
        fields["Authorization"] = known
    if proxy is not None and (known := authorization(proxy)) is not None:
        fields["Proxy-Authorization"] = known
    for name, value in headers.items():
        check_header(name, value)
        if name.lower() in OURS:
            continue
        known = next((known for known in fields if known.lower() == name.lower()), name)
        fields[known] = value
    target = url.raw_path_qs if proxy is None else str(url.with_user(None))
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "X-Request-Id: "]).encode()


def further_fields(headers: Mapping[str, str]) -> bytes:
    """Returns header lines, each after a line end. Raises `ValueError` for headers that cannot be sent."""
    for name, value in headers.items():
        check_header(name, value)
    return "".join(f"\r\n{name}: {value}" for name, value in headers.items()).encode()
