"""Debug captures as a feature of an application (R18.4)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from aiohttp import web

from ...features import FeatureContext
from ...pipeline.sending.delivery import Serving
from ...record import Observe
from .recorder import CaptureFolder, Captures
from .routes import CAPTURES, add_routes


class Capturing:
    """Records exchanges into a folder and serves them, as a `toolwire.features.Feature`."""

    observes_all: ClassVar[bool] = False
    open_paths: ClassVar[str | None] = None

    def __init__(self, context: FeatureContext) -> None:
        cells = context.metrics.cells.path
        config = context.config
        make = partial(CaptureFolder, config.capture, None if cells is None else cells.parent / "captures")
        self._folder = context.shared.take(CAPTURES, config.capture, make, CaptureFolder.close)
        self._captures = Captures(config, self._folder)

    @property
    def observe(self) -> Observe:
        return self._captures.begin

    def open(self, app: web.Application, serving: Serving) -> None:
        app[CAPTURES] = self._folder
        add_routes(app.router)
