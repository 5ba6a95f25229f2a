"""The only composition root: from a configuration to an `aiohttp.web.Application`.

Everything that can be decided before the first request is decided here: registries, backends, chains, routes. Building
has no side effects; sockets and middlewares are opened when the application starts and closed when it stops.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import orjson
from aiohttp import web

from toolwire._version import __version__
from toolwire.config import GatewayConfig, MiddlewareConfig
from toolwire.configuration.checks import effective_routes, has_limits
from toolwire.configuration.settings import load, read_section
from toolwire.extras.mcp.from_clients import ClientServers
from toolwire.fastparse import IMPLEMENTATION
from toolwire.formats.engine.toolset import KnownTools
from toolwire.ingress.auth import Keys
from toolwire.ingress.budget import BODY_BUDGET, BodyBudget
from toolwire.ingress.conversations import KnownConversations
from toolwire.ingress.liveness import LIVENESS, LivenessMonitors
from toolwire.ingress.receiving import later
from toolwire.ingress.turns import Turns
from toolwire.observability.telemetry import Metrics
from toolwire.openapi import routes as openapi
from toolwire.pipeline.chain.middleware import Middleware, MiddlewareRunner, compose, instantiate
from toolwire.pipeline.chain.passing_on import passing
from toolwire.pipeline.chain.plain import PlainMiddlewareRunner
from toolwire.pipeline.conversations.background import BACKGROUND, Background
from toolwire.pipeline.conversations.compacting import Compacting
from toolwire.pipeline.conversations.stored import CONVERSATIONS, Conversations
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.exchange.heads import OWN_MIDDLEWARES, set_common, timed
from toolwire.pipeline.exchange.permission import Permission
from toolwire.pipeline.exchange.routing import ROUTER, Route, Router
from toolwire.pipeline.exchange.shared_resources import SHARED, SharedResources
from toolwire.pipeline.handlers.admitting import CONFIG as CONFIG
from toolwire.pipeline.handlers.counting import Counting
from toolwire.pipeline.handlers.model_list import STARTED, list_models, show_model, started_now
from toolwire.pipeline.sending.cors import Cors
from toolwire.pipeline.sending.delivery import ALIVE, API_KEY, CLIENTS, READY, Delivery, boundary
from toolwire.pipeline.transforms.sealing import sealed_of
from toolwire.pipeline.websocket.sockets import SOCKETS, Sockets
from toolwire.protocols.base import ClientSide
from toolwire.ratelimit.admission import ADMISSION, Admission
from toolwire.ratelimit.base import Ledger
from toolwire.ratelimit.opening import counting, make_ledger
from toolwire.record import Observe
from toolwire.registry import MIDDLEWARES, Registries, load_attribute, registries
from toolwire.servertools.joined import source_of
from toolwire.servertools.source import ToolSource
from toolwire.startup.chains import chain_of, kind_of
from toolwire.startup.introduction import introduction
from toolwire.startup.names import check_names
from toolwire.startup.passed import passed_paths
from toolwire.startup.template_use import begin_template_probes
from toolwire.store.opening import make_store
from toolwire.support.cache import CacheBudget
from toolwire.support.collecting import COLLECTING, Collecting
from toolwire.support.conversion import ConfigError
from toolwire.support.seals import Seals, shared_secret
from toolwire.upstream.pool.health import HEALTH, Health
from toolwire.upstream.pool.pool import Endpoint, pool_of
from toolwire.upstream.pool.template_probing import TemplateProbes
from toolwire.upstream.pool.verdicts import Verdicts
from toolwire.upstream.servers.base import Backend
from toolwire.upstream.servers.http import HttpBackend

METRICS: Final = web.AppKey("toolwire.metrics", Metrics)
SERVER_TOOLS: Final = web.AppKey("toolwire.server_tools", ToolSource)
CLIENT_SERVERS: Final = web.AppKey("toolwire.client_servers", ClientServers)
BACKENDS: Final = web.AppKey("toolwire.backends", tuple[Backend, ...])
SEALS: Final = web.AppKey("toolwire.seals", Seals)
HOP: Final = web.AppKey("toolwire.hop", str)
VERDICTS: Final = web.AppKey("toolwire.verdicts", Verdicts)
TEMPLATE_VERDICTS: Final = web.AppKey("toolwire.template_verdicts", Verdicts)
TEMPLATES: Final = web.AppKey("toolwire.templates", TemplateProbes)
LEDGER: Final = web.AppKey("toolwire.ledger", Ledger)


PREFIXES: Final = ("/v1", "")
"""Before the paths of protocols."""

WHOEVER_SERVES: Final = {"auto_decompress": False, "lingering_time": 0.0}
"""What aiohttp's server must not do with bodies: inflate them (see `toolwire.ingress.receiving`), and read on what was
refused."""


def create_app(
    config: GatewayConfig | Mapping[str, Any],
    *,
    plugins: Registries | None = None,
    metrics: Metrics | None = None,
    before: web.Application | None = None,
    observe: Sequence[Observe] = (),
) -> web.Application:
    """The gateway for `config`: a loaded configuration, or a mapping of the form of the configuration file.

    `plugins` are the registries in which the names of the configuration are looked up; default: the built-ins and the
    installed entry points. `metrics` count on from where they are; default: from zero. `before` is the application
    whose place this one takes: it hands on what outlives a configuration. `observe` are who
    looks on besides what the configuration says. Raises `ConfigError` with every mistake, or what a
    plug-in's constructor raises.
    """
    if not isinstance(config, GatewayConfig):
        config = load(None, env={}, overrides=config)
    plugins = plugins or registries()
    check_names(config, plugins)
    metrics = metrics or Metrics()
    metrics.bound(config.limits.metric_labels)
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
    endpoints = {name: Endpoint(name, backend, config.backends[name]) for name, backend in backends.items()}
    verdicts = shared.take(VERDICTS, None, lambda: _verdicts(metrics))
    templates = TemplateProbes(shared.take(TEMPLATE_VERDICTS, None, lambda: _template_verdicts(metrics)))
    for endpoint in endpoints.values():
        endpoint.verdicts, endpoint.templates = verdicts, templates
    for entry in (*config.chain, *(entry for route in config.routes for entry in route.chain or ())):
        middleware = kind_of(entry, plugins)
        metrics.declare(() if middleware is None else middleware.access_fields)
    chains = Chains(plugins, metrics)
    passed = passed_paths(config, clients)
    routes = []
    seals = shared.take(SEALS, config.server.secret, lambda: _seals(config, metrics))
    server_tools = source_of(config.tools)
    client_servers = _client_servers(config)
    for route in effective_routes(config):
        chain = chain_of(route, config, plugins, limited=limited)
        runners = chains.build(chain)
        pool = pool_of(route, endpoints)
        routes.append(
            Route(
                config=route,
                options=route.options,
                pool=pool,
                format=plugins.formats.get(route.options.format),
                limits=config.limits,
                chains={
                    **{client.name: compose(runners, client) for client in clients.sides},
                    **{one.name: passing(runners, one) for one in passed},
                },
                by_family=plugins.formats.get if route.options.format == "auto" else None,
                server_tools=server_tools if any(runner.runs_server_tools for runner in runners) else None,
                client_servers=client_servers if any(runner.runs_server_tools for runner in runners) else None,
                sealed=sealed_of(route, pool, endpoints, seals),
                permission=Permission(runner.forbids for runner in runners if runner.forbids is not None),
            )
        )
    router = Router(routes)

    inspector = None
    if config.inspect.on:
        from toolwire.extras.inspector.opening import Inspector

        inspector = Inspector(config, plugins, shared, router, cells=metrics.cells.path, keyed=bool(keys))
    app = web.Application(
        middlewares=[boundary(keys, clients, own, open_paths=None if inspector is None else inspector.OPEN)],
        client_max_size=config.limits.body_bytes,  # for who stands around the gateway; it reads bodies itself
        handler_args=WHOEVER_SERVES,
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
    observers = [*observe, *_configured_observers(app, config, shared, metrics)]
    if inspector is not None:
        observers.append(inspector.observe)
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

    if inspector is not None:
        inspector.open(app, serving)
    for client in clients.sides:
        parts = (config, client, router, metrics, *known, monitors, budget, collecting, staggered, admission, observers)
        serve = Delivery(*parts)
        more_paths: dict[str, Delivery] = {}
        if client.count_path is not None:
            more_paths[client.count_path] = Counting(*parts)
        if client.compact_path is not None:
            more_paths[client.compact_path] = Compacting(*parts)
        for prefix in PREFIXES:
            app.router.add_post(prefix + client.path, serve.__call__, expect_handler=later)
            for path, side in more_paths.items():
                app.router.add_post(prefix + path, side.__call__, expect_handler=later)
            for more in client.routes:
                handler = timed(load_attribute(more.handler), clients)
                if more.method == "GET":
                    app.router.add_get(prefix + more.path, handler)  # and `HEAD`
                else:
                    app.router.add_route(more.method, prefix + more.path, handler)
    for one in passed:
        pass_on = Delivery(config, one, router, metrics, *known, monitors, budget, collecting, staggered, admission)
        for prefix in PREFIXES:
            app.router.add_post(prefix + one.path, pass_on.__call__, expect_handler=later)
    for prefix in PREFIXES:
        app.router.add_get(prefix + "/models", timed(list_models, clients))
        app.router.add_get(prefix + "/models/{id:.+}", timed(show_model, clients))
    app.router.add_get("/", _version)  # some clients look first whether there is anybody
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
    """For `app.on_shutdown`, in a program that embeds it: WebSockets would stay open."""
    app[LIVENESS].drain()


async def _closing_caches(app: web.Application) -> AsyncIterator[None]:
    """For `app.cleanup_ctx`: the caches are empty when the application has ended."""
    yield
    app[CACHES].close()


def _hop_name(metrics: Metrics) -> str:
    """How the gateway calls itself among others (`toolwire.upstream.servers.hops`): all its workers alike, which share
    the folder of their counts."""
    cells = metrics.cells.path
    return secrets.token_hex(8) if cells is None else sha256(str(cells.parent).encode()).hexdigest()[:16]


def _seals(config: GatewayConfig, metrics: Metrics) -> Seals:
    if (secret := config.server.secret) is not None:
        return Seals(secret.encode())
    cells = metrics.cells.path
    return Seals(shared_secret(None if cells is None else cells.parent))


def _ledger(config: GatewayConfig, metrics: Metrics) -> Ledger:
    cells = metrics.cells.path  # of several workers, each has a file of its own in a folder of theirs
    folder = None if cells is None else cells.parent
    return make_ledger(config.rate_limits, shared_folder=folder, report=metrics.limit_store_up.set)


async def _close(ledger: Ledger) -> None:
    await ledger.close()  # `Ledger.close` itself is that of no ledger


def _verdicts(metrics: Metrics) -> Verdicts:
    cells = metrics.cells.path
    folder = None if cells is None else cells.parent / "verdicts"
    return Verdicts(folder, lambda one: metrics.tools_native.set(one.mode == "native", one.backend))


def _template_verdicts(metrics: Metrics) -> Verdicts:
    cells = metrics.cells.path
    folder = None if cells is None else cells.parent / "templates"
    return Verdicts(folder, lambda one: metrics.tools_templated.set(one.mode == "template", one.backend))


def _configured_observers(
    app: web.Application, config: GatewayConfig, shared: SharedResources, metrics: Metrics
) -> Iterator[Observe]:
    """Those of what is switched on. They are imported only then."""
    if config.telemetry.on:
        from toolwire.extras.otel.otlp import EXPORTING, Exporting

        settings = (config.telemetry, config.backends)
        make = partial(Exporting, *settings)
        yield shared.take(EXPORTING, settings, make, Exporting.close).begin
    if config.capture.keep:
        from toolwire.extras.capture.recorder import CaptureFolder, Captures
        from toolwire.extras.capture.routes import CAPTURES, add_routes

        cells = metrics.cells.path
        folder = None if cells is None else cells.parent / "captures"
        make_folder = partial(CaptureFolder, config.capture, folder)
        app[CAPTURES] = shared.take(CAPTURES, config.capture, make_folder, CaptureFolder.close)
        add_routes(app.router)
        yield Captures(config, app[CAPTURES]).begin


class Chains:
    """Builds the chains of an application and runs their middlewares. Routes that share a chain share its instances."""

    def __init__(self, plugins: Registries, metrics: Metrics) -> None:
        self._plugins = plugins
        self._metrics = metrics
        self._built: list[tuple[tuple[MiddlewareConfig, ...], list[MiddlewareRunner]]] = []

    def build(self, entries: tuple[MiddlewareConfig, ...]) -> Sequence[MiddlewareRunner]:
        """The middlewares of a chain, outermost first."""
        for known, runners in self._built:
            if known == entries:
                return runners
        runners = [self._runner(entry) for entry in entries]
        self._built.append((entries, runners))
        return runners

    def _runner(self, entry: MiddlewareConfig) -> MiddlewareRunner:
        found = self._plugins.middlewares.get(entry.use)
        middleware = instantiate(
            entry, found, lambda kind, options: read_section(kind, options, f"{entry.use}.options")
        )
        failed = self._metrics.middleware_errors
        # The built-in ones know what they get, and a whole answer costs them nothing before it is sent.
        ours = entry.use in MIDDLEWARES or (isinstance(middleware, Middleware) and not middleware.defines("__call__"))
        kind = MiddlewareRunner if ours else PlainMiddlewareRunner
        return kind(entry.use, middleware, entry.on_failure == "skip", lambda name: failed.inc(name))

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Start the middlewares; on shutdown close those that were started, last first."""
        started: list[Middleware] = []
        try:
            for _, runners in self._built:
                for runner in runners:
                    if isinstance(runner.middleware, Middleware):
                        started.append(runner.middleware)
                        await runner.middleware.start(app)
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


def _client_servers(config: GatewayConfig) -> ClientServers | None:
    """The tool servers that clients may name. Raises `ConfigError` for a URL that is none."""
    if not config.tools.mcp_from_clients:
        return None
    try:
        return ClientServers(config.tools.mcp_from_clients, config.tools.on_oversize)
    except ValueError as error:
        raise ConfigError(f"tools.mcp_from_clients: {error}") from None


async def _running_client_servers(app: web.Application) -> AsyncIterator[None]:
    async with app[CLIENT_SERVERS].running():
        yield


async def _running_tools(app: web.Application) -> AsyncIterator[None]:
    async with app[SERVER_TOOLS].running():
        yield


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


async def _health(request: web.Request) -> web.Response:
    """The process is alive."""
    return _json({"status": "ok", "version": __version__, "scanner": IMPLEMENTATION})


async def _version(request: web.Request) -> web.Response:
    return _json({"version": __version__, "scanner": IMPLEMENTATION})


async def _ready(request: web.Request) -> web.Response:
    """At least one backend can be reached, and the gateway is not about to stop."""
    if request.app[LIVENESS].draining:
        return _json({"status": "draining"}, 503)
    up = await request.app[HEALTH].states()
    states = {name: "up" if ok else "down" for name, ok in up.items()}
    ready = any(up.values())
    said: dict[str, object] = {"status": "ready" if ready else "unavailable", "backends": states}
    if tools := request.app[VERDICTS].shown():
        said["tools"] = tools
    if templates := request.app[TEMPLATES].shown():
        said["templates"] = templates
    if refused := request.app[HEALTH].refused():
        said["refused"] = refused
    return _json(said, 200 if ready else 503)


async def _metrics(request: web.Request) -> web.Response:
    body, content_type = request.app[METRICS].page(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})


async def _tools(request: web.Request) -> web.Response:
    """The modules and MCP servers of server-side tools, their states and their tools, as this worker knows them
    (R15.2). Nothing for a key whose routes have none."""
    key, routes = request.get(API_KEY), request.app[ROUTER].routes
    usable = [route for route in routes if key is None or key.admin or key.may_use(route.config.model)]
    tools = request.app.get(SERVER_TOOLS) if any(route.server_tools for route in usable) else None
    clients = request.app.get(CLIENT_SERVERS) if any(route.client_servers for route in usable) else None
    shown = {"folder": None, "modules": [], "mcp": []} | ({} if tools is None else tools.shown())
    return _json(shown if clients is None else shown | {"from_clients": clients.shown()})
