"""Runs the application: sockets, signals, graceful end. One process here; several are `proxy.workers`.

Rules of this module:

1. The base URL is announced once, when connections are accepted and not before.
2. SIGTERM and SIGINT end it gracefully: nothing new is accepted, what runs may go on for `server.shutdown_grace_s`. A
   second signal ends it at once.
3. Exit status: 0 after a graceful end, 1 if it could not start or was cut short.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from aiohttp import web

from .config import GatewayConfig
from .conversion import ConfigError
from .dispatch import Dispatch
from .logs import flush_logs, set_up_logging
from .telemetry import Metrics

LOG: Final = logging.getLogger("toolwire.serving")

BACKLOG: Final = 1024
"""Connections that the system accepts before the application does."""

COLLECTOR_THRESHOLDS: Final = (10_000, 10, 10)
"""Of Python's cyclic collector while requests are served; see `gc.set_threshold`."""

AppFactory = Callable[[GatewayConfig, Metrics], web.Application]
"""Makes the application of a process, which counts in the given metrics. They outlast it: see `create_app`."""


def serve(
    config: GatewayConfig, *, create: AppFactory | None = None, announce: Callable[[str], None] | None = None
) -> int:
    """Serve until a signal comes; the exit status.

    `create` makes the application (default: `proxy.app.create_app`), once in every worker. `announce` gets the one line
    with the base URL (default: standard output).
    """
    server = config.server
    set_up_logging(server.log_format, server.log_level)
    create = create or _create_app
    announce = announce or _print
    share = server.workers > 1
    if share and not hasattr(socket, "SO_REUSEPORT"):
        LOG.error("cannot start: several workers need SO_REUSEPORT, which this system does not have")
        return 1
    try:
        if share and server.port:
            # With SO_REUSEPORT a second gateway would silently take half of the connections of the first.
            close(bind(server.host, server.port))
        sockets = bind(server.host, server.port, share=share)
    except OSError as error:
        LOG.error("cannot listen on %s port %d: %s", server.host, server.port, error.strerror or error)
        return 1
    line = f"toolwire is serving {base_url(server.host, sockets[0].getsockname()[1])}"
    try:
        if share:
            from .workers import Supervisor

            return Supervisor(config, create, sockets, lambda: announce(line)).run()
        return run(config, create, sockets, Metrics(), ready=lambda: announce(line))
    finally:
        close(sockets)


def base_url(host: str, port: int) -> str:
    """The base URL for OpenAI clients."""
    host = host.strip("[]") or "0.0.0.0"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


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


def run(
    config: GatewayConfig,
    create: AppFactory,
    sockets: Sequence[socket.socket],
    metrics: Metrics,
    *,
    ready: Callable[[], None],
    parent: int | None = None,
) -> int:
    """Serve in this process on bound `sockets` until SIGTERM or SIGINT; the exit status. `ready` is called once. `metrics` are
    those of this process.

    `parent` is for workers: a file descriptor that becomes readable when the parent is gone. A worker never takes a second
    signal as a demand to hurry, because it may get one from its process group and one from its parent.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, create, sockets, metrics, ready, parent))
    except asyncio.CancelledError:
        LOG.warning("stopped by a second signal; what was running is lost")
        return 1
    except ConfigError as error:
        LOG.error("cannot start:\n%s", error)
        return 1
    except Exception as error:
        LOG.error("cannot start: %s: %s", type(error).__name__, error, exc_info=error)
        return 1
    finally:
        flush_logs()  # a worker ends without the interpreter's own farewell
    return 0


async def _serve(
    config: GatewayConfig,
    create: AppFactory,
    sockets: Sequence[socket.socket],
    metrics: Metrics,
    ready: Callable[[], None],
    parent: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def on_signal() -> None:
        if stop.is_set() and parent is None:
            task.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        if parent is not None and number == signal.SIGINT:
            continue  # Ctrl-C reaches the whole process group; the parent passes it on
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))
    if parent is not None:
        loop.add_reader(parent, stop.set)

    app = create(config, metrics)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,  # the gateway writes its own record of each exchange
        shutdown_timeout=config.server.shutdown_grace_s,
    )
    try:
        await runner.setup()
        assert runner.server is not None
        runner.server.request_handler = Dispatch(app, runner.server.request_handler)
        for sock in sockets:
            await web.SockSite(runner, sock, backlog=BACKLOG).start()
        with _rare_collections():
            ready()
            await stop.wait()
    finally:
        if parent is not None:
            loop.remove_reader(parent)
        await runner.cleanup()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Keep what was built at the start out of the collector's sight, and let it look less often: a request makes some hundred
    objects and leaves hardly a cycle behind."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


def _create_app(config: GatewayConfig, metrics: Metrics) -> web.Application:
    from .app import create_app
    from .checks import check_names
    from .registry import registries

    plugins = registries()
    check_names(config, plugins)
    return create_app(config, plugins=plugins, metrics=metrics)


def _print(line: str) -> None:
    print(line, flush=True)
