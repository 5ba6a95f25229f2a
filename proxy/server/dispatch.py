"""A shortcut from the aiohttp server to the application's handlers.

aiohttp resolves the route, creates a match and builds a chain of middlewares for every request. Nearly all requests to
a gateway go to a few paths, so for `POST` at paths without variables this is done once, at the start. Other requests
are handled by aiohttp, with the same result, after a check of their head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion11

from ..pipeline.exchange.routing import Handler
from .clients import check_head

MATCH: Final = "_match_info"
"""aiohttp's private attribute for the match of a request; there is no public setter."""

Usual = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Dispatch:
    """The request handler of a server for `app`, whose routes and middlewares must be final. `usual` is aiohttp's own
    handler."""

    def __init__(self, app: web.Application, usual: Usual) -> None:
        self.running = 0
        """Number of requests being answered."""
        self._idle: asyncio.Event | None = None  # set when no request is running
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
        """Answers one request. Raises `GatewayError` for an invalid head."""
        self.running += 1
        try:
            if request.version is not HttpVersion11 or "Expect" in request.headers:
                check_head(request)
            elif request.method == "POST" and isinstance(request, web.Request):
                shortcut = self._known.get(request.rel_url.raw_path)
                if shortcut is not None:
                    match, handler = shortcut
                    setattr(request, MATCH, match)
                    return await handler(request)
            return await self._usual(request)
        finally:
            self.running -= 1
            if self._idle is not None and not self.running:
                self._idle.set()

    async def idle(self) -> None:
        """Waits until no request is being answered."""
        while self.running:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()
