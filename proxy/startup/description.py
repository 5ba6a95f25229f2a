"""The summary of a configuration for people, for `toolwire check` and the start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..config import EndpointConfig, GatewayConfig, RateLimitConfig, RouteConfig
from ..configuration.checks import effective_routes, has_limits
from ..formats.model_families import format_for
from ..ingress.auth import Keys
from ..registry import Registries
from .chains import chain_of, start_notes

CONTROL_TOKEN: Final = re.compile(r"<[|｜]|\[[A-Z_]+\]")
"""Matches format instructions that use control tokens of the model, and not only words of its vocabulary."""


def describe(config: GatewayConfig, plugins: Registries) -> str:
    """Returns the summary of a valid configuration: address, backends, routes with their middlewares, and what a
    route's format requires of its servers. Contains no key."""
    server = config.server
    workers = f"{server.workers} worker{'s' if server.workers > 1 else ''}"
    keys = Keys.load(config.auth)
    limited = has_limits(config, keys)
    needed = "keys needed" if keys else "no key needed"
    lines = [f"listens on {server.host} port {server.port}, {workers}, {needed}"]
    lines += _limits(config, keys) if limited else ()
    lines += start_notes(config, plugins)
    for name, backend in config.backends.items():
        address = f" at {backend.public_url}" if backend.public_url else ""
        run = f" run as {backend.command[0]}" if backend.command else ""
        lines.append(f"backend {name}: {backend.kind}{address}{run}, preset {backend.preset}")
    for route in effective_routes(config):
        names = ", ".join((route.model, *route.aliases))
        renamed = f" as {route.upstream_model}" if route.upstream_model else ""
        lines.append(f"route {names} -> {_servers(route)}{renamed}: {route.options.mode}, {route.options.format}")
        lines += _hidden_markers(route, config, plugins)
        for who, limit in (("together", route.rate_limit), ("each key", route.rate_limit_per_key)):
            if amounts := _amounts(limit):
                lines.append(f"  {who}: {amounts}")
        chain = chain_of(route, config, plugins, limited=limited)
        lines.append("  " + " > ".join(e.use + (" (skip)" if e.on_failure == "skip" else "") for e in chain))
    return "\n".join(lines)


def _hidden_markers(route: RouteConfig, config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    """Yields a line if a llama.cpp server hides the markers of the route's format."""
    options = route.options
    name: str | None = options.format
    if options.format == "auto":
        name = (route.upstream_model and format_for(route.upstream_model)) or format_for(route.model)
    if options.mode == "native" or name is None:
        return
    tool_format = plugins.formats.get(name)
    if not (tool_format.special_tokens and CONTROL_TOKEN.search(tool_format.instructions)):
        return
    used = {server.backend for server in route.servers}
    for backend in used & config.backends.keys():
        if config.backends[backend].preset == "llamacpp":
            yield f"  {name} is written in control tokens: llama.cpp ({backend}) shows them only if started with --special"


def _limits(config: GatewayConfig, keys: Keys) -> Iterator[str]:
    limits = config.rate_limits
    if limits.store == "redis" or (limits.store == "auto" and limits.url is not None):
        counted = f"in Redis, {limits.on_store_failure} while it is unavailable"
    else:
        counted = "shared by the workers" if config.server.workers > 1 else "in memory"
    yield f"limits are counted {counted}"
    if limits.in_flight:
        yield f"  all clients: {limits.in_flight} in flight"
    if amounts := _amounts(limits.per_key):
        yield f"  each key: {amounts}" if keys else f"  all clients together: {amounts}"
    for key in keys:
        if own := _amounts(key.limit):
            yield f"  key {key.name or key.owner[:8]}: {own}"


def _amounts(limit: RateLimitConfig) -> str:
    words = {"requests_per_min": "requests/min", "tokens_per_min": "tokens/min", "concurrent": "at once"}
    amounts = {word: getattr(limit, name) for name, word in words.items()}
    return ", ".join(f"{amount or 'any number of'} {word}" for word, amount in amounts.items() if amount is not None)


def _servers(route: RouteConfig) -> str:
    """Returns the servers of a route as text."""
    weights = route.balance != "round_robin" and any(entry.weight != 1 for entry in route.members)
    shown = ", ".join(_server(entry, f" x{entry.weight:g}" if weights else "") for entry in route.members)
    by = f" by {route.sticky_by}" if route.balance == "sticky" else ""
    shown = f"{route.balance}{by} ({shown})" if len(route.members) > 1 else shown
    return " else ".join([shown, *(_server(entry) for entry in route.fallback)])


def _server(entry: EndpointConfig, weight: str = "") -> str:
    return f"{entry.backend}{weight}{f' as {entry.upstream_model}' if entry.upstream_model else ''}"
