"""The head of an answer: headers of every answer, and a fast way to write the head of a whole one.

aiohttp prepares a response in steps that other code can change: headers, cookies, compression, signals. Without such
changes the head is always the same, and the gateway writes it with the body in one piece. aiohttp sends all other
answers, with the same result.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

from ...ingress.liveness import LIVENESS
from ...protocols.base import ClientSides
from ..answers.reply import Reply
from .routing import Handler

REQUEST_ID: Final = web.RequestKey("toolwire.request_id", str)
ADDED_HEADERS: Final = web.RequestKey("toolwire.added_headers", Mapping[str, str])
"""Further headers of every answer to a request. Names and values are the gateway's own or were checked, and are plain
ASCII. Set for each request of a `Delivery`."""
TIMED: Final = web.RequestKey("toolwire.timed", tuple[str | None, float])
"""The name of the header for the processing time (`ClientSide.time_header`), and the start of the request on the
monotonic clock. Set for each request of a `Delivery`."""
OWN_MIDDLEWARES: Final = web.AppKey("toolwire.own_middlewares", int)
"""The number of aiohttp middlewares in the gateway's own application."""
SERVER: Final = "toolwire"
SLICE_BYTES: Final = 64 * 1024
"""Maximum number of bytes of a whole answer in one write."""
USAGE_SOURCE: Final = "x-usage-source"
"""The source of a token count: `backend` or `estimate` (R11.3)."""
TOKENIZER: Final = "x-usage-tokenizer"
"""The method of a token count: the name of an encoding, `bytes`, or `backend` for the server's own count."""
_UNTIMED: Final = (None, 0.0)
_COUNTED: Final = (USAGE_SOURCE, TOKENIZER)
_COUNTED_BY: Final = re.compile(r"(?:[\w-]+: [\w.-]+\r\n)*", re.ASCII)
_GIVEN_ID: Final = re.compile(r"[\w.-]{1,128}", re.ASCII)


def request_id(given: str | None) -> str:
    """Returns the client's `X-Request-Id` if it is well-formed, else a new id (R17.7)."""
    return given if given is not None and _GIVEN_ID.fullmatch(given) else f"req_{os.urandom(16).hex()}"


def with_timing_header(handler: Handler, clients: ClientSides) -> Handler:
    """Returns the handler with a header for the processing time on each answer, if the client's protocol has one. A
    `Delivery` sets that header itself."""

    async def answer(request: web.Request) -> web.StreamResponse:
        request[TIMED] = clients.of(request.path, request.headers).time_header, time.monotonic()
        return await handler(request)

    return answer


async def set_common(request: web.Request, response: web.StreamResponse) -> None:
    """Signal `on_response_prepare`: sets the request id, the headers added for this request, the processing time, and
    `Server` without versions. Closes the connection after the answer while the gateway is stopping, or if the request's
    body has not arrived, because it will not be read."""
    response.headers["Server"] = SERVER
    if added := request.get(ADDED_HEADERS):
        response.headers.update(added)
    time_header, began = request.get(TIMED, _UNTIMED)
    if time_header is not None:
        response.headers[time_header] = str(int((time.monotonic() - began) * 1000))
    monitors = request.app.get(LIVENESS)
    if (monitors is not None and monitors.draining) or not request.content.is_eof():
        response.force_close()
        response.headers["Connection"] = "close"
    if (known := request.get(REQUEST_ID)) is not None:
        response.headers["X-Request-Id"] = known


async def send_whole(request: web.Request, reply: Reply, body: bytes) -> bool:
    """Sends head and body of a JSON answer. Returns False without sending if the gateway is part of another program
    (`is_enclosed`), whose middlewares may still change the answer: aiohttp has to send it then."""
    if is_enclosed(request):
        return False
    headers = reply.headers
    counted = [name for name in _COUNTED if name in headers]
    more = "".join([f"{name}: {headers[name]}\r\n" for name in counted])
    if reply.plain_head(len(counted)) and _COUNTED_BY.fullmatch(more) and _is_usual(request):
        for name, value in request[ADDED_HEADERS].items():
            more += f"{name}: {value}\r\n"
        time_header, began = request[TIMED]
        if time_header is not None:
            more += f"{time_header}: {int((time.monotonic() - began) * 1000)}\r\n"
        head = (
            f"HTTP/1.1 200 OK\r\n{more}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Date: {rfc822_formatted_time()}\r\nServer: {SERVER}\r\nX-Request-Id: {request[REQUEST_ID]}\r\n\r\n"
        )
        if len(body) <= SLICE_BYTES:
            await request.writer.write_eof(head.encode() + body)
        else:  # in slices: the transport of a client that does not read buffers one slice, not all of it
            await request.writer.write(head.encode())
            for at in range(0, len(body), SLICE_BYTES):
                await request.writer.write(body[at : at + SLICE_BYTES])
            await request.writer.write_eof()
        reply.note_sent(request)
        return True
    headers.setdefault("Content-Type", "application/json")
    if isinstance(reply, web.Response):  # its own body sets the length
        headers.popall("Content-Length", None)
        reply.body, body = body, b""
    else:
        reply.content_length = len(body)
    await reply.prepare(request)
    await reply.write_eof(body)
    return True


def is_enclosed(request: web.Request) -> bool:
    """Returns True if the gateway is part of another program whose aiohttp middlewares or application surround it."""
    apps = request.match_info.apps
    return len(apps) != 1 or len(apps[0].middlewares) != apps[0].get(OWN_MIDDLEWARES)


def move_head(unsent: web.StreamResponse, answer: web.StreamResponse) -> None:
    """Copies cookies, and headers that are not about the body, from an unsent response into the one that replaces
    it."""
    for name, value in unsent.headers.items():
        if name not in answer.headers and not name.lower().startswith("content-") and name != USAGE_SOURCE:
            answer.headers.add(name, value)
    if unsent._cookies:
        answer.cookies.update(unsent._cookies)


def _is_usual(request: web.Request) -> bool:
    """Returns whether only the gateway prepares its answers and the connection stays open."""
    app = request.app
    signal = app.on_response_prepare
    usual = len(signal) == 1 and signal[0] is set_common and request.version == HttpVersion11
    return usual and request.keep_alive and not app[LIVENESS].draining
