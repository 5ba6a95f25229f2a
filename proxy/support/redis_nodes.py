"""Who is the master: of a service that Sentinels watch over, or of a slot of a cluster. Needs the extra `redis`.

Rules:

1. Several are asked at once and a majority is waited for. The word of the latest configuration counts (its epoch), not
   that of whoever answers first: a Sentinel or a node that was cut off still believes in the old master.
2. What cannot take over does not count as a replica: one that is down, out of step, or never to be promoted.
3. Where nobody can take over, nothing is lost to a new master, and what is written need not be known to anybody else.
   But a Sentinel that was cut off from the replicas sees none: it takes a majority to say so. (A replica of a cluster
   is down by the word of a majority anyway.)
4. Commands are sent in their plainest form, answers read as the server sends them: all versions of the client do the
   same with those.
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

from toolwire.support.redis_url import Address, RedisUrl

ASKED: Final = 5
"""Nodes of a cluster that are asked at once."""
DOWN: Final = frozenset({"s_down", "o_down", "disconnected"})


class NoMaster(CannotConnect):
    """Nobody is the master now, or nobody who can be asked knows."""


class UnknownService(RedisError):
    """The Sentinels watch over no service of that name."""


class OtherKind(RedisError):
    """Whoever was asked is not what the URL says: no Sentinel, or no node of a cluster."""


class Node(NamedTuple):
    """The server that commands go to. `replicas`: how many could take its place."""

    url: str
    replicas: int


class Nodes(Protocol):
    """Knows the master."""

    async def find(self) -> Node:
        """The master now. Raises what the client raises, among it `NoMaster`."""

    async def aclose(self) -> None:
        """Give back what it holds."""


class Asking:
    """Connections to those who know. `connect` makes a client."""

    def __init__(self, connect: Callable[[Address], Redis]) -> None:
        self._connect = connect
        self._clients: dict[Address, Redis] = {}
        self._asked: dict[asyncio.Task[list[Any]], Address] = {}

    async def ask(self, addresses: Sequence[Address], *commands: Sequence[str]) -> list[tuple[Address, list[Any]]]:
        """What the first of them say, a majority if possible: an answer to each command. Whoever answers later is not
        waited for, and not cancelled (see `redis_client.Commands`). Raises the last failure if nobody answers."""
        asked = {asyncio.ensure_future(self._one(address, commands)): address for address in addresses}
        self._asked |= asked
        for task in asked:
            task.add_done_callback(self._ended)
        said: list[tuple[Address, list[Any]]] = []
        failure: BaseException = NoMaster()
        pending: set[asyncio.Task[list[Any]]] = set(asked)
        while pending and len(said) <= len(asked) // 2:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    said.append((asked[task], task.result()))
                else:
                    failure = error
        if not said:
            raise failure
        return said

    async def keep(self, addresses: Iterable[Address]) -> None:
        """Close the connections to all others, but for those on which an answer is waited for."""
        for gone in self._clients.keys() - {*addresses, *self._asked.values()}:
            await self._clients.pop(gone).aclose()

    async def aclose(self) -> None:
        """Close all connections, when whoever was asked has answered or has taken too long."""
        if self._asked:
            await asyncio.wait(self._asked)
        await self.keep(())

    async def _one(self, address: Address, commands: Sequence[Sequence[str]]) -> list[Any]:
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
    """Those who watch over a service."""

    def __init__(self, url: RedisUrl, connect: Callable[[str], Redis]) -> None:
        self._url = url
        self._asking = Asking(lambda address: connect(url.sentinel(address)))

    async def find(self) -> Node:
        """See `Nodes`."""
        name = self._url.service
        words = (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name))
        said = await self._asking.ask(self._url.nodes, *words, ("SENTINEL", "REPLICAS", name))
        views = [view for _, (at, state, replicas) in said if (view := _view(at, state, replicas)) is not None]
        if not views:
            errors = [answer for _, answers in said for answer in answers if isinstance(answer, ResponseError)]
            raise UnknownService if all("No such master" in str(error) for error in errors) else _judged(errors[-1])
        view = max(views, key=lambda each: (each.epoch, each.up))
        if not view.up:
            raise NoMaster
        replicas = max(each.replicas for each in views if each.master == view.master)
        # Only a majority can replace a master, so a majority has to say that nobody could: rule 3.
        alone = len(views) <= len(self._url.nodes) // 2
        return Node(self._url.at(view.master), max(replicas, alone))

    async def aclose(self) -> None:
        """See `Nodes`."""
        await self._asking.aclose()


class _View(NamedTuple):
    """What one Sentinel says. While it carries out a failover, the new master has its address already and the state is
    that of the old one."""

    epoch: int
    up: bool
    master: Address
    replicas: int


def _view(at: Any, state: Any, replicas: Any) -> _View | None:
    """None: it does not know the service."""
    if not (isinstance(at, list) and isinstance(state, list) and isinstance(replicas, list)):
        return None
    master, fields = Address(_text(at[0]), int(at[1])), _fields(state)
    up = _address(fields) != master or not DOWN & set(fields["flags"].split(","))
    others = [each for each in map(_fields, replicas) if _address(each) != master]
    return _View(int(fields["config-epoch"]), up, master, sum(map(_could_take_over, others)))


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
    """The nodes that share the slot of `key`. Those that the URL names are asked, and those that are known since."""

    def __init__(self, url: RedisUrl, connect: Callable[[str], Redis], key: str) -> None:
        self._url = url
        self._slot = key_slot(key.encode())
        self._known: tuple[Address, ...] = ()
        self._asking = Asking(lambda address: connect(url.at(address)))

    async def find(self) -> Node:
        """See `Nodes`."""
        known = list(dict.fromkeys((*self._known, *self._url.nodes)))
        said = await self._asking.ask(
            random.sample(known, min(ASKED, len(known))), ("CLUSTER", "SLOTS"), ("CLUSTER", "NODES")
        )
        best: tuple[int, int, list[Address]] | None = None
        learned: dict[Address, None] = {}
        for asked, answers in said:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise _judged(answer)
            slots, nodes = answers
            epochs = dict(_epochs(_text(nodes)))
            for first, last, *servers in slots:
                addresses = [_server(server, asked) for server in servers]
                learned |= dict.fromkeys(addresses)
                epoch = epochs.get(_text(servers[0][2]), 0)
                view = epoch, len(addresses), addresses
                if first <= self._slot <= last and (best is None or view > best):
                    best = view
        self._known = tuple(learned)
        await self._asking.keep((*self._known, *self._url.nodes))
        if best is None:
            raise NoMaster
        _, servers, (master, *_) = best
        return Node(self._url.at(master), servers - 1)

    async def aclose(self) -> None:
        """See `Nodes`."""
        await self._asking.aclose()


def _server(server: Sequence[Any], asked: Address) -> Address:
    """Where a node of the cluster is. It may leave out its host: then that is the one that was asked."""
    host = _text(server[0] or b"")
    return Address(asked.host if host in ("", "?") else host, int(server[1]))


def _epochs(nodes: str) -> Iterator[tuple[str, int]]:
    """The epoch of the configuration of each node, by its id."""
    for line in nodes.splitlines():
        fields = line.split(" ")
        if len(fields) >= 8:
            yield fields[0], int(fields[6])


def _judged(error: Exception) -> Exception:
    return OtherKind() if re.search("unknown command|cluster support disabled", str(error)) else error


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
