"""Connections to the servers that clients name: shared by whom, how many, and how long; no key uses more
of them than it leaves to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from tests.toolservers.scripted import AWAY, OTHER, URL, Seen, scripted
from tests.waiting import until
from toolwire.extras.mcp import from_clients
from toolwire.extras.mcp.from_clients import FULL, MOST, SHARE, SILENT, ClientServers, McpLease, NotListed
from toolwire.extras.mcp.server import McpServer

LIST = ["https://tools.example/*", OTHER]


async def test_the_same_url_and_headers_share_one(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        first, second = await asyncio.gather(servers.lease(URL, {"a": "1"}), servers.lease(URL, {"a": "1"}))
        others = [
            await servers.lease(URL, {"a": "2"}),
            await servers.lease(OTHER, {"a": "1"}),
            await servers.lease(URL, {}),
        ]
        assert first.server is second.server
        assert len({id(lease.server) for lease in [first, *others]}) == 4
        first.close()
        second.close()
        again = await servers.lease(URL, {"a": "1"})
        assert again.server is first.server
    assert len(seen.made) == len(seen.ended) == 4


async def test_the_order_of_headers_makes_no_other_connection(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        first = await servers.lease(URL, {"a": "1", "b": "2"})
        assert (await servers.lease(URL, {"b": "2", "a": "1"})).server is first.server


async def test_a_server_is_asked_in_the_form_that_was_held_against_the_list(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        for url in ("HTTPS://tools\u3002Example:443/mcp", URL):
            assert servers.refusal(url) is None
            (await servers.lease(url, {})).close()
    assert seen.made == [(URL, {})]


async def test_a_lease_is_given_back_once(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        first, second = await servers.lease(URL, {}), await servers.lease(URL, {})
        first.close()
        first.close()
        assert [one["users"] for one in servers.shown()] == [1]
        second.close()
        assert [one["users"] for one in servers.shown()] == [0]


async def test_there_are_only_so_many(seen: Seen) -> None:
    """Who needs room takes that of the one that nobody has used for longest; without any there is none."""
    async with ClientServers(LIST, "cut", most=2).running() as servers:
        first, second = await servers.lease(URL, {"a": "1"}), await servers.lease(URL, {"a": "2"})
        with pytest.raises(NotListed, match=FULL):
            await servers.lease(URL, {"a": "3"})
        first.close()
        second.close()
        (await servers.lease(URL, {"a": "1"})).close()
        third = await servers.lease(URL, {"a": "3"})
        assert seen.ended == [URL]
        assert len(servers.shown()) == 2
        kept = await servers.lease(URL, {"a": "1"})
        assert kept.server is first.server
        third.close()
    assert len(seen.ended) == len(seen.made) == 3


async def test_those_that_are_still_ending_count(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving, may_leave = [], asyncio.Event()

    class Slow(scripted(seen)):  # type: ignore[misc]
        @asynccontextmanager
        async def running(self) -> AsyncIterator[McpServer]:
            async with super().running():
                yield self
                leaving.append(self)
                await may_leave.wait()

    monkeypatch.setattr(from_clients, "McpServer", Slow)
    async with ClientServers(LIST, "cut", most=2).running() as servers:
        for number in "12":
            (await servers.lease(URL, {"a": number})).close()
        further = [asyncio.create_task(servers.lease(OTHER, {"a": number})) for number in "34"]
        await until(lambda: len(leaving) == 2 or len(seen.made) > 2, 0)
        made_meanwhile = len(seen.made)
        may_leave.set()
        await asyncio.gather(*further)
    assert made_meanwhile == 2, "no further one begins before one of them has ended"
    assert len(seen.made) == 4


async def test_one_that_nobody_uses_ends(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_clients, "IDLE_S", 0.01)
    async with ClientServers(LIST, "cut").running() as servers:
        (await servers.lease(URL, {})).close()
        await until(lambda: seen.ended)
        assert servers.shown() == []
        await servers.lease(URL, {})
    assert len(seen.made) == 2


async def test_one_that_is_used_again_does_not_end(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_clients, "IDLE_S", 0.01)
    async with ClientServers(LIST, "cut").running() as servers:
        (await servers.lease(URL, {})).close()
        await servers.lease(URL, {})
        (await servers.lease(OTHER, {})).close()
        await until(lambda: seen.ended)  # its time was over after the other's
        assert seen.ended == [OTHER]


async def test_one_that_failed_is_tried_again_by_the_next(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        for _ in range(2):
            with pytest.raises(NotListed, match="nobody answers there"):
                await servers.lease(AWAY, {})
        assert servers.shown() == []
    assert [url for url, _ in seen.made] == [AWAY, AWAY]


@pytest.fixture
def silent(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers never answer."""

    class Silent(scripted(seen)):  # type: ignore[misc]
        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            self.settled.set = lambda: None  # type: ignore[method-assign]

    monkeypatch.setattr(from_clients, "McpServer", Silent)


async def test_one_that_says_nothing(silent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_clients, "LISTING_S", 0.01)
    async with ClientServers(LIST, "cut").running() as servers:
        with pytest.raises(NotListed, match=SILENT.partition(" within ")[0]):
            await servers.lease(URL, {})


async def test_who_gives_up_waiting_gives_it_back(silent: None) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        waiting = asyncio.create_task(servers.lease(URL, {}))
        await until(servers.shown, 0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [one["users"] for one in servers.shown()] == [0]


async def test_nothing_is_leased_when_the_gateway_stops(seen: Seen) -> None:
    servers = ClientServers(LIST, "cut")
    leases: list[McpLease] = []
    async with servers.running():
        leases.append(await servers.lease(URL, {}))
    with pytest.raises(NotListed, match="stopping"):
        await servers.lease(URL, {})
    leases[0].close()
    assert seen.ended == [URL]


# --- shares of keys -------------------------------------------------------------------------------------------------


async def taken(servers: ClientServers, owner: str, most: int = 100) -> tuple[list[McpLease], str]:
    """As many servers as one key gets, and why it gets no more."""
    leases: list[McpLease] = []
    while len(leases) < most:
        try:
            leases.append(await servers.lease(URL, {"key": owner, "n": str(len(leases))}, owner))
        except NotListed as error:
            return leases, str(error)
    return leases, ""


async def test_each_key_leaves_places_to_others(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        got = {owner: await taken(servers, owner) for owner in "abcdef"}
    assert [len(leases) for leases, _ in got.values()] == [8, 4, 2, 1, 1, 0]
    assert [why for _, why in got.values()] == [SHARE] * 4 + [FULL] * 2


async def test_what_is_given_back_can_be_taken_again(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        first, _ = await taken(servers, "a")
        with ExitStack() as stack:
            for lease in first:
                stack.callback(lease.close)
        again = await servers.lease(URL, {"key": "a", "n": "new"}, "a")
        again.close()
        second, _ = await taken(servers, "b")
        assert len(second) == MOST // 2, "what nobody uses now is nobody's"


async def test_a_server_that_is_there_already_takes_no_place(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        leases, _ = await taken(servers, "a")
        more = [await servers.lease(URL, {"key": "a", "n": "0"}, "a") for _ in range(MOST)]
        shared = await servers.lease(URL, {"key": "a", "n": "0"}, "b")
        assert shared.server is leases[0].server
        for lease in (*leases, *more):
            lease.close()
        assert [one["users"] for one in servers.shown() if one["users"]] == [1]


async def test_own_idle_connections_make_room_first(seen: Seen) -> None:
    async with ClientServers(LIST, "cut", most=4).running() as servers:
        for owner, number in (("b", 0), ("b", 1), ("a", 0), ("a", 1)):
            (await servers.lease(URL, {"key": owner, "n": str(number)}, owner)).close()
        (await servers.lease(URL, {"key": "a", "n": "2"}, "a")).close()
        made = len(seen.made)
        for number in (0, 1):
            (await servers.lease(URL, {"key": "b", "n": str(number)}, "b")).close()
        assert len(seen.made) == made, "those of the other key are still there"


async def test_without_keys_there_are_no_shares(seen: Seen) -> None:
    async with ClientServers(LIST, "cut").running() as servers:
        leases, why = await taken(servers, "")
    assert (len(leases), why) == (MOST, FULL)
