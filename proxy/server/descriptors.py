"""File descriptors: each connection needs one, and the operating system limits their number per process.

Rules of this module:

1. The process raises its limit as far as allowed. `limits.connections` is reduced to what that permits, and this is
   logged once.
2. Half of the descriptors are for clients, because each running request also needs a connection to a model server.
   `KEPT` are reserved for logs, the store and other files.
3. If there are none left nevertheless, uvloop resets new connections without a word, so `Shortage` looks for itself
   while connections are open. asyncio lets them wait in the system's queue, retries every second, and tells `Shortage`.
   It logs once per `REPEAT_S`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import Any, Final, NamedTuple

LOG: Final = logging.getLogger("toolwire.serving")

KEPT: Final = 64
"""Descriptors reserved for everything except connections."""

FEWEST: Final = 8
"""Minimum number of connections that are accepted, whatever the limit."""

ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted per iteration of the event loop. asyncio makes this many attempts even after an error."""

REPEAT_S: Final = 10.0
"""Minimum interval between two log lines about the same problem."""

NO_DESCRIPTORS: Final = "socket.accept() out of system resource"
"""Message that asyncio passes to exception handlers when `accept` fails for lack of descriptors."""


def allow_files() -> None:
    """Raises the process's limit of open files as far as allowed."""
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
    """Returns how many files this process may open; None for no limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class ConnectionLimits(NamedTuple):
    """Maximum numbers of connections: of accepted clients, and of refused ones that get an error answer."""

    clients: int
    refused: int


def connection_limits(files: int | None, clients: int, refused: int) -> ConnectionLimits:
    """Returns how many of the wanted connections are possible with `files` descriptors."""
    if files is None:
        return ConnectionLimits(clients, refused)
    spare = max(files - KEPT, 0)
    refused = min(refused, spare // 8)
    return ConnectionLimits(min(clients, max((spare - refused) // 2, FEWEST)), refused)


def log_limits(wanted: int) -> None:
    """Logs if clearly fewer connections are possible than wanted: a few less are no news to anybody."""
    files = files_allowed()
    clients = connection_limits(files, wanted, 0).clients
    if clients < wanted * 0.9:
        LOG.log(
            logging.WARNING if clients < wanted / 2 else logging.INFO,
            "only %d files may be open at once: a worker takes about %d connections, not %d (`limits.connections`). Allow more "
            "(ulimit -n, LimitNOFILE), or lower it",
            files,
            clients,
            wanted,
        )


class Shortage:
    """Logs when no file descriptors are left: an exception handler of asyncio's event loop, and a check."""

    def __init__(self) -> None:
        self._said: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs an error of `NO_DESCRIPTORS`; passes all others to the default handler."""
        if context.get("message") != NO_DESCRIPTORS:
            loop.default_exception_handler(context)
            return
        self._log(loop.time(), context.get("exception"))

    def check(self, now: float) -> None:
        """Logs if no file can be opened. `now` is the event loop's time."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._log(now, error.strerror)

    def _log(self, now: float, why: object) -> None:
        if self._said is None or now - self._said >= REPEAT_S:
            self._said = now
            LOG.error(
                "no file descriptors are left (%s): new connections are reset, or wait. Allow more (ulimit -n, LimitNOFILE), "
                "or lower `limits.connections`",
                why,
            )
