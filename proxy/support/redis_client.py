"""Connecting to a Redis or Valkey server, and what its failures are called. Needs the extra `redis`.

No text from here holds an address, a user, a password, or what the server said: it repeats arguments.
"""

from __future__ import annotations

from typing import Final

try:
    from redis import exceptions as faults
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise ImportError("'redis' needs a package: pip install 'toolwire[redis]'") from error

CONNECTIONS: Final = 32

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

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. Raises `ValueError` for a `url` that is none.
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
