"""Ends a connection with a last answer, and gives the client time to read it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, cast

from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..errors import ClientFault, GatewayError
from ..ingress.loop_pacing import LoopPacer

LINGER_S: Final = 2.0
"""Time that a refused client has to read the answer."""


class ClosingProtocol(asyncio.Protocol):
    """Sends `words`, then closes the connection after `linger_s`; with 0 it closes at once without sending. Until then
    it is in the set `alive`.

    Data from the client is read and discarded, at most `bytes` of it, because closing a connection with unread data
    resets it, and the client may lose the answer. `turns` paces the reads of all connections.
    """

    def __init__(
        self, words: bytes, alive: set[ClosingProtocol], linger_s: float, bytes: int, turns: LoopPacer
    ) -> None:
        self._words = words
        self._alive = alive
        self._linger_s = linger_s
        self._room = bytes
        self._turns = turns
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the last answer."""
        self._transport = socket = cast(asyncio.Transport, transport)
        if not self._linger_s:
            socket.abort()
            return
        self._alive.add(self)
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.end)
        if not socket.is_reading():
            socket.resume_reading()
        socket.write(self._words)
        try:
            if socket.can_write_eof():
                socket.write_eof()
        except OSError:  # the connection is closed already
            socket.abort()

    def data_received(self, data: bytes) -> None:
        """Discards the data."""
        self._room -= len(data)
        if self._room < 0:
            self._transport.pause_reading()
        elif not self._turns.take():
            self._transport.pause_reading()
            self._turns.next().add_done_callback(self._read_on)

    def _read_on(self, turn: asyncio.Future[None]) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called when the client has disconnected or the time is over."""
        self._alive.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Closes the connection."""
        self._transport.abort()


def closing_answer(fault: GatewayError, body: bytes, ident: str) -> bytes:
    """Returns the bytes of the last answer of a connection. `body` is the error's."""
    fields = {
        **fault.headers,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-Id": ident,
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def malformed(error: HttpProcessingError) -> GatewayError:
    """Returns the error for a request that aiohttp's parser refused."""
    text = error.message or ""
    if isinstance(error, LineTooLong) or "Too many headers" in text:
        return ClientFault(
            "The request's head is too large: a line, or the number of its fields.", code="headers_too_large"
        )
    if "PRI/Upgrade" in text:  # the preface of HTTP/2
        return ClientFault("HTTP/2 is not supported.", code="malformed_request", hint="Use HTTP/1.1.")
    reason = text.partition("\n")[0].strip(" :.")[:200]
    return ClientFault(f"The request is not valid HTTP: {reason}.", code="malformed_request")
