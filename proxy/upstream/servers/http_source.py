"""The answer of a model server over HTTP, as bytes or as events. One that comes in the other form than was asked for, a
stream in place of a whole answer or the reverse, is converted; its first bytes tell which it is."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from ...config import LimitsConfig
from ...errors import BackendFault, ClientFault, GatewayError
from ...events import Event, Fault, Finish
from ...folding import fold, unfold
from ...model import ModelReply, ModelRequest, Usage, replace
from ...protocols.base import ServerSide
from ...protocols.proxied.protocol import ProxiedProtocol
from ...protocols.shared.numbers import choices_of
from ...protocols.streams import WriteOptions
from ...support.offload import OFFLOAD_BYTES, in_thread, is_long, offload
from ..client.connections import UpstreamAnswer, is_cut, too_large
from .base import WireSource, fold_batches
from .private_data import PrivateData
from .upstream_errors import clean_error

LINGER_S: Final = 0.2
"""Time that a finished stream gets to end, so that its connection can be reused."""

HEAD_BYTES: Final = 64
"""Bytes of an answer that tell a stream from a whole answer."""

_STREAM_BEGINS: Final = re.compile(rb"[:\xef]|[a-z][a-z_-]*(?:[:\r\n]|\Z)")
"""Matches the beginning of a stream: a comment, a byte order mark, or a field, also one that no standard knows."""


class HttpSource(WireSource):
    """The source of one HTTP answer in the protocol `wire`. `limits` bound it; `private` data is removed from its
    errors."""

    _ended = False

    def __init__(
        self,
        request: ModelRequest,
        answer: UpstreamAnswer,
        wire: ServerSide,
        limits: LimitsConfig,
        private: PrivateData,
    ) -> None:
        self.protocol = self._wire = wire
        self.private = private
        self.queued_s = answer.queued_s
        self._limits = limits
        self._request = request
        self._answer = answer
        kind = answer.content_type
        self._streams = kind == "text/event-stream" or (request.stream and _may_be_stream(kind))
        self.converts = self._streams is not request.stream and type(wire) is not ProxiedProtocol

    @property
    def _reading(self) -> dict[str, Any]:
        """Options of the protocol's readers."""
        return {"choices": choices_of(self._request.sampling.n), "note": self.note}

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Passes the wire bytes of the stream to `sink`. A whole answer is converted to a stream. The first bytes tell
        which it is, because some servers send the wrong content type."""
        proxied = type(self._wire) is ProxiedProtocol  # cheaper than `isinstance` of a class that is a `Protocol`
        if self._streams and proxied:
            await self._answer.pump(sink)
        elif proxied:
            raise wrong_kind("sent a whole answer although a stream was requested")
        else:
            whole = bytearray()

            def begin(data: bytes) -> None:
                if whole or self._begins_whole(data):
                    self._append(whole, data)
                    return
                if not data.isspace():
                    self._answer.redirect(sink)
                sink(data)

            await self._answer.pump(begin)
            if whole:
                sink(await self._as_stream(await self._read(bytes(whole))))

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """Replaces the sink for the following reads."""
        self._answer.redirect(sink)

    def pause(self) -> None:
        """Stops reading."""
        self._answer.pause()

    def resume(self) -> None:
        self._answer.resume()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Yields the events of the stream, ending with `Finish` or `Fault`."""
        limits = self._limits
        reader = self._wire.reader(frame_bytes=limits.frame_bytes, **self._reading)
        try:
            size = held = 0
            whole, blank = bytearray(), True
            async for data in self._answer.reads():
                if whole or (blank and self._begins_whole(data)):
                    self._append(whole, data)
                    continue
                blank = blank and data.isspace()
                size += len(data)
                if size > limits.stream_bytes:
                    raise too_large(limits.stream_bytes)
                events = await in_thread(reader.feed, data) if held > OFFLOAD_BYTES else reader.feed(data)
                held += len(data)
                if events:
                    held = 0
                    self._note_end(events)
                    yield events
                    if self._ended:
                        return
            if whole:
                yield unfold(await self._read(bytes(whole)))
                self._ended = True
                return
            events = await in_thread(reader.finish) if held > OFFLOAD_BYTES else reader.finish()
            self._note_end(events)
        except GatewayError as error:
            events = reader.finish() if is_cut(error) else []
            if not (events and isinstance(events[-1], Finish)):
                events = [Fault(error)]
        yield events

    def _begins_whole(self, data: bytes) -> bool:
        """True if the first bytes of an answer are those of a whole answer."""
        return _is_whole(data) if self._streams else not _is_stream(data)

    async def body(self) -> bytes:
        """Returns the bytes of the whole answer. A stream that was not requested is converted. Raises
        `BackendFault`."""
        if self._streams:
            return await self._as_whole(None)
        body = await self._answer.read(self._limits.reply_bytes)
        return body if body.startswith(b"{") or not _is_stream(body) else await self._as_whole(body)

    async def _as_whole(self, stream: bytes | None) -> bytes:
        """Returns a stream, or else the stream that arrives, as the bytes of a whole answer."""
        if isinstance(self._wire, ProxiedProtocol):
            raise wrong_kind("sent a stream although a whole answer was requested")
        reply = await (self.reply() if stream is None else self._read(stream))
        return self._wire.write_reply(_without_zeros(reply), WriteOptions(request=self._request, created=reply.created))

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """Implements `WireSource.body_in_parts`."""
        if self._streams:
            yield await self.body()
            return
        size, limit = 0, self._limits.reply_bytes
        begin, passes = bytearray(), False
        async for data in self._answer.reads():
            size += len(data)
            if size > limit:
                raise too_large(limit)
            if passes:
                yield data
                continue
            begin += data
            if len(begin) >= HEAD_BYTES and not _is_stream(bytes(begin[:HEAD_BYTES])):
                passes = True
                yield bytes(begin)
                begin = bytearray()
        if begin:
            body = bytes(begin)
            yield await self._as_whole(body) if _is_stream(body) else body

    async def reply(self) -> ModelReply:
        """Returns the whole answer. Raises `GatewayError`."""
        if self._streams:
            return await fold_batches(self.batches())
        return await self._read()

    async def _read(self, body: bytes | None = None) -> ModelReply:
        """Parses the whole answer in `body`, or else in the bytes that arrive."""
        try:
            if body is None:
                body = await self._answer.read(self._limits.reply_bytes)
            read = partial(self._read_stream if _is_stream(body) else self._wire.read_reply, **self._reading)
            return await offload(True, read, body) if len(body) > OFFLOAD_BYTES else read(body)
        except (BackendFault, ClientFault) as error:
            raise clean_error(error, private=self.private) from None

    def _read_stream(self, body: bytes, **options: Any) -> ModelReply:
        """Parses a whole answer that is a stream with another label."""
        reader = self._wire.reader(frame_bytes=self._limits.frame_bytes, **options)
        return fold([*reader.feed(body), *reader.finish()])

    async def close(self) -> None:
        """Reuses the connection if the answer has ended, else closes it."""
        await self._answer.close(linger_s=LINGER_S if self._ended else 0.0)

    def _append(self, whole: bytearray, data: bytes) -> None:
        """Appends `data` to a whole answer. Raises `BackendFault` if that becomes too large."""
        whole += data
        if len(whole) > self._limits.reply_bytes:
            raise too_large(self._limits.reply_bytes)

    async def _as_stream(self, reply: ModelReply) -> bytes:
        """Returns a whole answer as the bytes of a stream. Bytes that the client does not get always have the
        counts."""
        unsent = self.converts or not self._request.stream
        request = replace(self._request, include_usage=True) if unsent else self._request
        writer = self._wire.writer(WriteOptions(request=request, created=reply.created))
        return await offload(is_long(reply), lambda: writer.feed(unfold(_without_zeros(reply))))

    def _note_end(self, events: list[Event]) -> None:
        """Notes whether the last event ends the stream, and cleans the message of an in-band error."""
        last = events[-1] if events else None
        if isinstance(last, Fault):
            events[-1] = Fault(clean_error(last.error, private=self.private))
        self._ended = isinstance(last, Fault | Finish)


def _without_zeros(reply: ModelReply) -> ModelReply:
    """Returns a reply without token counts as one whose bytes have none either, and no zeros."""
    return reply if reply.usage is not None else replace(reply, usage=Usage(missing="both"))


def _is_whole(data: bytes) -> bool:
    """True if the first bytes of an answer labelled as a stream are those of something else, such as a whole JSON
    answer or an error page."""
    begin = data.lstrip()
    return begin != b"" and _STREAM_BEGINS.match(begin) is None


def _is_stream(body: bytes) -> bool:
    """True if an answer that is not labelled as a stream is the text of one."""
    return body[:HEAD_BYTES].lstrip(b"\xef\xbb\xbf \r\n").startswith((b"data:", b"event:", b"id:", b"retry:", b":"))


def _may_be_stream(content_type: str) -> bool:
    """True if an answer of this content type is a stream when one was requested. JSON and HTML never are; for other
    types the server is assumed to do as requested."""
    return not content_type.endswith(("/json", "+json")) and content_type != "text/html"


def wrong_kind(what: str) -> BackendFault:
    """Returns the error for a whole answer in place of a stream, or the reverse, that cannot be converted. `what`
    describes it."""
    return BackendFault(f"The model server {what}.", code="upstream_invalid_response")
