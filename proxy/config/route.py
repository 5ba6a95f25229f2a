"""Which models go where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolwire.config.chain import MiddlewareConfig
from toolwire.config.documented import doc
from toolwire.config.listening import RateLimit
from toolwire.config.options import RouteOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """One of several servers of a route. In the file: a name, or a mapping with `backend`."""

    backend: str = doc("Key in `backends`.")
    weight: float = doc("Its share of the requests, above 0.", default=1.0)
    upstream_model: str | None = doc("Name sent to it; default: that of the route.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """Which models go where."""

    model: str = doc(
        "Model name or glob (`*`); exact names win over globs, earlier globs over later ones.", default="*"
    )
    aliases: tuple[str, ...] = doc("Further names.", default=())
    backend: str = doc("Key in `backends`.", default="default")
    backends: tuple[EndpointConfig, ...] = doc("Several servers in place of `backend`.", default=())
    balance: Literal["weighted", "round_robin", "least_busy", "sticky"] = doc(
        "Which of `backends` is asked. `sticky`: the same one for the same `sticky_by`.", default="weighted"
    )
    sticky_by: str = doc(
        "`prompt` (all up to the first user message), or the name of a request header.", default="prompt"
    )
    fallback: tuple[EndpointConfig, ...] = doc(
        "Servers that are asked in this order when those before failed or are down.", default=()
    )
    upstream_model: str | None = doc("Name sent to the backend; default: the client's.", default=None)
    chain: tuple[MiddlewareConfig, ...] | None = doc(
        "Chain of this route; default: the top-level `chain`.", default=None
    )
    rate_limit: RateLimit = doc("For all clients of this route together.", default_factory=RateLimit)
    rate_limit_per_key: RateLimit = doc(
        "For each key on this route, besides the key's own limits.", default_factory=RateLimit
    )
    options: RouteOptions = doc("Overrides of `defaults`.", default_factory=RouteOptions)
