"""Checks of the configuration that its types cannot express: bounds, names, templates, keys, access to the port.

They need only the configuration and the files that it names. Names of plug-ins, and the plug-ins' own checks, are in
`toolwire.startup`.

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

from ..config import BackendConfig, CorsConfig, GatewayConfig, PromptConfig, RouteConfig, RouteOptions
from ..ingress.auth import ApiKey, key_mistakes, owner_of, read_keys
from ..prompting.prompt import check_template
from ..registry import SERVER_PROTOCOLS, usual_server
from ..support.conversion import ConfigError, join, suggestion
from ..support.environment import NO_TOOLS, has_groups
from ..support.folders import why_unusable
from ..support.plainyaml import read_yaml
from ..upstream.client.connections import check_header
from ..upstream.servers.mock import read_script
from ..upstream.servers.presets import AUTO, CONSTRAINTS, PRESETS
from .mcp_checks import HEADER_NAME, is_address, mcp_mistakes
from .mistakes import Mistakes

SECRET_CHARS: Final = 32
"""A shorter secret could be guessed."""
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "server.port": (0, 65535),
    "server.workers": (1, 1024),
    "server.access_share": (0, 1),
    "tools.processes": (1, 1024),
    "tools.memory_bytes": (64 * 1024 * 1024, 2**63 - 1),
    "store.conversation_items": (1, 2**63 - 1),
    "store.conversation_bytes": (1, 2**63 - 1),
    "background.per_key": (1, 65535),
    "background.total": (1, 65535),
    "background.lease_s": (1, 2**63 - 1),
}
"""Least and greatest value. All other numbers of the configuration must be at least 0."""

CODEX: Final = "codex_app_server"
"""A kind of backend whose servers do not have an HTTP address."""


PATH: Final = re.compile(r"(?:/[\w.-]+)+")


def check_values(config: GatewayConfig) -> None:
    """Raises `ConfigError` with every mistake that can be found without importing a plug-in."""
    problems = list(value_mistakes(config, Mistakes()))
    if problems:
        raise ConfigError(*problems)


def effective_routes(config: GatewayConfig) -> tuple[RouteConfig, ...]:
    """Returns the routes; without any, one route from every model to the only backend (or to the one called
    `default`)."""
    if config.routes:
        return config.routes
    name = next(iter(config.backends)) if len(config.backends) == 1 else "default"
    return (RouteConfig(backend=name, options=config.defaults),)


def routes_by_path(config: GatewayConfig) -> Iterator[tuple[str, RouteConfig]]:
    """Yields each effective route after the key path of its options."""
    for index, route in enumerate(effective_routes(config)):
        yield f"routes[{index}].options" if config.routes else "defaults", route


def names_by_path(route: RouteConfig, path: str) -> dict[str, str]:
    """Returns the names of the route at `path`, by key path."""
    return {f"{path}.model": route.model} | {f"{path}.aliases[{i}]": name for i, name in enumerate(route.aliases)}


def has_limits(config: GatewayConfig, keys: Iterable[ApiKey]) -> bool:
    """Returns True if any rate limit is set."""
    limits = [config.rate_limits.per_key, *(key.limit for key in keys)]
    limits += [limit for route in config.routes for limit in (route.rate_limit, route.rate_limit_per_key)]
    return bool(config.rate_limits.in_flight) or any(
        limit.requests_per_min or limit.tokens_per_min or limit.concurrent for limit in limits
    )


def is_loopback(host: str) -> bool:
    """Returns True if only this machine can reach the address. Names other than `localhost` count as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def value_mistakes(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    """Yields the mistakes in the values, except those that follow from mistakes already known."""
    yield from _numbers(config, "")
    yield from _backends(config, known)
    yield from _routes(config, known)
    yield from _template(config.defaults.prompt, "defaults.prompt")
    yield from _tries(config.defaults, "defaults")
    yield from _thinking(config.defaults, "defaults")
    for index, route in enumerate(config.routes):
        if route.options.retry != config.defaults.retry:
            yield from _tries(route.options, f"routes[{index}].options")
        if route.options.reasoning != config.defaults.reasoning:
            yield from _thinking(route.options, f"routes[{index}].options")
        if route.options.prompt != config.defaults.prompt:
            yield from _template(route.options.prompt, f"routes[{index}].options.prompt")
    if not known.at("backends"):
        yield from _native_text(config)
    yield from _access(config, known)
    yield from _origins(config.cors)
    for index, path in enumerate(config.server.pass_through):
        if not PATH.fullmatch(path):
            yield f"server.pass_through[{index}]: expected a path such as '/v1/embeddings', got {path!r}"
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is not None and not is_address(endpoint):
        yield "telemetry.otlp_endpoint: expected an address such as 'http://127.0.0.1:4318'"
    yield from _places(config)
    yield from mcp_mistakes(config.tools)


def _numbers(node: Any, path: str) -> Iterator[str]:
    """Yields numbers out of bounds. Looks only into dataclasses, because options of plug-ins have their own rules."""
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
        if backend.kind == CODEX:
            yield from _codex(backend, f"backends.{name}")
            continue
        if backend.command:
            yield f"backends.{name}.command: only the kind {CODEX!r} runs a program"
        path = f"backends.{name}.url"
        yield from _headers(backend, f"backends.{name}")
        yield from _chat_template(backend, f"backends.{name}.template")
        if backend.kind in SERVER_PROTOCOLS:
            yield from _profile(backend, f"backends.{name}")
        if backend.websocket and backend.kind in SERVER_PROTOCOLS and not usual_server(backend.kind).takes_websocket:
            yield f"backends.{name}.websocket: only servers of `kind: openai_responses` have it"
        if backend.url is None:
            if backend.kind in SERVER_PROTOCOLS and not known.at(f"backends.{name}.kind"):
                yield f"{path}: required for the kind {backend.kind!r}"
            continue
        if not is_address(backend.url):
            # Not quoted, because the address may contain a password.
            yield f"{path}: expected an address such as 'http://127.0.0.1:8000/v1'"


def _headers(backend: BackendConfig, path: str) -> Iterator[str]:
    """Yields a mistake for each header that cannot be sent."""
    fields = {f"{path}.headers": backend.headers}
    if backend.api_key is not None:
        fields[f"{path}.api_key"] = {"Authorization": backend.api_key}
    for where, headers in fields.items():
        for name, value in headers.items():
            try:
                check_header(name, value)
            except ValueError as error:
                yield f"{where}: {error}"


def _chat_template(backend: BackendConfig, path: str) -> Iterator[str]:
    if backend.template is None or backend.kind not in SERVER_PROTOCOLS:
        return
    wire = usual_server(backend.kind)
    if not wire.takes_template:
        yield f"{path}: a server of the kind {backend.kind!r} uses its own template"
        return
    try:
        wire.configured(backend)
    except ValueError as error:
        yield f"{path}: {error}"


def _profile(backend: BackendConfig, path: str) -> Iterator[str]:
    """Yields a mistake for an unknown preset, and for an unknown constraint."""
    if backend.preset not in (AUTO, *PRESETS):
        yield f"{path}.preset: unknown preset {backend.preset!r}{suggestion(backend.preset, (AUTO, *PRESETS))}"
    if backend.constrain is not None and backend.constrain not in CONSTRAINTS:
        yield f"{path}.constrain: unknown constraint {backend.constrain!r}{suggestion(backend.constrain, CONSTRAINTS)}"


def _codex(backend: BackendConfig, path: str) -> Iterator[str]:
    """Yields the mistakes of an app-server's options: a process with its environment, or an address with its key."""
    if backend.command and backend.url is not None:
        yield f"{path}.command: give either `command` or `url`"
    elif backend.command:
        if backend.api_key is not None or backend.headers:
            yield f"{path}: `api_key` and `headers` go to a `url`; variables for the process belong in `codex.env`"
        if not backend.command[0]:
            yield f"{path}.command: expected a program and its arguments, such as [codex, app-server]"
    elif backend.url is None:
        yield f"{path}: needs `command: [codex, app-server]`, or the `url` of a server"
    elif not is_address(backend.url, ("ws", "wss")):
        yield f"{path}.url: expected an address such as 'ws://127.0.0.1:4500'"


def _routes(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    if not config.chain:
        yield "chain: must not be empty"
    if not config.routes and len(config.backends) > 1 and "default" not in config.backends:
        yield "routes: needed when there are several backends and none is called 'default'"
    taken: dict[str, str] = {}
    for index, route in enumerate(config.routes):
        path = f"routes[{index}]"
        if not known.at("backends"):
            yield from _servers_of(config, route, path)
        if route.chain is not None and not route.chain:
            yield f"{path}.chain: must not be empty"
        if route.upstream_model == "":
            yield f"{path}.upstream_model: must not be empty; null sends the client's name"
        if route.sticky_by != "prompt" and not HEADER_NAME.fullmatch(route.sticky_by):
            yield f"{path}.sticky_by: expected `prompt` or the name of a request header, got {route.sticky_by!r}"
        for where, name in names_by_path(route, path).items():
            if not name:
                yield f"{where}: must not be empty"
            elif name in taken:
                yield f"{where}: {name!r} is already taken by {taken[name]}"
            taken.setdefault(name, where)


def _native_text(config: GatewayConfig) -> Iterator[str]:
    """Yields a mistake if a route leaves tools to a server whose protocol cannot carry them."""
    for path, route in routes_by_path(config) if config.backends else ():
        for name in (server.backend for server in route.servers):
            backend = config.backends.get(name)
            mode = route.options.mode
            if mode == "template" and backend is not None and backend.kind == "codex_app_server":
                yield f"{path}.mode: 'template' is not for the kind 'codex_app_server', which parses calls itself; expected 'prompt' or 'native'"
                break
            if mode not in ("native", "template") or backend is None or backend.kind not in SERVER_PROTOCOLS:
                continue
            if not usual_server(backend.kind).takes_tools:
                yield (
                    f"{path}.mode: {mode!r} sends tools to the server, but the kind {backend.kind!r} cannot carry them;"
                    " expected 'prompt'"
                )
                break


def _tries(options: RouteOptions, path: str) -> Iterator[str]:
    if options.retry.attempts < 1:
        yield f"{path}.retry.attempts: expected at least 1, the first try counts, got {options.retry.attempts}"


def _thinking(options: RouteOptions, path: str) -> Iterator[str]:
    tags = options.reasoning.tags
    if tags is not None and not all(tags):
        yield f"{path}.reasoning.tags: a tag must not be empty; null turns detection off"


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
        unreadable = isinstance(error, OSError | UnicodeDecodeError)
        cannot = f"cannot read {config.auth.keys_file}: " if unreadable else ""
        yield f"auth.keys_file: {cannot}{getattr(error, 'strerror', None) or error}"
    yield from key_mistakes(keys)
    models = [route.model for route in effective_routes(config)]
    for key in keys if not known.below("routes") else ():
        for model in sorted(set(key.routes or ()) - set(models)):
            yield f"auth: the key {key.name or owner_of(key.key)[:8]!r}: no route {model!r}{suggestion(model, models)}"
    secret = config.server.secret
    if secret is not None and len(secret) < SECRET_CHARS:
        yield f"server.secret: expected at least {SECRET_CHARS} characters, got {len(secret)}; `openssl rand -hex 32` makes one"
    limits = config.rate_limits
    if limits.store == "memory" and config.server.workers > 1:
        yield "rate_limits.store: counts in memory are of one worker; use `auto`, which lets all workers share them"
    if limits.timeout_s <= 0:
        yield f"rate_limits.timeout_s: expected more than 0, got {limits.timeout_s}"
    open_to_all = not unread and not any(key.key for key in keys)
    if open_to_all and config.inspect.on and not is_loopback(config.server.host):
        yield (
            f"inspect.on: {config.server.host!r} can be reached by others, who could read the conversations; "
            "set `auth.keys`, or listen on 127.0.0.1"
        )
    if open_to_all and not config.server.insecure_public and not is_loopback(config.server.host):
        yield (
            f"server.host: {config.server.host!r} can be reached by others, but no key is set; "
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
    """Yields the mistakes about files and folders that the configuration names."""
    if config.tools.folder is not None and not Path(config.tools.folder).is_dir():
        yield f"tools.folder: there is no folder {config.tools.folder!r}"
    if config.tools.folder is not None and not has_groups():
        yield f"tools.folder: {NO_TOOLS}"
    if config.store.kind == "sqlite" and config.store.path is not None:
        path = Path(config.store.path)
        if os.path.isdir(path):  # `Path.is_dir` raises for a folder of another user
            yield f"store.path: {config.store.path} is a folder; give a file"
        else:
            yield from _folder(path.parent, "store.path")
    for name, backend in config.backends.items():
        if backend.kind == "mock" and isinstance(backend.script, str):
            yield from _script(backend.script, f"backends.{name}.script")
    if config.capture.keep and config.capture.folder is not None:
        yield from _folder(Path(config.capture.folder), "capture.folder")


def _folder(folder: Path, path: str) -> Iterator[str]:
    why = why_unusable(folder)
    if why is not None:
        yield f"{path}: {why}"


def _script(file: str, path: str) -> Iterator[str]:
    try:
        read_script(read_yaml(Path(file).read_text("utf-8"))[0])
    except (OSError, ValueError) as error:
        yield f"{path}: cannot read {file}: {getattr(error, 'strerror', None) or error}"
