"""Starts the gateway: takes its port, then serves in this process (`toolwire.server.process`) or in several
(`toolwire.server.workers`).

The base URL is printed once, when connections are accepted; then the inspector's URL, if it is enabled.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Final

from ..config import GatewayConfig
from ..observability.logs import set_up_logging
from ..observability.telemetry import Metrics
from ..startup.backend_loops import loop_mistakes
from ..support.legible import visible_lines
from .descriptors import allow_files, log_limits
from .hosting import AppFactory
from .notify import READY, notify
from .port_in_use import why_not_listening
from .process import gateway, run
from .sockets import bind, close, reserve
from .starting import log_start_notes

LOG: Final = logging.getLogger("toolwire.serving")


def serve(
    config: GatewayConfig,
    *,
    load: Callable[[], GatewayConfig] | None = None,
    create: AppFactory | None = None,
    announce: Callable[[str], None] | None = None,
) -> int:
    """Serves until a signal comes. Returns the exit status.

    `load` reloads the configuration on SIGHUP, which is ignored without it. `create` creates the application in every
    worker (default: `toolwire.app.create_app`). `announce` gets the line with the base URL (default: standard output).
    """
    server = config.server
    set_up_logging(server.log_format, server.log_level)
    if _has_loop(config, server.port):
        return 1
    allow_files()
    log_limits(config.limits.connections)
    if create is None:
        log_start_notes(config)
        import_module("toolwire.app")  # imported before forking, so that workers start fast and share memory
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
        sockets = (reserve if share else bind)(server.host, server.port)
    except OSError as error:
        why = " ".join(why_not_listening(error, server.port))
        LOG.error("cannot listen on %s port %d: %s. %s", server.host, server.port, error.strerror or error, why)
        return 1
    port = sockets[0].getsockname()[1]
    if not server.port and _has_loop(config, port):
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


def _has_loop(config: GatewayConfig, port: int) -> bool:
    problems = loop_mistakes(config, port)
    if problems:
        LOG.error("cannot start:\n%s", "\n".join(problems))
    return bool(problems)


def base_url(host: str, port: int) -> str:
    """Returns the base URL for OpenAI clients."""
    host = host.strip("[]") or "0.0.0.0"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def page_url(host: str, port: int) -> str:
    """Returns the URL of the inspector."""
    return f"{base_url(host, port).removesuffix('/v1')}/inspect"


def _print(line: str) -> None:
    with suppress(OSError):  # without a reader, or on a full disk, the gateway serves all the same
        print(visible_lines(line), flush=True)
