"""The live list: what a viewer is told, that nothing waits for one who does not read, and when a feed ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import CHAT, read_config
from tests.e2e.edge import Gateway, running
from tests.inspector.inspected import asked, inspecting
from tests.waiting import GUARD_S, until
from toolwire.config import GatewayConfig
from toolwire.extras.inspector import feed as feed_module
from toolwire.extras.inspector.feed import Feed
from toolwire.extras.inspector.holders import Counts, Holder, HolderGone, Holders
from toolwire.extras.inspector.ring import Changes, Ring
from toolwire.testing import Say, Upstream

Event = tuple[str, Any]
HELLO: dict[str, Any] = {"inspect": True, "backends": {"mock": {"kind": "mock", "script": ["hello"]}}}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come soon, and so whatever is looked at with them."""
    monkeypatch.setattr(feed_module, "LIFE_S", 0.02)
    monkeypatch.setattr(feed_module, "PAUSE_S", 0.0)


def rows(*idents: str) -> tuple[dict[str, Any], ...]:
    return tuple({"id": ident, "exchange_id": ident} for ident in idents)


class Scripted:
    """A holder that has these changes, one after the other, and then waits or is gone."""

    def __init__(self, name: str, *changes: Changes, goes: bool = False) -> None:
        self.name = name
        self.left = list(changes)
        self.goes = goes
        self.asked: list[int] = []

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        self.asked.append(since)
        if self.left:
            return self.left.pop(0)
        if self.goes:
            raise HolderGone(self.name)
        await asyncio.sleep(3600)
        raise AssertionError

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        return None

    async def counts(self) -> Counts:
        return []


class These(Holders):
    """Just these."""

    def __init__(self, *holders: Holder) -> None:
        super().__init__(Ring(0), None)
        self.holders = list(holders)

    def all(self) -> list[Holder]:
        return list(self.holders)


def read(event: bytes) -> Event | None:
    """Name and data; None for a sign of life."""
    if event.startswith(b":"):
        return None
    name, data = event.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


async def several(holders: Holders, wanted: int, ends: Callable[[], bool] = lambda: False) -> list[Event]:
    """So many events of a feed."""
    found: list[Event] = []
    async with asyncio.timeout(GUARD_S), aclosing(Feed(holders, None).events(ends)) as events:
        async for event in events:
            one = read(event)
            if one is not None:
                found.append(one)
            if len(found) == wanted:
                break
    return found


def told(events: Sequence[Event]) -> dict[str, Any]:
    """What a page knows after these."""
    known: dict[str, Any] = {"rows": set(), "skipped": 0}
    for name, data in events:
        if name == "rows":
            known["rows"] |= {row["id"] for row in data["rows"]}
            known["rows"] -= set(data["gone"])
            known["skipped"] += data["skipped"]
    return known


@pytest.mark.usefixtures("quick")
class TestWhatAViewerIsTold:
    async def test_all_that_is_kept_and_then_what_changes(self) -> None:
        holder = Scripted("own", Changes(5, rows("a", "b"), (), 0), Changes(7, rows("c"), ("a",), 2))
        events = await several(These(holder), 4)
        assert events[0] == ("workers", {"answering": 0, "of": 1})
        assert ("workers", {"answering": 1, "of": 1}) in events
        assert told(events) == {"rows": {"b", "c"}, "skipped": 2}
        assert holder.asked[:2] == [0, 5]

    async def test_nothing_is_said_too(self) -> None:
        """A page that comes again forgets what it had."""
        events = await several(These(Scripted("own", Changes(0, (), (), 0))), 2)
        assert ("rows", {"rows": [], "gone": [], "skipped": 0}) in events

    async def test_of_very_many_only_the_youngest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feed_module, "MOST_ROWS", 10)
        holder = Scripted("own", Changes(100, rows(*map(str, range(100))), (), 0))
        events = await several(These(holder), 3)
        assert told(events) == {"rows": set(map(str, range(90, 100))), "skipped": 90}

    async def test_exchanges_with_one_request_id(self) -> None:
        feed = Feed(These(), None)
        one, other = {"id": "a", "exchange_id": "1"}, {"id": "a", "exchange_id": "2"}
        feed._add(Changes(1, (one, other), (), 0), first=False)
        assert feed._take()["rows"] == [one, other]
        feed._add(Changes(2, (), ("1",), 0), first=False)
        assert feed._take()["gone"] == ["1"]

    async def test_several_workers(self) -> None:
        mine, other = Scripted("own", Changes(1, rows("a"), (), 0)), Scripted("2", Changes(9, rows("b"), (), 0))
        events = await several(These(mine, other), 3)
        assert told(events)["rows"] == {"a", "b"}
        assert ("workers", {"answering": 2, "of": 2}) in events

    async def test_a_worker_that_never_answered_keeps_nobody_from_the_others(self) -> None:
        mine, dead = Scripted("own", Changes(1, rows("a"), (), 0)), Scripted("2", goes=True)
        events = await several(These(mine, dead), 3)
        assert told(events)["rows"] == {"a"}
        assert ("workers", {"answering": 1, "of": 2}) in events

    async def test_a_worker_that_comes_later(self) -> None:
        holders = These(Scripted("own", Changes(1, rows("a"), (), 0)))
        found: list[Event] = []
        async with asyncio.timeout(GUARD_S), aclosing(Feed(holders, None).events(lambda: False)) as events:
            async for event in events:
                found += [one for one in (read(event),) if one is not None]
                if told(found)["rows"] == {"a"} and len(holders.holders) == 1:
                    holders.holders.append(Scripted("2", Changes(1, rows("b"), (), 0)))
                if told(found)["rows"] == {"a", "b"}:
                    break
        assert found[-1][0] == "rows"

    async def test_it_ends_when_a_worker_is_lost(self) -> None:
        """The page asks again, and is told all that there is then."""
        lost = Scripted("2", Changes(1, rows("b"), (), 0), goes=True)
        events = await several(These(Scripted("own", Changes(1, rows("a"), (), 0)), lost), 1000)
        assert told(events)["rows"] == {"a", "b"}

    async def test_it_ends_when_another_worker_has_taken_the_place(self) -> None:
        """Its versions begin anew."""
        events = await several(These(Scripted("2", Changes(50, rows("b"), (), 0), Changes(3, (), (), 0))), 1000)
        assert told(events)["rows"] == {"b"}

    async def test_it_ends_when_it_is_told_to(self) -> None:
        assert await several(These(Scripted("own", Changes(1, rows("a"), (), 0))), 1000, ends=lambda: True) == []

    async def test_it_ends_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feed_module, "LONGEST_S", 0.1)
        assert await several(These(Scripted("own", Changes(1, rows("a"), (), 0))), 1000)


class Endless(Scripted):
    """There is always something new."""

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        self.asked.append(since)
        await asyncio.sleep(0)
        return Changes(since + 1, rows(f"r{since}"), (f"r{since - 1}",), 0)


@pytest.mark.usefixtures("quick")
async def test_nothing_is_collected_for_a_viewer_who_does_not_read() -> None:
    holder = Endless("own")
    async with aclosing(Feed(These(holder), None).events(lambda: False)) as events:

        async def taken() -> None:
            while not (await anext(events)).startswith(b"event: rows"):
                pass

        await taken()
        for _ in range(1000):
            await asyncio.sleep(0)
        before = len(holder.asked)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(holder.asked) == before <= 3, "nobody is asked for more while what is known was not taken"
        await taken()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(holder.asked) == before + 1


# --- over real sockets ----------------------------------------------------------------------------------------------


class Viewer:
    """A page that reads the feed."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[Event] = []

    async def next(self) -> Event:
        while True:
            event = read(await self.response.content.readuntil(b"\n\n"))
            if event is not None:
                self.events.append(event)
                return event

    async def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, dict[str, Any]]:
        """The rows by id, as soon as this is true of them."""
        known: dict[str, dict[str, Any]] = {}
        while True:
            for name, data in self.events:
                if name == "rows":
                    known |= {row["id"]: row for row in data["rows"]}
                    known = {ident: row for ident, row in known.items() if row["exchange_id"] not in data["gone"]}
            if true(known):
                return known
            await self.next()

    async def end(self) -> None:
        """Read to the end."""
        while await self.response.content.read(65536):
            pass


@asynccontextmanager
async def viewing(url: str) -> AsyncIterator[Viewer]:
    async with (
        asyncio.timeout(GUARD_S),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/inspect/api/feed") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        yield Viewer(response)


async def ask(url: str, ident: str, **more: Any) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + CHAT, json=asked(**more), headers={"X-Request-Id": ident}) as response,
    ):
        await response.read()


@pytest.mark.usefixtures("quick")
async def test_the_list_lives() -> None:
    more = asyncio.Event()
    async with Upstream([Say("a"), Say("one", more, "two")]) as upstream:
        config = read_config({"inspect": True, "backends": {"up": {"url": upstream.url}}})
        async with inspecting(config) as gateway:
            await ask(gateway.url, "before")
            async with viewing(gateway.url) as viewer:
                known = await viewer.until(lambda rows: "before" in rows and not rows["before"]["running"])
                assert known["before"]["status"] == 200
                running_ = asyncio.create_task(ask(gateway.url, "now", stream=True))
                known = await viewer.until(lambda rows: "now" in rows)
                assert known["now"]["running"] is True
                more.set()
                await running_
                known = await viewer.until(lambda rows: not rows["now"]["running"])
                row = known["now"]
    assert (row["model"], row["route"], row["backend"], row["api"], row["stream"]) == ("m", "*", "up", "chat", True)
    assert row["bytes"] > 0
    assert row["total_ms"] >= row["first_byte_ms"] > 0
    assert (row["client"], row["path"]) == ("Python/3.11"[: len(row["client"])], CHAT)


@pytest.mark.usefixtures("quick")
async def test_a_viewer_who_does_not_read_holds_nobody_up() -> None:
    """The feed of a page that stands still is full; exchanges go on, and others see them."""
    config = read_config({**HELLO, "server": {"write_stall_s": 3600}})
    async with running(config) as gateway, asyncio.timeout(GUARD_S):
        url = f"http://127.0.0.1:{gateway.port}"
        with gateway.asking(b"GET /inspect/api/feed HTTP/1.1\r\nHost: localhost\r\n\r\n", buffer=2048):
            for number in range(300):
                await ask(url, f"r{number}-{'x' * 100}")
            async with viewing(url) as viewer:
                known = await viewer.until(lambda rows: len(rows) == 300)
    assert not any(row["running"] for row in known.values())


@asynccontextmanager
async def looked_at(config: GatewayConfig) -> AsyncIterator[tuple[Gateway, Viewer]]:
    async with running(config) as gateway, viewing(f"http://127.0.0.1:{gateway.port}") as viewer:
        await viewer.next()
        yield gateway, viewer


@pytest.mark.usefixtures("quick")
async def test_it_ends_when_the_gateway_is_about_to_stop() -> None:
    async with looked_at(read_config(HELLO)) as (gateway, viewer):
        gateway.host.drain()
        await viewer.end()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("changed", [{}, {"inspect": False}])
async def test_it_ends_when_the_configuration_is_another(changed: dict[str, Any]) -> None:
    """The application that was replaced is not held by those who look."""
    async with looked_at(read_config(HELLO)) as (gateway, viewer):
        assert await gateway.host.reload(lambda: read_config({**HELLO, **changed})) is None
        await viewer.end()
        await until(lambda: not gateway.host._replaced)


@pytest.mark.usefixtures("quick")
async def test_what_was_kept_outlives_another_configuration() -> None:
    async with running(read_config(HELLO)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        await ask(url, "before")
        await gateway.host.reload(lambda: read_config({**HELLO, "limits": {"body_bytes": 100_000}}))
        await ask(url, "after")
        async with viewing(url) as viewer:
            await viewer.until(lambda rows: {"before", "after"} <= set(rows))


@pytest.mark.usefixtures("quick")
async def test_a_viewer_who_leaves_leaves_nothing() -> None:
    async with running(read_config(HELLO)) as gateway:
        before = len(asyncio.all_tasks())
        for _ in range(5):
            async with viewing(f"http://127.0.0.1:{gateway.port}") as viewer:
                await viewer.next()
        await until(lambda: len(asyncio.all_tasks()) <= before)
