"""Plain aiohttp middlewares in a chain. Requests and answers look to them as in any aiohttp application, and their
changes take effect.

Rules:

1. The request is unread, however often it was read before: `read`, `json`, `content` and `clone` work. A middleware
   that passes on a request with another body changes the client's request.
2. A whole answer is a complete `web.Response` with a body. A streamed one is an unprepared `web.StreamResponse`. Both
   are still replies.
3. An error from further in is the `web.HTTPException` of its status, with the client's error envelope as its body, and
   the original `GatewayError` at the same time. Headers that are set on it reach the client.
4. A third-party `Middleware` with its own `__call__` is treated the same. Hooks and built-in middlewares get unsent
   replies instead. Any middleware may read the request.
"""

from __future__ import annotations

import asyncio
from functools import cache
from types import new_class
from typing import Any

from aiohttp import EMPTY_PAYLOAD, StreamReader, web, web_exceptions
from aiohttp.base_protocol import BaseProtocol

from ...errors import GatewayError
from ...ingress.bodies import parse_body
from ...known.past import KnownItems
from ...support.offload import OFFLOAD_BYTES, OFFLOAD_OBJECTS, offload
from ..answers.reply import Reply
from ..exchange.request_state import EXCHANGE, Exchange
from ..exchange.response_head import ADDED_HEADERS, is_enclosed
from ..paths.whole import WholeReply, complete_reply, reply_for_response
from .middleware import Handler, Layer


class PlainLayer(Layer):
    """A plain aiohttp middleware in a chain."""

    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        body, untouched = _body_of(exchange), exchange.untouched
        before = exchange.body, exchange.received
        given: WholeReply | None = None
        refused: HttpFault | None = None

        async def inner(sent: web.Request) -> web.StreamResponse:
            nonlocal given, refused
            try:
                if sent is not request:
                    _adopt(sent, request)
                if untouched:
                    exchange.body, exchange.received = before  # undoes the changes of an earlier call of the handler
                given_on = await _replaced_body(sent, stream, body)
                if given_on is not None:
                    await self._take_body(given_on, exchange, untouched)
                set_unread_body(sent, _body_of(exchange))
                response = await handler(sent)
                if isinstance(response, Reply):
                    response = await _for_plain(exchange, response)
                    if isinstance(response, WholeReply):
                        given = response
                return response
            except GatewayError as error:
                refused = http_fault(error, exchange)
                raise refused from error
            finally:
                set_unread_body(request, body)
                if sent is not request and ADDED_HEADERS in sent:
                    request[ADDED_HEADERS] = sent[ADDED_HEADERS]

        stream = set_unread_body(request, body)
        response = await super().around(request, inner)
        if isinstance(response, web.HTTPException):
            raise response  # aiohttp also allows middlewares to return it
        if refused is not None and response.status >= 400:
            exchange.record.ended_by(refused.error)  # the middleware may have replaced the error response
        if isinstance(response, WholeReply):
            return reply_for_response(exchange, response, response) if response.replaced else response
        return (
            response if given is None or isinstance(response, Reply) else reply_for_response(exchange, response, given)
        )

    async def _take_body(self, body: bytes, exchange: Exchange, untouched: bool) -> None:
        """Uses `body` as the client's body. The route stays the same. Raises `ClientFault` if it cannot be read, and
        `Defect` if it would undo the changes of another middleware."""
        if not untouched:
            self.report(
                ValueError(
                    "an outer middleware has already changed this request, so its body cannot be replaced: put it further out"
                )
            )
            raise self.defect()
        value = await parse_body(body, exchange.route.limits)
        large = len(body) > OFFLOAD_BYTES or body.count(b"{") > OFFLOAD_OBJECTS
        received = await offload(large, exchange.protocol.read_request, value, body)
        exchange.body, exchange.received, exchange.request = value, received, received
        exchange.record.stream = received.stream


def _body_of(exchange: Exchange) -> bytes:
    """Returns the client's body of the current request, also if the request was changed."""
    origin = exchange.request.origin or exchange.received.origin
    return b"" if origin is None else origin.body


async def _replaced_body(sent: web.Request, stream: StreamReader, body: bytes) -> bytes | None:
    """Returns the body of a request that a middleware hands on, or None if it is still `body`, which could be read from
    `stream`."""
    if sent._payload is stream:
        read = sent._read_bytes
        # a middleware that read a part of the stream leaves the end of `body`, which is no change
        return None if read is None or body.endswith(read) else read
    read = await sent.read()
    return None if read == body else read


def _adopt(sent: web.Request, request: web.Request) -> None:
    """Copies what a request made by a middleware needs to replace `request`. A clone has it already."""
    for key in request:
        sent.setdefault(key, request[key])
    if sent._match_info is None:
        sent._match_info = request.match_info


async def _for_plain(exchange: Exchange, reply: Reply) -> Reply:
    """Returns the reply in the form that a plain middleware gets."""
    if not exchange.received.stream:
        return await complete_reply(exchange, reply)
    reply.headers.setdefault("Content-Type", exchange.protocol.content_type)
    return reply


# --- the request ----------------------------------------------------------------------------------------------------


class UnreadBody(StreamReader):
    """A body that can be read again. It becomes a stream at its first use, which is rare."""

    __slots__ = ("_held",)

    def __init__(self, body: bytes) -> None:
        self._held: bytes | None = body

    def is_eof(self) -> bool:
        """True: the whole body has arrived."""
        return True

    def __getattr__(self, name: str) -> Any:
        # Called for attributes that do not exist (yet): the base class is initialised at the first access.
        body, self._held = self._held, None
        if body is not None:
            loop = asyncio.get_running_loop()
            super().__init__(BaseProtocol(loop), len(body) + 1, loop=loop)
            self.feed_data(body)
            self.feed_eof()
        return object.__getattribute__(self, name)


def set_unread_body(request: web.Request, body: bytes) -> StreamReader:
    """Makes a request unread, with `body` as its body."""
    request._payload = stream = UnreadBody(body)
    request._read_bytes = request._post = None
    request._cache.pop("content", None)
    request._cache.pop("body_exists", None)
    return stream


def release(request: web.Request, exchange: Exchange) -> None:
    """Frees the bytes of the client's body, because the answer has begun and no server will get them any more. Also
    frees the results for the conversation, unless the cache keeps them for the next request. Code around the gateway
    can still read the request."""
    received, asked = exchange.received.origin, exchange.request.origin
    if asked is not None and asked is not received:
        asked.free()
    if received is not None:
        received.free()
        if received.past is not None:
            for value in exchange.body.values():
                if isinstance(value, KnownItems):
                    value.release()
    if not is_enclosed(request):
        request._payload = EMPTY_PAYLOAD
        request._cache.pop("content", None)


# --- errors ---------------------------------------------------------------------------------------------------------


class HttpFault(web.HTTPException):
    """A `GatewayError` that is also an aiohttp exception. `error` is the original one."""

    error: GatewayError


def http_fault(error: GatewayError, exchange: Exchange) -> HttpFault:
    """Returns the error as an exception that is also an aiohttp exception (`HttpFault`); the same object if it already
    is one."""
    known: object = error
    if isinstance(known, HttpFault):
        return known
    kind: type = type(error)
    both = _both(kind, error.status)
    fault = both.__new__(both)
    vars(fault).update(vars(error), error=error, status_code=error.status)
    del vars(fault)["status"], vars(fault)["headers"]  # properties of the response class
    fault.args = error.args
    body = exchange.protocol.write_error(error, exchange.id)
    status = exchange.protocol.status_of(error)
    web.Response.__init__(fault, body=body, status=status, headers=error.headers, content_type="application/json")
    if error.headers.get("Connection") == "close":
        fault.force_close()
    return fault


@cache
def _both(kind: type, status: int) -> type[HttpFault]:
    """Returns a class of errors that are a `kind` and aiohttp's exception for `status`."""
    known = (getattr(web_exceptions, name) for name in web_exceptions.__all__)
    general = web.HTTPClientError if status < 500 else web.HTTPServerError
    http = next((found for found in known if found.status_code == status), general)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return new_class(kind.__name__, (kind, HttpFault, http), exec_body=lambda body: body.update(names))
