"""A short way from an aiohttp server to the handlers of an application.

aiohttp resolves every request anew: it looks for the route, makes a match, and asks a chain of generic middlewares. A
gateway gets nearly all of its requests at two paths, so for `POST`s at paths without variables that is done once, when
serving begins. Everything else goes the usual way, with the same result, after a look at what a head may say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion11

from toolwire.pipeline.exchange.routing import Handler
from toolwire.server.clients import check_head

MATCH: Final = "_match_info"
"""Where aiohttp keeps the match of a request: nothing public sets it."""

Usual = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Dispatch:
    """The request handler of a server for `app`, whose routes and middlewares are final. `usual` is aiohttp's own."""

    def __init__(self, app: web.Application, usual: Usual) -> None:
        self.running = 0
        """Requests that are being answered."""
        self._idle: asyncio.Event | None = None  # for who waits
        self._usual = usual
        self._known: dict[str, tuple[web.UrlMappingMatchInfo, Handler]] = {}
        for resource in app.router.resources():
            for route in resource if isinstance(resource, web.PlainResource) else ():
                if route.method == "POST":
                    match = web.UrlMappingMatchInfo({}, route)
                    match.add_app(app)
                    match.freeze()
                    handler: Handler = route.handler
                    for middleware in reversed(app.middlewares):
                        handler = partial(middleware, handler=handler)
                    self._known[resource.canonical] = match, handler

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises `GatewayError` for a head that is not taken."""
        self.running += 1
        try:
            if request.version is not HttpVersion11 or "Expect" in request.headers:
                check_head(request)
            elif request.method == "POST" and isinstance(request, web.Request):
                found = self._known.get(request.rel_url.raw_path)
                if found is not None:
                    match, handler = found
                    setattr(request, MATCH, match)
                    return await handler(request)
            return await self._usual(request)
        finally:
            self.running -= 1
            if self._idle is not None and not self.running:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is being answered."""
        while self.running:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()
