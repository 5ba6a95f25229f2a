"""The bytes of a request's body: within limits of size and time, and out of their content coding.

Rules of this module:

1. Nothing is read, and nobody is told to send (`100 Continue`), before the head has been found right: `Delivery` comes
   here last.
2. A compressed body is inflated here and not by aiohttp, which would do it as the bytes come: before a key was looked
   at, without a pause, and also what a refused request still sends. One step (`toolwire.support.codings`) is taken in a
   turn of the event loop, whoever it is for: many bodies at once take longer, and the others who are served wait for
   one step only.
3. Every byte counts against `limits.total_body_bytes` as it comes (`toolwire.ingress.budget`), and what came out of a
   compressed body also against `limits.body_bytes`.
4. Who is refused with a body that has not come is not listened to any more: see `toolwire.pipeline.exchange.heads`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion11

from toolwire.errors import ClientFault
from toolwire.ingress.budget import BodyShare
from toolwire.ingress.liveness import INTERIM
from toolwire.support.bounded_json import LARGE_BYTES
from toolwire.support.codings import Decoder, coding_of, supported

BODY_RATE: Final = 16 * 1024
"""Bytes a second: a body that comes as fast as this is never too slow."""


_CLOSE: Final = {"Connection": "close"}


async def read_body(
    request: web.Request, limit: int, seconds: float | None, share: BodyShare, option: str = "limits.body_bytes"
) -> bytes:
    """The whole body, out of its coding, of at most `limit` bytes, as `option` says. They are counted in `share`, which
    the caller must release in the end.

    Raises `ClientFault`: `request_too_large` as soon as it is known to be, `request_timeout` if it takes more than
    `seconds` and one for each `BODY_RATE` bytes, `malformed_request`; and `Unavailable` if there is no room for it.
    """
    content = request.content
    given = request._read_bytes  # a middleware around the gateway has read it, or put another one in its place
    length = request.content_length
    if length is None:
        _check_transfer(request)
    elif length > limit:
        raise _too_large(limit, option)
    decoder = _decoder(request) if "Content-Encoding" in request.headers else None
    if decoder is None and (given is not None or content.is_eof()):  # a small body came with its head
        body = content.read_nowait() if given is None else given
        if len(body) > limit:
            raise _too_large(limit, option)
        share.take(len(body))
        return body
    share.check(length or 0)
    await _invite(request)
    parts: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds) as deadline:
            async for part in content.iter_any() if given is None else _at_once(given):
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
            f"The body did not come in time: {size} bytes came.", code="request_timeout", headers=_CLOSE
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
    # Joining lets others run while it copies much, but not the thread that it runs in.
    return await asyncio.to_thread(b"".join, parts) if share.bytes > LARGE_BYTES else b"".join(parts)


async def _at_once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def later(request: web.Request) -> None:
    """As aiohttp's handler of `Expect`: says nothing yet. `read_body` does, when the body is wanted."""


async def _invite(request: web.Request) -> None:
    """Tell a client that waits to be told that it may send its body (RFC 9110, 10.1.1)."""
    if request.content.total_bytes or request.content.is_eof() or request.version != HttpVersion11:
        return
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(INTERIM)
        request.writer.output_size = 0  # the answer has not begun


def _check_transfer(request: web.Request) -> None:
    if request.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        raise ClientFault("Of `Transfer-Encoding` only `chunked` is known.", code="malformed_request", headers=_CLOSE)


def _decoder(request: web.Request) -> Decoder | None:
    """What the body has to go through."""
    if getattr(request.content, "total_compressed_bytes", None) is not None:
        return None  # inside of another application, whose server inflates bodies by itself
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
