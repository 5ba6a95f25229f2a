"""The path `GET /openapi.json`.

It needs a key if the gateway has keys, as `/version` does, because it shows which paths the configuration passes
through and what is stored of requests. All keys get the same document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from aiohttp import web

from ..pipeline.sending.delivery import CLIENTS
from ..protocols.proxied.protocol import ProxiedProtocol
from .document import ApiSurface, ServedPath, document
from .parts import Json

PATH: Final = "/openapi.json"


class OpenApi:
    """Serves the OpenAPI document of an application. The document is made on the first request; routes do not change
    after the start."""

    def __init__(self, proxied: Sequence[ProxiedProtocol], *, keyed: bool, limited: bool) -> None:
        self._proxied = proxied
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
        """Returns the document of `app`, whose paths begin with `prefix`."""
        endpoints = [
            ServedPath(route.method, resource.canonical) for resource in app.router.resources() for route in resource
        ]
        sides = app[CLIENTS].sides
        return document(ApiSurface(endpoints, sides, self._proxied, prefix, self._keyed, self._limited))


OPENAPI: Final = web.AppKey("toolwire.openapi", OpenApi)


def add_routes(app: web.Application, openapi: OpenApi) -> None:
    """Adds the path of the document to `app`."""
    app[OPENAPI] = openapi
    app.router.add_get(PATH, openapi.__call__)
