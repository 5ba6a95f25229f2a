"""A large whole answer that is sent unchanged, at the client's pace. Embeddings of many texts take tens of megabytes,
which the gateway would have to buffer for a client that does not read.

Rules:

1. An answer of at most `WHOLE_BYTES` is checked as a whole, and so is one that does not begin as JSON or is an error.
2. Of a larger one, only one read and the transport's buffer are held. The server is read as fast as the client reads.
3. The last bytes that were read are held back while they could be the beginning of a secret.
4. An error after the head closes the connection, so that the client sees that its answer was cut.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aiohttp import web

from ...errors import GatewayError
from ...model import ModelReply, ReplyChoice
from ...protocols.base import ServerSide
from ...record import AccessRecord
from ...support.offload import offload
from ...upstream.servers.base import WireSource
from ...upstream.servers.private_data import PrivateData, secret_fault
from ..answers.reply import Reply
from ..exchange.request_state import Exchange
from ..paths.whole import JSON, check_body, show_to_stages

WHOLE_BYTES: Final = 64 * 1024

USAGE_BYTES: Final = 4 * 1024
"""Bytes at the beginning and the end of an answer that are searched for token counts."""

_PASSES: Final = re.compile(rb'\s*(?:\[|\{(?!\s*"error"\s*:\s*[^\sn]))')
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(\{[^{}]{0,1000}(?:\{[^{}]{0,1000}\}[^{}]{0,1000}){0,4}\})')
_ESCAPED: Final = 6
"""Maximum number of bytes of one escaped character."""


async def relay(request: web.Request, exchange: Exchange, reply: Reply, wire: WireSource) -> bytes | None:
    """Sends a large answer and returns None, or returns the body of a small one. Raises `GatewayError` as long as
    nothing was sent, then `ConnectionError`."""
    async with aclosing(wire.body_in_parts()) as parts:
        begin = await _gather(parts, WHOLE_BYTES)
        if len(begin) <= WHOLE_BYTES or _PASSES.match(begin) is None:
            return await check_body(reply, wire, begin + await _gather(parts, None))
        if reply.renaming is not None:
            begin = await offload(True, reply.renaming.whole, begin)
        try:
            await _send(request, exchange, reply, wire.protocol, _without_secrets(begin, parts, wire.private))
        except GatewayError as error:
            if not reply.prepared:
                raise
            exchange.record.ended_by(error)
            exchange.record.status = reply.status
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the model server's answer broke off") from error
    return None


async def _gather(parts: AsyncGenerator[bytes, None], most: int | None) -> bytes:
    """Returns the next parts: all of them, or as many as exceed `most` bytes."""
    gathered: list[bytes] = []
    size = 0
    while most is None or size <= most:
        part = await anext(parts, None)
        if part is None:
            break
        gathered.append(part)
        size += len(part)
    return b"".join(gathered)


async def _without_secrets(
    begin: bytes, parts: AsyncGenerator[bytes, None], private: PrivateData
) -> AsyncGenerator[bytes, None]:
    """Yields the bytes of an answer. Raises `BackendFault` before a secret would be sent."""
    hold = _ESCAPED * max(map(len, private.parts), default=0)
    data: bytes | None = begin
    held = b""
    while data is not None:
        held += data
        if private.occurs_in(held):
            raise secret_fault()
        going = held[: len(held) - hold]
        if going:
            yield going
            held = held[len(going) :]
        data = await anext(parts, None)
    if held:
        yield held


async def _send(
    request: web.Request, exchange: Exchange, reply: Reply, protocol: ServerSide, parts: AsyncGenerator[bytes, None]
) -> None:
    record = exchange.record
    begin = end = b""
    async for data in parts:
        if not reply.prepared:
            reply.headers.setdefault("Content-Type", JSON)
            await reply.prepare(request)
            record.wrote()
            begin = data[:USAGE_BYTES]
        end = (end + data)[-USAGE_BYTES:]
        show_output(record, data)
        await reply.write(data)  # waits for a slow client
    if reply.stages:
        await show_to_stages(reply, lambda: _counted(protocol, end) or _counted(protocol, begin) or _UNCOUNTED)
    await reply.write_eof()
    record.status = reply.status


def show_output(record: AccessRecord, data: object) -> None:
    """Shows a piece of the answer's body to the observers of the exchange."""
    for observer in record.observers:
        if observer.output is not None and isinstance(data, bytes):
            observer.output(data)


_UNCOUNTED: Final = ModelReply("", "", 0, (ReplyChoice(()),))


def _counted(protocol: ServerSide, data: bytes) -> ModelReply | None:
    """Returns a reply with the token counts in a piece of an answer; None if there are none."""
    found = _USAGE.findall(data)
    if not found:
        return None
    try:
        return protocol.read_reply(b'{"usage":%b}' % found[-1])
    except GatewayError:
        return None
