"""Checks the names in a configuration: whether their plug-ins exist and accept the given options.

Looking up a plug-in imports it, so this needs the registries. Source: R16.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..config import GatewayConfig, MiddlewareConfig
from ..configuration.mistakes import Mistakes
from ..configuration.settings import read_section
from ..configuration.telemetry_variables import MISSING, is_installed
from ..pipeline.chain.middleware import instantiate
from ..ratelimit.factory import make_ledger
from ..registry import Registries
from ..store.factory import make_store
from ..support.conversion import ConfigError, from_mapping
from ..support.linear import linear
from ..upstream.pool.server import UpstreamServer
from ..upstream.pool.server_pool import pool_of
from .chains import chain_mistakes
from .proxied_paths import proxied_protocols


def check_names(config: GatewayConfig, plugins: Registries) -> None:
    """Looks up every name that the configuration uses, creates its backends, and checks the options of its middlewares.

    Imports the plug-ins that are used; opens no connection. Raises `ConfigError` with every mistake.
    """
    problems = name_mistakes(config, plugins, Mistakes())
    if problems:
        raise ConfigError(*problems)


def name_mistakes(
    config: GatewayConfig, plugins: Registries, known: Mistakes, *, make_middlewares: bool = False
) -> list[str]:
    """Returns the mistakes, except those that follow from mistakes already known. `make_middlewares` also creates the
    middlewares, to find errors in their constructors and factories."""
    problems: list[str] = []
    stored: list[str] = []
    with _noted(stored):
        make_store(config.store)
    problems += (line if line.startswith("store.") else f"store: {line}" for line in stored)
    with _noted(problems):
        make_ledger(config.rate_limits)
    with _noted(problems):
        proxied_protocols(config, plugins.client_sides())
    _servers(config, plugins, known, problems)
    with _noted(problems, "defaults.format"):
        plugins.formats.get(config.defaults.format)
    for index, route in enumerate(config.routes):
        if route.options.format != config.defaults.format:
            with _noted(problems, f"routes[{index}].options.format"):
                plugins.formats.get(route.options.format)
    for where, entry in _entries(config):
        _middleware(entry, plugins, where, problems, make=make_middlewares)
    problems += chain_mistakes(config, plugins, known)
    for index, pattern in enumerate(config.capture.secrets):
        with _noted(problems, f"capture.secrets[{index}]"):
            linear(pattern)
    if config.telemetry.on and not is_installed():
        problems.append(f"telemetry: {MISSING}")
    return problems


@contextmanager
def _noted(problems: list[str], path: str = "") -> Iterator[None]:
    """Adds the errors raised in the block to `problems`, and continues after the block. Without `path` the errors
    contain their own key path."""
    before = f"{path}: " if path else ""
    try:
        yield
    except ConfigError as error:
        problems += (before + problem for problem in error.problems)
    except (ValueError, OSError) as error:
        problems.append(f"{before}{error}")


def _servers(config: GatewayConfig, plugins: Registries, known: Mistakes, problems: list[str]) -> None:
    endpoints: dict[str, UpstreamServer] = {}
    for name, backend in config.backends.items():
        path = f"backends.{name}"
        with _noted(problems, f"{path}.kind"):
            make = plugins.backends.get(backend.kind)
            with _noted([] if known.below(path) else problems, path):
                endpoints[name] = UpstreamServer(name, make(name, backend, config.limits), backend)
    for index, route in enumerate(config.routes):
        named = {server.backend for server in route.servers}
        if named <= endpoints.keys():
            with _noted(problems, f"routes[{index}]"):
                pool_of(route, endpoints)


def _middleware(entry: MiddlewareConfig, plugins: Registries, where: str, problems: list[str], *, make: bool) -> None:
    plugin: Any = None
    with _noted(problems, f"{where}.use"):
        plugin = plugins.middlewares.get(entry.use)
    wrong: list[str] = []
    kind = getattr(plugin, "Options", None)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        with _noted(wrong):
            from_mapping(kind, entry.options, f"{where}.options")
    problems += wrong
    if make and plugin is not None and not wrong:
        try:
            instantiate(entry, plugin, lambda kind, options: read_section(kind, options, f"{where}.options"))
        except Exception as error:  # a plug-in may raise anything
            message = str(error) if isinstance(error, ConfigError | TypeError | ValueError) else repr(error)
            problems.append(message if message.startswith(where) else f"{where}: {message}")


def _entries(config: GatewayConfig) -> Iterator[tuple[str, MiddlewareConfig]]:
    """Yields every entry of every chain, with its key path."""
    for index, entry in enumerate(config.chain):
        yield f"chain[{index}]", entry
    for number, route in enumerate(config.routes):
        for index, entry in enumerate(route.chain or ()):
            yield f"routes[{number}].chain[{index}]", entry
