"""The client of a Redis or Valkey server, or of whichever of several is the master, and what its failures are called.
Needs the extra `redis`.

Rules:

1. All keys of one client are in one slot, so in a cluster one server has all of them: whoever that is, commands go to
   it alone. So one kind of client does for all three kinds of URL.
2. What is *held* is known to replicas when the call returns: `WAIT` follows it on the same connection. Otherwise a
   master that dies takes with it what it has said yes to.
3. Where the master may be replaced, what failed because of that is tried again with whoever is the master then, for
   `patience_s` from the first failure of an outage. So commands have to bear being carried out twice. Later calls
   of the same outage are tried once.
4. A connection to a master that was replaced is not used again.
5. No text from here holds an address, a user, a password, or what the server said: it repeats arguments.
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

from toolwire.support.redis_nodes import Cluster, Node, Nodes, NoMaster, OtherKind, Sentinels, UnknownService
from toolwire.support.redis_url import RedisUrl

T = TypeVar("T")

CONNECTIONS: Final = 32
AGAIN_S: Final = 0.2
"""Between two attempts, while there is no master."""
LOOK_S: Final = 5.0
"""How often is looked who the master is and how many replicas it has, while something is held."""

CANCELLED_AGAIN_S: Final = 0.05
"""A cancellation may be swallowed: see `Commands`."""

FAILURES: Final[tuple[type[Exception], ...]] = (faults.RedisError, OSError)
"""What a call of the client may raise."""


class NotHeld(faults.RedisError):
    """The server has done it, and too few replicas have said in time that they know."""


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
    (NotHeld, "too few replicas of the Redis server have confirmed it"),
    (NoMaster, "there is no Redis master now"),
    (OtherKind, "the hosts of the URL are not what it says, Sentinels or nodes of a cluster"),
    (UnknownService, "the Redis Sentinels know no service of that name"),
    (faults.TimeoutError, "the Redis server did not answer in time"),
    (TimeoutError, "the Redis server did not answer in time"),
    (faults.ConnectionError, "the Redis server cannot be reached"),
    (OSError, "the Redis server cannot be reached"),
)

_LASTING: Final = (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError)
_PASSING: Final = (faults.ConnectionError, faults.TimeoutError, OSError, NotHeld, faults.ReadOnlyError)
_PASSING_IN_CLUSTERS: Final = (faults.ClusterDownError, faults.AskError, faults.TryAgainError)
_SAID_IN_PASSING: Final = re.compile(
    r"READONLY|UNBLOCKED|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|non local key|WAIT cannot"
)
"""The client has no class for these, or a script wraps them."""


def connect(url: str, timeout_s: float, **options: Any) -> Redis:
    """A client of the one server at `url` (`redis://`, `rediss://` or `unix://`), not connected yet.

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. `options` are the client's own.
    Raises `ValueError` for a `url` that is none.
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
            **options,
        )
        pool.connection_class(**pool.connection_kwargs)  # Options in the URL are looked at only here.
    except (ValueError, TypeError):
        raise ValueError(
            "not the URL of a Redis server (redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, "
            "rediss+sentinel://, rediss+cluster://), or one with an option that there is not"
        ) from None
    return Redis.from_pool(pool)


def described(error: Exception) -> str:
    """A failure of the client in words."""
    said = next((text for kind, text in _TEXTS if isinstance(error, kind)), None)
    return said or f"the Redis server refused a command ({type(error).__name__})"


def passes(error: Exception) -> bool:
    """The next master, or the same one later, may do what this one did not."""
    if isinstance(error, _LASTING):
        return False
    if isinstance(error, _PASSING + _PASSING_IN_CLUSTERS):
        return True
    return isinstance(error, faults.ResponseError) and _SAID_IN_PASSING.search(str(error)) is not None


class Script:
    """A program for the server. It runs whole or not at all."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(eq=False, slots=True)
class Server:
    """The server that commands go to. `stale`: it has failed, so whether it is still the master has to be asked.
    `used`: by so many commands now."""

    redis: Redis
    node: Node
    looked: float
    stale: bool = False
    used: int = 0


class RedisClient:
    """Commands for the server at `url`, or for whichever is the master there and has the slot of `key`.

    `timeout_s` bounds each wait of each attempt; `patience_s`: rule 3. `replicas` must know what is held; None: all
    that could take over, as Sentinels or cluster say; of a server alone nobody knows that. Nothing is opened before the
    first call. Every call raises one of `FAILURES`.
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
            self._server = Server(connect(url.given, timeout_s), Node(url.given, 0), 0.0)
        self._search: asyncio.Task[Server] | None = None
        self._failing: dict[bool, tuple[float, float]] = {}
        """The first and the last failure since something could be held (True), or be done at all (False)."""

    async def ping(self) -> None:
        """Whether somebody answers."""
        await self.ask(("PING",))

    async def ask(self, *commands: Sequence[Any]) -> tuple[list[Any], Server]:
        """The answers to commands that change nothing, and whose they are."""
        return await self._again(lambda: self._attempt(commands, False), False, None)

    async def run(
        self, script: Script, keys: Sequence[str], values: Sequence[Any], *, held: bool, limit_s: float | None = None
    ) -> Any:
        """What a script answers, within `limit_s` if that is given. `held`: rule 2."""
        rest = (len(keys), *keys, *values)

        async def attempt() -> Any:
            try:
                answers, _ = await self._attempt([("EVALSHA", script.digest, *rest)], held)
            except faults.NoScriptError:
                answers, _ = await self._attempt([("EVAL", script.text, *rest)], held)
            return answers[0]

        return await self._again(attempt, held, limit_s)

    async def still(self, server: Server) -> bool:
        """Whether who has answered is the master even now. Somebody who was it until a moment ago, and does not know
        that it is no more, knows nothing of what is kept since."""
        return self._nodes is None or await self._again(self._find, False, None) is server

    async def close(self) -> None:
        """Give up what is under way after one more time limit, and close all connections."""
        await self._commands.end(self._timeout_s)
        if self._nodes is not None:
            await self._nodes.aclose()
        if self._server is not None:
            await self._server.redis.aclose()

    async def _again(self, attempt: Callable[[], Coroutine[Any, Any, T]], held: bool, limit_s: float | None) -> T:
        """Rule 3."""
        clock = asyncio.get_running_loop().time
        until: float | None = None
        while True:
            try:
                answer = await self._commands.run(attempt(), limit_s)
            except FAILURES as error:
                if self._nodes is None or not passes(error):
                    raise
                began = self._outage(held, clock())
                until = began + self._patience_s if until is None else until
                if clock() >= until:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                self._failing.pop(held, None)
                return answer

    def _outage(self, held: bool, now: float) -> float:
        """When the outage began of which a failure is told. One that was heard of long ago was another."""
        began, last = self._failing.get(held, (now, now))
        if now - last > self._patience_s:
            began = now
        self._failing[held] = began, now
        return began

    async def _attempt(self, commands: Sequence[Sequence[Any]], held: bool) -> tuple[list[Any], Server]:
        server = await self._current(held)
        wanted = self._wanted(server) if held else 0
        asked = server.redis.pipeline(transaction=False)
        for command in commands:
            asked.execute_command(*command)
        if wanted:
            asked.execute_command("WAIT", wanted, max(1, int(self._timeout_s * 500)))  # half of it, in milliseconds
        server.used += 1
        try:
            answers = await asked.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            if wanted and answers.pop() < wanted:
                raise NotHeld
        except FAILURES as error:
            server.stale = server.stale or passes(error)
            raise
        finally:
            server.used -= 1
            self._leave(server)
        return answers, server

    def _wanted(self, server: Server) -> int:
        if self._replicas is not None:
            return self._replicas
        return server.node.replicas

    async def _current(self, held: bool) -> Server:
        server = self._server
        if server is not None and self._nodes is None:
            return server
        if server is None or server.stale:
            return await self._find()
        if held and asyncio.get_running_loop().time() - server.looked >= LOOK_S:
            self._look()
        return server

    async def _find(self) -> Server:
        """The master, asked for now. All who want to know at once ask once."""
        return await asyncio.shield(self._look())

    def _look(self) -> asyncio.Task[Server]:
        if self._search is None or self._search.done():
            self._search = self._commands.later(self._looked())
        return self._search

    async def _looked(self) -> Server:
        assert self._nodes is not None
        node = await self._nodes.find()
        now = asyncio.get_running_loop().time()
        old = self._server
        if old is not None and old.node.url == node.url:
            old.node, old.looked, old.stale = node, now, False
            return old
        self._server = Server(connect(node.url, self._timeout_s, protocol=2), node, now)
        if old is not None:
            self._leave(old)
        return self._server

    def _leave(self, server: Server) -> None:
        """Rule 4, as soon as the last command is done with: the client would open again what is closed under it."""
        if server is not self._server and not server.used:
            self._commands.later(server.redis.aclose())


def _nodes(url: RedisUrl, timeout_s: float, key: str) -> Nodes | None:
    """Who knows the master at `url`; None: there is but one server. Raises `ValueError` for options that are none."""

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
    """The commands of one client that are under way. Nobody cancels them from outside.

    redis-py may swallow a cancellation (its own limits are nested in each other), and then whoever cancelled waits on,
    for as long as a server hangs. So a command is a task of its own: whoever asked may stop waiting, and the command
    ends by itself, within the limits that `connect` set.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, command: Awaitable[T], timeout_s: float | None = None) -> T:
        """What the server answers. Raises one of `FAILURES`, among them `TimeoutError` after `timeout_s`."""
        task = self._begun(asyncio.ensure_future(command))
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise faults.ConnectionError
        return task.result()

    def later(self, command: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The same for what nobody need wait for."""
        task = asyncio.get_running_loop().create_task(command)
        self._begun(task)
        return task

    async def end(self, patience_s: float) -> None:
        """Returns when none is under way. Those that take longer than `patience_s` are given up."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCELLED_AGAIN_S)

    def _begun(self, task: asyncio.Future[T]) -> asyncio.Future[T]:
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever asked may have stopped waiting; nobody need be told.
