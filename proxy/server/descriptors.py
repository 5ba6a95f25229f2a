"""File descriptors: a connection is one, and the system gives a process only so many.

Rules of this module:

1. As many as the system allows are asked for; `limits.connections` is cut to what that leaves room for, and the log
   says so once.
2. Half of them are for clients: a request that is answered holds a connection to a model server as well. `KEPT` are for
   the rest: the log, the store, files that are read.
3. When there are none all the same, connections wait in the system's queue until there are: asyncio looks again every
   second, and the log says it once in `REPEAT_S`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, NamedTuple

LOG: Final = logging.getLogger("toolwire.serving")

KEPT: Final = 64
"""For everything that is no connection."""

FEWEST: Final = 8
"""So many connections are taken whatever the system allows."""

ACCEPTED_AT_ONCE: Final = 32
"""Connections taken in one turn of the event loop. asyncio tries so often also when it was told that there are no
descriptors."""

REPEAT_S: Final = 10.0
"""Between two lines about the same in the log."""

NO_DESCRIPTORS: Final = "socket.accept() out of system resource"
"""What asyncio calls it."""


def allow_files() -> None:
    """Have as many files at once as the system allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            LOG.warning("only %d files may be open at once: %s", soft, error)


def files_allowed() -> int | None:
    """How many files this process may have open; None for no limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class Room(NamedTuple):
    """How many connections there may be: of clients, and of others that are just told that there are too many."""

    clients: int
    refused: int


def room(files: int | None, clients: int, refused: int) -> Room:
    """What `files` leave room for, of the connections that are wanted."""
    if files is None:
        return Room(clients, refused)
    spare = max(files - KEPT, 0)
    refused = min(refused, spare // 8)
    return Room(min(clients, max((spare - refused) // 2, FEWEST)), refused)


def log_room(wanted: int) -> None:
    """Say in the log if there is no room for all connections that are wanted."""
    files = files_allowed()
    clients = room(files, wanted, 0).clients
    if clients < wanted:
        LOG.log(
            logging.WARNING if clients < wanted / 2 else logging.INFO,
            "only %d files may be open at once: a worker takes about %d connections, not %d (`limits.connections`). Allow more "
            "(ulimit -n, LimitNOFILE), or lower it",
            files,
            clients,
            wanted,
        )


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
