"""The middlewares of each route, and checks of their order.

Each middleware class describes its own requirements (`Middleware.idle`, `needs`, `asked_for_by`, `start_note`). This
module asks the classes and knows no middleware by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ..config import DEFAULT_CHAIN, ON_DEMAND, GatewayConfig, MiddlewareConfig, RouteConfig
from ..configuration.checks import effective_routes
from ..configuration.mistakes import Mistakes
from ..configuration.settings import read_section
from ..pipeline.chain.middleware import ChainPlace, Middleware
from ..registry import MIDDLEWARES, Registries
from ..support.conversion import ConfigError


def chain_of(
    route: RouteConfig, config: GatewayConfig, plugins: Registries, *, limited: bool
) -> tuple[MiddlewareConfig, ...]:
    """Returns the middlewares of a route. Names and options must be valid. `limited`: a rate limit is set.

    Middlewares without work under this configuration are left out. Middlewares on demand keep their place if the chain
    names them; else they are added outermost if they have work.
    """

    def idle(entry: MiddlewareConfig) -> bool:
        kind = kind_of(entry, plugins)
        return kind is not None and kind.idle(_place(kind, entry, route, config, limited=limited))

    configured = config.chain if route.chain is None else route.chain
    named = {entry.use for entry in configured}
    demanded = tuple(MiddlewareConfig(use=name) for name in ON_DEMAND if name not in named)
    return tuple(entry for entry in (*demanded, *configured) if not idle(entry))


def kind_of(entry: MiddlewareConfig, plugins: Registries) -> type[Middleware] | None:
    """Returns the class of a middleware; None for a plain aiohttp middleware. Raises `ConfigError` if it does not
    exist."""
    plugin = plugins.middlewares.get(entry.use)
    return plugin if isinstance(plugin, type) and issubclass(plugin, Middleware) else None


def chain_mistakes(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Yields the mistakes of chains: middlewares that need others further in, and options whose middleware is not in
    the chain. Middlewares that cannot be imported or have wrong options are skipped: that is another mistake."""
    reported: set[str] = set()
    for route, path, chain, options in _places(config):
        if known.below(path):
            continue
        names = [entry.use for entry in chain]
        for index, entry in enumerate(chain):
            looked_up = _looked_up(entry, route, config, plugins)
            for name, why in () if looked_up is None else looked_up[0].needs(looked_up[1]).items():
                line = f"{path}[{index}]: `{entry.use}` needs `{name}` further in, {why}"
                if name not in names[index + 1 :] and line not in reported:
                    reported.add(line)
                    yield line
        for name in DEFAULT_CHAIN:
            looked_up = None if name in names else _looked_up(MiddlewareConfig(use=name), route, config, plugins)
            key = None if looked_up is None else looked_up[0].asked_for_by(looked_up[1])
            if key is not None:
                yield f"{options}.{key}: needs `{name}` in the chain"


def ineffective_chains(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Yields chains that are valid but cannot work: no middleware calls a server, one is never run or is there twice,
    lacks another one that it works with, or is in the wrong place. Middlewares that cannot be imported are skipped."""
    reported: set[str] = set()
    runs_tools = False
    for route, path, chain, _ in _places(config):
        kinds = [_looked_up(entry, route, config, plugins) for entry in chain]
        runs_tools = runs_tools or any(looked_up is not None and looked_up[0].runs_server_tools for looked_up in kinds)
        if known.below(path):
            continue
        for line in (*_ineffective(path, chain, kinds), *_missed(path, chain, kinds, route, config, plugins)):
            if line not in reported:
                reported.add(line)
                yield line
    if not runs_tools and not known.below("tools", "chain", "routes"):
        yield from _tools_without_runner(config, plugins)


def _ineffective(
    path: str, chain: Sequence[MiddlewareConfig], kinds: Sequence[tuple[type[Middleware], ChainPlace] | None]
) -> Iterator[str]:
    names = [entry.use for entry in chain]
    answering = next(
        (i for i, looked_up in enumerate(kinds) if looked_up is not None and looked_up[0].gives_answer), None
    )
    if answering is not None:
        for name in names[answering + 1 :]:
            yield f"{path}: `{name}` is never run: `{names[answering]}` before it returns the answer"
    elif names and names[-1] in MIDDLEWARES:  # plug-ins do not declare whether they answer
        yield f"{path}: no middleware in it calls a model server; put `{DEFAULT_CHAIN[-1]}` at its end"
    for name in (*ON_DEMAND, *DEFAULT_CHAIN):
        if names[: None if answering is None else answering + 1].count(name) > 1:
            yield f"{path}: `{name}` is there twice"
    idle = {
        name
        for name, looked_up in zip(names, kinds, strict=True)
        if looked_up is not None and looked_up[0].idle(looked_up[1])
    }
    for index, (name, looked_up) in enumerate(zip(names, kinds, strict=True)):
        if looked_up is None or name in idle:
            continue
        for other, why in looked_up[0].goes_with(looked_up[1]).items():
            if other not in names:
                yield f"{path}[{index}]: `{name}` has no effect without `{other}`, {why}"
        for other, why in looked_up[0].stands_behind(looked_up[1]).items():
            if other in names[index + 1 :] and other not in idle:
                yield f"{path}[{index}]: `{name}` must come after `{other}`, {why}"


def _missed(
    path: str,
    chain: Sequence[MiddlewareConfig],
    kinds: Sequence[tuple[type[Middleware], ChainPlace] | None],
    route: RouteConfig,
    config: GatewayConfig,
    plugins: Registries,
) -> Iterator[str]:
    """Yields the middlewares of the default chain without which a chain that calls a server does not do what its route
    is configured for, unless another line says already that they are not there."""
    names = [entry.use for entry in chain]
    if DEFAULT_CHAIN[-1] not in names:
        return
    said = {other for looked_up in kinds if looked_up is not None for other in looked_up[0].goes_with(looked_up[1])}
    for name in DEFAULT_CHAIN:
        if name in names or name in said:
            continue
        looked_up = _looked_up(MiddlewareConfig(use=name), route, config, plugins)
        why = None if looked_up is None else looked_up[0].missed(looked_up[1])
        if why is not None:
            yield f"{path}: lacks `{name}`: {why}"


def _tools_without_runner(config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    for name in DEFAULT_CHAIN:
        looked_up = [_looked_up(MiddlewareConfig(use=name), route, config, plugins) for route, *_ in _places(config)]
        if any(one is not None and one[0].runs_server_tools and not one[0].idle(one[1]) for one in looked_up):
            yield f"chain: lacks `{name}`, which offers and runs the tools of `tools`; no route has it"


def start_notes(config: GatewayConfig, plugins: Registries) -> list[str]:
    """Returns lines about the middlewares for operators. Middlewares that cannot be imported are skipped."""
    used = {entry.use: entry for _, _, chain, _ in _places(config) for entry in chain}
    lines = []
    for name in dict.fromkeys((*DEFAULT_CHAIN, *used)):
        try:
            kind = kind_of(used.get(name, MiddlewareConfig(use=name)), plugins)
        except ConfigError:
            continue
        line = None if kind is None else kind.start_note(config, name in used)
        if line is not None:
            lines.append(line)
    return lines


def _places(config: GatewayConfig) -> Iterator[tuple[RouteConfig, str, tuple[MiddlewareConfig, ...], str]]:
    """Yields each route, the key path of its chain, the chain, and the key path of its options."""
    for index, route in enumerate(effective_routes(config)):
        options = f"routes[{index}].options" if config.routes else "defaults"
        if route.chain is None:
            yield route, "chain", config.chain, options
        else:
            yield route, f"routes[{index}].chain", route.chain, options


def _looked_up(
    entry: MiddlewareConfig, route: RouteConfig, config: GatewayConfig, plugins: Registries
) -> tuple[type[Middleware], ChainPlace] | None:
    """Returns the class of a middleware and its place in the configuration; None if it cannot be imported or has wrong
    options."""
    try:
        kind = kind_of(entry, plugins)
        return None if kind is None else (kind, _place(kind, entry, route, config, limited=False))
    except ConfigError:
        return None


def _place(
    kind: type[Middleware], entry: MiddlewareConfig, route: RouteConfig, config: GatewayConfig, *, limited: bool
) -> ChainPlace:
    options = read_section(kind.Options, entry.options) if dataclasses.is_dataclass(kind.Options) else None
    return ChainPlace(config=config, route=route, limited=limited, options=options)
