"""Memory that the process has freed, given back to the system.

glibc keeps freed memory in its arenas as long as something newer lies behind it. After a burst of large bodies that is
hundreds of megabytes, which nothing uses and which the system counts as used.
"""

from __future__ import annotations

import asyncio
import ctypes
from functools import cache
from typing import Any

SETTLE_S = 1.0
"""Seconds without freed memory before it is given back: the last answer may still be on its way."""
EVERY_S = 10.0
"""The longest that a burst puts it off. The pages have to be fetched again, so it must not come often."""


@cache
def _trim() -> Any:
    """glibc's `malloc_trim`; None for another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def give_back() -> None:
    """Give freed memory back to the system. Takes milliseconds, in which other threads run Python."""
    trim = _trim()
    if trim is not None:
        trim(0)


class GivingBack:
    """Counts freed bytes, and gives memory back once there are `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.freed = 0
        self._last = 0.0
        self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def free(self, size: int) -> None:
        """`size` bytes were freed, or will be within `SETTLE_S`."""
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
        loop.run_in_executor(None, give_back)
