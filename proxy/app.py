"""Builds an `aiohttp.web.Application` from a configuration: the only composition root.

Everything that can be decided before the first request is decided here: registries, backends, chains, routes. Building
has no side effects: connections and middlewares are opened when the application starts and closed when it stops.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from .config import BackendConfig, GatewayConfig, RouteConfig
from .configuration.checks import effective_routes, has_limits
from .configuration.settings import load
from .features import Feature, FeatureContext, features_of
from .formats.engine.toolset import KnownTools
from .ingress.auth import Keys
from .ingress.budget import BODY_BUDGET, BodyBudget
from .ingress.known_conversations import KnownConversations
from .ingress.liveness import LIVENESS, LivenessMonitors
from .ingress.loop_pacing import LoopPacer
from .ingress.receiving import ignore_expect
from .observability.metrics import Gauge
from .observability.telemetry import Metrics
from .openapi import routes as openapi
from .pipeline.chain.middleware import compose
from .pipeline.chain.proxied_requests import proxied_chain
from .pipeline.conversations.known_turns import KNOWN_TURNS, KnownTurns
from .pipeline.conversations.stored import CONVERSATIONS, Conversations
from .pipeline.exchange.caches import CACHES
from .pipeline.exchange.permission import Permission
from .pipeline.exchange.response_head import OWN_MIDDLEWARES, set_common, with_timing_header
from .pipeline.exchange.route_seals import seals_of_route
from .pipeline.exchange.routing import ROUTER, Route, Router
from .pipeline.exchange.shared_resources import SHARED, SharedResources
from .pipeline.handlers.admitting import CONFIG as CONFIG
from .pipeline.handlers.compacting import Compacting
from .pipeline.handlers.counting import Counting
from .pipeline.handlers.model_list import STARTED, list_models, show_model
from .pipeline.handlers.status import (
    CLIENT_SERVERS,
    METRICS,
    SERVER_TOOLS,
    TEMPLATES,
    VERDICTS,
    alive,
    list_tools,
    metrics_page,
    ready,
    version,
)
from .pipeline.sending.background import BACKGROUND, Background
from .pipeline.sending.cors import Cors
from .pipeline.sending.delivery import ALIVE, CLIENTS, READY, Delivery, Serving, boundary
from .pipeline.websocket.sockets import SOCKETS, Sockets
from .protocols.base import ClientSide, ClientSides
from .ratelimit.admission import ADMISSION, Admission
from .ratelimit.base import Ledger
from .ratelimit.factory import counter_settings, make_ledger
from .record import Observe
from .registry import Registries, load_attribute, registries
from .servertools.joined import source_of
from .servertools.source import ClientToolServers
from .startup.chains import chain_of, kind_of
from .startup.introduction import introduction
from .startup.layers import Chains
from .startup.names import check_names
from .startup.proxied_paths import proxied_protocols
from .startup.template_use import begin_template_probes
from .store.factory import make_store
from .support.cache import CacheBudget
from .support.conversion import ConfigError
from .support.garbage_collection import COLLECTING, CollectorThresholds
from .support.seals import Seals, shared_secret
from .upstream.pool.health import HEALTH, Health
from .upstream.pool.server import UpstreamServer
from .upstream.pool.server_pool import pool_of
from .upstream.pool.template_probing import TemplateProbes
from .upstream.pool.verdicts import Mode, Verdicts
from .upstream.servers.base import Backend
from .upstream.servers.http import HttpBackend

BACKENDS: Final = web.AppKey("toolwire.backends", tuple[Backend, ...])
SEALS: Final = web.AppKey("toolwire.seals", Seals)
HOP: Final = web.AppKey("toolwire.hop", str)
TEMPLATE_VERDICTS: Final = web.AppKey("toolwire.template_verdicts", Verdicts)
LEDGER: Final = web.AppKey("toolwire.ledger", Ledger)


PREFIXES: Final = ("/v1", "")
"""Prefixes under which the paths of the protocols are served."""

HANDLER_ARGS: Final = {"auto_decompress": False, "lingering_time": 0.0}
"""Settings of aiohttp's server: it must not decompress bodies (see `toolwire.ingress.receiving`), and must not keep
reading a refused body."""


def create_app(
    config: GatewayConfig | Mapping[str, Any],
    *,
    plugins: Registries | None = None,
    metrics: Metrics | None = None,
    before: web.Application | None = None,
    observe: Sequence[Observe] = (),
) -> web.Application:
    """Returns the gateway's application for `config`: a loaded configuration, or a mapping with the keys of the
    configuration file.

    `plugins` are the registries for the names in the configuration; default: the built-ins and the installed entry
    points. `metrics` are continued; default: new ones. `before` is the application that this one replaces; it hands
    over the resources that outlive a configuration. `observe` are further observers, besides those of the
    configuration. Raises `ConfigError` with every mistake, or the exception of a plug-in's constructor.
    """
    if not isinstance(config, GatewayConfig):
        config = load(None, env={}, overrides=config)
    plugins = plugins or registries()
    check_names(config, plugins)
    parts = _ApplicationParts(
        config, plugins, metrics or Metrics(), SharedResources(None if before is None else before[SHARED])
    )
    routes = parts.routes()
    router = Router(routes)
    context = FeatureContext(config, plugins, parts.shared, router, parts.metrics, keyed=bool(parts.keys))
    features = features_of(context)
    recorders = [feature.observe for feature in features]
    for_all = [begin for begin, feature in zip(recorders, features, strict=True) if feature.observes_all]
    app = parts.application(features, for_all)
    app[ROUTER] = router
    app[HEALTH] = Health(
        parts.endpoints,
        lambda up, name: parts.metrics.backend_up.set(up, name),
        partial(introduction, routes),
        None if before is None else before.get(HEALTH),
        probe=partial(begin_template_probes, routes),
    )
    parts.add_resources(app)
    serving = parts.serving(app, router, [*observe, *recorders])
    for feature in features:
        feature.open(app, serving)
    for client in parts.clients.sides:
        _add_protocol(app, serving, client, parts.clients)
    for proxied in parts.proxied:
        _add_post(app, proxied.path, Delivery(replace(serving, observe=for_all), proxied))
    _add_own_paths(app, parts.clients)
    openapi.add_routes(app, openapi.OpenApi(parts.proxied, keyed=bool(parts.keys), limited=parts.limited))
    return app


class _ApplicationParts:
    """The parts of an application, made from its configuration before the application itself. Those in `shared` outlive
    the configuration."""

    def __init__(self, config: GatewayConfig, plugins: Registries, metrics: Metrics, shared: SharedResources) -> None:
        self.config = config
        self.plugins = plugins
        self.metrics = metrics
        self.shared = shared
        self.keys = Keys.load(config.auth)
        self.limited = has_limits(config, self.keys)
        self.clients = plugins.client_sides()
        self.proxied = proxied_protocols(config, self.clients)
        self.chains = Chains(plugins, metrics)
        self.server_tools = source_of(config.tools, plugins.tool_sources)
        self.client_servers = _client_servers(config, plugins)
        folder, secret = _shared_folder(metrics), config.server.secret
        self.hop = shared.take(HOP, None, lambda: _hop_name(folder))
        self.seals = shared.take(
            SEALS, secret, lambda: Seals(shared_secret(folder) if secret is None else secret.encode())
        )
        self.verdicts = shared.take(
            VERDICTS, None, lambda: _verdicts(folder, "verdicts", "native", metrics.tools_native)
        )
        self.templates = TemplateProbes(
            shared.take(
                TEMPLATE_VERDICTS, None, lambda: _verdicts(folder, "templates", "template", metrics.tools_templated)
            )
        )
        self.endpoints = {name: self._endpoint(name, backend) for name, backend in config.backends.items()}
        metrics.bound(config.limits.metric_labels)
        metrics.sample(config.server.access_share, config.server.access_slow_s)
        for entry in (*config.chain, *(entry for route in config.routes for entry in route.chain or ())):
            middleware = kind_of(entry, plugins)
            metrics.declare(() if middleware is None else middleware.access_fields)

    def _endpoint(self, name: str, config: BackendConfig) -> UpstreamServer:
        backend = self.plugins.backends.get(config.kind)(name, config, self.config.limits)
        if isinstance(backend, HttpBackend):
            backend.hop(self.hop)
            backend.count_error = partial(self.metrics.backend_errors.inc, name)
        endpoint = UpstreamServer(name, backend, config)
        endpoint.verdicts = self.verdicts
        return endpoint

    def routes(self) -> list[Route]:
        """Returns the routes, with their chains and pools."""
        return [self._route(route) for route in effective_routes(self.config)]

    def _route(self, route: RouteConfig) -> Route:
        formats = self.plugins.formats
        layers = self.chains.build(chain_of(route, self.config, self.plugins, limited=self.limited))
        runs_tools = any(layer.runs_server_tools for layer in layers)
        pool = pool_of(route, self.endpoints, self.templates)
        return Route(
            config=route,
            options=route.options,
            pool=pool,
            format=formats.get(route.options.format),
            limits=self.config.limits,
            chains={
                **{client.name: compose(layers, client) for client in self.clients.sides},
                **{proxied.name: proxied_chain(layers, proxied) for proxied in self.proxied},
            },
            by_family=formats.get if route.options.format == "auto" else None,
            server_tools=self.server_tools if runs_tools else None,
            client_servers=self.client_servers if runs_tools else None,
            sealed=seals_of_route(route, pool, self.endpoints, self.seals),
            permission=Permission(layer.forbids for layer in layers if layer.forbids is not None),
        )

    def application(self, features: Sequence[Feature], observe: Sequence[Observe]) -> web.Application:
        """Returns an application without paths. `observe` are observers of requests that are refused before a handler
        runs."""
        config = self.config
        open_paths = "|".join(feature.open_paths for feature in features if feature.open_paths is not None) or None
        app = web.Application(
            middlewares=[boundary(self.keys, self.clients, self.hop, open_paths=open_paths, observe=observe)],
            client_max_size=config.limits.body_bytes,  # for a program that embeds the gateway and reads bodies itself
            handler_args=HANDLER_ARGS,
        )
        if config.cors.origins:
            cors = Cors(config.cors, self.clients)
            app.middlewares.insert(0, cors.middleware())
            app.on_response_prepare.append(cors.mark)
        app[OWN_MIDDLEWARES] = len(app.middlewares)
        app[CONFIG] = config
        app[CLIENTS] = self.clients
        app[STARTED] = int(time.time())
        app[METRICS] = self.metrics
        app[SHARED] = self.shared
        app[SEALS] = self.seals
        app[VERDICTS] = self.verdicts
        app[TEMPLATES] = self.templates
        app[BACKENDS] = tuple(endpoint.backend for endpoint in self.endpoints.values())
        return app

    def add_resources(self, app: web.Application) -> None:
        """Adds what is started and closed with the application, in this order; closed in the opposite one."""
        config, shared, metrics = self.config, self.shared, self.metrics
        app[SOCKETS] = Sockets(config)
        app[CACHES] = caches = CacheBudget(config.limits.cache_bytes, metrics.cached)
        app[CONVERSATIONS] = shared.take(
            CONVERSATIONS,
            config.store,
            lambda: Conversations(make_store(config.store), config.store),
            Conversations.close,
        )
        app[KNOWN_TURNS] = KnownTurns(caches.cache("conversations"))
        app[BACKGROUND] = background = Background(config.background, app[CONVERSATIONS], config.server.keepalive_s)
        app.on_response_prepare.append(set_common)
        app.on_shutdown.append(_drain)
        running = app.cleanup_ctx
        running += [_closing_caches, shared.running, app[CONVERSATIONS].checked, _running_backends]
        if self.limited:
            limits, folder, report = config.rate_limits, _shared_folder(metrics), metrics.limit_store_up.set
            make = partial(make_ledger, limits, shared_folder=folder, report=report)
            ledger = shared.take(LEDGER, counter_settings(limits), make, _close)
            app[ADMISSION] = admission = Admission(config, ledger, metrics.rate_limited.inc)
            running.append(admission.running)
        if self.server_tools is not None:
            app[SERVER_TOOLS] = self.server_tools
            running.append(_running_tools)
        if self.client_servers is not None:
            app[CLIENT_SERVERS] = self.client_servers
            running.append(_running_client_servers)
        running += [self.chains.running, background.running]

    def serving(self, app: web.Application, router: Router, observe: Sequence[Observe]) -> Serving:
        """Returns what the paths of all protocols share. `observe` are observers of each exchange."""
        config, shared, metrics, caches = self.config, self.shared, self.metrics, app[CACHES]
        app[LIVENESS] = monitors = LivenessMonitors(config.server.keepalive_s)
        app[COLLECTING] = collecting = shared.take(COLLECTING, None, CollectorThresholds)
        most, fair = config.limits.total_body_bytes, bool(self.keys)
        make_budget = partial(BodyBudget, most, fair=fair, gauge=(metrics.cells, metrics.body_bytes.at()))
        app[BODY_BUDGET] = budget = shared.take(BODY_BUDGET, (most, fair), make_budget)
        return Serving(
            config=config,
            router=router,
            metrics=metrics,
            tools=KnownTools(caches.cache("tools")),
            conversations=KnownConversations(caches.cache("conversations")),
            monitors=monitors,
            budget=budget,
            collecting=collecting,
            staggered=LoopPacer(),
            admission=app.get(ADMISSION),
            observe=observe,
        )


def _add_protocol(app: web.Application, serving: Serving, client: ClientSide, clients: ClientSides) -> None:
    """Adds the paths of a protocol."""
    _add_post(app, client.path, Delivery(serving, client))
    if client.count_path is not None:
        _add_post(app, client.count_path, Counting(serving, client))
    if client.compact_path is not None:
        _add_post(app, client.compact_path, Compacting(serving, client))
    for more in client.routes:
        handler = with_timing_header(load_attribute(more.handler), clients)
        for prefix in PREFIXES:
            if more.method == "GET":
                app.router.add_get(prefix + more.path, handler)  # and `HEAD`
            else:
                app.router.add_route(more.method, prefix + more.path, handler)


def _add_post(app: web.Application, path: str, delivery: Delivery) -> None:
    for prefix in PREFIXES:
        app.router.add_post(prefix + path, delivery.__call__, expect_handler=ignore_expect)


def _add_own_paths(app: web.Application, clients: ClientSides) -> None:
    """Adds the paths that belong to no protocol."""
    for prefix in PREFIXES:
        app.router.add_get(prefix + "/models", with_timing_header(list_models, clients))
        app.router.add_get(prefix + "/models/{id:.+}", with_timing_header(show_model, clients))
    app.router.add_get("/", version)  # some clients first test whether the server answers
    for path in ALIVE:
        app.router.add_get(path, alive)
    for path in READY:
        app.router.add_get(path, ready)
    app.router.add_get("/metrics", metrics_page)
    app.router.add_get("/version", version)
    app.router.add_get("/admin/tools", list_tools)


async def _drain(app: web.Application) -> None:
    """Closes WebSockets at the shutdown, for programs that embed the application. For `app.on_shutdown`."""
    app[LIVENESS].drain()


async def _closing_caches(app: web.Application) -> AsyncIterator[None]:
    """Empties the caches at the end of the application. For `app.cleanup_ctx`."""
    yield
    app[CACHES].close()


def _shared_folder(metrics: Metrics) -> Path | None:
    """Returns the folder of the workers' counters, which all of them share; None if there is only one."""
    cells = metrics.cells.path
    return None if cells is None else cells.parent


def _hop_name(folder: Path | None) -> str:
    """Returns the gateway's name for loop detection (`toolwire.upstream.servers.hops`), the same in all workers."""
    return secrets.token_hex(8) if folder is None else sha256(str(folder).encode()).hexdigest()[:16]


async def _close(ledger: Ledger) -> None:
    await ledger.close()  # at run time, because `Ledger.close` itself belongs to the protocol


def _verdicts(folder: Path | None, name: str, wanted: Mode, gauge: Gauge) -> Verdicts:
    """Returns the verdicts that the workers share in the folder `name`. `gauge` counts those of the mode `wanted`."""
    return Verdicts(folder and folder / name, lambda one: gauge.set(one.mode == wanted, one.backend))


async def _running_backends(app: web.Application) -> AsyncIterator[None]:
    started: list[Backend] = []
    try:
        for backend in app[BACKENDS]:
            started.append(backend)
            await backend.start()
        async with app[HEALTH]:
            yield
    finally:
        await app[TEMPLATES].close()
        for backend in reversed(started):
            await backend.close()


def _client_servers(config: GatewayConfig, plugins: Registries) -> ClientToolServers | None:
    """Returns the tool servers that clients may name; None if there are none. Raises `ConfigError` for an invalid
    URL."""
    if not config.tools.mcp_from_clients:
        return None
    try:
        servers: ClientToolServers = plugins.tool_sources.get("mcp_from_clients")(
            config.tools.mcp_from_clients, config.tools.on_oversize
        )
    except ValueError as error:
        raise ConfigError(f"tools.mcp_from_clients: {error}") from None
    return servers


async def _running_client_servers(app: web.Application) -> AsyncIterator[None]:
    async with app[CLIENT_SERVERS].running():
        yield


async def _running_tools(app: web.Application) -> AsyncIterator[None]:
    async with app[SERVER_TOOLS].running():
        yield
