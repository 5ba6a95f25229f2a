"""Routes: the backend, chain and options for each model name.

Exact names and aliases win over globs; globs are tried in the order of the configuration (R2.2). The route is found
once per request. It holds everything that is decided at the start, so that a request needs no other look-up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from aiohttp import web

from ...config import LimitsConfig, RouteConfig, RouteOptions
from ...errors import ClientFault, quote
from ...formats.base import ToolFormat
from ...formats.model_families import format_for, format_of_template
from ...ingress.auth import ApiKey
from ...observability.metrics import OTHER
from ...servertools.source import ClientToolServers, ToolSource
from ...upstream.pool.server_pool import ServerPool
from ...upstream.servers.identity import Identity
from ..scanning.preopened import PreopenedMemory
from .permission import NOTHING_FORBIDDEN, Permission
from .route_seals import RouteSeals

MAX_FOUND: Final = 1024
"""Maximum number of model names in the caches of routes and of the router."""
MAX_NAME_CHARS: Final = 256
"""Maximum length of a cached model name. Limited because clients choose the names."""

SHOWN: Final = 20
"""Maximum number of model names listed in an error."""

SHOWN_CHARS: Final = 100

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A request handler of aiohttp: the rest of a chain, or a whole one."""


@dataclass(frozen=True, slots=True)
class Route:
    """The configuration of a model. `chains` are the composed handlers by the client's protocol. `format` is the format
    in the options; if `by_family` is set, it finds formats by name, and `format` is only for models of unknown
    families. `server_tools` are the tools that the chain offers and runs, `client_servers` the tool servers that
    clients may name. `permission` tells which tools may be used. `learned` remembers which answers begin inside a
    reasoning block. `sealed` seals and opens reasoning."""

    config: RouteConfig
    options: RouteOptions
    pool: ServerPool
    format: ToolFormat
    limits: LimitsConfig
    chains: Mapping[str, Handler]
    by_family: Callable[[str], ToolFormat] | None = None
    server_tools: ToolSource | None = None
    client_servers: ClientToolServers | None = None
    permission: Permission = NOTHING_FORBIDDEN
    sealed: RouteSeals | None = None
    learned: PreopenedMemory = field(default_factory=PreopenedMemory, compare=False)
    made: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache of values that are derived from the route. Each user of the cache has its own key."""
    _formats: dict[str, tuple[Identity | None, ToolFormat]] = field(default_factory=dict, compare=False, repr=False)
    """Results of `format_for`, with the identity of the server at that time."""

    def label(self, model: str) -> str:
        """Returns the metrics label of a client's `model`: its name if the configuration or a server of the route knows
        it, else `other`, so that clients cannot create labels."""
        named = self.made.get(Route.label)
        if named is None:
            given = (self.config.upstream_model, *(member.upstream_model for member in self.pool.every))
            named = self.made[Route.label] = frozenset((*self.names, *filter(None, given)))
        if model in named:
            return model
        for member in self.pool.every:
            if model in member.endpoint.listed:
                return model
        return OTHER

    def format_for(self, model: str) -> ToolFormat:
        """Returns the format of calls for a client's `model`, by the family of the model that will answer."""
        if self.by_family is None:
            return self.format
        identity = self.pool.identity
        known = self._formats.get(model)
        if known is not None and known[0] is identity:
            return known[1]
        name, _ = self.family(model)
        found = self.by_family(name) if name else self.format
        if len(self._formats) >= MAX_FOUND:
            self._formats.clear()
        if len(model) <= MAX_NAME_CHARS:
            self._formats[model] = identity, found
        return found

    def known_format(self, model: str) -> ToolFormat | None:
        """Returns the format for the family of the model that answers to `model`. Returns None if the family is
        unknown, or if the options name another format: the model's own chat template may teach another one (R31.2)."""
        name, _ = self.family(model)
        if name is None:
            return None
        if self.by_family is not None:
            return self.by_family(name)
        return self.format if self.format.name == name else None

    def family(self, model: str) -> tuple[str | None, str]:
        """Returns the name of the format for the family of the model that answers to `model`, and a text that tells how
        it is known: by the configured name, by the server's information about the model, or by the client's name. The
        format is None if the family is unknown."""
        configured = self.config.upstream_model or self.pool.members[0].upstream_model
        if configured and (found := format_for(configured)):
            return found, "the configured name says so"
        identity = self.pool.identity
        served = None if identity is None else identity.find(configured or model)
        if identity is not None and served is not None:
            for name in (served.name, *served.names):
                if found := format_for(name):
                    return (
                        found,
                        "the model's name says so" if name == served.name else f"the name {quote(name)} says so",
                    )
            if identity.template is not None and (found := format_of_template(identity.template)):
                return found, "its chat template says so"
        if found := format_for(model):
            return found, "the requested name says so"
        return None, "the model's family is unknown"

    def require(self, model: str) -> None:
        """Raises `ClientFault` `model_not_found` for a model that no server lists, if the options require a listed
        one."""
        if (
            self.options.requests.unknown_model != "error"
            or self.config.upstream_model is not None
            or model in self.names
        ):
            return
        listed = self.pool.listed()
        if listed is None or model in listed:
            return
        shown = [name if len(name) <= SHOWN_CHARS else name[:SHOWN_CHARS] + "…" for name in listed[:SHOWN]]
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        raise _not_found(model, f"Served: {', '.join(map(quote, shown)) or 'none'}{more}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which clients see the model, without globs."""
        return tuple(name for name in (self.config.model, *self.config.aliases) if not _is_glob(name))


class Router:
    """Finds the route of a model name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._exact: dict[str, Route] = {}
        self._globs: list[tuple[str, Route]] = []
        self._found: dict[str, Route] = {}
        for route in self.routes:
            for name in (route.config.model, *route.config.aliases):
                if _is_glob(name):
                    self._globs.append((name, route))
                else:
                    self._exact.setdefault(name, route)

    def find(self, model: str, key: ApiKey | None = None) -> Route:
        """Returns the route of `model`. Raises `ClientFault` `model_not_found`, which lists the models that `key` may
        use."""
        route = self._exact.get(model) or self._found.get(model)
        if route is not None:
            return route
        for pattern, route in self._globs:
            if fnmatchcase(model, pattern):
                if len(self._found) >= MAX_FOUND:
                    self._found.clear()
                if len(model) <= MAX_NAME_CHARS:
                    self._found[model] = route
                return route
        usable = [name for name, route in self._exact.items() if key is None or key.may_use(route.config.model)]
        raise _not_found(model, f"Models of this gateway: {', '.join(sorted(usable)) or 'none'}.")


def _not_found(model: str, hint: str) -> ClientFault:
    return ClientFault(
        f"The model {quote(model)} does not exist here.", code="model_not_found", param="model", hint=hint
    )


def _is_glob(name: str) -> bool:
    return any(c in name for c in "*?[")


ROUTER: Final = web.AppKey("toolwire.router", Router)
"""The routes of an application."""
