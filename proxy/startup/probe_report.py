"""The results of test requests to the servers of a configuration, for `toolwire check --probe` (R24.1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..config import GatewayConfig, RouteConfig
from ..configuration.checks import effective_routes
from ..errors import GatewayError, quote
from ..registry import Registries
from ..upstream.pool.probing import ProbeResult, probe
from ..upstream.pool.server import UpstreamServer
from ..upstream.pool.server_pool import WeightedServer, pool_of
from ..upstream.pool.template_probing import WORDS as TEMPLATE_WORDS
from ..upstream.pool.template_probing import probe_template
from ..upstream.servers.base import Backend
from .template_use import format_of_served

WORDS: Final = {
    "called": "it called the tool by itself (`mode: native`)",
    "refused": "it refuses tools (`mode: prompt`)",
    "silent": "it did not call the tool (`mode: prompt`)",
}


def probe_lines(config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    """Yields a line for each model of each server that a route uses: whether the server or the gateway handles tools.
    Sends requests to the servers."""
    yield from asyncio.run(_lines(config, plugins))


async def _lines(config: GatewayConfig, plugins: Registries) -> list[str]:
    backends: dict[str, Backend] = {
        name: plugins.backends.get(one.kind)(name, one, config.limits) for name, one in config.backends.items()
    }
    endpoints = {name: UpstreamServer(name, backend, config.backends[name]) for name, backend in backends.items()}
    started: list[Backend] = []
    try:
        for backend in backends.values():
            started.append(backend)
            await backend.start()
        wanted: dict[tuple[str, str], WeightedServer] = {}
        lines = []
        for route in effective_routes(config):
            for member in pool_of(route, endpoints).every:
                try:
                    wanted[member.name, await known_model_name(member, route)] = member
                except GatewayError as error:
                    lines.append(f"probe {member.name}: no result: {error.message}")
        several = (_probes(member.endpoint, model, plugins) for (_, model), member in wanted.items())
        results = await asyncio.gather(*several)
        return [*dict.fromkeys(lines), *(line for each in results for line in each)]
    finally:
        for backend in started:
            await backend.close()


async def known_model_name(member: WeightedServer, route: RouteConfig) -> str:
    """Returns a name under which the server knows the model of a route. Raises `GatewayError` if its models cannot be
    listed."""
    named = member.upstream_model or route.upstream_model
    if named is not None or not any(sign in route.model for sign in "*?["):
        return named or route.model
    return next(iter(await member.endpoint.models()), route.model)


async def _probes(endpoint: UpstreamServer, model: str, plugins: Registries) -> list[str]:
    """Returns the lines about a model: whether it calls a tool by itself, and, if its family is known, whether its chat
    template can describe tools."""
    if endpoint.reports_identity:
        with contextlib.suppress(GatewayError):
            endpoint.learn(await endpoint.identify())
    lines = [_line(endpoint.name, model, await probe(endpoint, model), WORDS)]
    tool_format = format_of_served(endpoint, model, plugins)
    if tool_format is not None:
        probed = await probe_template(endpoint, model, special_tokens=tool_format.special_tokens)
        lines.append(_line(endpoint.name, model, probed, TEMPLATE_WORDS))
    return lines


def _line(name: str, model: str, probed: ProbeResult, words: Mapping[Any, str]) -> str:
    result = words.get(probed.cause, "no result")
    return f"probe {name} {quote(model)}: {result}{': ' + probed.said if probed.said else ''}"
