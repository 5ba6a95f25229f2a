"""A client for a Redis or Valkey server, or for the current master of a Sentinel service or a cluster. Needs the extra
`redis`.

Rules:

1. All keys of one client are in one slot. So in a cluster a single server has all of them, and commands go to that
   server alone. One kind of client therefore serves all three kinds of URL.
2. A *replicated* write is confirmed by replicas before the call returns: `WAIT` follows it on the same connection.
   Without that, a master that dies loses writes that it has confirmed.
3. Where the master can be replaced, a command that failed because of that is retried with the new master, for
   `patience_s` from the first failure of an outage. So commands must be safe to run twice. Later calls in the same
   outage are tried once.
4. A connection to a replaced master is not used again.
5. Error texts from here contain no address, user or password, and no text of the server, which may repeat arguments.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Final, TypeVar

try:
    from redis import exceptions as faults
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise ImportError("'redis' needs a package: pip install 'toolwire[redis]'") from error

from .redis_nodes import Cluster, Master, MasterFinder, NoMaster, OtherKind, Sentinels, UnknownService
from .redis_url import RedisUrl

T = TypeVar("T")

CONNECTIONS: Final = 32
AGAIN_S: Final = 0.2
"""Delay between two attempts while there is no master."""
LOOK_S: Final = 5.0
"""Interval at which the master and the number of its replicas are looked up while replicated writes happen."""

CANCELLED_AGAIN_S: Final = 0.05
"""Delay between two cancellations, since redis-py may swallow one: see `Commands`."""

FAILURES: Final[tuple[type[Exception], ...]] = (faults.RedisError, OSError)
"""Exceptions that a call of the client may raise."""


class NotReplicated(faults.RedisError):
    """The server has run the command, but too few replicas confirmed it in time."""


_TEXTS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (faults.AuthenticationError, "the Redis server refuses the name or the password"),
    (faults.AuthorizationError, "the Redis server refuses the name or the password"),
    (faults.NoPermissionError, "the Redis server does not allow a command that the store needs"),
    (faults.BusyLoadingError, "the Redis server is still loading"),
    (faults.OutOfMemoryError, "the Redis server is out of memory"),
    (faults.ReadOnlyError, "the Redis server is a read-only replica"),
    (faults.MasterDownError, "the Redis server is a replica without its master"),
    (faults.MovedError, "the Redis server is one of a cluster (redis+cluster://)"),
    (faults.ClusterCrossSlotError, "the Redis server is one of a cluster (redis+cluster://)"),
    (faults.ClusterDownError, "the Redis cluster is down"),
    (NotReplicated, "too few replicas of the Redis server have confirmed it"),
    (NoMaster, "there is no Redis master now"),
    (OtherKind, "the hosts of the URL are not what it says, Sentinels or nodes of a cluster"),
    (UnknownService, "the Redis Sentinels know no service of that name"),
    (faults.TimeoutError, "the Redis server did not answer in time"),
    (TimeoutError, "the Redis server did not answer in time"),
    (faults.ConnectionError, "the Redis server cannot be reached"),
    (OSError, "the Redis server cannot be reached"),
)

_LASTING: Final = (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError)
_PASSING: Final = (faults.ConnectionError, faults.TimeoutError, OSError, NotReplicated, faults.ReadOnlyError)
_PASSING_IN_CLUSTERS: Final = (faults.ClusterDownError, faults.AskError, faults.TryAgainError)
_SAID_IN_PASSING: Final = re.compile(
    r"READONLY|UNBLOCKED|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|non local key|WAIT cannot"
)
"""Messages of temporary errors for which redis-py has no class, or which a script wraps."""


def connect(url: str, timeout_s: float, **options: Any) -> Redis:
    """Returns a client for the single server at `url` (`redis://`, `rediss://` or `unix://`). It connects on first use.

    `timeout_s` bounds each wait: for a free connection, for connecting, and for an answer. `options` are passed to
    redis-py. Raises `ValueError` for an invalid `url`.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # Retries once, for a connection that the server has closed since its last use.
            retry=Retry(NoBackoff(), 1, supported_errors=(faults.ConnectionError,)),
            retry_on_error=[faults.ConnectionError],
            **options,
        )
        pool.connection_class(**pool.connection_kwargs)  # checks the options in the URL
    except (ValueError, TypeError):
        raise ValueError(
            "not the URL of a Redis server (redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, "
            "rediss+sentinel://, rediss+cluster://), or one with an unknown option"
        ) from None
    return Redis.from_pool(pool)


def described(error: Exception) -> str:
    """Returns a message for an exception of the client."""
    text_of_kind = next((text for kind, text in _TEXTS if isinstance(error, kind)), None)
    return text_of_kind or f"the Redis server refused a command ({type(error).__name__})"


def is_temporary(error: Exception) -> bool:
    """True if the command may succeed later, with this master or the next one."""
    if isinstance(error, _LASTING):
        return False
    if isinstance(error, _PASSING + _PASSING_IN_CLUSTERS):
        return True
    return isinstance(error, faults.ResponseError) and _SAID_IN_PASSING.search(str(error)) is not None


class Script:
    """A Lua script. The server runs it completely or not at all."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


# KEYS: a key that nothing else uses. A server that refuses writes (it is full, or a replica) also answers a PING.
PROBE: Final = Script("redis.call('SET', KEYS[1], '') redis.call('UNLINK', KEYS[1])")


@dataclass(eq=False, slots=True)
class Server:
    """The server that commands are sent to.

    `stale`: a command failed, so the master has to be looked up again. `used`: number of commands that are running.
    `looked_up`: time of the last lookup.
    """

    redis: Redis
    node: Master
    looked_up: float
    stale: bool = False
    used: int = 0


class RedisClient:
    """Runs commands on the server at `url`, or on the current master of the slot of `key`.

    `timeout_s` bounds each wait of each attempt; `patience_s`: see rule 3. `replicas`: number of replicas that must
    confirm a replicated write; None means all that could take over according to the Sentinels or the cluster (none for
    a single server). The first call opens the connection. Every call raises one of `FAILURES`.
    """

    def __init__(
        self, url: RedisUrl, timeout_s: float, *, key: str, patience_s: float = 0.0, replicas: int | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._replicas = replicas
        self._commands = Commands()
        self._nodes = _nodes(url, timeout_s, key)
        self._server: Server | None = None
        if self._nodes is None:
            self._server = Server(connect(url.given, timeout_s), Master(url.given, 0), 0.0)
        self._search: asyncio.Task[Server] | None = None
        self._failing: dict[bool, tuple[float, float]] = {}
        """Times of the first and the last failure since the last success, separately for replicated commands (True) and
        others (False)."""

    async def ping(self) -> None:
        """Returns if the server answers."""
        await self.ask(("PING",))

    async def ask(self, *commands: Sequence[Any]) -> tuple[list[Any], Server]:
        """Returns the answers to read-only commands, and the server that gave them."""
        return await self._retry(lambda: self._attempt(commands, False), False, None)

    async def run(
        self,
        script: Script,
        keys: Sequence[str],
        values: Sequence[Any],
        *,
        replicated: bool,
        limit_s: float | None = None,
    ) -> Any:
        """Returns the answer of a script; raises `TimeoutError` after `limit_s` if that is given. `replicated`: see
        rule 2."""
        rest = (len(keys), *keys, *values)

        async def attempt() -> Any:
            try:
                answers, _ = await self._attempt([("EVALSHA", script.digest, *rest)], replicated)
            except faults.NoScriptError:
                answers, _ = await self._attempt([("EVAL", script.text, *rest)], replicated)
            return answers[0]

        return await self._retry(attempt, replicated, limit_s)

    async def still(self, server: Server) -> bool:
        """True if `server` is still the master. A replaced master that has not noticed it yet lacks all later
        writes."""
        return self._nodes is None or await self._retry(self._find, False, None) is server

    async def close(self) -> None:
        """Gives running commands one more time limit, then cancels them and closes all connections."""
        await self._commands.end(self._timeout_s)
        if self._nodes is not None:
            await self._nodes.aclose()
        if self._server is not None:
            await self._server.redis.aclose()

    async def _retry(self, attempt: Callable[[], Coroutine[Any, Any, T]], replicated: bool, limit_s: float | None) -> T:
        """Runs `attempt` with the retries of rule 3."""
        clock = asyncio.get_running_loop().time
        until: float | None = None
        while True:
            try:
                answer = await self._commands.run(attempt(), limit_s)
            except FAILURES as error:
                if self._nodes is None or not is_temporary(error):
                    raise
                began = self._outage(replicated, clock())
                until = began + self._patience_s if until is None else until
                if clock() >= until:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                self._failing.pop(replicated, None)
                return answer

    def _outage(self, replicated: bool, now: float) -> float:
        """Records a failure and returns when its outage began. A failure longer ago than `patience_s` belongs to an
        earlier outage."""
        began, last = self._failing.get(replicated, (now, now))
        if now - last > self._patience_s:
            began = now
        self._failing[replicated] = began, now
        return began

    async def _attempt(self, commands: Sequence[Sequence[Any]], replicated: bool) -> tuple[list[Any], Server]:
        server = await self._current(replicated)
        confirmations = self._required_confirmations(server) if replicated else 0
        pipeline = server.redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        if confirmations:
            pipeline.execute_command(
                "WAIT", confirmations, max(1, int(self._timeout_s * 500))
            )  # half of it, in milliseconds
        server.used += 1
        try:
            answers = await pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            if confirmations and answers.pop() < confirmations:
                raise NotReplicated
        except FAILURES as error:
            server.stale = server.stale or is_temporary(error)
            raise
        finally:
            server.used -= 1
            self._close_if_unused(server)
        return answers, server

    def _required_confirmations(self, server: Server) -> int:
        if self._replicas is not None:
            return self._replicas
        return server.node.replicas

    async def _current(self, replicated: bool) -> Server:
        server = self._server
        if server is not None and self._nodes is None:
            return server
        if server is None or server.stale:
            return await self._find()
        if replicated and asyncio.get_running_loop().time() - server.looked_up >= LOOK_S:
            self._start_lookup()
        return server

    async def _find(self) -> Server:
        """Looks up the master now. Concurrent callers share one lookup."""
        return await asyncio.shield(self._start_lookup())

    def _start_lookup(self) -> asyncio.Task[Server]:
        if self._search is None or self._search.done():
            self._search = self._commands.later(self._look_up())
        return self._search

    async def _look_up(self) -> Server:
        assert self._nodes is not None
        node = await self._nodes.find()
        now = asyncio.get_running_loop().time()
        old = self._server
        if old is not None and old.node.url == node.url:
            old.node, old.looked_up, old.stale = node, now, False
            return old
        self._server = Server(connect(node.url, self._timeout_s, protocol=2), node, now)
        if old is not None:
            self._close_if_unused(old)
        return self._server

    def _close_if_unused(self, server: Server) -> None:
        """Rule 4: closes the client of a replaced master after its last command. Closed earlier, it would reconnect."""
        if server is not self._server and not server.used:
            self._commands.later(server.redis.aclose())


def _nodes(url: RedisUrl, timeout_s: float, key: str) -> MasterFinder | None:
    """Returns the finder of the master at `url`; None for a single server. Raises `ValueError` for invalid options."""

    def client(at: str) -> Redis:
        return connect(at, timeout_s, protocol=2)

    match url.kind:
        case "server":
            return None
        case "sentinel":
            client(url.at(url.nodes[0]))
            return Sentinels(url, client)
        case "cluster":
            client(url.at(url.nodes[0]))
            return Cluster(url, client, key)


class Commands:
    """The running commands of one client, each in a task that no caller cancels.

    redis-py may swallow a cancellation (its own timeouts are nested), and then the cancelling caller would wait for as
    long as the server hangs. So a caller may stop waiting, while the command ends by itself within the limits that
    `connect` set.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, command: Awaitable[T], timeout_s: float | None = None) -> T:
        """Returns the server's answer. Raises one of `FAILURES`, including `TimeoutError` after `timeout_s`."""
        task = self._track(asyncio.ensure_future(command))
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise faults.ConnectionError
        return task.result()

    def later(self, command: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a command whose result does not have to be awaited, and returns its task."""
        task = asyncio.get_running_loop().create_task(command)
        self._track(task)
        return task

    async def end(self, patience_s: float) -> None:
        """Returns when all commands have ended. Cancels those that take longer than `patience_s`."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCELLED_AGAIN_S)

    def _track(self, task: asyncio.Future[T]) -> asyncio.Future[T]:
        """Returns the task, which is remembered until it ends."""
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Marks the exception as retrieved: the caller may have stopped waiting.
