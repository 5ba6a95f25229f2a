"""No key takes all places for servers that clients name: it uses at most as many as it leaves to others."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.toolservers.scripted import URL, Seen, scripted
from toolwire.extras.mcp import from_clients
from toolwire.extras.mcp.from_clients import FULL, MOST, SHARE, ClientServers, Lease, NotListed

LIST = ["https://tools.example/*"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen = Seen()
    monkeypatch.setattr(from_clients, "McpServer", scripted(seen))
    return seen


async def taken(servers: ClientServers, owner: str, most: int = 100) -> tuple[list[Lease], str]:
    """As many servers as one key gets, and why it gets no more."""
    leases: list[Lease] = []
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
