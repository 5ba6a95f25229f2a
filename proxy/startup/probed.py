"""What probes say of the servers of a configuration: `toolwire check --probe` (R24.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from ..backends.base import Backend
from ..config import GatewayConfig, RouteConfig
from ..configuration.checks import effective_routes
from ..endpoints.pool import Endpoint, WeightedEndpoint, pool_of
from ..endpoints.probing import Probed, probe
from ..errors import GatewayError, quote
from ..registry import Registries

WORDS: Final = {
    "called": "it called the tool by itself (`mode: native`)",
    "refused": "it refuses tools (`mode: prompt`)",
    "silent": "it did not call the tool (`mode: prompt`)",
}


def probed(config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    """A line for each model of each server that a route asks: who has to do tools. Asks the servers."""
    yield from asyncio.run(_lines(config, plugins))


async def _lines(config: GatewayConfig, plugins: Registries) -> list[str]:
    backends: dict[str, Backend] = {
        name: plugins.backends.get(one.kind)(name, one, config.limits) for name, one in config.backends.items()
    }
    endpoints = {name: Endpoint(name, backend, config.backends[name]) for name, backend in backends.items()}
    started: list[Backend] = []
    try:
        for backend in backends.values():
            started.append(backend)
            await backend.start()
        wanted: dict[tuple[str, str], WeightedEndpoint] = {}
        lines = []
        for route in effective_routes(config):
            for member in pool_of(route, endpoints).every:
                try:
                    wanted[member.name, await asked_model(member, route)] = member
                except GatewayError as error:
                    lines.append(f"probe {member.name}: nothing is known: {error.message}")
        found = await asyncio.gather(*(probe(member.endpoint, model) for (_, model), member in wanted.items()))
        return [*dict.fromkeys(lines), *map(_line, wanted, found)]
    finally:
        for backend in started:
            await backend.close()


async def asked_model(member: WeightedEndpoint, route: RouteConfig) -> str:
    """A name under which the server knows the model of a route. Raises `GatewayError` if it cannot say one."""
    named = member.upstream_model or route.upstream_model
    if named is not None or not any(sign in route.model for sign in "*?["):
        return named or route.model
    return next(iter(await member.endpoint.models()), route.model)


def _line(asked: tuple[str, str], found: Probed) -> str:
    name, model = asked
    said = WORDS.get(found.cause or "", "nothing is known")
    return f"probe {name} {quote(model)}: {said}{': ' + found.said if found.said else ''}"
