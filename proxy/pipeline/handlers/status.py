"""The gateway's own paths: its version, whether it lives and is ready, its metrics, and its tools."""

from __future__ import annotations

from typing import Final

import orjson
from aiohttp import web

from ..._version import __version__
from ...fastparse import IMPLEMENTATION
from ...ingress.liveness import LIVENESS
from ...observability.telemetry import Metrics
from ...servertools.source import ClientToolServers, ToolSource
from ...upstream.pool.health import HEALTH
from ...upstream.pool.template_probing import TemplateProbes
from ...upstream.pool.verdicts import Verdicts
from ..exchange.routing import ROUTER
from ..sending.delivery import API_KEY

METRICS: Final = web.AppKey("toolwire.metrics", Metrics)
SERVER_TOOLS: Final = web.AppKey("toolwire.server_tools", ToolSource)
CLIENT_SERVERS: Final = web.AppKey("toolwire.client_servers", ClientToolServers)
VERDICTS: Final = web.AppKey("toolwire.verdicts", Verdicts)
TEMPLATES: Final = web.AppKey("toolwire.templates", TemplateProbes)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


async def alive(request: web.Request) -> web.Response:
    """Answers that the process is alive, with the number of requests that it serves."""
    status = "draining" if request.app[LIVENESS].draining else "ok"
    served = request.app[METRICS].being_served
    return _json({"status": status, "in_flight": served, "version": __version__, "scanner": IMPLEMENTATION})


async def version(request: web.Request) -> web.Response:
    return _json({"version": __version__, "scanner": IMPLEMENTATION})


async def ready(request: web.Request) -> web.Response:
    """Answers 200 if at least one backend is up and the gateway is not about to stop, else 503."""
    if request.app[LIVENESS].draining:
        return _json({"status": "draining"}, 503)
    up = await request.app[HEALTH].states()
    states = {name: "up" if ok else "down" for name, ok in up.items()}
    any_up = any(up.values())
    state: dict[str, object] = {"status": "ready" if any_up else "unavailable", "backends": states}
    if tools := request.app[VERDICTS].shown():
        state["tools"] = tools
    if templates := request.app[TEMPLATES].shown():
        state["templates"] = templates
    if refused := request.app[HEALTH].refused():
        state["refused"] = refused
    return _json(state, 200 if any_up else 503)


async def metrics_page(request: web.Request) -> web.Response:
    body, content_type = request.app[METRICS].page(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})


async def list_tools(request: web.Request) -> web.Response:
    """Answers with the modules and MCP servers of server-side tools, their states and tools, as this worker knows them
    (R15.2). Empty for a key whose routes have no such tools."""
    key, routes = request.get(API_KEY), request.app[ROUTER].routes
    usable = [route for route in routes if key is None or key.admin or key.may_use(route.config.model)]
    tools = request.app.get(SERVER_TOOLS) if any(route.server_tools for route in usable) else None
    clients = request.app.get(CLIENT_SERVERS) if any(route.client_servers for route in usable) else None
    shown = {"folder": None, "modules": [], "mcp": []} | ({} if tools is None else tools.shown())
    return _json(shown if clients is None else shown | {"from_clients": clients.shown()})
