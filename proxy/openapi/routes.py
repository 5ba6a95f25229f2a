"""`GET /openapi.json`.

It needs a key where there are keys, as `/version` does: it says which paths the configuration lets through, and what is
kept of requests. Who may ask for answers may know it. It is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from aiohttp import web

from toolwire.openapi.document import Endpoint, Served, document
from toolwire.openapi.parts import Json
from toolwire.pipeline.sending.delivery import CLIENTS
from toolwire.protocols.shared.passed import PassedProtocol

PATH: Final = "/openapi.json"


class OpenApi:
    """Serves the document of an application. It is made when it is first asked for: routes do not change then."""

    def __init__(self, passed: Sequence[PassedProtocol], *, keyed: bool, limited: bool) -> None:
        self._passed = passed
        self._keyed = keyed
        self._limited = limited
        self._written: bytes | None = None

    async def __call__(self, request: web.Request) -> web.Response:
        if self._written is None:
            resource = request.match_info.route.resource
            prefix = "" if resource is None else resource.canonical.removesuffix(PATH)
            self._written = orjson.dumps(self.of(request.app, prefix))
        return web.Response(body=self._written, content_type="application/json")

    def of(self, app: web.Application, prefix: str = "") -> Json:
        """The document of `app`, whose paths begin with `prefix`."""
        endpoints = [
            Endpoint(route.method, resource.canonical) for resource in app.router.resources() for route in resource
        ]
        sides = app[CLIENTS].sides
        return document(Served(endpoints, sides, self._passed, prefix, self._keyed, self._limited))


OPENAPI: Final = web.AppKey("toolwire.openapi", OpenApi)


def add_routes(app: web.Application, openapi: OpenApi) -> None:
    """Serve it."""
    app[OPENAPI] = openapi
    app.router.add_get(PATH, openapi.__call__)
