"""Finds parts of a configuration that cannot work or have no effect, for `toolwire check` and the log. None of them
keeps a gateway from starting."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..config import GatewayConfig
from ..configuration.checks import effective_routes, names_by_path, routes_by_path
from ..configuration.mistakes import Mistakes
from ..ingress.auth import read_keys
from ..registry import Registries
from .chains import ineffective_chains
from .enforceable import unenforceable

_ANY: Final = "\0"
"""Stands for the variable parts of a glob."""

_NEEDED: Final = (
    "connections",
    "head_bytes",
    "header_fields",
    "body_bytes",
    "json_values",
    "json_depth",
    "reply_bytes",
    "stream_bytes",
    "frame_bytes",
)
"""Limits that every request or response uses up in part, so that 0 would refuse all."""


def ineffective_parts(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Yields parts that cannot work, except those that follow from mistakes already known."""
    yield from ineffective_chains(config, plugins, known)
    yield from unenforceable(config, plugins, known)
    yield from _shadowed(config)
    yield from _two_keys(config)
    yield from _nothing_passes(config)
    yield from _without_time(config)
    yield from _programs(config)


def idle_parts(config: GatewayConfig, known: Mistakes) -> Iterator[str]:
    """Yields lines about parts that have no effect but do no harm."""
    if known.below("backends", "routes", "auth"):
        return
    routes = effective_routes(config)
    asked = {server.backend for route in routes for server in route.servers}
    for name in config.backends:
        if name not in asked:
            yield f"backends.{name}: no route uses it"
    keys_file = config.auth.keys_file
    if keys_file is not None and not any(key.key for key in config.auth.keys) and not read_keys(Path(keys_file)):
        yield "auth.keys_file: the file contains no key, so no client needs one"


def _shadowed(config: GatewayConfig) -> Iterator[str]:
    """Yields globs that can never match, because an earlier glob matches the same names. (Exact names win over globs
    wherever they are.)"""
    before: dict[str, str] = {}
    for index, route in enumerate(config.routes):
        for where, name in names_by_path(route, f"routes[{index}]").items():
            if not any(sign in name for sign in "*?["):
                continue
            for earlier, at in before.items():
                if earlier != name and _covers(earlier, name):
                    yield f"{where}: {name!r} never matches: {earlier!r} of {at} comes first and matches the same names"
                    break
            before.setdefault(name, where)


def _covers(earlier: str, later: str) -> bool:
    """Returns True if the earlier glob clearly matches every name that the later one matches."""
    if "?" in earlier or "[" in earlier:
        return False
    return fnmatchcase(re.sub(r"\[[^]]*\]|[*?]", _ANY, later), earlier)


def _two_keys(config: GatewayConfig) -> Iterator[str]:
    for name, backend in config.backends.items():
        has_key = any(header.lower() == "authorization" for header in backend.headers) or bool(backend.api_key)
        if has_key and "@" in urlsplit(backend.url or "").netloc:
            yield (
                f"backends.{name}.url: it contains a user, and a key is set as well: both use the same header, "
                "Authorization; give one of them"
            )


def _nothing_passes(config: GatewayConfig) -> Iterator[str]:
    for key in _NEEDED:
        if getattr(config.limits, key) == 0:
            yield f"limits.{key}: 0 refuses everything; expected more"
    if config.store.max_age_s == 0 and config.store.kind != "none":
        yield "store.max_age_s: 0 stores nothing; expected more, or `store.kind: none`"
    for path, route in routes_by_path(config):
        if route.options.tool_loop.max_iterations == 0:
            yield f"{path}.tool_loop.max_iterations: the first answer counts; expected at least 1"


def _without_time(config: GatewayConfig) -> Iterator[str]:
    for name, backend in config.backends.items():
        for key in ("connect_s", "first_byte_s", "idle_s", "total_s"):
            if getattr(backend.timeouts, key) == 0:
                yield f"backends.{name}.timeouts.{key}: 0 allows no time at all; expected more, or null for no limit"


def _programs(config: GatewayConfig) -> Iterator[str]:
    for name, backend in config.backends.items():
        if backend.command and backend.command[0] and shutil.which(backend.command[0]) is None:
            yield f"backends.{name}.command: there is no program {backend.command[0]!r} on this machine's PATH"
