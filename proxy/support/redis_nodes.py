"""Finds the current master: of a service monitored by Redis Sentinels, or of one slot of a cluster. Needs the extra
`redis`.

Rules:

1. Several nodes are asked at once and the answers of a majority are awaited. The answer with the latest configuration
   epoch wins, not the first one: a Sentinel or node that was partitioned still believes in the old master.
2. A replica counts only if it could be promoted: it is up, in sync, and its priority is not 0.
3. If no replica could take over, writes need no confirmation by replicas. But a Sentinel that was partitioned from the
   replicas sees none of them, so a majority of the Sentinels has to report that. (Replicas of a cluster are marked as
   down by a majority anyway.)
4. Commands are sent in their plainest form and answers are parsed from RESP2, which all versions of redis-py treat
   alike.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import ConnectionError as CannotConnect
from redis.exceptions import RedisError, ResponseError

from .redis_url import Address, RedisUrl

ASKED: Final = 5
"""Number of cluster nodes that are asked at once."""
DOWN: Final = frozenset({"s_down", "o_down", "disconnected"})


class NoMaster(CannotConnect):
    """There is no master now, or no reachable node knows it."""


class UnknownService(RedisError):
    """The Sentinels do not monitor a service of that name."""


class OtherKind(RedisError):
    """The server is not of the kind that the URL says: not a Sentinel, or not a node of a cluster."""


class Master(NamedTuple):
    """The server that commands are sent to. `replicas` is the number of servers that could replace it."""

    url: str
    replicas: int


class MasterFinder(Protocol):
    """Finds the current master."""

    async def find(self) -> Master:
        """Returns the current master. Raises the Redis client's exceptions, including `NoMaster`."""

    async def aclose(self) -> None:
        """Closes the connections."""


class MajorityQuery:
    """Sends commands to several servers and awaits the answers of a majority. `connect` makes a client for an
    address."""

    def __init__(self, connect: Callable[[Address], Redis]) -> None:
        self._connect = connect
        self._clients: dict[Address, Redis] = {}
        self._asked: dict[asyncio.Task[list[Any]], Address] = {}

    async def ask(self, addresses: Sequence[Address], *commands: Sequence[str]) -> list[tuple[Address, list[Any]]]:
        """Returns the first answers, from a majority if possible: for each address one answer per command. Later
        answers are neither awaited nor cancelled (see `redis_client.Commands`). Raises the last failure if no server
        answers."""
        asked = {asyncio.ensure_future(self._ask_one(address, commands)): address for address in addresses}
        self._asked |= asked
        for task in asked:
            task.add_done_callback(self._ended)
        answers: list[tuple[Address, list[Any]]] = []
        failure: BaseException = NoMaster()
        pending: set[asyncio.Task[list[Any]]] = set(asked)
        while pending and len(answers) <= len(asked) // 2:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    answers.append((asked[task], task.result()))
                else:
                    failure = error
        if not answers:
            raise failure
        return answers

    async def close_others(self, addresses: Iterable[Address]) -> None:
        """Closes the connections to all other addresses, except those that still wait for an answer."""
        for address in self._clients.keys() - {*addresses, *self._asked.values()}:
            await self._clients.pop(address).aclose()

    async def aclose(self) -> None:
        """Closes all connections after all pending commands have ended."""
        if self._asked:
            await asyncio.wait(self._asked)
        await self.close_others(())

    async def _ask_one(self, address: Address, commands: Sequence[Sequence[str]]) -> list[Any]:
        if address not in self._clients:
            self._clients[address] = self._connect(address)
        asked = self._clients[address].pipeline(transaction=False)
        for command in commands:
            asked.execute_command(*command)
        return list(await asked.execute(raise_on_error=False))

    def _ended(self, task: asyncio.Task[list[Any]]) -> None:
        del self._asked[task]
        if not task.cancelled():
            task.exception()


class Sentinels:
    """Finds the master of a service that Sentinels monitor."""

    def __init__(self, url: RedisUrl, connect: Callable[[str], Redis]) -> None:
        self._url = url
        self._asking = MajorityQuery(lambda address: connect(url.sentinel(address)))

    async def find(self) -> Master:
        name = self._url.service
        words = (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name))
        answers = await self._asking.ask(self._url.nodes, *words, ("SENTINEL", "REPLICAS", name))
        views = [view for _, (at, state, replicas) in answers if (view := _view(at, state, replicas)) is not None]
        if not views:
            errors = [answer for _, each in answers for answer in each if isinstance(answer, ResponseError)]
            raise (
                UnknownService
                if all("No such master" in str(error) for error in errors)
                else _clearer_error(errors[-1])
            )
        view = max(views, key=lambda each: (each.epoch, each.up))
        if not view.up:
            raise NoMaster
        replicas = max(each.replicas for each in views if each.master == view.master)
        # Rule 3: only a majority can replace a master, so a majority has to report that no replica is left.
        alone = len(views) <= len(self._url.nodes) // 2
        return Master(self._url.at(view.master), max(replicas, alone))

    async def aclose(self) -> None:
        await self._asking.aclose()


class _SentinelView(NamedTuple):
    """The answer of one Sentinel. During a failover the address is already the new master's while the state is the old
    one's."""

    epoch: int
    up: bool
    master: Address
    replicas: int


def _view(at: Any, state: Any, replicas: Any) -> _SentinelView | None:
    """Parses the three answers of a Sentinel. Returns None if it does not know the service."""
    if not (isinstance(at, list) and isinstance(state, list) and isinstance(replicas, list)):
        return None
    master, fields = Address(_text(at[0]), int(at[1])), _fields(state)
    up = _address(fields) != master or not DOWN & set(fields["flags"].split(","))
    others = [each for each in map(_fields, replicas) if _address(each) != master]
    return _SentinelView(int(fields["config-epoch"]), up, master, sum(map(_could_take_over, others)))


def _could_take_over(replica: Mapping[str, str]) -> bool:
    return (
        not DOWN & set(replica["flags"].split(","))
        and replica.get("master-link-status") == "ok"
        and replica.get("slave-priority") != "0"
    )


def _address(fields: Mapping[str, str]) -> Address:
    return Address(fields["ip"], int(fields["port"]))


def _fields(flat: Sequence[Any]) -> dict[str, str]:
    texts = [_text(each) for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


class Cluster:
    """Finds the master of the slot of `key` in a cluster. Asks the nodes in the URL and those learned from earlier
    answers."""

    def __init__(self, url: RedisUrl, connect: Callable[[str], Redis], key: str) -> None:
        self._url = url
        self._slot = key_slot(key.encode())
        self._known: tuple[Address, ...] = ()
        self._asking = MajorityQuery(lambda address: connect(url.at(address)))

    async def find(self) -> Master:
        known = list(dict.fromkeys((*self._known, *self._url.nodes)))
        replies = await self._asking.ask(
            random.sample(known, min(ASKED, len(known))), ("CLUSTER", "SLOTS"), ("CLUSTER", "NODES")
        )
        best: tuple[int, int, list[Address]] | None = None
        learned: dict[Address, None] = {}
        for source, answers in replies:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise _clearer_error(answer)
            slots, nodes = answers
            epochs = dict(_epochs(_text(nodes)))
            for first, last, *servers in slots:
                addresses = [_node_address(server, source) for server in servers]
                learned |= dict.fromkeys(addresses)
                epoch = epochs.get(_text(servers[0][2]), 0)
                view = epoch, len(addresses), addresses
                if first <= self._slot <= last and (best is None or view > best):
                    best = view
        self._known = tuple(learned)
        await self._asking.close_others((*self._known, *self._url.nodes))
        if best is None:
            raise NoMaster
        _, servers, (master, *_) = best
        return Master(self._url.at(master), servers - 1)

    async def aclose(self) -> None:
        await self._asking.aclose()


def _node_address(server: Sequence[Any], asked: Address) -> Address:
    """Returns the address of a cluster node. A node may leave out its host; then it is that of the server that
    answered."""
    host = _text(server[0] or b"")
    return Address(asked.host if host in ("", "?") else host, int(server[1]))


def _epochs(nodes: str) -> Iterator[tuple[str, int]]:
    """Yields the id and the configuration epoch of each node in the answer to `CLUSTER NODES`."""
    for line in nodes.splitlines():
        fields = line.split(" ")
        if len(fields) >= 8:
            yield fields[0], int(fields[6])


def _clearer_error(error: Exception) -> Exception:
    """Returns `OtherKind` for an error that shows the wrong kind of server, else the error itself."""
    return OtherKind() if re.search("unknown command|cluster support disabled", str(error)) else error


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
