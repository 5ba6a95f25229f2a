"""Builds the inspector of an application: its recorder, its page, and the paths of the playground."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from aiohttp import web

from ...config import RouteConfig
from ...configuration.checks import effective_routes
from ...errors import ClientFault, GatewayError
from ...features import FeatureContext
from ...formats.base import ToolFormat
from ...ingress.auth import ApiKey
from ...ingress.bodies import parse_body
from ...observability.metrics import CELLS
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange
from ...pipeline.exchange.routing import Route, Router
from ...pipeline.scanning.preopened import PreopenedMemory
from ...pipeline.sending.delivery import API_KEY, Delivery, Serving
from ...protocols.base import ClientSide
from ...protocols.shared.wire import dump_in_pieces
from ...record import AccessRecord, Observe
from ...registry import Registries
from ...support.conversion import ConfigError
from ...support.offload import in_thread
from ...upstream.pool.health import HEALTH
from ..capture.recorder import Captures
from .holders import Holders
from .ring import COUNTED, MINUTES, Ring
from .routes import PLACE, PLAYGROUND, Pages

HOLDERS: Final = web.AppKey("toolwire.inspector.holders", Holders)


class Inspector:
    """The inspector of one application, as a `toolwire.features.Feature`."""

    observes_all: ClassVar[bool] = True
    open_paths: ClassVar[str | None] = rf"{PLAYGROUND}|{PLACE}/?(?:(?<=/)[a-z]+[.](?:js|css|svg))?"
    """Paths that need no key: the page, which contains no conversation."""

    def __init__(self, context: FeatureContext) -> None:
        self._config = config = context.config
        self._plugins = plugins = context.plugins
        self._router = context.router
        self._clients = plugins.client_sides().sides
        most = config.inspect.bytes // config.server.workers
        cells = context.metrics.cells.path
        self.holders = context.shared.take(HOLDERS, config.inspect, partial(_holders, most, cells), Holders.close)
        self._validation: Middleware = plugins.middlewares.get("validation")()
        self._pages = Pages(
            config,
            self.holders,
            plugins,
            keyed=context.keyed,
            setup=self._setup,
            overview=self._overview,
            check=self._check,
        )

    @property
    def observe(self) -> Observe:
        """Records the exchanges."""
        return Captures(self._config, self.holders.ring).begin

    def open(self, app: web.Application, serving: Serving) -> None:
        """Adds the page and its data to the application. `serving` is for the playground, which may use another format
        than a route's."""
        self._pages.add_routes(app.router)
        app.cleanup_ctx.append(self.holders.running)
        for side in self._clients:
            playground = _Playground(self._pages, self._plugins, serving, side)
            app.router.add_post(f"{PLACE}/try/{{format}}/v1{side.path}", playground.serve)

    # --- data of the page ------------------------------------------------------------------------------------------

    def _setup(self, key: ApiKey | None) -> dict[str, Any]:
        """Returns the routes, formats and APIs of the gateway that the key may use."""
        routes = [
            {
                "model": route.model,
                "aliases": route.aliases,
                "format": route.options.format,
                "mode": route.options.mode,
                "backend": [server.backend for server in route.members],
            }
            for route in self._usable(key)
        ]
        return {
            "routes": routes,
            "formats": self._plugins.formats.names(),
            "apis": [{"name": side.name, "path": f"/v1{side.path}"} for side in self._clients],
        }

    def _usable(self, key: ApiKey | None) -> list[RouteConfig]:
        """Returns the routes that a key may use."""
        return [route for route in effective_routes(self._config) if key is None or key.may_use(route.model)]

    async def _overview(self, request: web.Request) -> dict[str, Any]:
        key = request.get(API_KEY)
        last = int(time.time()) // 60
        minutes = [*range(last - MINUTES + 1, last + 1)]
        by_route: dict[str, dict[str, list[int]]] = {}
        for minute, route, counts in await self.holders.counts():
            if minute not in minutes or (key is not None and not key.may_use(route)):
                continue
            numbers = by_route.setdefault(route, {what: [0] * MINUTES for what in COUNTED})
            for what in COUNTED:
                numbers[what][minute - minutes[0]] += counts[what]
        health = request.app[HEALTH]
        up, refused = await health.states(), health.refused()
        shown = {server.backend for route in self._usable(key) for server in route.servers}
        return {
            "minutes": minutes,
            "routes": [{"model": model, **numbers} for model, numbers in sorted(by_route.items())],
            "backends": [
                {
                    "name": name,
                    "up": state,
                    "kind": self._config.backends[name].kind,
                    "refused": refused.get(name, {}),
                }
                for name, state in up.items()
                if name in shown
            ],
        }

    async def _check(self, request: web.Request, body: bytes) -> dict[str, Any]:
        """Validates a request without calling a server, and returns whether it would be refused and why. `body`
        contains the name of the API and the request."""
        limits = self._config.limits
        question = await parse_body(body, replace(limits, json_depth=limits.json_depth + 1))
        side = next((side for side in self._clients if side.name == question.get("api")), None)
        request_body = question.get("body")
        if side is None or not isinstance(request_body, dict):
            raise ClientFault("Expected `api`, the name of an API, and `body`, a request.", code="invalid_value")
        try:
            await self._validate(side, request_body, request)
        except GatewayError as error:
            fault = {"message": error.message, "param": error.param, "code": error.code}
            return {"ok": False, "error": fault}
        return {"ok": True, "error": None}

    async def _validate(self, side: ClientSide, body: Mapping[str, Any], request: web.Request) -> None:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise ClientFault("A model is needed.", code="missing_required_parameter", param="model")
        key = request.get(API_KEY)
        route = self._router.find(model, key)
        if key is not None:
            key.require(route.config.model, model)
        if route.options.requests.unknown_model == "error":
            route.require(model)
        received = await in_thread(lambda: side.read_request(body, dump_in_pieces(body)))
        exchange = Exchange("check", side, route, received, received, body, AccessRecord())
        await self._validation.on_request(exchange, received)


def _holders(most: int, cells: Path | None) -> Holders:
    if cells is None:
        return Holders(Ring(most), None)
    return Holders(Ring(most, int(cells.name.removesuffix(CELLS))), cells.parent)


class _Playground:
    """Serves a protocol in formats that its routes do not use."""

    def __init__(self, pages: Pages, plugins: Registries, serving: Serving, side: ClientSide) -> None:
        self._pages = pages
        self._plugins = plugins
        self._serving = serving
        self._side = side
        self._made: dict[str, Delivery] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answers like the protocol's own path, but in the format that the path names."""
        self._pages.guard(request)
        name = request.match_info["format"]
        if name not in self._made:
            if name not in self._plugins.formats.names():
                raise ClientFault(f"There is no format {name[:100]!r}.", code="not_found")
            try:
                tool_format = self._plugins.formats.get(name)
            except ConfigError as error:
                raise ClientFault(str(error), code="invalid_value") from error
            router = _InFormat(self._serving.router, name, tool_format, self._plugins.formats.get)
            self._made[name] = Delivery(replace(self._serving, router=router), self._side)
        return await self._made[name](request)


class _InFormat(Router):
    """The same routes with another format: `format_`, whose name is `name`."""

    def __init__(self, router: Router, name: str, format_: ToolFormat, by_family: Callable[[str], ToolFormat]) -> None:
        def changed(route: Route) -> Route:
            return replace(
                route,
                options=replace(route.options, format=name),
                format=format_,
                by_family=by_family if name == "auto" else None,
                learned=PreopenedMemory(),
                made={},
                _formats={},
            )

        super().__init__(map(changed, router.routes))
