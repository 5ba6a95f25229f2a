"""Python's collector of circles, while a request is worked on that has tens of thousands of values.

A full collection looks at everything that is alive, and nothing else happens meanwhile: with such a request 100 ms and
more, which others would wait. It has nothing to find there, since values of JSON and what is made of them have no
circles. So it comes more rarely until the request is over, and not never: other requests do leave circles.
"""

from __future__ import annotations

import gc
from typing import Final

from aiohttp import web

from toolwire.support.json_marks import CountMarks, json_marks
from toolwire.support.offload import offload

HUGE_VALUES: Final = 4096
"""Objects and lists in a body that make it such a one."""

COUNTED_BYTES: Final = 1024 * 1024
"""In a longer body they are counted in a thread: 30 MB take 8 ms."""

RARELY: Final = 500
"""Collections of the middle generation between two full ones meanwhile; see `gc.set_threshold`."""

_HELD: Final = web.RequestKey("toolwire.collecting", bool)


class Collecting:
    """Whether full collections are rare now. The thresholds are the process's; applications that follow each other
    share this."""

    def __init__(self) -> None:
        self.requests = 0
        """Such requests that run."""
        self._usual = 0

    async def hold(self, request: web.Request, body: bytes, count: CountMarks = json_marks) -> None:
        """`request` has this body, and begins. `count` counts its marks."""
        objects, _, _ = await offload(len(body) > COUNTED_BYTES, count, body)
        if objects < HUGE_VALUES:
            return
        request[_HELD] = True
        self.requests += 1
        if self.requests == 1:
            young, middle, self._usual = gc.get_threshold()
            gc.set_threshold(young, middle, max(RARELY, self._usual))

    def release(self, request: web.Request) -> None:
        """`request` is over."""
        if request.get(_HELD):
            self.requests -= 1
            if not self.requests:
                young, middle, _ = gc.get_threshold()
                gc.set_threshold(young, middle, self._usual)


COLLECTING: Final = web.AppKey("toolwire.collecting", Collecting)
