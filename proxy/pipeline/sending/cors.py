"""Cross-origin access of web pages (R17.10). Disabled unless `cors.origins` is set.

Rules:

1. A preflight is answered before the key is checked: browsers send none with it.
2. The page's own script sets the header with the key; browsers never add it by themselves, as they do with cookies.
   Therefore any request header is allowed, and credentials (cookies) are not.
3. Every answer has the headers: streams, errors, and answers to a wrong key.

Disabled, it costs nothing; enabled, aiohttp writes the heads of answers (see
`toolwire.pipeline.exchange.response_head`). Source: the Fetch standard. The packages for aiohttp need each route
registered with them and leave out error answers, and only four headers are needed, so none is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from ...config import CorsConfig
from ...errors import GatewayError, quote, sendable
from ...protocols.base import Allowance, ClientSide, ClientSides
from ..chain.middleware import Handler
from .delivery import error_response

METHODS: Final = "GET, POST, DELETE"
EXPOSED: Final = (
    *("retry-after", "retry-after-ms", "x-cache", "x-client-request-id", "x-request-id", "x-should-retry"),
    *("x-usage-source", "x-usage-tokenizer"),
)
"""Headers that a script may read in the answers of every protocol, besides those that browsers always allow."""


def _own(side: ClientSide) -> Iterator[str]:
    """Yields the names of the headers in a protocol's answers."""
    if side.id_header is not None:
        yield side.id_header
    if side.time_header is not None:
        yield side.time_header
    yield from side.write_limits([Allowance("requests", 1, 1, 0), Allowance("tokens", 1, 1, 0)], 0)


def origin_fault(origin: str) -> GatewayError:
    """Returns the error for a web page that may not use the gateway."""
    return GatewayError(
        f"Pages of {quote(origin)} may not use this gateway.",
        code="origin_not_allowed",
        hint="The operator can list them in `cors.origins`.",
    )


class Cors:
    """Tells browsers which web pages may read answers. `clients` are the served protocols: the path of a refused
    preflight tells whose error envelope it gets."""

    def __init__(self, config: CorsConfig, clients: ClientSides) -> None:
        self._origins = frozenset(config.origins)
        self._any = "*" in self._origins
        self._max_age = str(int(config.max_age_s))
        self._clients = clients
        self._exposed = ", ".join(dict.fromkeys((*EXPOSED, *(name for side in clients.sides for name in _own(side)))))

    def middleware(self) -> Middleware:
        """Returns a middleware that answers preflights. It must stand outside of the middleware that checks keys."""

        @web.middleware
        async def preflights(request: web.Request, handler: Handler) -> web.StreamResponse:
            asked = request.headers.get("Access-Control-Request-Method")
            if request.method != "OPTIONS" or asked is None or "Origin" not in request.headers:
                return await handler(request)
            return self._preflight(request)

        return preflights

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal `on_response_prepare`: adds the headers that let the requesting page read this answer, if it may."""
        if not self._any:
            response.headers.add("Vary", "Origin")  # also without an `Origin`, because a cache may reuse the answer
        origin = request.headers.get("Origin")
        if origin is not None and self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = "*" if self._any else origin
            response.headers["Access-Control-Expose-Headers"] = self._exposed

    def _allows(self, origin: str) -> bool:
        return self._any or origin in self._origins

    def _preflight(self, request: web.Request) -> web.Response:
        origin = request.headers["Origin"]
        if not self._allows(origin):
            return error_response(origin_fault(origin), self._clients.of(request.path, request.headers), "")
        headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": self._max_age}
        wanted = request.headers.get("Access-Control-Request-Headers")
        if wanted is not None:
            headers["Access-Control-Allow-Headers"] = ",".join(
                sendable(dict.fromkeys(map(str.strip, wanted.split(",")), ""))
            )
        return web.Response(status=204, headers=headers)
