"""The application behind a server, and how another takes its place while requests run (R17.5).

Rules of this module:

1. A request is answered from its first byte to its last by the application that was current when it came. One that was
   replaced ends, with all that it holds, after its last answer, however long that takes.
2. Another takes its place only once it runs. Whatever fails before changes nothing.
3. What outlives a configuration is handed on (`toolwire.pipeline.exchange.shared_resources`). Where the gateway listens
   is not exchanged.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from toolwire.config import GatewayConfig
from toolwire.configuration.checks import check_values
from toolwire.errors import GatewayError
from toolwire.ingress.liveness import LIVENESS, LivenessMonitors
from toolwire.observability.logs import change_logging
from toolwire.observability.telemetry import Metrics
from toolwire.pipeline.conversations.background import BACKGROUND
from toolwire.pipeline.sending.delivery import CLIENTS
from toolwire.registry import registries
from toolwire.server.clients import ClientServer, usual
from toolwire.server.descriptors import log_room
from toolwire.server.dispatch import Dispatch
from toolwire.startup.backend_loops import loop_mistakes
from toolwire.startup.chains import told
from toolwire.support.conversion import ConfigError
from toolwire.upstream.pool.health import HEALTH

LOG: Final = logging.getLogger("toolwire.serving")

FIXED: Final = ("host", "port", "workers")
"""Keys of `server` that only a restart changes."""

STUCK_S: Final = 2.0
"""At the end, for an application that was replaced and whose requests do not end although they were cancelled."""

AppFactory = Callable[[GatewayConfig, Metrics, web.Application | None], web.Application]
"""Makes the application for a configuration, which counts in the given metrics; the last argument is the one whose
place it takes."""


class Generation:
    """An application that runs."""

    def __init__(self, app: web.Application) -> None:
        self.app = app
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Open what it needs. Raises what a plug-in raises; nothing stays open then."""
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
        """Answers that are made, with those in the background."""
        background = self.app.get(BACKGROUND)
        return self.dispatch.running + (0 if background is None else background.number)

    async def idle(self) -> None:
        """Wait until none is."""
        await self.dispatch.idle()
        if (background := self.app.get(BACKGROUND)) is not None:
            await background.idle()

    async def close(self) -> None:
        """Close it all."""
        await self._runner.cleanup()


class Host:
    """Answers the requests of `server` by the current application. `create` makes one; all count in `metrics`.
    `speaks`: the log is told what the model servers are. `prepare` is given each configuration before it is served."""

    def __init__(
        self,
        create: AppFactory,
        metrics: Metrics,
        *,
        speaks: bool = True,
        prepare: Callable[[AppFactory, GatewayConfig], Awaitable[None]] | None = None,
    ) -> None:
        self.server = ClientServer(_not_yet, metrics.connections, metrics.refused, handler_cancellation=True)
        self.server.write_error = self._write_error
        self._make = create
        self._metrics = metrics
        self._speaks = speaks
        self._prepare = prepare
        self._current: Generation
        self._replaced: dict[Generation, asyncio.Task[None]] = {}

    async def start(self, config: GatewayConfig) -> None:
        """Run the application for `config`. Raises `ConfigError`, or what a plug-in raises."""
        generation = await self._started(config, None)
        self.config = config
        self.server.configure(config.server, config.limits)
        self._serve(generation)

    def _write_error(self, error: GatewayError, request: web.BaseRequest | None, ident: str) -> bytes:
        """The body of an error answer, in the words of the protocol that was asked, as far as that is known."""
        path, headers = ("", {}) if request is None else (request.path, request.headers)
        clients = self._current.app.get(CLIENTS)
        if clients is None:
            return usual(error, request, ident)
        return clients.of(path, headers).write_error(error, ident)

    async def _started(self, config: GatewayConfig, before: web.Application | None) -> Generation:
        app = self._make(config, self._metrics, before)
        if HEALTH in app:
            app[HEALTH].speaks = self._speaks
        generation = Generation(app)
        await generation.start()
        if self._prepare is not None:
            await self._prepare(self._make, config)
        return generation

    async def look(self) -> None:
        """Have the log name model servers that are no good and cannot say what they are, if the application has any."""
        health = self._current.app.get(HEALTH)
        if health is not None:
            await health.look()

    async def reload(self, read: Callable[[], GatewayConfig]) -> str | None:
        """Let the application for the configuration that `read` gives take the place of the current one. If that fails,
        the log and the result say why, and nothing has changed."""
        try:
            config = await asyncio.to_thread(read)
            news = [line for line in told(config, registries()) if line not in told(self.config, registries())]
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
        """Requests that are being answered."""
        return sum(generation.running for generation in self._generations())

    def drain(self) -> None:
        """Say on `/ready` that the end is near, and let every connection end with its current answer."""
        for monitors in self._monitors():
            monitors.drain()

    def stop(self, reason: GatewayError) -> int:
        """End all exchanges with `reason`; how many these are."""
        return sum(monitors.stop(reason) for monitors in self._monitors())

    async def idle(self) -> None:
        """Wait until no request is being answered."""
        for generation in self._generations():
            await generation.idle()

    async def close(self) -> None:
        """Close all applications. Connections must be closed by now."""
        if self._replaced:
            await asyncio.wait(self._replaced.values(), timeout=STUCK_S)
        await self._current.close()

    def _serve(self, generation: Generation) -> None:
        """Let it answer the requests that come from now on."""
        self._current = generation
        self.server.answer_by(generation.dispatch, generation.make_request)

    def _generations(self) -> list[Generation]:
        return [*self._replaced, self._current]

    def _monitors(self) -> list[LivenessMonitors]:
        found = (generation.app.get(LIVENESS) for generation in self._generations())
        return [monitors for monitors in found if monitors is not None]

    async def _end(self, generation: Generation) -> None:
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
    """The configuration as it is now, with the fixed parts of the `running` one. Raises `ConfigError`."""
    config = load()
    changed = [name for name in FIXED if getattr(config.server, name) != getattr(running.server, name)]
    if changed:
        LOG.warning("%s: a change takes effect at the next start", ", ".join(f"server.{name}" for name in changed))
        kept: dict[str, Any] = {name: getattr(running.server, name) for name in changed}
        config = replace(config, server=replace(config.server, **kept))
        check_values(config)  # whether keys are needed depends on the address
    if problems := loop_mistakes(config, config.server.port):
        raise ConfigError(*problems)
    if config.limits.connections != running.limits.connections:
        log_room(config.limits.connections)
    return config


def log_refusal(error: Exception) -> None:
    """Log why a configuration is not taken; a mistake in it needs no traceback."""
    trace = None if isinstance(error, ConfigError) else error
    LOG.error("cannot reload, the configuration stays as it was:\n%s", error, exc_info=trace)


def apply_logging(before: GatewayConfig, now: GatewayConfig) -> None:
    """Write log lines as the configuration says now."""
    form, level = now.server.log_format, now.server.log_level
    if (form, level) != (before.server.log_format, before.server.log_level):
        change_logging(form, level)


def settle_memory() -> None:
    """Free what is left of earlier applications, and keep what runs out of the collector's sight."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
