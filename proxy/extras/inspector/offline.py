"""The inspector without a gateway: `toolwire inspect FILE` shows a capture in the page and contacts no server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

from ...config import GatewayConfig
from ...errors import ClientFault
from ...ingress.auth import ApiKey, Keys
from ...ingress.budget import BODY_BUDGET, BodyBudget
from ...ingress.liveness import LIVENESS, LivenessMonitors
from ...observability.telemetry import Metrics
from ...pipeline.sending.delivery import boundary
from ...registry import registries
from ..capture.files import Captured
from ..capture.recording import RecordingError
from .asked import so_far
from .holders import Counts, Holder, Holders
from .ring import Changes, Ring, Row, client_of
from .routes import PLACE, Pages
from .view import UNREADABLE, began, view


class FileHolder:
    """A `Holder` of one exchange: `captured`, from a file with this `content`."""

    name = "file"

    def __init__(self, captured: Captured, content: bytes) -> None:
        self._row = _row(captured, len(content))
        self._content = content

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        """Returns the only exchange of the file; later there are no changes."""
        if since:
            await asyncio.sleep(wait_s)
        return Changes(1, () if since else (self._row,), (), 0)

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """Returns the content of the file if the id is its exchange's, else None."""
        return self._content if ident == self._row["id"] else None

    async def counts(self) -> Counts:
        """Returns no counts, because a file has none."""
        return []


class _File(Holders):
    def __init__(self, holder: FileHolder) -> None:
        super().__init__(Ring(0), None)
        self._source = holder

    def all(self) -> list[Holder]:
        return [self._source]


def _row(captured: Captured, size: int) -> Row:
    head, end = captured.head, so_far(captured)
    return {
        "id": str(head.get("request_id", "opened")),
        "exchange_id": str(head.get("request_id", "opened")),
        "at": began(captured),
        "worker": 0,
        "api": head.get("endpoint"),
        "path": head.get("path"),
        "model": head.get("model"),
        "client": client_of(head.get("headers", {})),
        "running": False,
        "bytes": size,
        "stream": None,
        **end,
    }


def offline(captured: Captured, content: bytes) -> web.Application:
    """Returns the application that shows the capture. Raises `RecordingError` if the capture is invalid."""
    plugins = registries()
    try:
        view(captured, plugins)
        holders = _File(FileHolder(captured, content))
    except UNREADABLE as error:
        raise RecordingError(f"the capture cannot be read: {error}") from error

    async def nothing(*_: object) -> dict[str, Any]:
        raise ClientFault("This is a capture in a file, without a gateway.", code="not_found")

    def setup(key: ApiKey | None) -> dict[str, Any]:
        opened = str(captured.head.get("request_id", "opened"))
        return {"live": False, "file": opened, "routes": [], "formats": plugins.formats.names(), "apis": []}

    config, metrics = GatewayConfig(), Metrics()
    app = web.Application(middlewares=[boundary(Keys(()), plugins.client_sides())])
    app[LIVENESS] = LivenessMonitors(config.server.keepalive_s)
    app[BODY_BUDGET] = BodyBudget(
        config.limits.total_body_bytes, fair=False, gauge=(metrics.cells, metrics.body_bytes.at())
    )
    Pages(config, holders, plugins, keyed=False, setup=setup, overview=nothing, check=nothing).add_routes(app.router)
    return app


def show(app: web.Application, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves an application until a signal arrives. `announce` is called with the address of its page."""

    async def run() -> None:
        stopping = _stop_event()
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            bound = runner.addresses[0][1]
            announce(f"http://{f'[{host}]' if ':' in host else host}:{bound}{PLACE}")
            await stopping.wait()
        finally:
            await runner.cleanup()

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
