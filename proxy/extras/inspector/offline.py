"""The inspector without a gateway: `toolwire inspect FILE` shows a capture in the page and contacts no server."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from ...config import GatewayConfig
from ...errors import ClientFault
from ...ingress.auth import Keys
from ...ingress.budget import BODY_BUDGET, BodyBudget
from ...ingress.liveness import LIVENESS, LivenessMonitors
from ...observability.telemetry import Metrics
from ...pipeline.sending.delivery import boundary
from ...registry import registries
from ...server.serving import page_url
from ...server.sockets import served
from ..capture.files import CapturedExchange
from ..capture.recording import RecordingError
from .file_holder import FileHolder, file_setup
from .holders import LAST_S, Holder, Holders
from .ring import Ring
from .routes import Pages
from .view import UNREADABLE, view


class _File(Holders):
    def __init__(self, holder: FileHolder) -> None:
        super().__init__(Ring(0), None)
        self._source = holder

    def all(self) -> list[Holder]:
        return [self._source]


def offline(captures: Sequence[tuple[CapturedExchange, bytes]]) -> web.Application:
    """Returns the application that shows the captures of a file. Raises `RecordingError` if one is invalid."""
    plugins = registries()
    try:
        for captured, _ in captures:
            view(captured, plugins)
        holder = FileHolder(captures)
    except UNREADABLE as error:
        raise RecordingError(f"the capture cannot be read: {error}") from error

    async def nothing(*_: object) -> dict[str, Any]:
        raise ClientFault("This is a capture in a file, without a gateway.", code="not_found")

    config, metrics = GatewayConfig(), Metrics()
    app = web.Application(middlewares=[boundary(Keys(()), plugins.client_sides())])
    app[LIVENESS] = LivenessMonitors(config.server.keepalive_s)
    app[BODY_BUDGET] = BodyBudget(
        config.limits.total_body_bytes, fair=False, gauge=(metrics.cells, metrics.body_bytes.at())
    )
    Pages(
        config,
        _File(holder),
        plugins,
        keyed=False,
        setup=lambda _: file_setup(holder.rows, plugins),
        overview=nothing,
        check=nothing,
    ).add_routes(app.router)
    app.on_shutdown.append(_drain)
    return app


async def _drain(app: web.Application) -> None:
    """Ends the lists that pages wait for. For `app.on_shutdown`."""
    app[LIVENESS].drain()


def show(app: web.Application, sockets: Sequence[socket.socket], announce: Callable[[str], None]) -> None:
    """Serves an application at these sockets until a signal arrives. `announce` is called with the address of its
    page."""

    async def run() -> None:
        stopping = _stop_event()
        async with served(app, sockets, stop_s=LAST_S):
            announce(page_url(*sockets[0].getsockname()[:2]))
            await stopping.wait()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        pass


def _stop_event() -> asyncio.Event:
    """Returns an event that is set by SIGINT or SIGTERM, also if the parent process ignored them, as shells do for
    background jobs."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows Ctrl-C is an exception
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
