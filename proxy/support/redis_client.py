"""Connecting to a Redis or Valkey server, and what its failures are called. Needs the extra `redis`.

No text from here holds an address, a user, a password, or what the server said: it repeats arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

try:
    from redis import exceptions as faults
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise ImportError("'redis' needs a package: pip install 'toolwire[redis]'") from error

T = TypeVar("T")

CONNECTIONS: Final = 32

CANCELLED_AGAIN_S: Final = 0.05
"""A cancellation may be swallowed: see `Commands`."""

FAILURES: Final[tuple[type[Exception], ...]] = (faults.RedisError, OSError)
"""What a call of the client may raise."""

_TEXTS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (faults.AuthenticationError, "the Redis server refuses the name or the password"),
    (faults.AuthorizationError, "the Redis server refuses the name or the password"),
    (faults.NoPermissionError, "the Redis server does not allow a command that the store needs"),
    (faults.BusyLoadingError, "the Redis server is still loading"),
    (faults.OutOfMemoryError, "the Redis server is out of memory"),
    (faults.ReadOnlyError, "the Redis server is a read-only replica"),
    (faults.TimeoutError, "the Redis server did not answer in time"),
    (TimeoutError, "the Redis server did not answer in time"),
    (faults.ConnectionError, "the Redis server cannot be reached"),
    (OSError, "the Redis server cannot be reached"),
)


def connect(url: str, timeout_s: float) -> Redis:
    """A client of the server at `url` (`redis://`, `rediss://` or `unix://`), not connected yet.

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. Raises `ValueError` for a `url` that
    is none.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A connection that the server closed since it was last used: once more, on a new one.
            retry=Retry(NoBackoff(), 1, supported_errors=(faults.ConnectionError,)),
            retry_on_error=[faults.ConnectionError],
        )
        pool.connection_class(**pool.connection_kwargs)  # Options in the URL are looked at only here.
    except (ValueError, TypeError):
        raise ValueError("not the URL of a Redis server (redis://, rediss:// or unix://)") from None
    return Redis.from_pool(pool)


def described(error: Exception) -> str:
    """A failure of the client in words."""
    said = next((text for kind, text in _TEXTS if isinstance(error, kind)), None)
    return said or f"the Redis server refused a command ({type(error).__name__})"


class Commands:
    """The commands of one client that are under way. Nobody cancels them from outside.

    redis-py may swallow a cancellation (its own limits are nested in each other), and then whoever cancelled waits on,
    for as long as a server hangs. So a command is a task of its own: whoever asked may stop waiting, and the command
    ends by itself, within the limits that `connect` set.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, command: Awaitable[T], timeout_s: float | None = None) -> T:
        """What the server answers. Raises one of `FAILURES`, among them `TimeoutError` after `timeout_s`."""
        task = asyncio.ensure_future(command)
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise faults.ConnectionError
        return task.result()

    async def end(self, patience_s: float) -> None:
        """Returns when none is under way. Those that take longer than `patience_s` are given up."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCELLED_AGAIN_S)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever asked may have stopped waiting; nobody need be told.
