"""Hosts the application behind a server, and replaces it on a reload while requests run (R17.5).

Rules of this module:

1. A request is answered completely by the application that was current when it arrived. A replaced application closes
   after its last answer, however long that takes.
2. A new application replaces the current one only after it has started. An earlier failure changes nothing.
3. Shared resources are handed over (`toolwire.pipeline.exchange.shared_resources`). The listening sockets do not
   change.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from ..config import GatewayConfig
from ..configuration.checks import check_values
from ..errors import GatewayError
from ..ingress.liveness import LIVENESS, LivenessMonitors
from ..observability.logs import change_logging
from ..observability.telemetry import Metrics
from ..pipeline.sending.background import BACKGROUND
from ..pipeline.sending.delivery import CLIENTS
from ..registry import registries
from ..startup.backend_loops import loop_mistakes
from ..startup.chains import start_notes
from ..support.conversion import ConfigError
from ..upstream.pool.health import HEALTH
from .clients import ClientServer, usual_envelope
from .descriptors import log_limits
from .dispatch import Dispatch

LOG: Final = logging.getLogger("toolwire.serving")

FIXED: Final = ("host", "port", "workers")
"""Keys of `server` that only a restart changes."""

STUCK_S: Final = 2.0
"""How long the shutdown waits for a replaced application whose cancelled requests do not end."""

AppFactory = Callable[[GatewayConfig, Metrics, web.Application | None], web.Application]
"""Creates the application for a configuration. Arguments: the configuration, the metrics, and the application that it
replaces."""


class RunningApp:
    """A started application."""

    def __init__(self, app: web.Application) -> None:
        self.app = app
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Starts the application. Raises errors of plug-ins; nothing stays open then."""
        try:
            await self._runner.setup()
        except BaseException:
            await self._runner.cleanup()
            raise
        server = self._runner.server
        assert server is not None
        self.dispatch = Dispatch(self.app, server.request_handler)
        self.make_request = server.request_factory

    @property
    def running(self) -> int:
        """Number of answers being made, including background ones."""
        background = self.app.get(BACKGROUND)
        return self.dispatch.running + (0 if background is None else background.number)

    async def idle(self) -> None:
        """Waits until no answer is being made."""
        await self.dispatch.idle()
        if (background := self.app.get(BACKGROUND)) is not None:
            await background.idle()

    async def close(self) -> None:
        """Closes the application."""
        await self._runner.cleanup()


class AppHost:
    """Answers the requests of `server` with the current application.

    `create` creates applications; all use `metrics`. `logs_servers`: log what the model servers are. `prepare` is
    called with each configuration before it is served.
    """

    def __init__(
        self,
        create: AppFactory,
        metrics: Metrics,
        *,
        logs_servers: bool = True,
        prepare: Callable[[AppFactory, GatewayConfig], Awaitable[None]] | None = None,
    ) -> None:
        self.server = ClientServer(_not_yet, metrics.connections, metrics.refused, handler_cancellation=True)
        self.server.write_error = self._write_error
        self._make = create
        self._metrics = metrics
        self._logs_servers = logs_servers
        self._prepare = prepare
        self._current: RunningApp
        self._replaced: dict[RunningApp, asyncio.Task[None]] = {}

    async def start(self, config: GatewayConfig) -> None:
        """Starts the application for `config`. Raises `ConfigError`, or errors of plug-ins."""
        generation = await self._started(config, None)
        self.config = config
        self.server.configure(config.server, config.limits)
        self._serve(generation)

    def _write_error(self, error: GatewayError, request: web.BaseRequest | None, ident: str) -> bytes:
        """Returns the body of an error answer, in the protocol of the request as far as that is known."""
        path, headers = ("", {}) if request is None else (request.path, request.headers)
        clients = self._current.app.get(CLIENTS)
        if clients is None:
            return usual_envelope(error, request, ident)
        return clients.of(path, headers).write_error(error, ident)

    async def _started(self, config: GatewayConfig, before: web.Application | None) -> RunningApp:
        app = self._make(config, self._metrics, before)
        if HEALTH in app:
            app[HEALTH].logs_servers = self._logs_servers
        generation = RunningApp(app)
        await generation.start()
        try:
            if self._prepare is not None:
                await self._prepare(self._make, config)
        except BaseException:  # also a stop in the middle of a reload
            await generation.close()
            raise
        return generation

    async def check_models(self) -> None:
        """Logs the model servers that cannot be used, of those that report no identity."""
        health = self._current.app.get(HEALTH)
        if health is not None:
            await health.check_models()

    async def reload(self, read: Callable[[], GatewayConfig]) -> str | None:
        """Replaces the application by one for the configuration that `read` returns. On failure nothing changes; the
        error is logged and returned as text. Returns None on success."""
        try:
            config = await asyncio.to_thread(read)
            known = start_notes(self.config, registries())
            news = [line for line in start_notes(config, registries()) if line not in known]
            generation = await self._started(config, self._current.app)
        except Exception as error:
            log_refusal(error)
            return f"{type(error).__name__}: {error}"
        before = self._current
        self._serve(generation)
        apply_logging(self.config, config)
        for line in news:
            LOG.info("%s", line)
        self.config = config
        self.server.configure(config.server, config.limits)
        self._replaced[before] = asyncio.get_running_loop().create_task(self._end(before))
        LOG.info("reloaded the configuration; requests under way: %d", before.running)
        return None

    @property
    def app(self) -> web.Application:
        """The current application."""
        return self._current.app

    @property
    def running(self) -> int:
        """Number of requests being answered."""
        return sum(generation.running for generation in self._generations())

    def drain(self) -> None:
        """Reports the coming shutdown on `/ready`, and lets every connection end after its current answer."""
        for monitors in self._monitors():
            monitors.drain()

    def stop(self, reason: GatewayError) -> int:
        """Ends all exchanges with `reason`. Returns their number."""
        return sum(monitors.stop(reason) for monitors in self._monitors())

    async def idle(self) -> None:
        """Waits until no request is being answered."""
        for generation in self._generations():
            await generation.idle()

    async def close(self) -> None:
        """Closes all applications. Connections must be closed before."""
        if self._replaced:
            await asyncio.wait(self._replaced.values(), timeout=STUCK_S)
        await self._current.close()

    def _serve(self, generation: RunningApp) -> None:
        """Makes this application answer all further requests."""
        self._current = generation
        self.server.set_handler(generation.dispatch, generation.make_request)

    def _generations(self) -> list[RunningApp]:
        return [*self._replaced, self._current]

    def _monitors(self) -> list[LivenessMonitors]:
        candidates = (generation.app.get(LIVENESS) for generation in self._generations())
        return [monitors for monitors in candidates if monitors is not None]

    async def _end(self, generation: RunningApp) -> None:
        monitors = generation.app.get(LIVENESS)
        if monitors is not None:
            monitors.replace()
        try:
            await generation.idle()
            await generation.close()
        except Exception:
            LOG.exception("an application that was replaced could not be closed")
        finally:
            del self._replaced[generation]
        del generation
        settle_memory()


async def _not_yet(request: web.BaseRequest) -> web.StreamResponse:
    raise RuntimeError("there is no application yet")


def reread(load: Callable[[], GatewayConfig], running: GatewayConfig) -> GatewayConfig:
    """Returns the reloaded configuration with the fixed parts of the `running` one. Raises `ConfigError`."""
    config = load()
    changed = [name for name in FIXED if getattr(config.server, name) != getattr(running.server, name)]
    if changed:
        LOG.warning("%s: a change takes effect at the next start", ", ".join(f"server.{name}" for name in changed))
        fixed: dict[str, Any] = {name: getattr(running.server, name) for name in changed}
        config = replace(config, server=replace(config.server, **fixed))
        check_values(config)  # whether keys are needed depends on the address
    if problems := loop_mistakes(config, config.server.port):
        raise ConfigError(*problems)
    if config.limits.connections != running.limits.connections:
        log_limits(config.limits.connections)
    return config


def log_refusal(error: Exception) -> None:
    """Logs why a configuration is not used; with a traceback unless it is a `ConfigError`."""
    trace = None if isinstance(error, ConfigError) else error
    LOG.error("cannot reload, the configuration stays as it was:\n%s", error, exc_info=trace)


def apply_logging(before: GatewayConfig, now: GatewayConfig) -> None:
    """Applies changed logging settings."""
    form, level = now.server.log_format, now.server.log_level
    if (form, level) != (before.server.log_format, before.server.log_level):
        change_logging(form, level)


def settle_memory() -> None:
    """Collects garbage of replaced applications, and excludes the remaining objects from later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
