"""One answer of the client: what has come of it, and who waits for the rest.

Rules:

1. The pieces of a body that one read brought are handed on as one, from within the callback: no task, no queue and,
   with `pump`, no future per read.
2. An answer that failed gives up its connection at once. One that ended keeps it until its caller has taken everything,
   so that nothing of the next answer can get into this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from multidict import CIMultiDict

from ..config import Timeouts
from ..errors import BackendFault
from .connections import disconnected, timed_out, too_large, undecodable
from .inflate import Inflater

if TYPE_CHECKING:
    from .wire_connection import Connection

INBOX_BYTES: Final = 32 * 1024
"""If so much waits for a reader, the connection is not read for a while. The reader gets it at once, and may have a
thousand frames in it to work on."""


class Keeper(Protocol):
    """Who owns connections: `WireClient`."""

    timeouts: Timeouts

    def give_back(self, answer: WireAnswer, connection: Connection) -> None:
        """The answer needs its connection no more."""

    def lost(self, connection: Connection) -> None:
        """The connection is closed."""

    def out_of_step(self) -> None:
        """The server sent an answer that no request asked for."""


class WireAnswer:
    """One answer. `status` is 0 until its head has come."""

    # How it is before anything has come; so that this costs a request nothing.
    status = 0
    content_type = ""
    complete = False
    """The parser has seen the end."""
    until_close = False
    """The end of the connection is the end of the answer."""
    ended = False
    touched = False
    """A byte has come."""
    began = False
    """A byte of the body has come."""
    lost = False
    """The connection was closed before a byte of an answer to this request came."""
    sending = False
    """The request is being written in pieces, of which some are left."""
    _fields: Mapping[bytes, bytes] = {}
    inflater: Inflater | None = None
    """For a body that is compressed."""
    _size = 0
    _limit: int | None = None
    sink: Callable[[bytes], None] | None = None
    """Who gets the bytes of the body from within the read callback."""
    _waiter: asyncio.Future[None] | None = None
    _error: BaseException | None = None
    _paused = False
    quiet_since: float | None = None
    """When a look at the limits first found that nothing comes."""

    def __init__(self, keeper: Keeper, connection: Connection, started: float) -> None:
        self.queued_s = connection.queued_s
        self._keeper = keeper
        self._connection: Connection | None = connection
        self._inbox: list[bytes] = []
        self._started = started

    @property
    def headers(self) -> CIMultiDict[str]:
        """The header fields."""
        return CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._fields.items())

    # --- the reader's side

    async def head(self) -> None:
        """Wait for the head."""
        while not self.status and not self.ended:
            await self._wait()
        if not self.status:
            assert self._error is not None
            raise self._error

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""
        while True:
            if self._inbox:
                yield self._taken()
            elif self.ended:
                self._settle()
                return
            else:
                await self._wait()

    async def read(self, limit: int) -> bytes:
        """The whole body."""
        self._limit = limit
        if self._paused:
            self.resume()
        while not self.ended and self._size <= limit:
            await self._wait()
        if self._size > limit:
            await self.close()
            raise too_large(limit)
        self._settle()
        return self._taken()

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Give each read to `sink` from within the read callback."""
        self.sink = sink
        try:
            if self._inbox:
                sink(self._taken())
            while not self.ended:
                await self._wait()
        except Exception as error:  # the sink's
            self.fail(error)
            raise
        finally:
            self.sink = None
        self._settle()

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """See `Answer`."""
        self.sink = sink

    def pause(self) -> None:
        """Do not read the connection for a while."""
        if not self._paused:
            self._paused = True
            if self._connection is not None and self._connection.open:
                self._connection.transport.pause_reading()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            self.quiet_since = None
            if self._connection is not None and self._connection.open:
                self._connection.transport.resume_reading()

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Keep the connection if the answer ended, or ends in time; else close it."""
        try:
            if linger_s and not self.ended:
                self.resume()
                async with asyncio.timeout(linger_s):
                    await self.pump(_forget)
        except (BackendFault, TimeoutError):
            pass  # it did not end in time, or badly: the connection is not kept
        finally:
            if not self.ended:
                self.fail(disconnected())
            if self._connection is not None:
                self._release()

    def overdue(self, now: float) -> BackendFault | None:
        """The limit that has passed, if one has. The one for silence is right to two calls of this."""
        t = self._keeper.timeouts
        if t.total_s is not None and now - self._started >= t.total_s:
            return timed_out("total", t.total_s)
        if self.status and (self._waiter is None or self._paused):
            return None  # nobody waits
        if not self.began:
            if t.first_byte_s is not None and now - self._started >= t.first_byte_s:
                return timed_out("waiting for the first byte", t.first_byte_s)
        elif self.quiet_since is None:
            self.quiet_since = now
        elif t.idle_s is not None and now - self.quiet_since >= t.idle_s:
            return timed_out("idle", t.idle_s)
        return None

    # --- the connection's side

    def begin(self, status: int, fields: Mapping[bytes, bytes]) -> None:
        """The head has come."""
        self.status = status
        self._fields = fields
        self.content_type = _media_type(fields.get(b"content-type", b"")[:256])
        if b"content-length" not in fields:
            coding = fields.get(b"transfer-encoding", b"").rpartition(b",")[2].strip().lower()
            self.until_close = coding != b"chunked"
        encoding = fields.get(b"content-encoding", b"").strip().lower().decode("latin-1")
        if encoding and encoding != "identity":
            try:
                self.inflater = Inflater(encoding)
            except ValueError:
                self.fail(undecodable())
        if self._waiter is not None:
            self._wake(self._waiter)

    def inflated(self, data: bytes) -> bytes:
        """What these bytes of the body amount to, which has an `inflater`; nothing if it failed."""
        assert self.inflater is not None
        try:
            return self.inflater.feed(data)
        except ValueError:
            self.fail(undecodable())
            return b""

    def take(self, data: bytes) -> None:
        """Bytes of the body have come, and nobody has given a `sink`."""
        if self.ended or not data:
            return
        self._inbox.append(data)
        self._size += len(data)
        if self._limit is None:
            if self._size > INBOX_BYTES:
                self.pause()
            if self._waiter is not None:
                self._wake(self._waiter)
        elif self._size > self._limit and self._waiter is not None:
            self._wake(self._waiter)

    def end(self) -> None:
        """The last byte has come."""
        if self.ended:
            return
        if self.inflater is not None:
            try:
                self.inflater.finish()
            except ValueError:
                self.fail(undecodable())
                return
        self.ended = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        if self.ended:
            return
        self.ended = True
        self._error = error
        if self._connection is not None:
            self._connection.keep = False
        self._release()
        if self._waiter is not None:
            self._wake(self._waiter)

    def _taken(self) -> bytes:
        inbox = self._inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        self._size = 0
        if self._paused:
            self.resume()
        return data

    def _settle(self) -> None:
        if self._connection is not None:
            self._release()
        if self._error is not None:
            raise self._error

    def _release(self) -> None:
        if self._paused:
            self.resume()  # whoever uses the connection next does not know that it was paused
        connection, self._connection = self._connection, None
        if connection is not None:
            self._keeper.give_back(self, connection)

    def _wait(self) -> asyncio.Future[None]:
        self.quiet_since = None
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = None
        if not waiter.done():  # whoever waited was cancelled
            waiter.set_result(None)


@lru_cache(maxsize=64)
def _media_type(value: bytes) -> str:
    """Of a `Content-Type`, in lower case and without parameters. A server sends one or two."""
    return value.partition(b";")[0].strip().lower().decode("latin-1")


def _forget(data: bytes) -> None:
    """A sink for what nobody wants."""
