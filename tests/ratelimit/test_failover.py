"""Shared counts that go away and come back: a ledger on command, and a real server that is killed, stopped and
started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import USER, get, post, read_config, serving
from tests.ratelimit.conftest import Clock
from tests.store.redis_server import RedisServer
from tests.waiting import GUARD_S, until
from toolwire.ratelimit.admission import ADMISSION
from toolwire.ratelimit.base import Booking, Bound, Change, Ledger, LedgerUnavailable, MemoryLedger, changes
from toolwire.ratelimit.failover import FailoverLedger
from toolwire.ratelimit.redis import RedisLedger

SLOTS = Bound("key", "concurrent", "key:a", 2)
TOKENS = Bound("key", "tokens", "key:a", 10)
REQUESTS = Bound("key", "requests", "key:a", 3)


class Shaky(MemoryLedger):
    """Away while `away`; `asked` counts calls, `hold` keeps bookings waiting."""

    def __init__(self) -> None:
        super().__init__(now=Clock())
        self.away = False
        self.asked = 0
        self.hold: asyncio.Event | None = None
        self.renewed: list[dict[str, Sequence[Bound]]] = []

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise LedgerUnavailable("it is away")

    async def start(self) -> None:
        self._ask()

    async def close(self) -> None:
        pass

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        if self.hold is not None:
            await self.hold.wait()
        self._ask()
        return await super().book(bounds, tokens, lease)

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        self._ask()
        await super().settle(made, lease)

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        self._ask()
        self.renewed.append(dict(held))


class Told:
    """What was reported."""

    def __init__(self) -> None:
        self.states: list[bool] = []

    def __call__(self, up: bool) -> None:
        self.states.append(up)

    async def until(self, up: bool) -> None:
        await until(lambda: self.states[-1:] == [up])


@asynccontextmanager
async def failover(
    shared: Ledger, *, closed: bool = False, retry_s: float = 0.01
) -> AsyncIterator[tuple[FailoverLedger, Told]]:
    told = Told()
    counts = FailoverLedger(shared, closed=closed, report=told, retry_s=retry_s)
    await counts.start()
    try:
        yield counts, told
    finally:
        await counts.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "toolwire.limits"]


async def test_while_it_is_away_each_worker_counts_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    shared = Shaky()
    async with failover(shared, retry_s=GUARD_S) as (counts, told):
        assert (await counts.book([REQUESTS], 1, "1")).used == (1,)
        shared.away = True
        before = shared.asked
        answers = [await counts.book([REQUESTS], 1, f"l{number}") for number in range(5)]
        assert [answer.granted for answer in answers] == [True] * 3 + [False] * 2
        assert shared.asked == before + 1  # only the first one found out
        assert told.states == [True, False]
        assert lines(caplog) == [
            (
                "ERROR",
                "the shared counts of the rate limits cannot be reached: it is away; each worker counts by itself until they are back",
            )
        ]


async def test_it_comes_back_by_itself_and_hears_what_happened_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shared = Shaky()
    async with failover(shared) as (counts, told):
        for lease in ("ends", "lasts"):
            assert (await counts.book([SLOTS, TOKENS], 5, lease)).granted
        shared.away = True
        assert (await counts.book([SLOTS, TOKENS], 5, "local")).granted
        await counts.settle(changes([SLOTS, TOKENS], 5, 1), "ends")
        shared.away = False
        await told.until(True)
        assert told.states == [True, False, True]
        assert [level for level, _ in lines(caplog)] == ["ERROR", "WARNING"]
        assert shared.renewed[-1] == {"lasts": [SLOTS, TOKENS]}
        await counts.settle(changes([SLOTS, TOKENS], 5, 5), "local")  # ends where it was booked
        assert (await counts.book([SLOTS, TOKENS], 4, "next")).used == (2, 10)


async def test_a_call_that_began_before_it_came_back_says_nothing_about_now() -> None:
    shared = Shaky()
    async with failover(shared) as (counts, told):
        shared.hold = asyncio.Event()
        late = asyncio.ensure_future(counts.book([REQUESTS], 1, "late"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        hold, shared.hold = shared.hold, None
        shared.away = True
        assert (await counts.book([REQUESTS], 1, "1")).granted
        shared.away = False
        await told.until(True)
        shared.away = True
        hold.set()
        assert (await late).granted  # locally
        shared.away = False
        assert told.states == [True, False, True]


async def test_whoever_is_cancelled_while_booking_leaves_nothing_behind() -> None:
    shared = Shaky()
    async with failover(shared) as (counts, _):
        shared.hold = asyncio.Event()
        booking = asyncio.ensure_future(counts.book([SLOTS, TOKENS], 5, "gone"))
        await asyncio.sleep(0)
        booking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await booking
        shared.hold.set()
        async with asyncio.timeout(GUARD_S):
            while True:
                verdict = await counts.book([SLOTS, TOKENS], 10, "next")
                if verdict.granted:
                    break
                await asyncio.sleep(0.005)
        assert verdict.used == (1, 10)


async def test_nothing_is_kept_of_exchanges_that_are_over() -> None:
    shared = Shaky()
    async with failover(shared, retry_s=GUARD_S) as (counts, _):
        for number in range(20):
            assert (await counts.book([SLOTS, TOKENS], 1, f"{number}")).granted
            await counts.settle(changes([SLOTS, TOKENS], 1, 0), f"{number}")
        for number in range(3):  # nobody ends these: there is nothing to give back
            assert (await counts.book([REQUESTS], 1, f"r{number}")).granted
        assert not (await counts.book([REQUESTS], 1, "refused")).granted
        assert (counts._held, counts._owed, len(counts._calls)) == ({}, [], 0)


async def test_leases_are_renewed_while_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.ratelimit.failover.RENEW_S", 0.0)
    shared = Shaky()
    async with failover(shared) as (counts, _):
        assert (await counts.book([SLOTS], 1, "1")).granted
        await until(lambda: {"1": [SLOTS]} in shared.renewed)
        await counts.settle([(SLOTS, 0)], "1")
        shared.renewed.clear()
        await until(lambda: {} in shared.renewed)


# --- a real server --------------------------------------------------------------------------------------------------


class CountingRedis(RedisLedger):
    """Counts the bookings that it was asked for."""

    asked = 0

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        self.asked += 1
        return await super().book(bounds, tokens, lease)


async def test_a_server_that_stops_answering_is_asked_once_and_not_by_every_request(own_server: RedisServer) -> None:
    own_server.start()
    shared = CountingRedis(own_server.url, timeout_s=GUARD_S)
    async with failover(shared) as (counts, told):
        assert (await counts.book([SLOTS, TOKENS], 8, "held")).granted
        own_server.pause()
        shared._timeout_s = 0.2  # to be exceeded; before, the machine may pause as long as it likes
        first = await asyncio.gather(*(counts.book([REQUESTS], 1, f"f{number}") for number in range(5)))
        assert [verdict.granted for verdict in first].count(True) == 3
        assert told.states == [True, False]
        before = shared.asked
        for number in range(20):
            await counts.book([REQUESTS], 1, f"l{number}")
        assert shared.asked == before
        await counts.settle(changes([SLOTS, TOKENS], 8, 2), "held")
        shared._timeout_s = GUARD_S
        own_server.resume()
        await told.until(True)
        assert (await counts.book([SLOTS, TOKENS], 8, "next")).granted  # it heard of the end, and of the correction


async def test_a_server_that_refuses_writes_is_not_back(own_server: RedisServer) -> None:
    own_server.start()
    shared = CountingRedis(own_server.url, timeout_s=GUARD_S)
    async with failover(shared) as (counts, told):
        await own_server.ask(("CONFIG", "SET", "maxmemory", 1))  # by default nothing is evicted
        assert (await counts.book([REQUESTS], 1, "1")).granted  # by itself
        with pytest.raises(LedgerUnavailable, match="out of memory"):
            await shared.start()
        assert told.states == [True, False]
        await own_server.ask(("CONFIG", "SET", "maxmemory", 0))
        await told.until(True)


@pytest.mark.parametrize(("policy", "paused"), [("open", False), ("closed", True)], ids=["killed", "stopped"])
async def test_a_gateway_goes_on_without_its_server_and_comes_back_to_it(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture, policy: str, paused: bool
) -> None:
    config = read_config(
        {
            "backends": {"m": {"kind": "mock"}},
            "rate_limits": {
                "per_key": {"requests_per_min": 1},
                "url": own_server.url,
                "on_store_failure": policy,
                "timeout_s": GUARD_S,
            },
        }
    )

    async def statuses(server: TestServer, number: int) -> list[int]:
        return [(await post(server, {"messages": USER})).status for _ in range(number)]

    async def gauge(server: TestServer) -> str:
        page = (await get(server, "/metrics")).body.decode()
        return next(line for line in page.splitlines() if line.startswith("toolwire_limit_store_up "))

    async def until(server: TestServer, said: str) -> None:
        async with asyncio.timeout(GUARD_S):
            while await gauge(server) != f"toolwire_limit_store_up {said}":  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0.02)

    own_server.start()
    async with serving(config) as server:
        shared = server.app[ADMISSION].ledger._shared  # type: ignore[attr-defined]
        assert await statuses(server, 2) == [200, 429]
        assert await gauge(server) == "toolwire_limit_store_up 1.0"
        if paused:
            own_server.pause()
            shared._timeout_s = 0.2  # to be exceeded
        else:
            own_server.stop()
        assert await statuses(server, 3) == ([200, 429, 429] if policy == "open" else [503] * 3)
        assert await gauge(server) == "toolwire_limit_store_up 0.0"
        if paused:
            shared._timeout_s = GUARD_S
            own_server.resume()
        else:
            own_server.start()
        await until(server, "1.0")
        found = await statuses(server, 2)
        assert found == ([429, 429] if paused else [200, 429])  # a new server begins anew
        assert [level for level, _ in lines(caplog)] == ["ERROR", "WARNING"]
    assert shared._closed  # with the application
