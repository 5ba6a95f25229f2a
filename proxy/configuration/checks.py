"""What the types of the configuration cannot say: bounds, names that exist, templates, keys, who can reach the port.

Needs nothing but the configuration, and looks at the files that it names. Names of plug-ins: `proxy.startup.names`.

Sources: R5.4 (templates), R17.2 (messages), R17.8 (keys).
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..backends.mock import read_script
from ..config import (
    CorsConfig,
    GatewayConfig,
    MiddlewareConfig,
    PromptConfig,
    RateLimit,
    RouteConfig,
    RouteOptions,
    TargetConfig,
)
from ..formats.families import format_for
from ..ingress.auth import ApiKey, Keys, key_mistakes, owner_of, read_keys
from ..prompting.prompt import check_template
from ..registry import SERVER_PROTOCOLS, Registries
from ..store.opening import described
from ..support.conversion import ConfigError, join, suggestion
from ..support.plainyaml import read_yaml
from .mistakes import Mistakes

BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "server.port": (0, 65535),
    "server.workers": (1, 1024),
    "tools.threads": (1, 1024),
    "tools.coroutines": (1, 65535),
}
"""Least and greatest value. Every other number of the configuration is at least 0."""

REASK: Final = "reask"
"""The middleware that asks the model again."""

JUDGE: Final = "arguments"
"""The middleware that says when."""

KEEPING: Final = "conversation"
"""The middleware that stores conversations."""

LIMITING: Final = "rate_limit"
"""The middleware that holds requests against the limits."""

CONTROL_TOKEN: Final = re.compile(r"<[|｜]|\[[A-Z_]+\]")
"""What a format's instructions hold if it is written in control tokens of its model, and not just in words of its vocabulary."""


def check_values(config: GatewayConfig) -> None:
    """Raise `ConfigError` with every mistake that can be seen without importing a plug-in."""
    problems = list(value_mistakes(config, Mistakes()))
    if problems:
        raise ConfigError(*problems)


def describe(config: GatewayConfig, plugins: Registries | None = None) -> str:
    """What a configuration amounts to, for people: where it listens, the routes and their chains. No key is in it. With `plugins`
    also what a route's format needs of its servers."""
    server = config.server
    workers = f"{server.workers} worker{'s' if server.workers > 1 else ''}"
    keys = Keys.load(config.auth)
    limited = has_limits(config, keys)
    needed = "keys needed" if keys else "no key needed"
    lines = [f"listens on {server.host} port {server.port}, {workers}, {needed}"]
    lines += _limits(config, keys) if limited else ()
    lines.append(conversations(config))
    for name, backend in config.backends.items():
        url = urlsplit(backend.url or "")
        address = f" at {url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}" if backend.url else ""
        lines.append(f"backend {name}: {backend.kind}{address}, preset {backend.preset}")
    for route in effective_routes(config):
        names = ", ".join((route.model, *route.aliases))
        renamed = f" as {route.upstream_model}" if route.upstream_model else ""
        lines.append(f"route {names} -> {_servers(route)}{renamed}: {route.options.mode}, {route.options.format}")
        if plugins is not None:
            lines += _hidden_markers(route, config, plugins)
        for who, limit in (("together", route.rate_limit), ("each key", route.rate_limit_per_key)):
            if amounts := _amounts(limit):
                lines.append(f"  {who}: {amounts}")
        chain = chain_of(route, config, limited=limited)
        lines.append("  " + " > ".join(e.use + (" (skip)" if e.on_failure == "skip" else "") for e in chain))
    return "\n".join(lines)


def conversations(config: GatewayConfig) -> str:
    """Where conversations are stored, in words."""
    chains = [config.chain if route.chain is None else route.chain for route in effective_routes(config)]
    if not any(entry.use == KEEPING for chain in chains for entry in chain):
        return f"conversations are not stored: no chain has `{KEEPING}`"
    return described(config.store, config.server.workers)


def _hidden_markers(route: RouteConfig, config: GatewayConfig, plugins: Registries) -> Iterator[str]:
    """That a llama.cpp server leaves out what the route's format looks for."""
    options = route.options
    name: str | None = options.format
    if options.format == "auto":
        name = (route.upstream_model and format_for(route.upstream_model)) or format_for(route.model)
    if options.mode == "native" or name is None:
        return
    found = plugins.formats.get(name)
    if not (found.special_tokens and CONTROL_TOKEN.search(found.instructions)):
        return
    used = {entry.backend for entry in (*route.backends, *route.fallback)} | {route.backend}
    for backend in used & config.backends.keys():
        if config.backends[backend].preset == "llamacpp":
            yield f"  {name} is written in control tokens: llama.cpp ({backend}) shows them only if started with --special"


def _limits(config: GatewayConfig, keys: Keys) -> Iterator[str]:
    limits = config.rate_limits
    if limits.store == "redis" or (limits.store == "auto" and limits.url is not None):
        counted = f"in Redis, {limits.on_store_failure} while it is away"
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


def _amounts(limit: RateLimit) -> str:
    words = {"requests_per_min": "requests/min", "tokens_per_min": "tokens/min", "concurrent": "at once"}
    given = {word: getattr(limit, name) for name, word in words.items()}
    return ", ".join(f"{amount or 'any number of'} {word}" for word, amount in given.items() if amount is not None)


def _servers(route: RouteConfig) -> str:
    """The servers of a route, in words."""
    if not route.backends:
        shown = route.backend
    else:
        weights = route.balance != "round_robin" and any(entry.weight != 1 for entry in route.backends)
        shown = ", ".join(_server(entry, f" x{entry.weight:g}" if weights else "") for entry in route.backends)
        by = f" by {route.sticky_by}" if route.balance == "sticky" else ""
        shown = f"{route.balance}{by} ({shown})" if len(route.backends) > 1 else shown
    return " else ".join([shown, *(_server(entry) for entry in route.fallback)])


def _server(entry: TargetConfig, weight: str = "") -> str:
    return f"{entry.backend}{weight}{f' as {entry.upstream_model}' if entry.upstream_model else ''}"


def effective_routes(config: GatewayConfig) -> tuple[RouteConfig, ...]:
    """The routes; without any, one that takes every model to the only backend (or the one called `default`)."""
    if config.routes:
        return config.routes
    name = next(iter(config.backends)) if len(config.backends) == 1 else "default"
    return (RouteConfig(backend=name, options=config.defaults),)


def has_limits(config: GatewayConfig, keys: Iterable[ApiKey]) -> bool:
    """Whether any use is limited."""
    limits = [config.rate_limits.per_key, *(key.limit for key in keys)]
    limits += [limit for route in config.routes for limit in (route.rate_limit, route.rate_limit_per_key)]
    return bool(config.rate_limits.in_flight) or any(
        limit.requests_per_min or limit.tokens_per_min or limit.concurrent for limit in limits
    )


def chain_of(route: RouteConfig, config: GatewayConfig, *, limited: bool) -> tuple[MiddlewareConfig, ...]:
    """The chain of a route. Where use is `limited`, no chain goes without `rate_limit`: it comes first unless it has a place.

    Built-ins that have nothing to do under this configuration are left out: each would cost a little, and `execution` would keep
    streams out of the fast path.
    """
    idle = set()
    if config.tools.folder is None:
        idle.add("execution")
    if not route.options.loop_detect.repeats and config.limits.calls_per_conversation is None:
        idle.add("loop_detection")
    if not asks_again(route.options):
        idle.add(REASK)
    given = config.chain if route.chain is None else route.chain
    chain = tuple(entry for entry in given if entry.use not in idle)
    if limited and all(entry.use != LIMITING for entry in chain):
        return (MiddlewareConfig(use=LIMITING), *chain)
    return chain


def asks_again(options: RouteOptions) -> bool:
    """Whether the model may be asked again after a bad answer (R9.8, R23.4)."""
    return options.reask != 0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. Names other than `localhost` count as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def value_mistakes(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    """What is wrong, but for what follows from mistakes that are known."""
    yield from _numbers(config, "")
    yield from _backends(config, known)
    yield from _routes(config, known)
    yield from _template(config.defaults.prompt, "defaults.prompt")
    yield from _tries(config.defaults, "defaults")
    for index, route in enumerate(config.routes):
        if route.options.retry != config.defaults.retry:
            yield from _tries(route.options, f"routes[{index}].options")
        if route.options.prompt != config.defaults.prompt:
            yield from _template(route.options.prompt, f"routes[{index}].options.prompt")
    yield from _access(config, known)
    yield from _origins(config.cors)
    yield from _places(config)


def _numbers(node: Any, path: str) -> Iterator[str]:
    """Numbers out of bounds. What is not a dataclass, such as the options of plug-ins, has its own rules."""
    if dataclasses.is_dataclass(node):
        for f in dataclasses.fields(node):
            yield from _numbers(getattr(node, f.name), join(path, f.name))
    elif isinstance(node, Mapping):
        for key, item in node.items():
            if dataclasses.is_dataclass(item):
                yield from _numbers(item, join(path, key))
    elif isinstance(node, tuple):
        for index, item in enumerate(node):
            if dataclasses.is_dataclass(item):
                yield from _numbers(item, f"{path}[{index}]")
    elif isinstance(node, int | float) and not isinstance(node, bool):
        least, most = BOUNDS.get(path, (0, None))
        if node < least or (most is not None and node > most):
            yield f"{path}: expected {f'{least} to {most}' if most is not None else f'at least {least}'}, got {node}"


def _backends(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    if not config.backends:
        yield "backends: at least one is needed, such as {main: {url: 'http://127.0.0.1:8000/v1'}}"
    for name, backend in config.backends.items():
        path = f"backends.{name}.url"
        if backend.url is None:
            if backend.kind in SERVER_PROTOCOLS and not known.at(f"backends.{name}.kind"):
                yield f"{path}: required for the kind {backend.kind!r}"
            continue
        try:
            url = urlsplit(backend.url)
            fine = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            fine = False
        if not fine:
            # Not quoted: the address may hold a password.
            yield f"{path}: expected an address such as 'http://127.0.0.1:8000/v1'"


def _routes(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    if not config.chain:
        yield "chain: must not be empty"
    if not config.routes and len(config.backends) > 1 and "default" not in config.backends:
        yield "routes: needed when there are several backends and none is called 'default'"
    if not config.routes and not known.below("chain"):
        yield from _judged(config.defaults, config.chain, "defaults")
    taken: dict[str, str] = {}
    for index, route in enumerate(config.routes):
        path = f"routes[{index}]"
        if not known.at("backends"):
            yield from _servers_of(config, route, path)
        if route.chain is not None and not route.chain:
            yield f"{path}.chain: must not be empty"
        if not known.below("chain" if route.chain is None else f"{path}.chain"):
            yield from _judged(route.options, config.chain if route.chain is None else route.chain, f"{path}.options")
        names = {f"{path}.model": route.model} | {f"{path}.aliases[{i}]": a for i, a in enumerate(route.aliases)}
        for where, name in names.items():
            if not name:
                yield f"{where}: must not be empty"
            elif name in taken:
                yield f"{where}: {name!r} is already taken by {taken[name]}"
            taken.setdefault(name, where)


def _judged(options: RouteOptions, chain: tuple[MiddlewareConfig, ...], path: str) -> Iterator[str]:
    uses = [entry.use for entry in chain]
    wanted = options.reask or (options.reask is None and options.choice_miss == "reask")
    if wanted and not (REASK in uses and JUDGE in uses[uses.index(REASK) :]):
        yield f"{path}.reask: needs `{REASK}` in the chain, and behind it `{JUDGE}`, which says what a bad answer is"


def _tries(options: RouteOptions, path: str) -> Iterator[str]:
    if options.retry.attempts < 1:
        yield f"{path}.retry.attempts: expected at least 1, the first try counts, got {options.retry.attempts}"


def _servers_of(config: GatewayConfig, route: RouteConfig, path: str) -> Iterator[str]:
    named: dict[str, str] = {} if route.backends else {f"{path}.backend": route.backend}
    for key, entries in (("backends", route.backends), ("fallback", route.fallback)):
        named |= {f"{path}.{key}[{index}]": entry.backend for index, entry in enumerate(entries)}
    for index, entry in enumerate(route.backends):
        if not entry.weight:
            yield f"{path}.backends[{index}].weight: must be above 0"
    taken: dict[str, str] = {}
    for where, name in named.items():
        if name not in config.backends:
            yield f"{where}: no backend {name!r}{suggestion(name, config.backends)}"
        elif name in taken:
            yield f"{where}: {name!r} is already taken by {taken[name]}"
        taken.setdefault(name, where)
    if route.backends and route.backend not in (next(iter(config.backends), None), "default"):
        yield f"{path}.backend: give either `backend` or `backends`"


def _template(prompt: PromptConfig, path: str) -> Iterator[str]:
    template, where = prompt.template, f"{path}.template"
    if prompt.template_file is not None:
        where += "_file"
        if template is not None:
            yield f"{where}: give either `template` or `template_file`"
            return
        try:
            template = Path(prompt.template_file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            yield f"{where}: cannot read {prompt.template_file}: {getattr(error, 'strerror', None) or error}"
            return
    if template is not None:
        missing = check_template(template)
        if missing:
            yield f"{where}: the template lacks {', '.join(missing)}"


def _access(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    keys = list(config.auth.keys)
    unread = known.below("auth")
    try:
        keys += read_keys(Path(config.auth.keys_file)) if config.auth.keys_file is not None else ()
    except ConfigError as error:
        unread = True
        yield from (f"auth.keys_file: {problem}" for problem in error.problems)
    except (OSError, ValueError) as error:
        unread = True
        cannot = f"cannot read {config.auth.keys_file}: " if isinstance(error, OSError) else ""
        yield f"auth.keys_file: {cannot}{getattr(error, 'strerror', None) or error}"
    yield from key_mistakes(keys)
    models = [route.model for route in effective_routes(config)]
    for key in keys if not known.below("routes") else ():
        for model in sorted(set(key.routes or ()) - set(models)):
            yield f"auth: the key {key.name or owner_of(key.key)[:8]!r}: no route {model!r}{suggestion(model, models)}"
    limits = config.rate_limits
    if limits.store == "memory" and config.server.workers > 1:
        yield "rate_limits.store: counts in memory are of one worker; use `auto`, which lets all workers share them"
    if limits.timeout_s <= 0:
        yield f"rate_limits.timeout_s: expected more than 0, got {limits.timeout_s}"
    open_to_all = not unread and not any(key.key for key in keys)
    if open_to_all and not config.server.insecure_public and not is_loopback(config.server.host):
        yield (
            f"server.host: {config.server.host!r} can be reached by others and no key is set; "
            "set `auth.keys`, or allow it with `server.insecure_public: true` (--insecure-public)"
        )


def _origins(cors: CorsConfig) -> Iterator[str]:
    for index, origin in enumerate(cors.origins):
        try:
            url = urlsplit(origin)
            fine = origin == "*" or (bool(url.hostname) and origin == f"{url.scheme}://{url.netloc}" == origin.lower())
        except ValueError:
            fine = False
        if not fine or "@" in origin:
            yield f"cors.origins[{index}]: expected an origin such as 'https://chat.example.org', or '*', got {origin!r}"


def _places(config: GatewayConfig) -> Iterator[str]:
    """Files and folders that are not what they must be."""
    if config.tools.folder is not None and not Path(config.tools.folder).is_dir():
        yield f"tools.folder: there is no folder {config.tools.folder!r}"
    if config.store.kind == "sqlite" and config.store.path is not None:
        path = Path(config.store.path)
        if path.is_dir():
            yield f"store.path: {config.store.path} is a folder; give a file"
        else:
            yield from _folder(path.parent, "store.path")
    for name, backend in config.backends.items():
        if backend.kind == "mock" and isinstance(backend.script, str):
            yield from _script(backend.script, f"backends.{name}.script")
    if config.capture.keep and config.capture.folder is not None:
        yield from _folder(Path(config.capture.folder), "capture.folder")


def _folder(folder: Path, path: str) -> Iterator[str]:
    """What is wrong with a folder that is made when it is needed."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        yield f"{path}: {there} is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        yield f"{path}: {there} cannot be written to"


def _script(file: str, path: str) -> Iterator[str]:
    try:
        read_script(read_yaml(Path(file).read_text("utf-8"))[0])
    except (OSError, ValueError) as error:
        yield f"{path}: cannot read {file}: {getattr(error, 'strerror', None) or error}"
