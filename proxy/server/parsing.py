"""Feeds client data to aiohttp's parser in pieces of suitable size.

Rules of this module:

1. aiohttp's parser runs Python code for every chunk of a body. A read with very many chunks is parsed in slices, one
   per iteration of the event loop, so that a million chunks of one byte do not block it.
2. Bytes between the chunks of a body or after them are limited like a head, because they count for no limit of a body.
3. A request to upgrade to a protocol other than WebSocket is ignored (RFC 9110, 7.8), and the data after it is the next
   request.
4. An idle connection holds no reference to its last request. aiohttp's loop keeps request and answer until the next
   one, and with them the body and everything made from it: megabytes per idle connection.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

SLICE_BYTES: Final = 8 * 1024
"""Size of a slice of a read with more than `MANY_LINES` line ends: 1,300 chunks of one byte, about 3 ms."""

MANY_LINES: Final = 4096
"""A read with more line ends is parsed in slices. A chunk has two line ends."""

UPGRADE_BYTES: Final = 1024
"""Length of the beginning of a read that is searched for an upgrade. Clients that upgrade send a short head with the
usual spelling. A later one is noticed too late to keep the data after it, and the connection ends with the answer."""

_HEAD_END: Final = b"\r\n\r\n"


class _Answered(NamedTuple):
    """Replaces a sent answer; has the only attribute that aiohttp still reads."""

    keep_alive: bool | None


class SlicingHandler(web.RequestHandler):
    """aiohttp's connection protocol. A subclass passes bytes to `parse`, and receives sliced ones in `take`.

    It relies on internals of aiohttp: parsed requests wait in `_messages`, and reading is paused and resumed by private
    methods.
    """

    __slots__ = ("_barren", "_barren_bytes", "_grown", "_last", "_slicing", "held", "newest")

    def __init__(self, manager: Any, *, barren_bytes: int, **options: Any) -> None:
        super().__init__(manager, **options)
        self.newest: tuple[Any, StreamReader] | None = None
        """Head and body of the last request that has arrived."""
        self.held = b""
        """Bytes that were read but not parsed yet."""
        self._barren_bytes = barren_bytes
        self._barren = 0
        """Number of consecutive bytes that added nothing to the newest body."""
        self._grown = 0
        """Size of the newest body at the last check."""
        self._slicing = False
        """The next slice is scheduled."""
        self._last: bytes | None = None
        """The last bytes before the next ones, after an upgrade was mentioned."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends the answer, and drops the references to it and to the request (rule 4)."""
        sent, reset = await super().finish_response(request, resp, start_time)
        request._state.clear()  # the mapping's own `clear` removes keys one by one
        request._read_bytes = None
        request._payload = EMPTY_PAYLOAD
        return cast(web.StreamResponse, _Answered(sent.keep_alive)), reset

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drops unparsed bytes."""
        self.held = b""
        super().connection_lost(exc)

    def take(self, data: bytes) -> None:
        """Handles the next bytes. Implemented by the subclass."""
        raise NotImplementedError

    @property
    def is_websocket(self) -> bool:
        """True if the connection receives WebSocket frames."""
        return self._payload_parser is not None

    def parse(self, data: bytes) -> None:
        """Passes bytes to aiohttp."""
        if self._payload_parser is not None:
            super().data_received(data)
            return
        last = self._last
        if last is None and (
            data.find(b"pgrade", 0, UPGRADE_BYTES) >= 0 or data.find(b"PGRADE", 0, UPGRADE_BYTES) >= 0
        ):
            last = b""
        while data:
            cut = len(data)
            if last is not None:
                cut = self._next_cut(last, data)
                self._last = last = (last + data[:cut])[-3:]
            super().data_received(data[:cut])
            if self._messages and isinstance((newest := self._messages[-1])[0], RawRequestMessage):
                self.newest = newest
                if last is None and newest[0].upgrade and not _is_websocket(newest[0]):
                    self._close = True
            data = data[cut:]

    def hold(self, data: bytes) -> bool:
        """Buffers bytes that are too many to parse at once, or that follow such bytes. Returns True if they were
        buffered."""
        if self.held:
            self.held += data
        # `rfind` is 100 times faster than `count`: a last line break near the beginning excludes so many lines.
        elif data.rfind(b"\r") >= 2 * MANY_LINES and data.count(b"\r\n") > MANY_LINES:
            self.held = data
            self._pause_transport_reading()
            self._slice()
        else:
            return False
        return True

    def look_at_body(self, body: StreamReader, size: int) -> None:
        """Called after `size` bytes of a chunked body were parsed. Fails the body if too many bytes in a row added
        nothing to it."""
        came = body.total_bytes
        self._barren = 0 if came != self._grown or body.is_eof() else self._barren + size
        self._grown = came
        if self._barren > self._barren_bytes:
            self.break_body(f"more than {self._barren_bytes} bytes of it are not the body's")

    def break_body(self, why: str) -> None:
        """Fails the newest body for its reader, which aiohttp 3.14 would let wait."""
        if self.newest is not None and not self.newest[1].is_eof():
            self.newest[1].set_exception(web.RequestPayloadError(why))

    def _slice(self) -> None:
        self._slicing = False
        if self._is_paused():
            return  # until aiohttp resumes reading
        data, self.held = self.held[:SLICE_BYTES], self.held[SLICE_BYTES:]
        if data:
            self.take(data)
        if not self._is_paused():
            self._resume_transport_reading()

    def _is_paused(self) -> bool:
        """True if aiohttp has paused reading. A method, because the value changes between two lines."""
        return self._reading_paused or self._buffer_paused

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Like aiohttp's, which is called at each end of a body and would parse and resume even if nothing is
        paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        """Like aiohttp's, but buffered bytes are parsed first."""
        if not self.held:
            super()._resume_transport_reading()
        elif not self._slicing:
            self._slicing = True
            self._loop.call_soon(self._slice)

    def _next_cut(self, last: bytes, data: bytes) -> int:
        """Returns the position in `data` up to which it may be passed on at once. aiohttp 3.14 discards bytes that are
        passed together with the end of a request for an unknown upgrade such as `h2c`, so data is cut at the end of a
        request."""
        if self.newest is not None:
            message, body = self.newest
            if not (body.is_eof() or message.chunked):
                length = int(message.headers["Content-Length"][-20:])  # the parser allows 64 bits, after any zeros
                return min(len(data), length - body.total_bytes)
        position = (last + data).find(_HEAD_END)  # heads end like this, and chunked bodies
        return len(data) if position < 0 else position + len(_HEAD_END) - len(last)


def _is_websocket(message: RawRequestMessage) -> bool:
    """True if a head asks for a WebSocket; then aiohttp keeps the data after it."""
    return message.headers.get("Upgrade", "").lower() == "websocket"
