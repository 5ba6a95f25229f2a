"""What a client sends, given to aiohttp's parser in pieces that are small enough, and end where they have to.

Rules of this module:

1. aiohttp's parser calls back for every chunk of a body, in Python. Of a read with very many of them a slice is parsed
   in a turn of the event loop, so that a million chunks of one byte do not stop it.
2. What stands between the chunks of a body, or behind them, is bounded as a head is: it counts for no limit of a body.
3. A wish to upgrade to another protocol than WebSocket is not heard (RFC 9110, 7.8), and what comes behind it is the
   next request.
4. A connection without a request holds nothing of the last one. aiohttp's loop keeps the request and its answer until
   the next request comes, and with them the body and all that was made of it: megabytes for each idle connection.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

SLICE_BYTES: Final = 8 * 1024
"""Of a read with more than `MANY_LINES` line ends so much is parsed at once: 1,300 chunks of one byte, in about 3
ms."""

MANY_LINES: Final = 4096
"""A chunk has two line ends."""

UPGRADE_BYTES: Final = 1024
"""So far into what comes it is looked for a wish to upgrade: whoever has one asks with a short head, and writes its
name as everybody does. Else it is noticed too late to save what follows, and the connection ends with the answer."""

_HEAD_END: Final = b"\r\n\r\n"


class _Answered(NamedTuple):
    """All that aiohttp asks of an answer that was sent."""

    keep_alive: bool | None


class SlicingHandler(web.RequestHandler):
    """aiohttp's protocol of a connection. Whoever inherits gives it bytes by `parse`, and gets them by `take`.

    It knows of aiohttp's that what has been parsed waits in `_messages`, and how reading is paused and resumed.
    """

    __slots__ = ("_barren", "_barren_bytes", "_grown", "_last", "_slicing", "held", "newest")

    def __init__(self, manager: Any, *, barren_bytes: int, **options: Any) -> None:
        super().__init__(manager, **options)
        self.newest: tuple[Any, StreamReader] | None = None
        """The head and the body of the last request that has come."""
        self.held = b""
        """What has been read, and not been parsed yet."""
        self._barren_bytes = barren_bytes
        self._barren = 0
        """Bytes in a row that brought nothing of the newest body."""
        self._grown = 0
        """What has come of it."""
        self._slicing = False
        """The next slice of what is held is due."""
        self._last: bytes | None = None
        """What stands before the next bytes, once somebody has spoken of an upgrade."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer, and let go of it and of the request (rule 4)."""
        sent, reset = await super().finish_response(request, resp, start_time)
        request._state.clear()  # `clear` of a mapping takes one key after the other
        request._read_bytes = None
        request._payload = EMPTY_PAYLOAD
        return cast(web.StreamResponse, _Answered(sent.keep_alive)), reset

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self.held = b""
        super().connection_lost(exc)

    def take(self, data: bytes) -> None:
        """Work on these bytes, which are the next ones."""
        raise NotImplementedError

    @property
    def is_websocket(self) -> bool:
        """Whether the bytes that come are frames of a WebSocket."""
        return self._payload_parser is not None

    def parse(self, data: bytes) -> None:
        """Give these bytes to aiohttp."""
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
        """Keep bytes of which there is too much to do at once, or that have to wait for those; whether that is so."""
        if self.held:
            self.held += data
        # The last one shows, in a hundredth of the time, that there are not so many.
        elif data.rfind(b"\r") >= 2 * MANY_LINES and data.count(b"\r\n") > MANY_LINES:
            self.held = data
            self._pause_transport_reading()
            self._slice()
        else:
            return False
        return True

    def look_at_body(self, body: StreamReader, size: int) -> None:
        """So many bytes were parsed, of the newest body, which comes in chunks: see whether they brought anything of
        it."""
        came = body.total_bytes
        self._barren = 0 if came != self._grown or body.is_eof() else self._barren + size
        self._grown = came
        if self._barren > self._barren_bytes:
            self.break_body(f"more than {self._barren_bytes} bytes of it are not the body's")

    def break_body(self, why: str) -> None:
        """Nothing more will come of the newest body: whoever reads it is told, whom aiohttp 3.14 would let wait."""
        if self.newest is not None and not self.newest[1].is_eof():
            self.newest[1].set_exception(web.RequestPayloadError(why))

    def _slice(self) -> None:
        self._slicing = False
        if self._is_paused():
            return  # until aiohttp wants more
        data, self.held = self.held[:SLICE_BYTES], self.held[SLICE_BYTES:]
        if data:
            self.take(data)
        if not self._is_paused():
            self._resume_transport_reading()

    def _is_paused(self) -> bool:
        """aiohttp has enough for now. A method, because it changes between two lines."""
        return self._reading_paused or self._buffer_paused

    def resume_reading(self, resume_parser: bool = True) -> None:
        """As aiohttp's, which is called at each end of a body, and parses and resumes also where nothing is paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        """As aiohttp's, but what has been read goes first."""
        if not self.held:
            super()._resume_transport_reading()
        elif not self._slicing:
            self._slicing = True
            self._loop.call_soon(self._slice)

    def _next_cut(self, last: bytes, data: bytes) -> int:
        """Where in `data` a request may end. aiohttp 3.14 throws away what it is given together with the end of a
        request that wishes to go on in a protocol that it does not know, such as `h2c`: it is given nothing together
        with the end of a request."""
        if self.newest is not None:
            message, body = self.newest
            if not (body.is_eof() or message.chunked):
                return min(len(data), int(message.headers["Content-Length"]) - body.total_bytes)
        found = (last + data).find(_HEAD_END)  # heads end so, and bodies in chunks
        return len(data) if found < 0 else found + len(_HEAD_END) - len(last)


def _is_websocket(message: RawRequestMessage) -> bool:
    """Whether a head asks for a WebSocket: aiohttp keeps what comes behind it."""
    return message.headers.get("Upgrade", "").lower() == "websocket"
