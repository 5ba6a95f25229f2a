"""Sending an answer to the client: headers at the right moment, one write per read, back-pressure, keep-alive frames,
and the end.

Rules:

1. One task reads a stream. Normally it also writes, inside the read callback, while the task of the exchange sleeps.
   That task wakes up for everything that has to wait: headers, a slow client, a response that is not plainly chunked
   (compressed, or HTTP/1.0), deferred work, a silent stream, the end.
2. The status line is sent after the server's first event, so an answer that starts with an error becomes an HTTP status
   (R7.9). Later errors are in-band.
3. A client that is slower than the server pauses reading from the server. The buffer for it is bounded by one read and
   the transport's own buffer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from sys import maxsize
from typing import Final, TypeVar

from aiohttp import web
from aiohttp.http import StreamWriter

from ...errors import BackendFault, Defect, GatewayError
from ...events import Event, Fault, Finish
from ...ingress.liveness import LivenessMonitor
from ...protocols.proxied.protocol import ProxiedProtocol
from ...protocols.streams import KEEPALIVE
from ...upstream.client.connections import too_large
from ...upstream.servers.base import WireSource
from ..answers.reply import Reply
from ..chain.plain import release
from ..exchange.request_state import Exchange
from ..exchange.response_head import is_enclosed, send_whole
from ..paths.relay_path import RelayPath
from ..paths.stream_paths import Transcode, choose
from ..paths.whole import WholeAnswerSource, WholeReply, body_of, note_usage
from .relayed_body import relay, show_output

LOG: Final = logging.getLogger("toolwire")

Piece = TypeVar("Piece", bytes, list[Event])
"""Input of a stream path: bytes of the server, or events."""

LINGER_S: Final = 0.2
"""Seconds that a server has to end its stream after its last event, so that its connection can be reused."""

HELD_BYTES: Final = 64 * 1024
"""Bytes that are buffered while headers have to wait. Reading pauses beyond."""


async def send(request: web.Request, exchange: Exchange, reply: Reply, monitor: LivenessMonitor) -> web.StreamResponse:
    """Sends `reply` to the client; the caller closes it. The record has a status once everything was sent. Raises
    `GatewayError` as long as nothing was sent. If the gateway is part of another program (`is_enclosed`), a whole
    answer is returned unsent, and aiohttp sends it."""
    if exchange.received.stream:
        await StreamSender(request, exchange, reply, monitor).run()
        return reply
    body: bytes | None
    wire = reply.unchanged_source(exchange.protocol.name) if type(exchange.protocol) is ProxiedProtocol else None
    if wire is not None and not is_enclosed(request):
        body = await relay(request, exchange, reply, wire)
        if body is None:
            return reply
    else:
        body = await body_of(exchange, reply)
    exchange.record.wrote()
    show_output(exchange.record, body)
    if not await send_whole(request, reply, body):
        reply = WholeReply.become(reply, WholeAnswerSource(exchange, reply.source, body=body))
    exchange.record.status = reply.status
    return reply


class StreamSender:
    """Sends one streamed answer."""

    def __init__(self, request: web.Request, exchange: Exchange, reply: Reply, monitor: LivenessMonitor) -> None:
        self._request = request
        self._client = request.protocol
        self._exchange = exchange
        self._reply = reply
        self._monitor = monitor
        self._path, self._wire = choose(exchange, reply)
        bounded = self._wire is not None and not isinstance(self._path, RelayPath)
        self._room = exchange.route.limits.stream_bytes if bounded else maxsize  # bytes the server may still send
        self._outputs = [observer.output for observer in exchange.record.observers if observer.output is not None]
        self._transport: asyncio.Transport | None = None  # the client's; None if writing has to wait
        self._pending = bytearray()
        self._holds_back = True  # True while headers or `_pending` are unsent
        self._waiting: asyncio.Future[None] | None = None  # done when `_holds_back` becomes False
        # a future takes a tenth of the memory of an `asyncio.Event`
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._silent = False
        self._stopped: GatewayError | None = None
        self._committed = reply.prepared  # True if the headers are sent, perhaps by a middleware
        self._busy_s = 0.0
        self._holds = False  # True while reading from the server is paused until `_pending` is sent

    async def run(self) -> None:
        """Sends everything. Raises `GatewayError` as long as nothing was sent, and `ConnectionError` if the client has
        gone."""
        reading = asyncio.get_running_loop().create_task(self._take() if self._wire is None else self._read(self._wire))
        reading.add_done_callback(self._wake)
        self._monitor.attend(self._beat, self._stop)
        self._reply.on_stop(self._stop)
        try:
            try:
                await self._attend(reading)
                await self._conclude(reading)
            except (Exception, asyncio.CancelledError) as error:
                gone = isinstance(error, ConnectionError) or self._monitor.is_cancelled()
                if gone or not (self._committed or self._path.has_sent):
                    raise
                await self._break_off(error)
            await self._reply.write_eof()
            self._exchange.record.status = self._reply.status
            if self._path.drained:
                await asyncio.sleep(0)  # most sources end in the next iteration of the event loop
                if not reading.done():
                    await asyncio.wait({reading}, timeout=LINGER_S)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            if not reading.cancelled() and isinstance(failed := reading.exception(), GatewayError):
                failed.__traceback__ = None  # its frames keep the error: a reference cycle
            self._path.close()

    # --- the reading task -------------------------------------------------------------------------------------------

    async def _read(self, source: WireSource) -> None:
        before = time.monotonic()
        try:
            await source.pump(partial(self._give, self._path.feed))
        finally:
            self._reply.waited_s += time.monotonic() - before - self._busy_s

    async def _take(self) -> None:
        path = self._path
        assert isinstance(path, Transcode)
        async with aclosing(self._reply.events()) as batches:
            async for batch in batches:
                self._give(path.take, batch)
                if path.over:
                    return
                if path.has_sent:
                    await self._until_gone()

    def _give(self, write: Callable[[Piece], bytes], piece: Piece) -> None:
        """Writes the output for one piece of input as one chunk, or buffers output that has to wait and wakes up the
        other task. Everything that happens per read happens here and in the path."""
        before = time.monotonic()
        self._room -= len(piece)
        if self._room < 0:
            raise too_large(self._exchange.route.limits.stream_bytes)
        data = write(piece)
        if self._outputs:
            self._show(data)
        path, transport = self._path, self._transport
        if transport is None:
            if data:
                self._pending += data
                self._holds_back = True
                if len(self._pending) > HELD_BYTES:
                    self._hold()
            if path.has_sent:
                self._wake()
        elif data:
            if transport.is_closing():
                raise ConnectionResetError("the client is gone")
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))  # the chunk format of HTTP, without compression
            self._monitor.last = before
            if self._client.writing_paused:
                self._transport = None
                self._hold()
                self._wake()
        if path.over:
            self._wake()
        if path.works:
            self._transport = None
            self._hold()
            self._wake()
        self._busy_s += time.monotonic() - before

    def _show(self, data: bytes) -> None:
        """Shows output to observers."""
        if data:
            for output in self._outputs:
                output(data)

    def _buffer(self, data: bytes) -> None:
        """Buffers output of the path."""
        if self._outputs:
            self._show(data)
        self._pending += data

    async def _until_gone(self) -> None:
        """Waits until the buffer is empty. Called only by the reading task."""
        while self._holds_back:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def _hold(self) -> None:
        """Pauses the server until the buffer has been sent."""
        self._holds_back = True
        if self._wire is not None:
            self._wire.pause()
            self._holds = True

    def _beat(self) -> None:
        self._silent = True
        self._wake()

    def _stop(self, reason: GatewayError) -> None:
        self._stopped = reason
        self._wake()

    def _wake(self, _: object = None) -> None:
        """Wakes up the exchange's task."""
        if not self._news.done():
            self._news.set_result(None)

    # --- the exchange's task ----------------------------------------------------------------------------------------

    async def _attend(self, reading: asyncio.Task[None]) -> None:
        """Does the work that may have to wait, until the stream is over."""
        path = self._path
        while not reading.done():
            await self._news
            self._news = asyncio.get_running_loop().create_future()
            if path.works:
                await self._work_off()
            if path.over or self._stopped is not None:
                return
            if path.has_sent or self._silent:
                await self._commit()
            if self._silent:
                self._silent = False
                await self._show_life()

    async def _work_off(self) -> None:
        """Runs the deferred work and resumes reading from the server."""
        self._buffer(await self._path.work_off())
        if not self._path.has_sent:  # else reading resumes when the output has been sent
            self._release()

    async def _conclude(self, reading: asyncio.Task[None]) -> None:
        path = self._path
        if self._stopped is not None:
            reading.cancel()
            await asyncio.wait({reading})
        if path.works:
            await self._work_off()
        if not path.over:
            error = self._stopped or _error_of(reading)
            if error is not None and not isinstance(error, GatewayError):
                raise error
            self._buffer(path.finish(error))
        self._buffer(await path.settle())
        while path.continues:
            await self._go_on(reading)
            self._buffer(await path.settle())
        if isinstance(path.last, Fault):
            if not (self._committed or path.has_sent):
                raise path.last.error
            self._note(path.last.error)
        await self._commit()
        if isinstance(path.last, Finish):
            note_usage(self._exchange, path.last.usage, None)

    async def _go_on(self, reading: asyncio.Task[None]) -> None:
        """Sends the continuation of the answer (`path.go_on`) in place of its end."""
        await asyncio.wait({reading}, timeout=LINGER_S)
        reading.cancel()
        await asyncio.wait({reading})
        self._room = maxsize  # the source of the continuation has its own limit
        following = asyncio.get_running_loop().create_task(self._follow(self._path.go_on()))
        following.add_done_callback(self._wake)
        try:
            if self._stopped is None:
                await self._attend(following)
            if self._path.over:
                await following  # the answer is complete, so the task ends now
        finally:
            following.cancel()
            await asyncio.wait({following})
        if not self._path.over:
            error = self._stopped or _error_of(following)
            if error is not None and not isinstance(error, GatewayError):
                raise error
            ended = BackendFault("The answer ended without its last event.", code="upstream_disconnected")
            self._buffer(self._path.give_up(error or ended))

    async def _follow(self, rest: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(rest) as outputs:
            async for data in outputs:
                self._give(bytes, data)  # the data is already in the protocol's form
                if self._path.has_sent and not self._path.over:
                    await self._until_gone()

    async def _break_off(self, error: BaseException) -> None:
        shown = _visible(error, self._exchange)
        self._note(shown)
        self._buffer(self._path.fail(shown))
        await self._commit()

    def _note(self, error: GatewayError) -> None:
        self._exchange.failure = error.with_traceback(None)  # its frames keep the exchange
        self._exchange.record.ended_by(error)

    async def _commit(self) -> None:
        """Sends the headers, if they have not been sent, and the buffer, at the client's pace."""
        reply, began = self._reply, self._committed
        if not began:
            self._committed = True
            reply.headers.setdefault("Content-Type", self._exchange.protocol.content_type)
            reply.headers["Cache-Control"] = "no-cache"
            reply.headers["X-Accel-Buffering"] = "no"
        writer = await reply.prepare(self._request)  # returns the writer of a prepared response too
        assert writer is not None
        if not began:
            self._exchange.record.wrote()
        while True:
            await writer.drain()
            if not self._pending:
                break
            data = bytes(self._pending)
            self._pending.clear()
            await reply.write(data)
            self._monitor.last = time.monotonic()
        if self._path.has_sent and self._transport is None:
            release(self._request, self._exchange)
            if isinstance(writer, StreamWriter) and writer.chunked and not reply.compression:
                writer.send_headers()
                self._transport = writer.transport
        self._holds_back = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        if self._holds:
            self._release()

    def _release(self) -> None:
        """Resumes reading from the server."""
        if self._holds and self._wire is not None:
            self._holds = False
            self._wire.resume()

    async def _show_life(self) -> None:
        options = self._exchange.route.options.responses
        as_comment = options.keepalive == "event" and time.monotonic() - self._monitor.last < options.event_s
        await self._reply.write(KEEPALIVE if as_comment else self._path.keepalive())


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    """Returns the exception of a task that has ended and that the sender did not cancel. A cancellation is an error: a
    middleware waited for a task of its own that was cancelled."""
    try:
        return task.exception()
    except asyncio.CancelledError as error:
        failed = RuntimeError("reading the answer was cancelled")
        failed.__cause__ = error  # the log shows where
        return failed


def _visible(error: BaseException, exchange: Exchange) -> GatewayError:
    if isinstance(error, GatewayError):
        return error
    LOG.error("exchange %s failed after its stream began", exchange.id, exc_info=error)
    return Defect("The gateway failed while it streamed.", hint="The log has the reason under this request's id.")
