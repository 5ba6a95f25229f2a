"""Which model goes where.

Exact names and aliases win over globs; globs are tried in the order of the configuration (R2.2). A route is decided once per
request and holds everything that was decided at start-up, so that nothing is looked up per request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from aiohttp import web

from .config import LimitsConfig, RouteConfig, RouteOptions
from .errors import ClientFault, quote
from .formats.base import ToolFormat
from .formats.families import format_for
from .servertools.folder import ServerTools
from .targets.targets import Targets

MAX_FOUND: Final = 1024
"""Names that are remembered with the glob that they fit."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""aiohttp's: what a middleware calls next, and what a chain amounts to."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way through the gateway. `chains` are the composed handlers by the client's protocol. `format` is what the options name; with `by_family`, which
    finds formats by name, only for models of no known family. `server_tools` are those that its chain offers and runs."""

    config: RouteConfig
    options: RouteOptions
    targets: Targets
    format: ToolFormat
    limits: LimitsConfig
    chains: Mapping[str, Handler]
    by_family: Callable[[str], ToolFormat] | None = None
    server_tools: ServerTools | None = None

    def format_for(self, model: str) -> ToolFormat:
        """How calls are written for a client's `model`: the name that the backend is sent says most."""
        if self.by_family is None:
            return self.format
        name = (self.config.upstream_model and format_for(self.config.upstream_model)) or format_for(model)
        return self.by_family(name) if name else self.format

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which clients see it: no globs."""
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

    def find(self, model: str) -> Route:
        """The route of `model`. Raises `ClientFault` `model_not_found`."""
        route = self._exact.get(model) or self._found.get(model)
        if route is not None:
            return route
        for pattern, route in self._globs:
            if fnmatchcase(model, pattern):
                if len(self._found) >= MAX_FOUND:
                    self._found.clear()
                self._found[model] = route
                return route
        known = ", ".join(sorted(self._exact)) or "none"
        raise ClientFault(
            f"The model {quote(model)} does not exist here.",
            code="model_not_found",
            param="model",
            hint=f"Models of this gateway: {known}.",
        )


def _is_glob(name: str) -> bool:
    return any(c in name for c in "*?[")
