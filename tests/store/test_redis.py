"""The Redis store alone: a server that comes and goes, fills up or refuses, and times to live."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.peers import self_signed
from tests.cases import every
from tests.store.redis_server import ClusterGroup, RedisServer, WatchedGroup, started
from tests.store.turns import DAY, HOUR, START, Clock, chain_of, turn
from tests.waiting import GUARD_S
from toolwire.store.base import StoreUnavailable
from toolwire.store.encoding import key_of
from toolwire.store.redis import RedisStore


async def kept_keys(server: RedisServer, prefix: str) -> set[str]:
    """The keys that begin with `prefix`."""
    (keys,) = await server.ask(("KEYS", f"{prefix}:*"))
    return {key.decode() for key in keys}


async def test_a_server_that_goes_away_and_comes_back(own_server: RedisServer, clock: Clock) -> None:
    store = RedisStore(own_server.url, now=clock, timeout_s=GUARD_S)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"^the Redis server cannot be reached$"):
            await store.start()
    own_server.start()
    await store.start()
    await store.put(turn("resp_1"))
    own_server.stop()
    for call in (
        store.put(turn("resp_2")),
        store.get("resp_1", "alice"),
        store.get_many(["resp_1"], "alice"),
        store.delete("resp_1", "alice"),
        store.prune(START),
    ):
        with pytest.raises(StoreUnavailable, match=r"^the Redis server cannot be reached$"):
            await call
    own_server.start()
    assert await store.get("resp_1", "alice") is None
    await store.put(turn("resp_2"))
    own_server.stop()
    own_server.start()  # between two calls, so nothing is noticed
    await store.put(turn("resp_3", ancestors=["resp_2"]))
    assert await store.get("resp_3", "alice") is not None
    assert await chain_of(store, "resp_3", "alice") is None
    await store.close()


async def test_callers_that_go_away_while_it_hangs_leave_the_answers_in_step(
    redis_server: RedisServer, clock: Clock
) -> None:
    store = RedisStore(redis_server.url, prefix="hangs", now=clock, timeout_s=GUARD_S)
    for i in range(8):
        await store.put(turn(f"resp_{i}"))
    redis_server.pause()
    try:
        asked = [asyncio.ensure_future(store.get(f"resp_{i}", "alice")) for i in range(8)]
        await asyncio.wait(asked, timeout=0.05)
        for task in asked:
            task.cancel()
        gone = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in gone)
        asked = [asyncio.ensure_future(store.get(f"resp_{i}", "alice")) for i in range(8)]
        await asyncio.wait(asked, timeout=0.05)
    finally:
        redis_server.resume()
    assert await asyncio.gather(*asked) == [turn(f"resp_{i}") for i in range(8)]
    await store.close()


async def test_a_server_that_is_full(redis_server: RedisServer, clock: Clock) -> None:
    store = RedisStore(redis_server.url, prefix="full", now=clock, timeout_s=GUARD_S)
    await store.put(turn("resp_1", status="in_progress"))
    await redis_server.ask(("CONFIG", "SET", "maxmemory", "1mb"))
    try:
        with pytest.raises(StoreUnavailable, match=r"^the Redis server is out of memory$"):
            await store.put(turn("resp_1"))
        assert await store.get("resp_1", "alice") == turn("resp_1", status="in_progress")
    finally:
        await redis_server.ask(("CONFIG", "SET", "maxmemory", "0"))
    await store.put(turn("resp_1"))
    assert await store.get("resp_1", "alice") == turn("resp_1")
    await store.close()


async def test_a_server_that_evicts_our_own_lists(redis_server: RedisServer, clock: Clock) -> None:
    for lost in ("order", "expiry", "last", "owners", "puts", "whose", f"order:{key_of('', 'alice')}"):
        prefix = f"evicts-{lost}"
        store = RedisStore(redis_server.url, 3, prefix=prefix, now=clock, timeout_s=GUARD_S)
        for i in range(4):
            await store.put(turn(f"resp_{i}"))
        assert await redis_server.ask(("DEL", f"{prefix}:1:{lost}")) == [1]
        for i in range(4, 12):
            await store.put(turn(f"resp_{i}", ancestors=[f"resp_{i - 1}"]))
            assert await chain_of(store, f"resp_{i}", "alice") is not None, lost
        await store.close()


async def test_a_server_that_refuses_says_nothing_secret(tmp_path: Path, clock: Clock) -> None:
    server = RedisServer(
        tmp_path, "--requirepass", "right-word", "--user", "weak", "on", ">weak-word", "~*", "+get", "+mget"
    )
    server.start()
    try:
        for user, message in (
            (":wrong-word@", "the Redis server refuses the name or the password"),
            ("", "the Redis server refuses the name or the password"),
            ("weak:weak-word@", "the Redis server does not allow a command that the store needs"),
        ):
            store = RedisStore(server.url.replace("//", "//" + user), now=clock, timeout_s=GUARD_S)
            with pytest.raises(StoreUnavailable) as caught:
                await store.start()
            assert str(caught.value) == message
            assert caught.value.__suppress_context__
            with pytest.raises(StoreUnavailable):
                await store.put(turn("resp_1"))
            await store.close()
        store = RedisStore(server.url.replace("//", "//:right-word@"), now=clock, timeout_s=GUARD_S)
        await store.put(turn("resp_1"))
        await store.close()
    finally:
        server.stop()


async def test_sentinels_and_servers_with_passwords_of_their_own(tmp_path: Path, clock: Clock) -> None:
    with started(WatchedGroup(tmp_path, 0, 1, password="theirs", sentinels_own="its")) as group:
        right = group.url.replace("//", "//:theirs@")
        refused = "the Redis server refuses the name or the password"
        for url, message in (
            (right, refused),
            (f"{right}?sentinel_password=wrong-word", refused),
            (f"{group.url}?sentinel_password=its", refused),
            (f"{right.replace('/main/', '/wrong-word/')}?sentinel_password=its", "the Redis Sentinels know no service"),
        ):
            store = RedisStore(url, now=clock, timeout_s=GUARD_S)
            with pytest.raises(StoreUnavailable, match=f"^{message}") as caught:
                await store.start()
            assert "wrong-word" not in str(caught.value)
            assert caught.value.__suppress_context__
            await store.close()
        store = RedisStore(f"{right}?sentinel_password=its", now=clock, timeout_s=GUARD_S)
        await store.put(turn("resp_1"))
        await store.close()


async def test_sentinels_and_servers_over_tls(tmp_path: Path, clock: Clock) -> None:
    _, certificate = self_signed(tmp_path)
    with started(WatchedGroup(tmp_path, 1, 1, tls=(certificate, tmp_path / "key.pem"))) as group:
        store = RedisStore(group.url, now=clock, timeout_s=GUARD_S)
        await store.put(turn("resp_1"))
        assert await store.get("resp_1", "alice") == turn("resp_1")
        assert await store.get("resp_2", "alice") is None
        await store.close()
        unchecked = group.url.partition("?")[0]
        for url in (unchecked, unchecked.replace("rediss", "redis")):
            store = RedisStore(url, now=clock, timeout_s=2, patience_s=0)
            with pytest.raises(StoreUnavailable, match=r"cannot be reached|did not answer"):
                await store.start()
            await store.close()


async def test_a_cluster_has_all_keys_in_one_slot(cluster_group: ClusterGroup, clock: Clock) -> None:
    store = RedisStore(cluster_group.url, prefix="one-slot", now=clock, timeout_s=GUARD_S)
    await store.put(turn("resp_1", owner="alice"))
    await store.put(turn("resp_2", owner="bob"))
    kept = {server.port: await kept_keys(server, "{one-slot}") for server in cluster_group.masters}
    assert sorted(map(len, kept.values())) == [0, 0, 10]
    await store.close()


async def test_a_cluster_that_is_taken_for_a_server_alone(cluster_group: ClusterGroup, clock: Clock) -> None:
    said = set()
    for server in cluster_group.servers:
        store = RedisStore(server.url, prefix="alone", now=clock, timeout_s=GUARD_S)
        with pytest.raises(StoreUnavailable) as caught:
            await store.put(turn("resp_1"))
        said.add(str(caught.value))
        await store.close()
    assert "the Redis server is one of a cluster (redis+cluster://)" in said


async def test_replicas_of_a_server_that_nobody_watches(watched_group: WatchedGroup, clock: Clock) -> None:
    """Where a service has one address for whoever is the master, it cannot be asked how many there are."""
    url = (await watched_group.master()).url
    for replicas, held in ((1, True), (2, False)):
        store = RedisStore(url, prefix="held", now=clock, timeout_s=GUARD_S if held else 2, replicas=replicas)
        if held:
            await store.put(turn("resp_1"))
        else:
            with pytest.raises(StoreUnavailable, match="too few replicas"):
                await store.put(turn("resp_1"))
        await store.close()


async def test_every_turn_has_a_time_to_live(redis_server: RedisServer, clock: Clock) -> None:
    """And its keys hold neither owners nor ids."""
    store = RedisStore(redis_server.url, prefix="lives", now=clock, timeout_s=GUARD_S)
    await store.put(turn("resp_1", owner="alice", expires=START + DAY))
    keys = await kept_keys(redis_server, "lives")
    assert len(keys) == 8
    assert not any("alice" in key or "resp_1" in key for key in keys)
    (left,) = await redis_server.ask(("PTTL", store._key("resp_1", "alice")))
    assert 0 < left <= DAY * 1000
    await store.put(turn("resp_1", expires=START + 0.001))
    assert (await redis_server.ask(("PTTL", store._key("resp_1", "alice"))))[0] <= 1
    await store.close()


async def test_nothing_is_left_of_what_was_removed(redis_server: RedisServer, clock: Clock) -> None:
    store = RedisStore(redis_server.url, 5, prefix="left", now=clock, timeout_s=GUARD_S)
    for i in range(9):
        await store.put(turn(f"resp_{i}", expires=START + (i + 1) * HOUR))
    assert await store.delete("resp_8", "alice")
    assert await store.prune(START + 7 * HOUR) == 3
    keys = await kept_keys(redis_server, "left")
    names = ("order", "expiry", "last", "owners", "puts", "whose", "order:" + key_of("", "alice"))
    assert keys == {*(f"left:1:{name}" for name in names), store._key("resp_7", "alice")}
    assert await redis_server.ask(("ZCARD", "left:1:order"), ("ZCARD", "left:1:expiry")) == [1, 1]
    assert await store.delete("resp_7", "alice")
    assert await kept_keys(redis_server, "left") == {"left:1:last"}
    await store.close()


@every(
    ("code", "message"),
    [
        (
            "import toolwire.store.sqlite, toolwire.store.memory; assert 'redis' not in sys.modules; sys.exit('fine')",
            "fine",
        ),
        ("sys.modules['redis'] = None; import toolwire.store.redis", "pip install 'toolwire[redis]'"),
    ],
)
def test_the_package(code: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-c", "import sys; " + code], capture_output=True, text=True)
    assert message in done.stderr.splitlines()[-1]
