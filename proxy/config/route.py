"""Routes: which models go to which servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .chain import MiddlewareConfig
from .documented import doc
from .options import RouteOptions
from .server import RateLimitConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """One of a route's servers. In the file: a name, or a mapping."""

    backend: str = doc("Key in `backends`.")
    weight: float = doc("Its share of the requests, above 0.", default=1.0)
    upstream_model: str | None = doc("Model name sent to it. Default: the route's.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """Sends requests for some models to some servers."""

    model: str = doc(
        "Model name or glob (`*`); exact names win over globs, earlier globs over later ones.", default="*"
    )
    aliases: tuple[str, ...] = doc("Further names.", default=())
    backend: str = doc("Key in `backends`.", default="default")
    backends: tuple[EndpointConfig, ...] = doc("Several servers, instead of `backend`.", default=())
    balance: Literal["weighted", "round_robin", "least_busy", "sticky"] = doc(
        "How one of `backends` is chosen; `sticky`: the same one for the same `sticky_by`.", default="weighted"
    )
    sticky_by: str = doc(
        "`prompt` (everything up to the first user message), or the name of a request header.", default="prompt"
    )
    fallback: tuple[EndpointConfig, ...] = doc(
        "Servers tried in this order if those before failed or are down.", default=()
    )
    upstream_model: str | None = doc("Model name sent to the backend. Default: the client's.", default=None)
    chain: tuple[MiddlewareConfig, ...] | None = doc("Its middlewares. Default: the top-level `chain`.", default=None)
    rate_limit: RateLimitConfig = doc("For all clients of this route together.", default_factory=RateLimitConfig)
    rate_limit_per_key: RateLimitConfig = doc(
        "For each key on this route, besides the key's own limits.", default_factory=RateLimitConfig
    )
    options: RouteOptions = doc("Options that override `defaults`.", default_factory=RouteOptions)

    @property
    def members(self) -> tuple[EndpointConfig, ...]:
        """The servers that share the requests: `backends`, or else the one `backend`."""
        return self.backends or (EndpointConfig(backend=self.backend),)

    @property
    def servers(self) -> tuple[EndpointConfig, ...]:
        """All servers that the route may use: its members, and those of `fallback`."""
        return (*self.members, *self.fallback)
