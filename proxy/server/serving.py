"""Runs the gateway: sockets, signals, graceful end. One process here; several are `proxy.server.workers`.

Rules of this module:

1. The base URL is announced once, when connections are accepted and not before; behind it, where the inspector's page
   is, if there is one.
2. SIGTERM and SIGINT end it gracefully. From that moment `/ready` says so, and every connection ends with its current
   answer. For `server.shutdown_delay_s` more connections are taken, so that whoever balances load can see it; then
   none, and what runs may go on for `server.shutdown_grace_s`. What still runs then is told (`shutting_down`), and has
   `LAST_S` to say it. A second signal ends it at once.
3. SIGHUP has the configuration read anew (`proxy.server.hosting`). What runs goes on; a bad file changes nothing.
4. Exit status: 0 after a graceful end, 1 if it could not start or was cut short.
"""

from __future__ import annotations

import asyncio
import errno
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
from ..observability.logs import flush_logs, set_up_logging
from ..observability.telemetry import Metrics
from ..startup.circles import leading_back
from ..support.conversion import ConfigError
from ..support.legible import visible_lines
from .clients import bound_unsent
from .descriptors import ACCEPTED_AT_ONCE, Shortage, allow_files, log_room
from .hosting import AppFactory, Host, reread, settle_memory
from .notify import READY, STOPPING, notify, reloading
from .starting import tell

LOG: Final = logging.getLogger("toolwire.serving")

BACKLOG: Final = 1024
"""Connections that the system accepts before the application does."""

COLLECTOR_THRESHOLDS: Final = (10_000, 3, 7)
"""Of Python's cyclic collector while requests are served; see `gc.set_threshold`. A stream lives long enough to get to
the oldest generation, and one that fails leaves circles there: with five times as many allocations between two full
collections a hundred megabytes of them waited. The middle one looks at 40,000 objects, in 10 ms."""

SWITCH_S: Final = 0.0005
"""How long a busy thread keeps the interpreter while the event loop waits for it. Python's 5 ms pass after each call to
the system, and an iteration of the loop has several for each connection."""

LAST_S: Final = 2.0
"""For the last words of what had to be ended."""

CUT_S: Final = 0.5
"""For whatever does not end then either; aiohttp takes it twice."""


def serve(
    config: GatewayConfig,
    *,
    load: Callable[[], GatewayConfig] | None = None,
    create: AppFactory | None = None,
    announce: Callable[[str], None] | None = None,
) -> int:
    """Serve until a signal comes; the exit status.

    `load` reads the configuration anew when SIGHUP comes (without it SIGHUP is ignored). `create` makes the application
    (default: `proxy.app.create_app`), in every worker. `announce` gets the one line with the base URL (default:
    standard output).
    """
    server = config.server
    set_up_logging(server.log_format, server.log_level)
    if _leads_back(config, server.port):
        return 1
    allow_files()
    log_room(config.limits.connections)
    if create is None:
        tell(config)
        import_module("proxy.app")  # before there are workers, so that they start fast and share the memory
        create = gateway
    announce = announce or _print
    share = server.workers > 1
    if share and not (hasattr(socket, "SO_REUSEPORT") and hasattr(os, "fork")):
        LOG.error(
            "cannot start: several workers need fork and SO_REUSEPORT, which this system does not have (Windows). Set "
            "`server.workers` to 1, and start one gateway on each of several ports behind a balancer if one is too few."
        )
        return 1
    try:
        if share and server.port:
            # With SO_REUSEPORT a second gateway would silently take half of the connections of the first.
            close(bind(server.host, server.port))
        sockets = bind(server.host, server.port, share=share)
    except OSError as error:
        LOG.error("cannot listen on %s port %d: %s", server.host, server.port, error.strerror or error)
        return 1
    port = sockets[0].getsockname()[1]
    if not server.port and _leads_back(config, port):
        close(sockets)
        return 1
    line = f"toolwire is serving {base_url(server.host, port)}"

    def ready() -> None:
        announce(line)
        if config.inspect.on:
            announce(f"the inspector is at {page_url(server.host, port)}")
        notify(READY)

    try:
        if share:
            from .workers import Supervisor

            return Supervisor(config, create, sockets, ready, load).run()
        return run(config, create, sockets, Metrics(), ready=ready, load=load)
    finally:
        close(sockets)


def _leads_back(config: GatewayConfig, port: int) -> bool:
    problems = leading_back(config, port)
    if problems:
        LOG.error("cannot start:\n%s", "\n".join(problems))
    return bool(problems)


def base_url(host: str, port: int) -> str:
    """The base URL for OpenAI clients."""
    host = host.strip("[]") or "0.0.0.0"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def page_url(host: str, port: int) -> str:
    """Where the inspector's page is."""
    return f"{base_url(host, port).removesuffix('/v1')}/inspect"


def bind(host: str, port: int, *, share: bool = False) -> list[socket.socket]:
    """Sockets bound to every address of `host`, not listening yet, all on one port (0: a free one).

    With `share`, other sockets of this user that share as well may be bound to the same addresses. Raises `OSError`.
    """
    found = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    for family, kind, proto, _, address in dict.fromkeys(found):
        sock = socket.socket(family, kind, proto)
        sockets.append(sock)
        try:
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            port = port or sock.getsockname()[1]
        except OSError as error:
            sockets.pop().close()
            # `localhost` may name an IPv6 address on a machine that has none.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                close(sockets)
                raise
            failed = error
    if failed is not None and not sockets:
        raise failed
    return sockets


def close(sockets: Sequence[socket.socket]) -> None:
    """Close them all."""
    for sock in sockets:
        sock.close()


@dataclass(frozen=True, slots=True)
class Order:
    """To reload: how the configuration is read, and who wants to know what went wrong (None: nothing)."""

    read: Callable[[], GatewayConfig]
    answer: Callable[[str | None], None]


Listen = Callable[[Callable[[], None], Callable[[Order], bool]], None]
"""Called in the loop, with what it calls to stop and to reload: arranges that this happens."""


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
    """Serve in this process on bound `sockets` until SIGTERM or SIGINT; the exit status. `ready` is called once.
    `metrics` are those of this process.

    `listen` is for workers, in place of SIGHUP and `load`. A worker never takes a second signal as a demand to hurry,
    because it may get one from its process group and one from its parent. `looks`: its log says what the model servers
    are, and names those that are no good.
    """

    async def main() -> None:
        from .rehearsal import rehearse

        host = Host(create, metrics, speaks=looks, prepare=rehearse if create is gateway else None)
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
        flush_logs()  # a worker ends without the interpreter's own farewell
    return status


@contextmanager
def _ending(status: int) -> Iterator[None]:
    """All is closed but the event loop, which waits for its threads and tasks. One that does not end, such as a
    plug-in's thread that sleeps, must not hold up the process: after `LAST_S` it ends without it."""
    ended = threading.Event()

    def watch() -> None:
        if not ended.wait(LAST_S):
            LOG.warning("the process ends although some thread or task does not")
            flush_logs()
            sys.stdout.flush()
            os._exit(status)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class _Serving:
    """One process that serves, from its start to its end."""

    def __init__(
        self,
        config: GatewayConfig,
        host: Host,
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
        self._orders: asyncio.Queue[Order] = asyncio.Queue()

    async def run(self, sockets: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        """Serve until it is to stop."""
        host = self._host
        asyncio.get_running_loop().set_exception_handler(Shortage())
        self._heed_signals()
        await host.start(self._config)
        runner = web.ServerRunner(host.server, shutdown_timeout=CUT_S)
        try:
            await runner.setup()
            if not self._stop.is_set():  # it may have been told to while it started
                await self._accept(runner, sockets, ready)
        except asyncio.CancelledError:
            raise  # in a hurry: what is open closes with the process
        except BaseException:
            await self._close(runner)
            raise
        await self._close(runner)

    async def _accept(
        self, runner: web.ServerRunner, sockets: Sequence[socket.socket], ready: Callable[[], None]
    ) -> None:
        for sock in sockets:
            bound_unsent(sock)
            await web.SockSite(runner, sock, backlog=ACCEPTED_AT_ONCE).start()  # asyncio takes one number for both
            sock.listen(BACKLOG)
        with rare_collections(), short_turns():
            ready()
            tasks = {asyncio.create_task(self._follow_orders())}
            if self._looks:
                tasks.add(asyncio.create_task(self._host.look()))
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=LAST_S)
            await self._drain(runner)

    async def _close(self, runner: web.ServerRunner) -> None:
        await runner.cleanup()
        await self._host.close()

    def _heed_signals(self) -> None:
        if self._listen is not None:
            self._listen(self._stop.set, self._order)
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
        if (ctrl_break := getattr(signal, "SIGBREAK", None)) is not None:  # Windows: what one process can send another
            call_on_signal(ctrl_break, stop)
        if hasattr(signal, "SIGHUP"):
            call_on_signal(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        load = self._load
        if load is None:
            LOG.warning("SIGHUP is ignored: there is no configuration that could be read anew")
        elif self._orders.empty() and self._order(
            Order(lambda: reread(load, self._host.config), lambda _: notify(READY))
        ):  # one that waits will read what is there by then
            notify(reloading())

    def _order(self, order: Order) -> bool:
        if self._stop.is_set():
            LOG.warning("not reloading: the gateway is stopping")
            return False
        self._orders.put_nowait(order)
        return True

    async def _follow_orders(self) -> None:
        while True:
            order = await self._orders.get()
            order.answer(await self._host.reload(order.read))

    async def _drain(self, runner: web.ServerRunner) -> None:
        """See rule 2."""
        server = self._host.config.server
        self._host.drain()
        LOG.info("stopping; requests under way: %d", self._host.running)
        await asyncio.sleep(server.shutdown_delay_s)
        for site in runner.sites:
            await site.stop()
        await asyncio.sleep(0)  # what was just accepted begins
        self._host.server.pre_shutdown()  # closes what is idle, and the others after their answer
        if await _within(server.shutdown_grace_s, self._host.idle()):
            return
        reason = Unavailable("The gateway is stopping. Send the request again.", code="shutting_down")
        LOG.warning("the grace is over; requests that were ended: %d", self._host.stop(reason))
        await _within(LAST_S, self._host.idle())


def call_on_signal(number: int, call: Callable[[], object]) -> None:
    """Have a signal call something in the running loop, which need not know signals. For the main thread."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))


async def _within(seconds: float, work: Awaitable[None]) -> bool:
    """Whether it ended in time."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return False
    return True


@contextmanager
def rare_collections() -> Iterator[None]:
    """Keep what was built at the start out of the collector's sight, and let it look less often: a request makes some
    hundred objects and leaves hardly a cycle behind."""
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
    """Have threads hand the interpreter on after `SWITCH_S`. A process without busy threads does not notice."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


def gateway(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
    """The gateway's own application."""
    from ..app import create_app

    return create_app(config, metrics=metrics, before=before)


def _print(line: str) -> None:
    print(visible_lines(line), flush=True)
