"""Connections that are over: the client is told why, if it was not, and is given time to read it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, cast

from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from toolwire.errors import ClientFault, GatewayError
from toolwire.ingress.turns import Turns

LINGER_S: Final = 2.0
"""How long a client that was refused is given to read why."""


class Refusal(asyncio.Protocol):
    """Says one thing, and is gone after `linger_s`; with 0 it does not even say it. In `alive` meanwhile.

    What the client still sends is read in `turns` and thrown away, because a connection that is closed with bytes
    waiting is reset, and the client may lose what it was told. After `bytes` of it nothing more is taken.
    """

    def __init__(self, words: bytes, alive: set[Refusal], linger_s: float, bytes: int, turns: Turns) -> None:
        self._words = words
        self._alive = alive
        self._linger_s = linger_s
        self._room = bytes
        self._turns = turns
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
        socket.write(self._words)
        try:
            if socket.can_write_eof():
                socket.write_eof()
        except OSError:  # it has gone already
            socket.abort()

    def data_received(self, data: bytes) -> None:
        """Throw it away."""
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
        """The client has gone, or time is up."""
        self._alive.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Close."""
        self._transport.abort()


def answer(fault: GatewayError, body: bytes, ident: str) -> bytes:
    """The last answer of a connection, to what is no request or was not taken for one. `body` says the error."""
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
    """What aiohttp's parser did not like, in words for the client."""
    text = error.message or ""
    if isinstance(error, LineTooLong) or "Too many headers" in text:
        return ClientFault(
            "The request's head is too large: a line, or the number of its fields.", code="headers_too_large"
        )
    if "PRI/Upgrade" in text:  # what a client begins with that takes HTTP/2 for granted
        return ClientFault("HTTP/2 is not spoken here.", code="malformed_request", hint="Use HTTP/1.1.")
    reason = text.partition("\n")[0].strip(" :.")[:200]
    return ClientFault(f"The request is not valid HTTP: {reason}.", code="malformed_request")
