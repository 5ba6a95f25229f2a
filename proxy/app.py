"""Builds an `aiohttp.web.Application` from a configuration: the only composition root.

Everything that can be decided before the first request is decided here: registries, backends, chains, routes. Building
has no side effects: connections and middlewares are opened when the application starts and closed when it stops.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import orjson
from aiohttp import web

from ._version import __version__
from .config import GatewayConfig, MiddlewareConfig
from .configuration.checks import effective_routes, has_limits
from .configuration.settings import load, read_section
from .fastparse import IMPLEMENTATION
from .features import FeatureContext, features_of
from .formats.engine.toolset import KnownTools
from .ingress.auth import Keys
from .ingress.budget import BODY_BUDGET, BodyBudget
from .ingress.conversations import KnownConversations
from .ingress.liveness import LIVENESS, LivenessMonitors
from .ingress.receiving import ignore_expect
from .ingress.turns import Turns
from .observability.telemetry import Metrics
from .openapi import routes as openapi
from .pipeline.chain.middleware import Layer, Middleware, compose, instantiate
from .pipeline.chain.plain import PlainLayer
from .pipeline.chain.proxied_requests import proxied_chain
from .pipeline.conversations.known_turns import KNOWN_TURNS, KnownTurns
from .pipeline.conversations.stored import CONVERSATIONS, Conversations
from .pipeline.exchange.caches import CACHES
from .pipeline.exchange.heads import OWN_MIDDLEWARES, set_common, timed
from .pipeline.exchange.permission import Permission
from .pipeline.exchange.routing import ROUTER, Route, Router
from .pipeline.exchange.sealed import sealed_of
from .pipeline.exchange.shared_resources import SHARED, SharedResources
from .pipeline.handlers.admitting import CONFIG as CONFIG
from .pipeline.handlers.compacting import Compacting
from .pipeline.handlers.counting import Counting
from .pipeline.handlers.model_list import STARTED, list_models, show_model, started_now
from .pipeline.sending.background import BACKGROUND, Background
from .pipeline.sending.cors import Cors
from .pipeline.sending.delivery import ALIVE, API_KEY, CLIENTS, READY, Delivery, boundary
from .pipeline.websocket.sockets import SOCKETS, Sockets
from .protocols.base import ClientSide
from .ratelimit.admission import ADMISSION, Admission
from .ratelimit.base import Ledger
from .ratelimit.opening import counting, make_ledger
from .record import Observe
from .registry import MIDDLEWARES, Registries, load_attribute, registries
from .servertools.joined import source_of
from .servertools.source import ClientToolServers, ToolSource
from .startup.chains import chain_of, kind_of
from .startup.introduction import introduction
from .startup.names import check_names
from .startup.pass_through import pass_through_protocols
from .startup.template_use import begin_template_probes
from .store.opening import make_store
from .support.cache import CacheBudget
from .support.collecting import COLLECTING, Collecting
from .support.conversion import ConfigError
from .support.seals import Seals, shared_secret
from .upstream.pool.health import HEALTH, Health
from .upstream.pool.server import UpstreamServer
from .upstream.pool.server_pool import pool_of
from .upstream.pool.template_probing import TemplateProbes
from .upstream.pool.verdicts import Verdicts
from .upstream.servers.base import Backend
from .upstream.servers.http import HttpBackend

METRICS: Final = web.AppKey("toolwire.metrics", Metrics)
SERVER_TOOLS: Final = web.AppKey("toolwire.server_tools", ToolSource)
CLIENT_SERVERS: Final = web.AppKey("toolwire.client_servers", ClientToolServers)
BACKENDS: Final = web.AppKey("toolwire.backends", tuple[Backend, ...])
SEALS: Final = web.AppKey("toolwire.seals", Seals)
HOP: Final = web.AppKey("toolwire.hop", str)
VERDICTS: Final = web.AppKey("toolwire.verdicts", Verdicts)
TEMPLATE_VERDICTS: Final = web.AppKey("toolwire.template_verdicts", Verdicts)
TEMPLATES: Final = web.AppKey("toolwire.templates", TemplateProbes)
LEDGER: Final = web.AppKey("toolwire.ledger", Ledger)


PREFIXES: Final = ("/v1", "")
"""The prefixes of protocol paths."""

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
    metrics = metrics or Metrics()
    metrics.bound(config.limits.metric_labels)
    metrics.sample(config.server.access_share, config.server.access_slow_s)
    shared = SharedResources(None if before is None else before[SHARED])
    clients = plugins.client_sides()
    backends = {
        name: plugins.backends.get(backend.kind)(name, backend, config.limits)
        for name, backend in config.backends.items()
    }
    keys = Keys.load(config.auth)
    limited = has_limits(config, keys)
    own = shared.take(HOP, None, lambda: _hop_name(metrics))
    for backend in backends.values():
        if isinstance(backend, HttpBackend):
            backend.hop(own)
            backend.count_error = partial(metrics.backend_errors.inc, backend.name)
    endpoints = {name: UpstreamServer(name, backend, config.backends[name]) for name, backend in backends.items()}
    verdicts = shared.take(VERDICTS, None, lambda: _verdicts(metrics))
    templates = TemplateProbes(shared.take(TEMPLATE_VERDICTS, None, lambda: _template_verdicts(metrics)))
    for endpoint in endpoints.values():
        endpoint.verdicts = verdicts
    for entry in (*config.chain, *(entry for route in config.routes for entry in route.chain or ())):
        middleware = kind_of(entry, plugins)
        metrics.declare(() if middleware is None else middleware.access_fields)
    chains = Chains(plugins, metrics)
    passed = pass_through_protocols(config, clients)
    routes = []
    seals = shared.take(SEALS, config.server.secret, lambda: _seals(config, metrics))
    server_tools = source_of(config.tools, plugins.tool_sources)
    client_servers = _client_servers(config, plugins)
    for route in effective_routes(config):
        chain = chain_of(route, config, plugins, limited=limited)
        layers = chains.build(chain)
        pool = pool_of(route, endpoints, templates)
        routes.append(
            Route(
                config=route,
                options=route.options,
                pool=pool,
                format=plugins.formats.get(route.options.format),
                limits=config.limits,
                chains={
                    **{client.name: compose(layers, client) for client in clients.sides},
                    **{one.name: proxied_chain(layers, one) for one in passed},
                },
                by_family=plugins.formats.get if route.options.format == "auto" else None,
                server_tools=server_tools if any(layer.runs_server_tools for layer in layers) else None,
                client_servers=client_servers if any(layer.runs_server_tools for layer in layers) else None,
                sealed=sealed_of(route, pool, endpoints, seals),
                permission=Permission(layer.forbids for layer in layers if layer.forbids is not None),
            )
        )
    router = Router(routes)

    features = features_of(FeatureContext(config, plugins, shared, router, metrics, keyed=bool(keys)))
    recorders = [feature.observe for feature in features]
    for_all = [begin for begin, feature in zip(recorders, features, strict=True) if feature.observes_all]
    open_paths = "|".join(feature.open_paths for feature in features if feature.open_paths is not None) or None
    app = web.Application(
        middlewares=[boundary(keys, clients, own, open_paths=open_paths, observe=for_all)],
        client_max_size=config.limits.body_bytes,  # for a program that embeds the gateway, which reads bodies itself
        handler_args=HANDLER_ARGS,
    )
    if config.cors.origins:
        cors = Cors(config.cors, clients)
        app.middlewares.insert(0, cors.middleware())
        app.on_response_prepare.append(cors.mark)
    app[OWN_MIDDLEWARES] = len(app.middlewares)
    app[CONFIG] = config
    app[SOCKETS] = Sockets(config)
    app[CACHES] = caches = CacheBudget(config.limits.cache_bytes, metrics.cached)
    app.cleanup_ctx.append(_closing_caches)
    app[CLIENTS] = clients
    app[ROUTER] = router
    app[STARTED] = started_now()
    app[METRICS] = metrics
    app[SHARED] = shared
    app[SEALS] = seals
    app[VERDICTS] = verdicts
    app[TEMPLATES] = templates
    app[BACKENDS] = tuple(backends.values())
    app[HEALTH] = Health(
        endpoints,
        lambda up, name: metrics.backend_up.set(up, name),
        partial(introduction, routes),
        None if before is None else before.get(HEALTH),
        probe=partial(begin_template_probes, routes),
    )
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
    app.cleanup_ctx.append(shared.running)
    app.cleanup_ctx.append(_running_backends)
    admission: Admission | None = None
    if limited:
        ledger = shared.take(LEDGER, counting(config.rate_limits), lambda: _ledger(config, metrics), _close)
        app[ADMISSION] = admission = Admission(config, ledger, metrics.rate_limited.inc)
        app.cleanup_ctx.append(admission.running)
    if server_tools is not None:
        app[SERVER_TOOLS] = server_tools
        app.cleanup_ctx.append(_running_tools)
    if client_servers is not None:
        app[CLIENT_SERVERS] = client_servers
        app.cleanup_ctx.append(_running_client_servers)
    app.cleanup_ctx.append(chains.running)
    observers = [*observe, *recorders]
    app.cleanup_ctx.append(background.running)
    known = KnownTools(caches.cache("tools")), KnownConversations(caches.cache("conversations"))
    monitors = app[LIVENESS] = LivenessMonitors(config.server.keepalive_s)
    most, fair = config.limits.total_body_bytes, bool(keys)
    collecting = app[COLLECTING] = shared.take(COLLECTING, None, Collecting)
    make_budget = partial(BodyBudget, most, fair=fair, gauge=(metrics.cells, metrics.body_bytes.at()))
    budget = app[BODY_BUDGET] = shared.take(BODY_BUDGET, (most, fair), make_budget)
    staggered = Turns()

    def serving(client: ClientSide, router: Router) -> Delivery:
        return Delivery(
            config, client, router, metrics, *known, monitors, budget, collecting, staggered, admission, observers
        )

    for feature in features:
        feature.open(app, serving)
    for client in clients.sides:
        parts = (config, client, router, metrics, *known, monitors, budget, collecting, staggered, admission, observers)
        serve = Delivery(*parts)
        more_paths: dict[str, Delivery] = {}
        if client.count_path is not None:
            more_paths[client.count_path] = Counting(*parts)
        if client.compact_path is not None:
            more_paths[client.compact_path] = Compacting(*parts)
        for prefix in PREFIXES:
            app.router.add_post(prefix + client.path, serve.__call__, expect_handler=ignore_expect)
            for path, side in more_paths.items():
                app.router.add_post(prefix + path, side.__call__, expect_handler=ignore_expect)
            for more in client.routes:
                handler = timed(load_attribute(more.handler), clients)
                if more.method == "GET":
                    app.router.add_get(prefix + more.path, handler)  # and `HEAD`
                else:
                    app.router.add_route(more.method, prefix + more.path, handler)
    for one in passed:
        pass_on = Delivery(
            config, one, router, metrics, *known, monitors, budget, collecting, staggered, admission, for_all
        )
        for prefix in PREFIXES:
            app.router.add_post(prefix + one.path, pass_on.__call__, expect_handler=ignore_expect)
    for prefix in PREFIXES:
        app.router.add_get(prefix + "/models", timed(list_models, clients))
        app.router.add_get(prefix + "/models/{id:.+}", timed(show_model, clients))
    app.router.add_get("/", _version)  # some clients first test whether the server answers
    for path in ALIVE:
        app.router.add_get(path, _health)
    for path in READY:
        app.router.add_get(path, _ready)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/version", _version)
    app.router.add_get("/admin/tools", _tools)
    openapi.add_routes(app, openapi.OpenApi(passed, keyed=bool(keys), limited=limited))
    return app


async def _drain(app: web.Application) -> None:
    """Closes WebSockets at the shutdown, for programs that embed the application. For `app.on_shutdown`."""
    app[LIVENESS].drain()


async def _closing_caches(app: web.Application) -> AsyncIterator[None]:
    """Empties the caches at the end of the application. For `app.cleanup_ctx`."""
    yield
    app[CACHES].close()


def _hop_name(metrics: Metrics) -> str:
    """Returns the gateway's name for loop detection (`toolwire.upstream.servers.hops`). All its workers have the same,
    derived from the folder of their counters."""
    cells = metrics.cells.path
    return secrets.token_hex(8) if cells is None else sha256(str(cells.parent).encode()).hexdigest()[:16]


def _seals(config: GatewayConfig, metrics: Metrics) -> Seals:
    if (secret := config.server.secret) is not None:
        return Seals(secret.encode())
    cells = metrics.cells.path
    return Seals(shared_secret(None if cells is None else cells.parent))


def _ledger(config: GatewayConfig, metrics: Metrics) -> Ledger:
    cells = metrics.cells.path  # each worker has its own file in a shared folder
    folder = None if cells is None else cells.parent
    return make_ledger(config.rate_limits, shared_folder=folder, report=metrics.limit_store_up.set)


async def _close(ledger: Ledger) -> None:
    await ledger.close()  # at run time, because `Ledger.close` itself belongs to the protocol


def _verdicts(metrics: Metrics) -> Verdicts:
    cells = metrics.cells.path
    folder = None if cells is None else cells.parent / "verdicts"
    return Verdicts(folder, lambda one: metrics.tools_native.set(one.mode == "native", one.backend))


def _template_verdicts(metrics: Metrics) -> Verdicts:
    cells = metrics.cells.path
    folder = None if cells is None else cells.parent / "templates"
    return Verdicts(folder, lambda one: metrics.tools_templated.set(one.mode == "template", one.backend))


class Chains:
    """Builds the chains of an application and runs their middlewares. Routes with the same chain share its
    instances."""

    def __init__(self, plugins: Registries, metrics: Metrics) -> None:
        self._plugins = plugins
        self._metrics = metrics
        self._built: list[tuple[tuple[MiddlewareConfig, ...], list[Layer]]] = []

    def build(self, entries: tuple[MiddlewareConfig, ...]) -> Sequence[Layer]:
        """Returns the middlewares of a chain, outermost first."""
        for known, layers in self._built:
            if known == entries:
                return layers
        layers = [self._layer(entry) for entry in entries]
        self._built.append((entries, layers))
        return layers

    def _layer(self, entry: MiddlewareConfig) -> Layer:
        plugin = self._plugins.middlewares.get(entry.use)
        middleware = instantiate(
            entry, plugin, lambda kind, options: read_section(kind, options, f"{entry.use}.options")
        )
        failed = self._metrics.middleware_errors
        # Built-in middlewares handle unsent replies, so a complete answer needs no work before it is sent.
        ours = entry.use in MIDDLEWARES or (isinstance(middleware, Middleware) and not middleware.defines("__call__"))
        kind = Layer if ours else PlainLayer
        return kind(entry.use, middleware, entry.on_failure == "skip", lambda name: failed.inc(name))

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Starts the middlewares; at the shutdown closes those that were started, last first."""
        started: list[Middleware] = []
        try:
            for _, layers in self._built:
                for layer in layers:
                    if isinstance(layer.middleware, Middleware):
                        started.append(layer.middleware)
                        await layer.middleware.start(app)
            yield
        finally:
            for middleware in reversed(started):
                await middleware.close()


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


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


async def _health(request: web.Request) -> web.Response:
    """Answers that the process is alive, with the number of requests that it serves."""
    status = "draining" if request.app[LIVENESS].draining else "ok"
    serving = request.app[METRICS].being_served
    return _json({"status": status, "in_flight": serving, "version": __version__, "scanner": IMPLEMENTATION})


async def _version(request: web.Request) -> web.Response:
    return _json({"version": __version__, "scanner": IMPLEMENTATION})


async def _ready(request: web.Request) -> web.Response:
    """Answers 200 if at least one backend is up and the gateway is not about to stop, else 503."""
    if request.app[LIVENESS].draining:
        return _json({"status": "draining"}, 503)
    up = await request.app[HEALTH].states()
    states = {name: "up" if ok else "down" for name, ok in up.items()}
    ready = any(up.values())
    state: dict[str, object] = {"status": "ready" if ready else "unavailable", "backends": states}
    if tools := request.app[VERDICTS].shown():
        state["tools"] = tools
    if templates := request.app[TEMPLATES].shown():
        state["templates"] = templates
    if refused := request.app[HEALTH].refused():
        state["refused"] = refused
    return _json(state, 200 if ready else 503)


async def _metrics(request: web.Request) -> web.Response:
    body, content_type = request.app[METRICS].page(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})


async def _tools(request: web.Request) -> web.Response:
    """Answers with the modules and MCP servers of server-side tools, their states and tools, as this worker knows them
    (R15.2). Empty for a key whose routes have no such tools."""
    key, routes = request.get(API_KEY), request.app[ROUTER].routes
    usable = [route for route in routes if key is None or key.admin or key.may_use(route.config.model)]
    tools = request.app.get(SERVER_TOOLS) if any(route.server_tools for route in usable) else None
    clients = request.app.get(CLIENT_SERVERS) if any(route.client_servers for route in usable) else None
    shown = {"folder": None, "modules": [], "mcp": []} | ({} if tools is None else tools.shown())
    return _json(shown if clients is None else shown | {"from_clients": clients.shown()})
