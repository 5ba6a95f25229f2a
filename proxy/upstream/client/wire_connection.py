"""One HTTP/1.1 connection of the client, parsed inside the transport's read callback.

Rules:

1. `httptools` (llhttp) does all parsing; when it raises an error the answer fails at once.
2. Bytes that are neither head nor body (interim answers, chunk extensions, trailers) are bounded, as is the head.
3. Each read is processed within its callback. The read size adapts so that this takes only milliseconds: a kilobyte may
   hold one frame, or twenty that are parsed and rewritten.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ...errors import BackendFault
from .connections import VERSIONS, disconnected, not_http
from .wire_answer import HttpAnswer

READ_BYTES: Final = 64 * 1024
"""Maximum size of a read."""

FIRST_READ_BYTES: Final = 8 * 1024
"""Size of a connection's first read, before the cost of its bytes is known."""

LEAST_READ_BYTES: Final = 2 * 1024

LONG_S: Final = 0.004
"""A full read that takes longer halves the size of the next one; one that takes less than a quarter doubles it."""

_HARMLESS: Final = re.compile(rb"[\r\n]*\Z|HTTP/1\.[01] 408 ")
"""Matches unrequested bytes that cannot be another client's answer: empty lines, and the 408 with which a server may
close an idle connection (RFC 9110, 15.5.9)."""

HEAD_BYTES: Final = 64 * 1024
"""Maximum number of consecutive bytes of an answer that are not body (rule 2)."""


class ConnectionOwner(Protocol):
    """The owner of connections: `WireClient`."""

    def lost(self, connection: HttpConnection) -> None:
        """Called when a connection is closed."""

    def out_of_step(self) -> None:
        """Called when the server sent an answer that no request asked for."""


class HttpConnection(asyncio.BufferedProtocol):
    """HTTP/1.1 on one transport, with one request at a time. Reads are stored in `scratch`, which connections may share
    because it is used only during a callback."""

    def __init__(self, owner: ConnectionOwner, scratch: memoryview) -> None:
        self.transport: asyncio.Transport
        self.fd = -1
        """The socket's file descriptor, or -1."""
        self.answer: HttpAnswer | None = None
        self.reused = False
        self.keep = True
        """True if another request may follow."""
        self.since = 0.0
        """When it was given back, by the loop's clock."""
        self.queued_s = 0.0
        """Seconds that the current request waited for a free connection."""
        self.bulk_bytes = 0
        """Bytes of the current answer in full reads: a stream that the server writes slowly has none."""
        self._owner = owner
        self._scratch = scratch
        self._room = scratch[:FIRST_READ_BYTES]
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._fields: dict[bytes, bytes] = {}
        self._barren_bytes = 0
        self._writable: asyncio.Future[None] | None = None
        self._full = False
        self._closed = False
        self._parser = HttpResponseParser(self)
        # As in aiohttp: accepts bare line feeds, and blanks after a chunk's size.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def open(self) -> bool:
        """True if the connection is open."""
        return not self._closed and not self.transport.is_closing()

    def expect(self, answer: HttpAnswer) -> None:
        """Called when a request is sent: the following bytes belong to `answer`."""
        self.answer = answer
        self._fields = {}
        self._barren_bytes = self.bulk_bytes = 0

    async def writable(self) -> None:
        """Waits until written data is mostly sent, or the connection is closed."""
        if self._full and not self._closed:
            self._writable = asyncio.get_running_loop().create_future()
            try:
                await self._writable
            finally:
                self._writable = None
        else:
            await asyncio.sleep(0)

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport has no common base class
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.fd = sock.fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer for the next read."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Processes one read of `nbytes` bytes."""
        answer = self.answer
        if answer is None or answer.ended:
            self._unrequested(nbytes)
            return
        if self.reused and not answer.touched and (answer.sending or self.transport.get_write_buffer_size()):
            # The server has not read the whole request yet, so these bytes may belong to the previous answer.
            answer.lost = True
            answer.fail(disconnected())
            return
        answer.touched = True
        full = nbytes == len(self._room)
        before = perf_counter() if full else 0.0
        fault: BackendFault | None = None
        try:
            self._parser.feed_data(self._scratch[:nbytes])
        except (HttpParserError, HttpParserUpgrade):
            if not answer.complete:
                fault = not_http()
            elif self.keep:
                self._owner.out_of_step()
            self.keep = False
        pieces = self._pieces
        if pieces:
            self._barren_bytes = 0
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            answer.began = True
            answer.quiet_since = None
            if answer.inflater is not None:
                data = answer.inflated(data)
            if answer.sink is None:
                answer.take(data)
            elif data:
                try:
                    answer.sink(data)
                except BaseException as error:  # an error of the sink is raised in `pump`
                    answer.fail(error)
        else:
            self._barren_bytes += nbytes
            if self._barren_bytes > HEAD_BYTES and fault is None and not answer.complete:
                fault = not_http()
        if answer.complete:
            answer.end()
        elif fault is not None:
            answer.fail(fault)
        if full:
            self._adapt_read_size(perf_counter() - before)

    def _unrequested(self, nbytes: int) -> None:
        """Closes the connection after bytes that no request asked for."""
        harmless = not self.keep or _HARMLESS.match(self._scratch[:nbytes]) is not None
        self.keep = False
        self.transport.abort()
        if not harmless:
            self._owner.out_of_step()

    def _adapt_read_size(self, took_s: float) -> None:
        """Chooses the size of the next read from the time that a full one took."""
        size = len(self._room)
        self.bulk_bytes += size
        if took_s > LONG_S:
            self._room = self._scratch[: max(size // 2, LEAST_READ_BYTES)]
        elif took_s < LONG_S / 4:
            self._room = self._scratch[: size * 2]

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the transport is closed. Ends an answer that has no stated length; fails any other."""
        self._closed = True
        self.keep = False
        self._wake_writer()
        answer = self.answer
        if answer is not None and not answer.ended:
            if exc is None and answer.until_close:
                answer.end()
            else:
                answer.lost = not answer.touched
                answer.fail(disconnected())
        self._owner.lost(self)
        del self._parser, self.on_body  # breaks the reference cycle

    def pause_writing(self) -> None:
        """Called when the server reads more slowly than the request is written."""
        self._full = True

    def resume_writing(self) -> None:
        """Called when writing may continue."""
        self._full = False
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- called by the parser; `on_body` is above

    def on_message_begin(self) -> None:
        """Called when an answer begins. Raises `ValueError` for a second one."""
        if self.answer is None or self.answer.complete:
            raise ValueError("an answer too many")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Stores a field of the head. Fields of the trailer are ignored."""
        name = name.lower()
        known = self._fields.get(name)
        self._fields[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        """Called when the head is complete. Interim answers (1xx) are skipped. Raises `ValueError` for an invalid
        head."""
        status = self._parser.get_status_code()
        if not 100 <= status < 600 or self._parser.get_http_version() not in VERSIONS:
            raise ValueError("the status line is not of HTTP/1")  # llhttp accepts any three digits
        fields, self._fields = self._fields, {}
        if status < 200:
            if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
                raise ValueError("an interim answer has no body")  # it would become part of the answer
        elif self.answer is not None:
            self.answer.begin(status, fields)

    def on_message_complete(self) -> None:
        """Marks the answer as complete, unless it was an interim one."""
        if self.answer is not None and self.answer.status:
            self.answer.complete = True
            self.keep = self._parser.should_keep_alive() and self.keep
