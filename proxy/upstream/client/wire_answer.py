"""One answer of the HTTP client: the data that has arrived, and the reader that waits for more.

Rules:

1. All body data of one read is passed on as one piece, from within the callback. There is no task and no queue, and
   with `pump` no future per read.
2. A failed answer releases its connection at once. A finished one keeps it until its caller has read everything, so
   that no data of the next answer can get into this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from multidict import CIMultiDict

from ...config import Timeouts
from ...errors import BackendFault
from .connections import disconnected, timed_out, too_large, undecodable
from .inflate import Inflater

INBOX_BYTES: Final = 32 * 1024
"""Unread data beyond this size pauses reading. It is kept small because a reader gets all of it at once, and it may
hold a thousand frames."""


class AnswerConnection(Protocol):
    """The connection of an answer, as far as the answer uses it: `HttpConnection`."""

    transport: asyncio.Transport
    queued_s: float
    keep: bool

    @property
    def open(self) -> bool:
        """True if the connection is open."""


class HttpAnswer:
    """One answer. `status` is 0 until its head has arrived. `give_back` is called once, when the answer no longer needs
    its connection."""

    # Initial state, in the class so that creating an answer is cheap.
    status = 0
    content_type = ""
    complete = False
    """The parser has reached the end."""
    until_close = False
    """The answer ends when the connection is closed."""
    ended = False
    touched = False
    """At least one byte has arrived."""
    began = False
    """At least one byte of the body has arrived."""
    lost = False
    """The connection was closed before any byte of an answer arrived."""
    sending = False
    """The request is sent in pieces, and some are left."""
    _fields: Mapping[bytes, bytes] = {}
    inflater: Inflater | None = None
    """Decompresses the body, if it is compressed."""
    _size = 0
    _limit: int | None = None
    sink: Callable[[bytes], None] | None = None
    """Called with the bytes of the body from within the read callback."""
    _waiter: asyncio.Future[None] | None = None
    _error: BaseException | None = None
    _paused = False
    quiet_since: float | None = None
    """When a check of the limits first found that no data arrives."""

    def __init__(
        self,
        connection: AnswerConnection,
        timeouts: Timeouts,
        started: float,
        give_back: Callable[[HttpAnswer], None],
    ) -> None:
        self.queued_s = connection.queued_s
        self._connection: AnswerConnection | None = connection
        self._timeouts = timeouts
        self._give_back = give_back
        self._inbox: list[bytes] = []
        self._started = started

    @property
    def headers(self) -> CIMultiDict[str]:
        """The header fields."""
        return CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._fields.items())

    # --- called by the reader

    async def head(self) -> None:
        """Waits for the head. Raises the error if the answer failed before."""
        while not self.status and not self.ended:
            await self._wait()
        if not self.status:
            assert self._error is not None
            raise self._error

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives. Raises `BackendFault`."""
        while True:
            if self._inbox:
                yield self._taken()
            elif self.ended:
                self._settle()
                return
            else:
                await self._wait()

    async def read(self, limit: int) -> bytes:
        """Returns the whole body. Raises `BackendFault`, also if it has more than `limit` bytes."""
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
        """Passes each read to `sink` from within the read callback. Raises `BackendFault`, and any error of the
        sink."""
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
        self.sink = sink

    def pause(self) -> None:
        """Stops reading from the connection."""
        if not self._paused:
            self._paused = True
            if self._connection is not None and self._connection.open:
                self._connection.transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self.quiet_since = None
            if self._connection is not None and self._connection.open:
                self._connection.transport.resume_reading()

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Keeps the connection if the answer has ended, or ends within `linger_s`; else closes it."""
        try:
            if linger_s and not self.ended:
                self.resume()
                async with asyncio.timeout(linger_s):
                    await self.pump(_forget)
        except (BackendFault, TimeoutError):
            pass  # it did not end in time, or failed: the connection is closed
        finally:
            if not self.ended:
                self.fail(disconnected())
            if self._connection is not None:
                self._release()

    def overdue(self, now: float) -> BackendFault | None:
        """Returns the error for an exceeded limit, or None. The idle limit is measured between two calls, so it is
        exact to one interval."""
        t = self._timeouts
        if t.total_s is not None and now - self._started >= t.total_s:
            return timed_out("total", t.total_s)
        if self.status and (self._waiter is None or self._paused):
            return None  # no reader waits
        if not self.began:
            if t.first_byte_s is not None and now - self._started >= t.first_byte_s:
                return timed_out("waiting for the first byte", t.first_byte_s)
        elif self.quiet_since is None:
            self.quiet_since = now
        elif t.idle_s is not None and now - self.quiet_since >= t.idle_s:
            return timed_out("idle", t.idle_s)
        return None

    # --- called by the connection

    def begin(self, status: int, fields: Mapping[bytes, bytes]) -> None:
        """Called when the head has arrived."""
        self.status = status
        self._fields = fields
        self.content_type = _media_type(fields.get(b"content-type", b"")[:256])
        if b"content-length" not in fields:
            transfer = fields.get(b"transfer-encoding", b"")
            self.until_close = transfer.rpartition(b",")[2].strip().lower() != b"chunked"
            if transfer and transfer != b"chunked" and _encodings(transfer) not in ([], [b"chunked"]):
                self.fail(undecodable())
        if b"content-encoding" in fields and (encodings := _encodings(fields[b"content-encoding"])):
            try:
                self.inflater = Inflater(b", ".join(encodings).decode("latin-1"))
            except ValueError:
                self.fail(undecodable())
        if self._waiter is not None:
            self._wake(self._waiter)

    def inflated(self, data: bytes) -> bytes:
        """Returns decompressed bytes of the body; empty if the decompression failed."""
        assert self.inflater is not None
        try:
            return self.inflater.feed(data)
        except ValueError:
            self.fail(undecodable())
            return b""

    def take(self, data: bytes) -> None:
        """Stores bytes of the body while there is no `sink`."""
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
        """Called when the last byte has arrived."""
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
        """Ends the answer with an error."""
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
            self.resume()  # the next user of the connection expects it to be reading
        connection, self._connection = self._connection, None
        if connection is not None:
            self._give_back(self)

    def _wait(self) -> asyncio.Future[None]:
        self.quiet_since = None
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = None
        if not waiter.done():  # the waiting task may have been cancelled
            waiter.set_result(None)


def _encodings(value: bytes) -> list[bytes]:
    """Returns the encodings in a header field, in lower case, without those that change nothing."""
    return [name for part in value.lower().split(b",") if (name := part.strip()) not in (b"", b"identity")]


@lru_cache(maxsize=64)
def _media_type(value: bytes) -> str:
    """Returns the media type of a `Content-Type`, in lower case and without parameters. Cached, since a server sends
    one or two."""
    return value.partition(b";")[0].strip().lower().decode("latin-1")


def _forget(data: bytes) -> None:
    """A sink that discards all data."""
