"""Makes full garbage collections rare while a request with tens of thousands of JSON values runs.

A full collection scans all live objects and blocks the process: 100 ms and more with such a request. It would find no
garbage there, because JSON values and the objects made from them contain no reference cycles. Collections are made rare
instead of being disabled, because other requests do leave cycles.
"""

from __future__ import annotations

import gc
from typing import Final

from aiohttp import web

HUGE_VALUES: Final = 4096
"""A body with at least this many JSON objects and lists makes full collections rare."""

RARELY: Final = 500
"""Third threshold of `gc.set_threshold` while a huge request runs: the number of middle collections before a full
one."""

_HELD: Final = web.RequestKey("toolwire.collecting", bool)


class CollectorThresholds:
    """Counts the running requests with huge bodies and sets the thresholds of the collector, which are shared by the
    process. Successive applications share one instance."""

    def __init__(self) -> None:
        self.requests = 0
        """Number of requests with huge bodies that are running."""
        self._usual = 0

    def hold(self, request: web.Request, objects: int) -> None:
        """Called when `request` begins, with the number of JSON objects and lists in its body, possibly again. Makes
        full collections rare if there are many."""
        if objects < HUGE_VALUES or _HELD in request:
            return
        request[_HELD] = True
        self.requests += 1
        if self.requests == 1:
            young, middle, self._usual = gc.get_threshold()
            gc.set_threshold(young, middle, max(RARELY, self._usual))

    def release(self, request: web.Request) -> None:
        """Called when `request` is over. Restores the usual threshold after the last huge one."""
        if request.get(_HELD):
            self.requests -= 1
            if not self.requests:
                young, middle, _ = gc.get_threshold()
                gc.set_threshold(young, middle, self._usual)


COLLECTING: Final = web.AppKey("toolwire.collecting", CollectorThresholds)
