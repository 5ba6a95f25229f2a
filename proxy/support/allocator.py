"""Returns freed memory to the operating system.

glibc keeps freed memory in its arenas while a newer allocation lies behind it. After a burst of large bodies that is
hundreds of megabytes of unused memory, which the system still counts as used by the process. Large answers of model
servers leave as much.
"""

from __future__ import annotations

import asyncio
import ctypes
from functools import cache
from typing import Any, Final

SETTLE_S = 1.0
"""Seconds without further freed memory before it is returned: the last answer may still be in transfer."""
EVERY_S = 10.0
"""Maximum delay during a burst. Returning memory is expensive, because its pages must be mapped again when they are
needed."""
GIVE_BACK_BYTES: Final = 8 * 1024 * 1024
"""Freed bytes of large bodies after which memory is returned to the system. The objects that a body became take ten to
twenty times as much."""
LARGE_BYTES: Final = 256 * 1024
"""Bodies below this size do not count for `GIVE_BACK_BYTES`: they do not fragment memory enough to matter."""


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
