"""Features: parts of an application that exist only if the configuration enables them, such as the inspector.

The registry `features` names them after their section of the configuration (`toolwire.registry.FEATURES`). A feature is
imported when its section enables it, so that the code of unused features is never loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from .config import GatewayConfig
from .observability.telemetry import Metrics
from .pipeline.exchange.routing import Router
from .pipeline.exchange.shared_resources import SharedResources
from .pipeline.sending.delivery import Serving
from .record import Observe
from .registry import Registries


@dataclass(frozen=True, slots=True)
class FeatureContext:
    """Parts of the application that a feature is made from. `shared` outlives a reload of the configuration. `keyed` is
    True if clients need keys."""

    config: GatewayConfig
    plugins: Registries
    shared: SharedResources
    router: Router
    metrics: Metrics
    keyed: bool


class Feature(Protocol):
    """A part of one application, made from a `FeatureContext`."""

    open_paths: str | None
    """Regular expression of paths that need no key; None if all need one."""

    observes_all: bool
    """True if `observe` also gets requests that are not exchanges of messages: those that are refused before a handler
    runs, and proxied ones."""

    @property
    def observe(self) -> Observe:
        """A function that observes each exchange."""

    def open(self, app: web.Application, serving: Serving) -> None:
        """Adds the feature's paths, and the resources that it starts and stops, to the application. `serving` is for
        paths that serve a protocol."""


def features_of(context: FeatureContext) -> list[Feature]:
    """Returns the features that the configuration enables, in the order of the registry. Raises `ConfigError` if one of
    them is not installed."""
    registry = context.plugins.features
    return [registry.get(name)(context) for name in registry.builtins if getattr(context.config, name).on]
