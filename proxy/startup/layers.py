"""The middlewares of an application: made once for each chain, started and closed with the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from ..config import MiddlewareConfig
from ..configuration.settings import read_section
from ..observability.telemetry import Metrics
from ..pipeline.chain.middleware import Layer, Middleware, instantiate
from ..pipeline.chain.plain import PlainLayer
from ..registry import MIDDLEWARES, Registries


class Chains:
    """Builds the chains of an application and runs their middlewares. Routes with the same chain share its
    instances."""

    def __init__(self, plugins: Registries, metrics: Metrics) -> None:
        self._plugins = plugins
        self._metrics = metrics
        self._built: list[tuple[tuple[MiddlewareConfig, ...], list[Layer]]] = []

    def build(self, entries: tuple[MiddlewareConfig, ...]) -> Sequence[Layer]:
        """Returns the middlewares of a chain, outermost first."""
        for known, layers in self._built:
            if known == entries:
                return layers
        layers = [self._layer(entry) for entry in entries]
        self._built.append((entries, layers))
        return layers

    def _layer(self, entry: MiddlewareConfig) -> Layer:
        plugin = self._plugins.middlewares.get(entry.use)
        middleware = instantiate(
            entry, plugin, lambda kind, options: read_section(kind, options, f"{entry.use}.options")
        )
        failed = self._metrics.middleware_errors
        # Built-in middlewares handle unsent replies, so a complete answer needs no work before it is sent.
        ours = entry.use in MIDDLEWARES or (isinstance(middleware, Middleware) and not middleware.defines("__call__"))
        kind = Layer if ours else PlainLayer
        return kind(entry.use, middleware, entry.on_failure == "skip", lambda name: failed.inc(name))

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Starts the middlewares; at the shutdown closes those that were started, last first."""
        started: list[Middleware] = []
        try:
            for _, layers in self._built:
                for layer in layers:
                    if isinstance(layer.middleware, Middleware):
                        started.append(layer.middleware)
                        await layer.middleware.start(app)
            yield
        finally:
            for middleware in reversed(started):
                await middleware.close()
