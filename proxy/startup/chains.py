"""Which middlewares a route has, and whether they stand where they must.

What there is to know of a middleware its class says (`Middleware.idle`, `needs`, `asked_for_by`, `told`), so this asks
the classes, built in or not, and knows none of them by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from toolwire.config import DEFAULT_CHAIN, ON_DEMAND, GatewayConfig, MiddlewareConfig, RouteConfig
from toolwire.configuration.checks import effective_routes
from toolwire.configuration.mistakes import Mistakes
from toolwire.configuration.settings import read_section
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.registry import MIDDLEWARES, Registries
from toolwire.support.conversion import ConfigError


def chain_of(
    route: RouteConfig, config: GatewayConfig, plugins: Registries, *, limited: bool
) -> tuple[MiddlewareConfig, ...]:
    """The chain of a route, whose names and options are known to be right. `limited`: some use is.

    Middlewares that have nothing to do under this configuration are left out. Those on demand have their place where
    the chain names them, else, where they have something to do, outermost: no chain goes without.
    """

    def idle(entry: MiddlewareConfig) -> bool:
        kind = kind_of(entry, plugins)
        return kind is not None and kind.idle(_place(kind, entry, route, config, limited=limited))

    given = config.chain if route.chain is None else route.chain
    named = {entry.use for entry in given}
    demanded = tuple(MiddlewareConfig(use=name) for name in ON_DEMAND if name not in named)
    return tuple(entry for entry in (*demanded, *given) if not idle(entry))


def kind_of(entry: MiddlewareConfig, plugins: Registries) -> type[Middleware] | None:
    """The class of a middleware; None for a plain aiohttp middleware, which says nothing of itself. Raises
    `ConfigError`."""
    found = plugins.middlewares.get(entry.use)
    return found if isinstance(found, type) and issubclass(found, Middleware) else None


def chain_mistakes(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Middlewares that lack others further in, and options whose middleware is not in the chain. What cannot be looked
    up, or has wrong options, is not asked: that is another mistake."""
    told: set[str] = set()
    for route, path, chain, options in _places(config):
        if known.below(path):
            continue
        names = [entry.use for entry in chain]
        for index, entry in enumerate(chain):
            asked = _asked(entry, route, config, plugins)
            for name, why in () if asked is None else asked[0].needs(asked[1]).items():
                line = f"{path}[{index}]: `{entry.use}` needs `{name}` further in, {why}"
                if name not in names[index + 1 :] and line not in told:
                    told.add(line)
                    yield line
        for name in DEFAULT_CHAIN:
            asked = None if name in names else _asked(MiddlewareConfig(use=name), route, config, plugins)
            key = None if asked is None else asked[0].asked_for_by(asked[1])
            if key is not None:
                yield f"{options}.{key}: needs `{name}` in the chain"


def useless_chains(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Chains that can be put together and cannot work: nothing in them asks a server, something is never run or twice
    there, lacks what it works with, or stands where it sees the wrong thing. What cannot be looked up is not asked."""
    told: set[str] = set()
    runs_tools = False
    for route, path, chain, _ in _places(config):
        kinds = [_asked(entry, route, config, plugins) for entry in chain]
        runs_tools = runs_tools or any(asked is not None and asked[0].runs_server_tools for asked in kinds)
        if known.below(path):
            continue
        for line in _useless(path, chain, kinds):
            if line not in told:
                told.add(line)
                yield line
    if not runs_tools and not known.below("tools", "chain", "routes"):
        yield from _tools_nobody_runs(config, plugins)


def _useless(
    path: str, chain: Sequence[MiddlewareConfig], kinds: Sequence[tuple[type[Middleware], ChainPlace] | None]
) -> Iterator[str]:
    names = [entry.use for entry in chain]
    answering = next((i for i, asked in enumerate(kinds) if asked is not None and asked[0].gives_answer), None)
    if answering is not None:
        for name in names[answering + 1 :]:
            yield f"{path}: `{name}` is never run: `{names[answering]}`, which stands before it, gives the answer"
    elif names and names[-1] in MIDDLEWARES:  # of others nobody knows whether they answer
        yield f"{path}: nothing in it asks a model server; put `{DEFAULT_CHAIN[-1]}` at its end"
    for name in (*ON_DEMAND, *DEFAULT_CHAIN):
        if names[: None if answering is None else answering + 1].count(name) > 1:
            yield f"{path}: `{name}` is there twice"
    idle = {name for name, asked in zip(names, kinds, strict=True) if asked is not None and asked[0].idle(asked[1])}
    for index, (name, asked) in enumerate(zip(names, kinds, strict=True)):
        if asked is None or name in idle:
            continue
        for other, why in asked[0].goes_with(asked[1]).items():
            if other not in names:
                yield f"{path}[{index}]: `{name}` is of no use without `{other}`, {why}"
        for other, why in asked[0].stands_behind(asked[1]).items():
            if other in names[index + 1 :] and other not in idle:
                yield f"{path}[{index}]: `{name}` must stand behind `{other}`, {why}"


def _tools_nobody_runs(config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    for name in DEFAULT_CHAIN:
        asked = [_asked(MiddlewareConfig(use=name), route, config, plugins) for route, *_ in _places(config)]
        if any(one is not None and one[0].runs_server_tools and not one[0].idle(one[1]) for one in asked):
            yield f"chain: lacks `{name}`, which offers and runs the tools of `tools`; no route has it"


def told(config: GatewayConfig, plugins: Registries) -> list[str]:
    """What an operator should know of the middlewares. What cannot be looked up says nothing."""
    used = {entry.use: entry for _, _, chain, _ in _places(config) for entry in chain}
    lines = []
    for name in dict.fromkeys((*DEFAULT_CHAIN, *used)):
        try:
            kind = kind_of(used.get(name, MiddlewareConfig(use=name)), plugins)
        except ConfigError:
            continue
        line = None if kind is None else kind.told(config, name in used)
        if line is not None:
            lines.append(line)
    return lines


def _places(config: GatewayConfig) -> Iterator[tuple[RouteConfig, str, tuple[MiddlewareConfig, ...], str]]:
    """Each route with its chain: where the chain stands in the file, the chain, and where the route's options stand."""
    for index, route in enumerate(effective_routes(config)):
        options = f"routes[{index}].options" if config.routes else "defaults"
        if route.chain is None:
            yield route, "chain", config.chain, options
        else:
            yield route, f"routes[{index}].chain", route.chain, options


def _asked(
    entry: MiddlewareConfig, route: RouteConfig, config: GatewayConfig, plugins: Registries
) -> tuple[type[Middleware], ChainPlace] | None:
    """The class of a middleware and its place, to be asked; None if it cannot be."""
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
