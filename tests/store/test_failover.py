"""A master that is replaced under load: whatever was said to be kept is there afterwards, also for a gateway that still
speaks with the old one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import GUARD_S, until

pytest.importorskip("redis")

from tests.optional import REDIS
from tests.store.redis_server import ClusterGroup, Group, WatchedGroup, started
from tests.store.turns import Clock, chain_of, turn
from toolwire.store.base import StoreUnavailable
from toolwire.store.redis import RedisStore

pytestmark = pytest.mark.needs(REDIS)

WRITERS = 8
SOME = 60
"""Turns that are kept before, and again after, something happens."""
PAUSE_S = 0.03
"""Of a writer after a turn: with so many of them there is always something under way."""
PREFIX = "{failover}"


class Load:
    """Conversations that go on without end. `kept` are the turns of which the store has said that it has them."""

    def __init__(self, group: Group, clock: Clock) -> None:
        self.kept: dict[str, str] = {}
        self._stores = [opened(group, clock) for _ in range(2)]
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        for number in range(WRITERS):
            self._tasks.append(asyncio.create_task(self._write(number, self._stores[number % 2])))

    async def more(self) -> None:
        """Returns when so many more are kept; fails with a writer."""
        enough = len(self.kept) + SOME
        async with asyncio.timeout(GUARD_S):
            while len(self.kept) < enough:
                await asyncio.sleep(0.02)
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self._stores:
            await store.close()

    async def _write(self, number: int, store: RedisStore) -> None:
        said: list[str] = []
        for step in range(1_000_000):
            ident, text = f"resp_{number}_{step}", f"{step} of {number}"
            ancestors = said[-3:]
            await store.put(turn(ident, ancestors=ancestors, text=text, status="in_progress"))
            await store.put(turn(ident, ancestors=ancestors, text=text))
            self.kept[ident] = text
            said.append(ident)
            await asyncio.sleep(PAUSE_S)


def opened(group: Group, clock: Clock, **options: Any) -> RedisStore:
    """A store that waits for as long as a failover may take on a machine that has other things to do."""
    return RedisStore(group.url, 1_000_000, prefix=PREFIX, now=clock, **{"patience_s": GUARD_S, **options})


@asynccontextmanager
async def loaded(group: Group, clock: Clock) -> AsyncIterator[tuple[Load, RedisStore]]:
    """Load before and after the block, and a gateway that has a connection to the master and does nothing meanwhile.
    At the end everything that was kept is there, for it as for a new one."""
    load, idle, new = Load(group, clock), opened(group, clock), opened(group, clock)
    try:
        await idle.put(turn("resp_idle"))
        load.begin()
        await load.more()
        yield load, idle
        await load.more()
        await load.end()
        for store in (idle, new):
            for ident, text in load.kept.items():
                chain = await chain_of(store, ident, "alice")
                assert chain is not None, ident
                assert chain[-1] == turn(ident, ancestors=chain[-1].ancestors, text=text)
        assert await new.get("resp_idle", "alice") == turn("resp_idle")
    finally:
        await load.end()
        await idle.close()
        await new.close()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[WatchedGroup]:
    with started(WatchedGroup(tmp_path, replicas=2, sentinels=3)) as group:
        yield group


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterGroup]:
    with started(ClusterGroup(tmp_path)) as group:
        yield group


async def newest_is_there(load: Load, idle: RedisStore) -> None:
    """What was kept since is not denied by whoever was asked before."""
    await load.more()
    ident, text = list(load.kept.items())[-1]
    got = await idle.get(ident, "alice")
    assert got is not None
    assert (got.status, got.input) == ("completed", turn(ident, text=text).input)


async def test_a_master_that_is_killed_and_comes_back_with_nothing(watched: WatchedGroup, clock: Clock) -> None:
    async with loaded(watched, clock) as (load, idle):
        old = await watched.master()
        old.stop()
        await watched.replaced(old)
        old.start()
        await newest_is_there(load, idle)


async def test_a_master_that_stops_for_a_while_and_believes_that_it_still_is_one(
    watched: WatchedGroup, clock: Clock
) -> None:
    async with loaded(watched, clock) as (load, idle):
        old = await watched.master()
        old.pause()
        await watched.replaced(old)
        await load.more()
        old.resume()
        await newest_is_there(load, idle)


async def test_a_master_of_a_cluster_that_is_killed(cluster: ClusterGroup, clock: Clock) -> None:
    async with loaded(cluster, clock) as (load, idle):
        old = await cluster.slot_master(PREFIX)
        old.stop()
        others = [server for server in cluster.servers if server is not old]

        async def replaced() -> bool:
            return await cluster.slot_master(PREFIX, others) is not old

        await until(replaced)
        await newest_is_there(load, idle)


async def test_a_slot_that_moves_to_another_master(cluster: ClusterGroup, clock: Clock) -> None:
    async with loaded(cluster, clock) as (load, idle):
        old = await cluster.slot_master(PREFIX)
        new = next(server for server in cluster.masters if server is not old)
        (slot, from_id), (to_id,) = (
            await old.ask(("CLUSTER", "KEYSLOT", PREFIX), ("CLUSTER", "MYID")),
            await new.ask(("CLUSTER", "MYID")),
        )
        await new.ask(("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id))
        await old.ask(("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id))
        while (keys := (await old.ask(("CLUSTER", "GETKEYSINSLOT", slot, 20)))[0]) != []:
            await old.ask(("MIGRATE", "127.0.0.1", new.port, "", 0, 60_000, "KEYS", *keys))
        for server in (new, old):
            await server.ask(("CLUSTER", "SETSLOT", slot, "NODE", to_id))
        await newest_is_there(load, idle)


async def test_what_no_replica_knows_was_not_said_to_be_kept(watched: WatchedGroup, clock: Clock) -> None:
    strict, lax = opened(watched, clock, replicas=1, patience_s=0), opened(watched, clock, replicas=0)
    await strict.put(turn("resp_1"))
    master = await watched.master()
    others = [server for server in watched.data if server is not master]
    for server in others:
        server.pause()
    with pytest.raises(StoreUnavailable, match=r"^too few replicas of the Redis server have confirmed it$"):
        await strict.put(turn("resp_2"))
    await lax.put(turn("resp_3"))
    master.stop()
    for server in others:
        server.resume()
    await watched.replaced(master)
    reader = opened(watched, clock)
    assert await reader.get("resp_1", "alice") == turn("resp_1")
    await asyncio.gather(strict.close(), lax.close(), reader.close())


async def test_a_sentinel_that_hangs_and_one_that_is_gone_hold_nobody_up(watched: WatchedGroup, clock: Clock) -> None:
    watched.sentinels[0].stop()
    store = opened(watched, clock, patience_s=0)
    await store.put(turn("resp_1"))
    watched.sentinels[1].pause()
    assert await store.get("resp_2", "alice") is None
    watched.sentinels[2].stop()
    watched.sentinels[1].stop()
    assert await store.get("resp_1", "alice") == turn("resp_1")
    with pytest.raises(StoreUnavailable, match=r"^the Redis server cannot be reached$"):
        await store.get("resp_2", "alice")  # Nobody can say whether that master still is one.
    await store.close()
