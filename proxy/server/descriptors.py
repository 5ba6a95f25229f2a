"""File descriptors: a connection is one, and the system gives a process only so many.

Rules of this module:

1. As many as the system allows are asked for; `limits.connections` is cut to what that leaves room for, and the log says so once.
2. Half of them are for clients: a request that is answered holds a connection to a model server as well. `KEPT` are for the rest:
   the log, the store, files that are read.
3. When there are none all the same, connections wait in the system's queue until there are: asyncio looks again every second, and
   the log says it once in `REPEAT_S`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

LOG: Final = logging.getLogger("toolwire.serving")

KEPT: Final = 64
"""For everything that is no connection."""

FEWEST: Final = 8
"""So many connections are taken whatever the system allows."""

ACCEPTED_AT_ONCE: Final = 32
"""Connections taken in one turn of the event loop. asyncio tries so often also when it was told that there are no descriptors."""

REPEAT_S: Final = 10.0
"""Between two lines about the same in the log."""

NO_DESCRIPTORS: Final = "socket.accept() out of system resource"
"""What asyncio calls it."""


def allow_files() -> int | None:
    """Have as many files at once as the system allows; how many these are, None for no limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            LOG.warning("only %d files may be open at once: %s", soft, error)
    return None if soft == resource.RLIM_INFINITY else soft


def files_allowed() -> int | None:
    """How many files this process may have open; None for no limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def room_for_clients(files: int | None, wanted: int, refusals: int) -> tuple[int, int]:
    """How many connections of clients there may be, and how many more that are just being refused, of those that are wanted."""
    if files is None:
        return wanted, refusals
    spare = max(files - KEPT, 0)
    refusals = min(refusals, spare // 8)
    return min(wanted, max((spare - refusals) // 2, FEWEST)), refusals


class Shortage:
    """Says that connections have to wait for descriptors; for `set_exception_handler` of the event loop."""

    def __init__(self) -> None:
        self._said: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what asyncio has to say. All else goes where it went before."""
        if context.get("message") != NO_DESCRIPTORS:
            loop.default_exception_handler(context)
            return
        now = loop.time()
        if self._said is None or now - self._said >= REPEAT_S:
            self._said = now
            LOG.error(
                "no file descriptors are left (%s): new connections wait. Allow more (ulimit -n, LimitNOFILE), or lower "
                "`limits.connections`",
                context.get("exception"),
            )
