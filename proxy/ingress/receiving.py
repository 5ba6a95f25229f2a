"""Receives the bytes of request bodies, within limits of size and time, and decompresses them.

Rules of this module:

1. The body is read, and a `100 Continue` is sent, only after the head was found valid: `Delivery` calls this last.
2. Compressed bodies are decompressed here and not by aiohttp. aiohttp would do it on arrival: before the key is
   checked, without pauses, and also for refused requests. In each iteration of the event loop one step
   (`toolwire.support.codings`) is done, for all bodies together: with many bodies each takes longer, but other requests
   wait for one step only.
3. Every byte counts against `limits.total_body_bytes` when it arrives (`toolwire.ingress.budget`), and every
   decompressed byte also against `limits.body_bytes`.
4. After a refusal the rest of the body is not read: see `toolwire.pipeline.exchange.response_head`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion11

from ..errors import ClientFault
from ..support.bounded_json import LARGE_BYTES
from ..support.codings import Decoder, coding_of, supported
from .budget import BodyShare
from .liveness import INTERIM

BODY_RATE: Final = 16 * 1024
"""Bytes per second. A body that arrives at this rate never times out."""


_CLOSE: Final = {"Connection": "close"}


async def read_body(
    request: web.Request, limit: int, seconds: float | None, share: BodyShare, option: str = "limits.body_bytes"
) -> bytes:
    """Returns the whole decompressed body, of at most `limit` bytes (the value of `option`). Its bytes are counted in
    `share`, which the caller must release.

    Raises `ClientFault` `request_too_large` as soon as that is known, `request_timeout` if it takes more than `seconds`
    and one second for each `BODY_RATE` bytes, and `malformed_request`; and `Unavailable` if the memory budget is
    exhausted.
    """
    content = request.content
    provided = request._read_bytes  # an outer aiohttp middleware has read or replaced the body
    try:
        length = request.content_length
    except ValueError:  # thousands of zeros in front, which aiohttp's parser accepts and `int` does not
        raise ClientFault("`Content-Length` has too many digits.", code="malformed_request", headers=_CLOSE) from None
    if length is None:
        _check_transfer(request)
    elif length > limit:
        raise _too_large(limit, option)
    decoder = _decoder(request) if "Content-Encoding" in request.headers else None
    if decoder is None and (provided is not None or content.is_eof()):  # a small body arrived with the head
        body = content.read_nowait() if provided is None else provided
        if len(body) > limit:
            raise _too_large(limit, option)
        share.take(len(body))
        return body
    share.check(length or 0)
    await _send_continue(request)
    parts: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds) as deadline:
            async for part in content.iter_any() if provided is None else _at_once(provided):
                size += len(part)
                if size > limit:
                    raise _too_large(limit, option)
                began = loop.time()
                if decoder is None:
                    share.take(len(part))
                    parts.append(part)
                else:
                    await _inflate(decoder, part, parts, limit, share, option)
                if (due := deadline.when()) is not None:
                    deadline.reschedule(due + len(part) / BODY_RATE + loop.time() - began)
    except TimeoutError:
        raise ClientFault(
            f"The body did not arrive in time: {size} bytes arrived.", code="request_timeout", headers=_CLOSE
        ) from None
    except web.RequestPayloadError as error:
        raise ClientFault(
            "The body's transfer encoding is broken, or it was cut off.", code="malformed_request", headers=_CLOSE
        ) from error
    if decoder is not None:
        try:
            decoder.finish()
        except ValueError as error:
            raise _broken(error) from None
    # Joining a large body releases the interpreter, so a thread keeps the event loop free.
    return await asyncio.to_thread(b"".join, parts) if share.bytes > LARGE_BYTES else b"".join(parts)


async def _at_once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def ignore_expect(request: web.Request) -> None:
    """An aiohttp handler of `Expect` that sends nothing: `read_body` sends the `100 Continue` when the body is
    wanted."""


async def _send_continue(request: web.Request) -> None:
    """Sends `100 Continue` to a client that waits for it (RFC 9110, 10.1.1)."""
    if request.content.total_bytes or request.content.is_eof() or request.version != HttpVersion11:
        return
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(INTERIM)
        request.writer.output_size = 0  # the answer has not begun


def _check_transfer(request: web.Request) -> None:
    if request.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        raise ClientFault("`Transfer-Encoding` may only be `chunked`.", code="malformed_request", headers=_CLOSE)


def _decoder(request: web.Request) -> Decoder | None:
    """Returns the decoder for the body's content coding, or None. Raises `ClientFault`."""
    if getattr(request.content, "total_compressed_bytes", None) is not None:
        return None  # mounted in another application, whose server has decompressed it
    try:
        coding = coding_of(request.headers.getall("Content-Encoding"))
    except ValueError as error:
        known = ", ".join(sorted(supported()))
        raise ClientFault(
            f"Wrong `Content-Encoding`: {error}.",
            code="malformed_request",
            hint=f"Send the body as it is, or as one of: {known}.",
            headers={"Accept-Encoding": known},
        ) from None
    return None if coding is None else Decoder(coding)


async def _inflate(
    decoder: Decoder, data: bytes, parts: list[bytes], limit: int, share: BodyShare, option: str
) -> None:
    steps = decoder.feed(data)
    while True:
        async with share.budget.inflating:
            try:
                piece = next(steps, None)
            except ValueError as error:
                raise _broken(error) from None
            if piece is None:
                return
            if share.bytes + len(piece) > limit:
                raise _too_large(limit, option)
            share.take(len(piece))
            parts.append(piece)
            await asyncio.sleep(0)


def _too_large(limit: int, option: str) -> ClientFault:
    return ClientFault(
        f"The body is larger than {limit} bytes.", code="request_too_large", hint=f"The limit is `{option}`."
    )


def _broken(error: ValueError) -> ClientFault:
    return ClientFault(f"The body's content encoding is broken: {error}.", code="malformed_request", headers=_CLOSE)
