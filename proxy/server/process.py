"""The gateway in one process: the event loop, signals, reloads, the graceful shutdown.

Rules:

1. SIGTERM and SIGINT begin a graceful shutdown. From then on `/ready` reports it, and every connection ends after its
   current answer. New connections are accepted for `server.shutdown_delay_s`, so that load balancers can notice. Then
   running requests have `server.shutdown_grace_s`. Those that still run get an error (`shutting_down`) and `LAST_S` to
   send it. A second signal ends the process at once.
2. SIGHUP reloads the configuration (`toolwire.server.hosting`). Running requests continue; an invalid file changes
   nothing.
3. Exit status: 0 after a graceful shutdown, 1 if the gateway could not start or was interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from aiohttp import web

from ..config import GatewayConfig
from ..errors import Unavailable
from ..observability.logs import flush_logs
from ..observability.telemetry import Metrics
from ..support.conversion import ConfigError
from .descriptors import ACCEPTED_AT_ONCE
from .hosting import AppFactory, AppHost, reread, settle_memory
from .notify import READY, STOPPING, notify, reloading
from .sockets import BACKLOG

LOG: Final = logging.getLogger("toolwire.serving")

COLLECTOR_THRESHOLDS: Final = (10_000, 3, 7)
"""Thresholds of the garbage collector while serving; see `gc.set_threshold`. Streams live long enough to reach the
oldest generation, and failed ones leave cycles there: with full collections five times rarer, a hundred megabytes of
them accumulated. A middle collection scans 40,000 objects in 10 ms."""

SWITCH_S: Final = 0.0005
"""Time that a busy thread keeps the interpreter while the event loop waits for it. The default of 5 ms would apply
after each system call, and an iteration of the loop has several per connection."""

LAST_S: Final = 2.0
"""Time for sending the errors of requests that had to be ended."""

CUT_S: Final = 0.5
"""Time for closing the connections that are still open after `LAST_S`; aiohttp uses it twice."""


@dataclass(frozen=True, slots=True)
class Reload:
    """A request to reload: `read` returns the configuration; `answer` is called with the error, or None."""

    read: Callable[[], GatewayConfig]
    answer: Callable[[str | None], None]


Listen = Callable[[Callable[[], None], Callable[[Reload], bool]], None]
"""Called in the event loop with two functions, one that stops the process and one that reloads; arranges for them to be
called."""


def run(
    config: GatewayConfig,
    create: AppFactory,
    sockets: Sequence[socket.socket],
    metrics: Metrics,
    *,
    ready: Callable[[], None],
    load: Callable[[], GatewayConfig] | None = None,
    listen: Listen | None = None,
    looks: bool = True,
) -> int:
    """Serves in this process on `sockets` until SIGTERM or SIGINT. Returns the exit status. `ready` is called
    once. `metrics` are those of this process.

    `listen` is for workers and replaces SIGHUP and `load`. A worker ignores a second signal, because it may get one
    from its process group and one from its parent. `looks`: this process logs what the model servers are, and which
    cannot be used.
    """

    async def main() -> None:
        from .rehearsal import rehearse

        host = AppHost(create, metrics, logs_servers=looks, prepare=rehearse if create is gateway else None)
        await _Serving(config, host, load, listen, looks).run(sockets, ready)

    status = 1
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        runner.run(main())
        status = 0
    except asyncio.CancelledError:
        LOG.warning("stopped by a second signal; what was running is lost")
    except ConfigError as error:
        LOG.error("cannot start:\n%s", error)
    except Exception as error:
        LOG.error("cannot start: %s: %s", type(error).__name__, error, exc_info=error)
    finally:
        with _ending(status):
            runner.close()
        flush_logs()  # a worker ends without the interpreter's exit handlers
    return status


@contextmanager
def _ending(status: int) -> Iterator[None]:
    """Ends the process after `LAST_S` if closing the event loop takes longer. It waits for threads and tasks, and one
    that does not end, such as a sleeping thread of a plug-in, must not block the exit."""
    ended = threading.Event()

    def watch() -> None:
        if not ended.wait(LAST_S):
            LOG.warning("the process ends although a thread or task is still running")
            flush_logs()
            sys.stdout.flush()
            os._exit(status)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class _Serving:
    """The serving process, from start to end."""

    def __init__(
        self,
        config: GatewayConfig,
        host: AppHost,
        load: Callable[[], GatewayConfig] | None,
        listen: Listen | None,
        looks: bool,
    ) -> None:
        self._config = config
        self._host = host
        self._load = load
        self._listen = listen
        self._looks = looks
        self._stop = asyncio.Event()
        self._reloads: asyncio.Queue[Reload] = asyncio.Queue()

    async def run(self, sockets: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        """Serves until the process is told to stop."""
        host = self._host
        asyncio.get_running_loop().set_exception_handler(host.server.shortage)
        self._handle_signals()
        await host.start(self._config)
        runner = web.ServerRunner(host.server, shutdown_timeout=CUT_S)
        try:
            await runner.setup()
            if not self._stop.is_set():  # a signal may have come during the start
                await self._accept(runner, sockets, ready)
        except asyncio.CancelledError:
            raise  # second signal: exit at once
        except BaseException:
            await self._close(runner)
            raise
        await self._close(runner)

    async def _accept(
        self, runner: web.ServerRunner, sockets: Sequence[socket.socket], ready: Callable[[], None]
    ) -> None:
        for sock in sockets:
            await web.SockSite(
                runner, sock, backlog=ACCEPTED_AT_ONCE
            ).start()  # asyncio uses one number for both purposes
            sock.listen(BACKLOG)
        with rare_collections(), short_turns():
            ready()
            tasks = {asyncio.create_task(self._run_reloads())}
            if self._looks:
                tasks.add(asyncio.create_task(self._host.check_models()))
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=LAST_S)
            await self._drain(runner)

    async def _close(self, runner: web.ServerRunner) -> None:
        await runner.cleanup()
        await self._host.close()

    def _handle_signals(self) -> None:
        if self._listen is not None:
            self._listen(self._stop.set, self._queue)
            return
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if self._stop.is_set():
                task.cancel()
            else:
                notify(STOPPING)
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            call_on_signal(number, stop)
        if (
            ctrl_break := getattr(signal, "SIGBREAK", None)
        ) is not None:  # Windows: the signal that one process can send another
            call_on_signal(ctrl_break, stop)
        if hasattr(signal, "SIGHUP"):
            call_on_signal(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        load = self._load
        if load is None:
            LOG.warning("SIGHUP is ignored: there is no configuration to read again")
        elif self._reloads.empty() and self._queue(
            Reload(lambda: reread(load, self._host.config), lambda _: notify(READY))
        ):  # a reload that is already queued reads the newest file
            notify(reloading())

    def _queue(self, reload: Reload) -> bool:
        if self._stop.is_set():
            LOG.warning("not reloading: the gateway is stopping")
            return False
        self._reloads.put_nowait(reload)
        return True

    async def _run_reloads(self) -> None:
        while True:
            reload = await self._reloads.get()
            reload.answer(await self._host.reload(reload.read))

    async def _drain(self, runner: web.ServerRunner) -> None:
        """Shuts down gracefully (rule 1)."""
        server = self._host.config.server
        self._host.drain()
        LOG.info("stopping; requests under way: %d", self._host.running)
        await asyncio.sleep(server.shutdown_delay_s)
        for site in runner.sites:
            await site.stop()
        await asyncio.sleep(0)  # lets connections just accepted begin
        self._host.server.pre_shutdown()  # closes idle connections, the others after their answer
        if await _within(server.shutdown_grace_s, self._host.idle()):
            return
        reason = Unavailable("The gateway is stopping. Send the request again.", code="shutting_down")
        LOG.warning("the grace period of the shutdown is over; requests that were ended: %d", self._host.stop(reason))
        await _within(LAST_S, self._host.idle())


def call_on_signal(number: int, call: Callable[[], object]) -> None:
    """Calls a function in the running event loop when a signal comes, also on loops without signal support. For the
    main thread."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))


async def _within(seconds: float, work: Awaitable[None]) -> bool:
    """Awaits `work`. Returns False if it takes longer than `seconds`."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return False
    return True


@contextmanager
def rare_collections() -> Iterator[None]:
    """A context in which the garbage collector ignores the objects made at the start and runs rarely: a request creates
    some hundred objects and hardly any cycles."""
    thresholds = gc.get_threshold()
    settle_memory()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextmanager
def short_turns() -> Iterator[None]:
    """A context in which threads release the interpreter after `SWITCH_S`. No effect without busy threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's event loop factory, except where uvloop cannot be installed (Windows, PyPy)."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


def gateway(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
    """Creates the gateway's own application."""
    from ..app import create_app

    return create_app(config, metrics=metrics, before=before)
