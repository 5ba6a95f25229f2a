"""Decides from the configuration whether calls can be enforced by constrained decoding (R10.10)."""

from __future__ import annotations

from collections.abc import Iterator

from ..config import GatewayConfig, RouteConfig
from ..configuration.checks import routes_by_path
from ..configuration.mistakes import Mistakes
from ..formats.base import ToolFormat
from ..registry import SERVER_PROTOCOLS, Registries
from ..support.conversion import ConfigError
from ..upstream.servers.presets import AUTO, GENERIC, GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, preset_of


def why_not(feature: str, tool_format: ToolFormat | None) -> str | None:
    """Returns why a server with this feature cannot enforce calls of this format; None if it can. Without a format:
    whether it can enforce calls of any format."""
    if feature == "none":
        return "the server has no known feature for that"
    if tool_format is None:
        return None
    if feature in SCHEMA_CONSTRAINTS and not tool_format.json_answer:
        return "this server can enforce only `format: bare_json`"
    if feature in GRAMMAR_CONSTRAINTS and tool_format.gbnf is None:
        return "there is no grammar for this format"
    return None


def unenforceable(config: GatewayConfig, plugins: Registries, known: Mistakes) -> Iterator[str]:
    """Yields a mistake for each route with `constrain: required` whose calls cannot be enforced, because requests that
    require a call would be refused. Skips servers whose preset is detected at run time."""
    for path, route in routes_by_path(config) if config.backends else ():
        where = f"{path}.decoding.constrain"
        if route.options.decoding.constrain != "required" or known.below(where, f"{path}.format"):
            continue
        if route.options.mode == "native":
            yield f"{where}: `required` is for calls in the gateway's formats; with `mode: native` the server makes the calls"
            continue
        for name in dict.fromkeys(server.backend for server in route.servers):
            if name not in config.backends or known.below(f"backends.{name}"):
                continue
            reason = _reason(config, name, route, plugins)
            if reason is not None:
                yield (
                    f"{where}: `required`, but calls cannot be enforced on the backend {name!r}: {reason}; requests that require a "
                    "call would be refused. Expected `auto`, or a server that can (`preset`, `constrain` of the backend)"
                )
                break


def _reason(config: GatewayConfig, name: str, route: RouteConfig, plugins: Registries) -> str | None:
    backend = config.backends[name]
    try:
        feature = plugins.backends.get(backend.kind)(name, backend, config.limits).capabilities.constrain
        tool_format = None if route.options.format == "auto" else plugins.formats.get(route.options.format)
    except (ConfigError, ValueError):
        return None  # reported as another mistake
    asked = backend.preset == AUTO and preset_of(backend, None) == GENERIC and backend.identify_s != 0
    if asked and backend.kind in SERVER_PROTOCOLS and backend.constrain is None:
        return None
    return why_not(feature, tool_format)
