"""Returns freed memory to the operating system.

glibc keeps freed memory in its arenas while a newer allocation lies behind it. After a burst of large bodies that is
hundreds of megabytes of unused memory, which the system still counts as used by the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from functools import cache
from typing import Any, Final

from aiohttp import web

from .json_marks import CountMarks, json_marks
from .offload import offload

SETTLE_S = 1.0
"""Seconds without further freed memory before it is returned: the last answer may still be in transfer."""
EVERY_S = 10.0
"""Maximum delay during a burst. Returning memory is expensive, because its pages must be mapped again when they are
needed."""


@cache
def _trim() -> Any:
    """Returns glibc's `malloc_trim`, or None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def return_memory() -> None:
    """Returns freed memory to the operating system. Takes milliseconds, during which other threads can run Python."""
    trim = _trim()
    if trim is not None:
        trim(0)


class MemoryReturner:
    """Counts freed bytes, and returns memory to the system after `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.freed = 0
        self._last = 0.0
        self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def free(self, size: int) -> None:
        """Called when `size` bytes were freed or will be freed within `SETTLE_S`."""
        self.freed += size
        if self.freed < self.most:
            return
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._timer is None:
            self._latest = self._last + EVERY_S
            self._wait(loop)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        due = min(self._last + SETTLE_S, self._latest)
        self._timer = loop.call_at(due, self._settle, loop, due)

    def _settle(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if due < min(self._last + SETTLE_S, self._latest):
            self._wait(loop)
            return
        self._timer = None
        self.freed = 0
        loop.run_in_executor(None, return_memory)


# --- garbage collection -----------------------------------------------------------------------------------------------


HUGE_VALUES: Final = 4096
"""A body with at least this many JSON objects and lists makes full collections rare."""

COUNTED_BYTES: Final = 1024 * 1024
"""Objects of a longer body are counted in a thread: 30 MB take 8 ms."""

RARELY: Final = 500
"""Third threshold of `gc.set_threshold` meanwhile: the number of middle collections before a full one."""

_HELD: Final = web.RequestKey("toolwire.collecting", bool)


class Collecting:
    """Counts the running requests with huge bodies and sets the thresholds of the collector, which are shared by the
    process. Successive applications share one instance."""

    def __init__(self) -> None:
        self.requests = 0
        """Number of requests with huge bodies that are running."""
        self._usual = 0

    async def hold(self, request: web.Request, body: bytes, count: CountMarks = json_marks) -> None:
        """Called when `request` with this `body` begins. Makes full collections rare if the body is huge. `count`:
        `json_marks`, or its compiled twin."""
        objects, _, _ = await offload(len(body) > COUNTED_BYTES, count, body)
        if objects < HUGE_VALUES:
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


COLLECTING: Final = web.AppKey("toolwire.collecting", Collecting)
