"""The choice of the master when Sentinels or cluster nodes disagree, and of the replicas that count."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import every

pytest.importorskip("redis")

from redis.exceptions import NoPermissionError, ResponseError

from toolwire.support.redis_nodes import Cluster, Master, MasterFinder, NoMaster, OtherKind, Sentinels, UnknownService
from toolwire.support.redis_url import Address, read_url

OLD, NEW, OTHER = Address("10.0.0.1", 1), Address("10.0.0.2", 2), Address("10.0.0.3", 3)
URLS = {address: f"redis://{address}/0" for address in (OLD, NEW, OTHER)}
UNKNOWN = [None, ResponseError("No such master with that name"), ResponseError("No such master with that name")]


def flat(address: Address, flags: str, **more: object) -> list[bytes]:
    fields: dict[str, object] = {"ip": address.host, "port": address.port, "flags": flags, **more}
    return [str(each).encode() for pair in fields.items() for each in pair]


def replica(address: Address, flags: str = "slave", link: str = "ok", priority: int = 100) -> list[bytes]:
    return flat(address, flags, **{"master-link-status": link, "slave-priority": priority})


def view(
    at: Address, *replicas: list[bytes], epoch: int = 1, flags: str = "master", state: Address | None = None
) -> list[Any]:
    """What one Sentinel says."""
    return [
        [at.host.encode(), str(at.port).encode()],
        flat(state or at, flags, **{"config-epoch": epoch}),
        list(replicas),
    ]


class Told:
    """In the place of those who are asked."""

    def __init__(self, *said: list[Any]) -> None:
        self._said = said

    async def ask(self, addresses: list[Address], *commands: object) -> list[tuple[Address, list[Any]]]:
        return [(OTHER, each) for each in self._said]

    async def close_others(self, addresses: object) -> None:
        pass


async def found(nodes: MasterFinder, *said: list[Any]) -> Master:
    nodes._asking = Told(*said)  # type: ignore[attr-defined]
    return await nodes.find()


async def by_sentinels(*said: list[Any]) -> Master:
    return await found(Sentinels(read_url("redis+sentinel://a,b,c/main"), lambda url: pytest.fail(url)), *said)


async def in_cluster(*said: list[Any]) -> Master:
    return await found(Cluster(read_url("redis+cluster://a,b,c"), lambda url: pytest.fail(url), "{key}"), *said)


async def test_a_sentinel_that_was_cut_off_is_not_believed() -> None:
    stale, fresh = view(OLD, replica(NEW), epoch=1), view(NEW, replica(OTHER), epoch=2)
    for said in ((stale, fresh), (fresh, stale)):
        assert await by_sentinels(*said) == Master(URLS[NEW], 1)


@every("flags", ["master,s_down", "master,s_down,o_down", "master,disconnected"])
async def test_a_master_that_is_down_is_none(flags: str) -> None:
    with pytest.raises(NoMaster):
        await by_sentinels(view(OLD, replica(NEW), flags=flags), view(OLD, replica(NEW), flags=flags))
    # One sees it that the others cannot see.
    assert await by_sentinels(view(OLD, replica(NEW), flags=flags), view(OLD, replica(NEW))) == Master(URLS[OLD], 1)


async def test_while_a_failover_is_carried_out_the_new_master_has_its_address_already() -> None:
    said = view(NEW, replica(NEW), replica(OTHER), epoch=2, flags="master,o_down,failover_in_progress", state=OLD)
    assert await by_sentinels(said, said) == Master(URLS[NEW], 1)


@every(
    "unfit",
    [
        replica(OTHER, "slave,s_down"),
        replica(OTHER, "slave,o_down"),
        replica(OTHER, "slave,disconnected"),
        replica(OTHER, link="err"),
        replica(OTHER, priority=0),
    ],
)
async def test_who_cannot_take_over_does_not_count(unfit: list[bytes]) -> None:
    said = view(OLD, replica(NEW), unfit)
    assert await by_sentinels(said, said) == Master(URLS[OLD], 1)


async def test_that_nobody_could_take_over_is_for_a_majority_to_say() -> None:
    alone = view(OLD, replica(NEW, "slave,s_down"))
    assert await by_sentinels(alone) == Master(URLS[OLD], 1)
    assert await by_sentinels(alone, alone) == Master(URLS[OLD], 0)
    assert await by_sentinels(alone, alone, view(OLD, replica(NEW))) == Master(URLS[OLD], 1)


async def test_a_service_that_nobody_knows() -> None:
    with pytest.raises(UnknownService):
        await by_sentinels(UNKNOWN, UNKNOWN)
    assert await by_sentinels(UNKNOWN, view(NEW, replica(OLD))) == Master(URLS[NEW], 1)
    refused = NoPermissionError("no")
    with pytest.raises(NoPermissionError):
        await by_sentinels([refused, refused, refused])


def share(*servers: Address, first: int = 0, last: int = 16_383) -> list[Any]:
    """A line of `CLUSTER SLOTS`; the ids of servers are their hosts."""
    return [first, last, *([host.encode(), port, host.encode(), []] for host, port in servers)]


def epochs(**by_id: int) -> bytes:
    lines = (f"{host.replace('_', '.')} x:1@2 master - 0 0 {epoch} connected 0-16383" for host, epoch in by_id.items())
    return "\n".join(lines).encode()


OLD_1, NEW_2 = epochs(**{"10_0_0_1": 1}), epochs(**{"10_0_0_1": 1, "10_0_0_2": 2})


async def test_a_node_that_was_cut_off_is_not_believed() -> None:
    stale, fresh = [[share(OLD, NEW)], OLD_1], [[share(NEW, OTHER, OLD)], NEW_2]
    for said in ((stale, fresh), (fresh, stale)):
        assert await in_cluster(*said) == Master(URLS[NEW], 2)


async def test_of_two_words_of_one_configuration_that_with_more_replicas_counts() -> None:
    few, more = [[share(OLD)], OLD_1], [[share(OLD, NEW)], OLD_1]
    for said in ((few, more), (more, few)):
        assert await in_cluster(*said) == Master(URLS[OLD], 1)


async def test_only_who_has_the_slot_counts() -> None:
    slots = [share(OLD, first=0, last=10), share(NEW, OTHER, first=11)]
    assert await in_cluster([slots, NEW_2]) == Master(URLS[NEW], 1)
    with pytest.raises(NoMaster):
        await in_cluster([[share(OLD, first=0, last=10)], OLD_1])


@every("host", [b"", None, b"?"])
async def test_a_node_without_a_host_is_where_it_was_asked(host: bytes | None) -> None:
    slots = [[0, 16_383, [host, 7, b"10.0.0.1", []], [b"10.0.0.2", 2, b"10.0.0.2", []]]]
    assert await in_cluster([slots, OLD_1]) == Master(f"redis://{OTHER.host}:7/0", 1)


async def test_a_node_that_is_in_no_cluster() -> None:
    with pytest.raises(OtherKind):
        await in_cluster([ResponseError("This instance has cluster support disabled"), b""])
