"""Cross-origin access of web pages (R17.10). Disabled unless `cors.origins` is set.

Rules:

1. A preflight is answered before the key is checked: browsers send none with it.
2. Keys come in headers that the page's own script sets, never by themselves as cookies do. So any request header is
   allowed, and credentials are not.
3. Every answer has the headers: streams, errors, and answers to a wrong key.

Disabled, it costs nothing; enabled, aiohttp writes the heads of answers (see `toolwire.pipeline.exchange.heads`).
Source: the Fetch standard. No package is used: four headers are needed, and those for aiohttp want each route
registered with them and leave out error answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from ...config import CorsConfig
from ...errors import GatewayError, quote, sendable
from ...protocols.base import Allowance, ClientSide
from ...protocols.sides import ClientSides
from ..chain.middleware import Handler
from .delivery import error_response

METHODS: Final = "GET, POST, DELETE"
EXPOSED: Final = (
    *("retry-after", "retry-after-ms", "x-cache", "x-client-request-id", "x-request-id", "x-should-retry"),
    *("x-usage-source", "x-usage-tokenizer"),
)
"""Headers of answers that a script may read, whatever protocol it speaks, beside those that it always may."""


def _own(side: ClientSide) -> Iterator[str]:
    """Headers of a protocol's answers."""
    if side.id_header is not None:
        yield side.id_header
    if side.time_header is not None:
        yield side.time_header
    yield from side.write_limits([Allowance("requests", 1, 1, 0), Allowance("tokens", 1, 1, 0)], 0)


class Cors:
    """Who may read answers. `clients` have the envelope of a refusal."""

    def __init__(self, config: CorsConfig, clients: ClientSides) -> None:
        self._origins = frozenset(config.origins)
        self._any = "*" in self._origins
        self._max_age = str(int(config.max_age_s))
        self._clients = clients
        self._exposed = ", ".join(dict.fromkeys((*EXPOSED, *(name for side in clients.sides for name in _own(side)))))

    def middleware(self) -> Middleware:
        """Answers preflights. Belongs outside of whoever asks for a key."""

        @web.middleware
        async def preflights(request: web.Request, handler: Handler) -> web.StreamResponse:
            asked = request.headers.get("Access-Control-Request-Method")
            if request.method != "OPTIONS" or asked is None or "Origin" not in request.headers:
                return await handler(request)
            return self._preflight(request)

        return preflights

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal `on_response_prepare`: say whether the page that asked may read this."""
        if not self._any:
            response.headers.add("Vary", "Origin")  # also without one, or a cache would give that answer to all
        origin = request.headers.get("Origin")
        if origin is not None and self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = "*" if self._any else origin
            response.headers["Access-Control-Expose-Headers"] = self._exposed

    def _allows(self, origin: str) -> bool:
        return self._any or origin in self._origins

    def _preflight(self, request: web.Request) -> web.Response:
        origin = request.headers["Origin"]
        if not self._allows(origin):
            error = GatewayError(
                f"Pages of {quote(origin)} may not use this gateway.",
                code="origin_not_allowed",
                hint="The operator can list them in `cors.origins`.",
            )
            return error_response(error, self._clients.of(request.path, request.headers), "")
        headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": self._max_age}
        wanted = request.headers.get("Access-Control-Request-Headers")
        if wanted is not None:
            headers["Access-Control-Allow-Headers"] = ",".join(
                sendable(dict.fromkeys(map(str.strip, wanted.split(",")), ""))
            )
        return web.Response(status=204, headers=headers)
