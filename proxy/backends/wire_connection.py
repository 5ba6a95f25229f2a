"""One connection of the client: HTTP/1.1 read inside the transport's read callback.

Rules:

1. `httptools` (llhttp) does all parsing; what it refuses ends the answer with a fault, at once.
2. Bytes that are neither head nor body (interim answers, chunk extensions, trailers) are bounded, as is the head.
3. What a read brought is worked on within its callback, so a read is as large as that takes few milliseconds for: a
   kilobyte may hold twenty frames that are read, judged and written, or one.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ..errors import BackendFault
from .connections import VERSIONS, disconnected, not_http

if TYPE_CHECKING:
    from .wire_answer import Keeper, WireAnswer

READ_BYTES: Final = 64 * 1024
"""Size of one read, at most."""

FIRST_READ_BYTES: Final = 8 * 1024
"""Of the first one of a connection: nobody knows yet what its bytes cost."""

LEAST_READ_BYTES: Final = 2 * 1024

LONG_S: Final = 0.004
"""What took longer makes the next read half as large, if it was a full one; what took less than a quarter of it, twice
as large."""

_HARMLESS: Final = re.compile(rb"[\r\n]*\Z|HTTP/1\.[01] 408 ")
"""Unasked bytes that cannot be another client's answer: empty lines, and the 408 with which a server may close an
unused connection (RFC 9110, 15.5.9)."""

HEAD_BYTES: Final = 64 * 1024
"""So many bytes may come in a row, within a read, that bring nothing of a body."""


class Connection(asyncio.BufferedProtocol):
    """HTTP/1.1 on one transport: one request at a time. `scratch` is where reads go; connections may share it, since
    nothing stays in it."""

    def __init__(self, keeper: Keeper, scratch: memoryview) -> None:
        self.transport: asyncio.Transport
        self.fd = -1
        """The socket's descriptor; -1 if there is none."""
        self.answer: WireAnswer | None = None
        self.reused = False
        self.keep = True
        """Whether another request may follow."""
        self.since = 0.0
        """When it was given back, on the loop's clock."""
        self.queued_s = 0.0
        """How long whoever uses it waited for one of the connections that are in use."""
        self._keeper = keeper
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
        # As aiohttp does: servers that write bare line feeds or blanks after a chunk's size are understood.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def open(self) -> bool:
        """Whether it still stands."""
        return not self._closed and not self.transport.is_closing()

    def expect(self, answer: WireAnswer) -> None:
        """A request goes out now; what comes belongs to `answer`."""
        self.answer = answer
        self._fields = {}
        self._barren_bytes = 0

    async def writable(self) -> None:
        """Wait until what was written is mostly sent, or the connection is closed."""
        if self._full and not self._closed:
            self._writable = asyncio.get_running_loop().create_future()
            try:
                await self._writable
            finally:
                self._writable = None
        else:
            await asyncio.sleep(0)

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.fd = sock.fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what one read brought."""
        answer = self.answer
        if answer is None or answer.ended:
            self._unasked(nbytes)
            return
        if self.reused and not answer.touched and (answer.sending or self.transport.get_write_buffer_size()):
            # The server does not know the whole request yet: these bytes may be the rest of the one before.
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
                self._keeper.out_of_step()
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
                except BaseException as error:  # whatever it is, it belongs to whoever gave the sink
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
            self._adapt(perf_counter() - before)

    def _unasked(self, nbytes: int) -> None:
        """Close the connection, on which bytes arrived that no request asked for."""
        harmless = not self.keep or _HARMLESS.match(self._scratch[:nbytes]) is not None
        self.keep = False
        self.transport.abort()
        if not harmless:
            self._keeper.out_of_step()

    def _adapt(self, took_s: float) -> None:
        """Choose the size of the next read: there is more to read, and this is what a full one took."""
        size = len(self._room)
        if took_s > LONG_S:
            self._room = self._scratch[: max(size // 2, LEAST_READ_BYTES)]
        elif took_s < LONG_S / 4:
            self._room = self._scratch[: size * 2]

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed; an answer without a stated length ends with it."""
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
        self._keeper.lost(self)
        del self._parser, self.on_body  # they know each other

    def pause_writing(self) -> None:
        """The request is taken more slowly than it is written."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- the parser's side; `on_body` is above

    def on_message_begin(self) -> None:
        """An answer begins; a second one was not asked for."""
        if self.answer is None or self.answer.complete:
            raise ValueError("an answer too many")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailer, which is ignored."""
        name = name.lower()
        known = self._fields.get(name)
        self._fields[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        """The head is whole. Interim answers (1xx) are passed over."""
        status = self._parser.get_status_code()
        if not 100 <= status < 600 or self._parser.get_http_version() not in VERSIONS:
            raise ValueError("not a status line of HTTP/1")  # llhttp takes any three digits
        fields, self._fields = self._fields, {}
        if status < 200:
            if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
                raise ValueError("an interim answer has no body")  # it would become part of the answer
        elif self.answer is not None:
            self.answer.begin(status, fields)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if self.answer is not None and self.answer.status:
            self.answer.complete = True
            self.keep = self._parser.should_keep_alive() and self.keep
