"""How often a server is asked for its models, whoever wants to know them and however often."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import read_config, serving
from toolwire.errors import BackendFault, GatewayError
from toolwire.testing import Answer, Upstream
from toolwire.upstream.pool import model_names
from toolwire.upstream.pool.model_names import ALONE, FRESH_S, MOST, STALE_S, ModelNames
from toolwire.upstream.servers.hops import HOPS, LOOP

JSON = {"Content-Type": "application/json"}


class Server:
    """A server's list, and how often it was asked for it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.names: list[str] | GatewayError = ["m"]
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0
        self.goes = asyncio.Event()
        """A question that is cancelled ends when this is set."""
        self.goes.set()
        self.known = ModelNames(self.ask, lambda: self.now)

    async def ask(self) -> list[str]:
        self.asked += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await self.goes.wait()
            raise
        if isinstance(self.names, GatewayError):
            raise self.names
        return self.names


async def test_it_is_asked_once_while_the_answer_is_fresh() -> None:
    server = Server()
    for _ in range(100):
        assert await server.known.get() == ["m"]
    assert server.asked == 1
    server.now += FRESH_S
    server.names = ["n"]
    assert await server.known.get() == ["n"]
    assert server.asked == 2


async def test_all_who_ask_together_wait_for_one_answer() -> None:
    server = Server()
    server.gate.clear()
    several = [asyncio.create_task(server.known.get()) for _ in range(50)]
    await asyncio.sleep(0)
    several.pop().cancel()
    await asyncio.sleep(0)
    server.gate.set()
    assert await asyncio.gather(*several) == [["m"]] * 49
    assert (server.asked, server.cancelled) == (1, 0)


async def test_nobody_waits_for_an_answer_that_nobody_wants() -> None:
    server = Server()
    server.gate.clear()
    several = [asyncio.create_task(server.known.get()) for _ in range(3)]
    await asyncio.sleep(0)
    server.goes.clear()
    for one in several:
        one.cancel()
    await asyncio.wait(several)
    server.gate.set()
    newcomer = asyncio.create_task(server.known.get())
    await asyncio.sleep(0)
    server.goes.set()
    assert await newcomer == ["m"], "one who comes at this moment is not cancelled with them"
    assert (server.asked, server.cancelled) == (2, 1)


async def test_a_request_of_another_gateway_does_not_wait_for_others() -> None:
    """In a ring of gateways that answer may wait for it."""
    server = Server()
    server.gate.clear()
    client = asyncio.create_task(server.known.get())
    await asyncio.sleep(0)
    server.gate.set()
    server.gate = asyncio.Event()  # the client's question is still on its way, and so is the next one
    other = asyncio.create_task(of_gateway(server))
    await asyncio.sleep(0)
    assert server.asked == 2
    server.gate.set()
    assert await client == await other == ["m"]
    assert await of_gateway(server) == ["m"]
    assert server.asked == 2, "what it was told is kept for all"


async def test_requests_that_say_so_have_it_asked_a_few_times_at_once() -> None:
    server = Server()
    server.gate.clear()
    several = [asyncio.create_task(of_gateway(server)) for _ in range(50)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert server.asked == ALONE + 1
    server.gate.set()
    assert await asyncio.gather(*several) == [["m"]] * 50
    assert server.asked == ALONE + 1


@pytest.mark.parametrize(("code", "kept"), [(LOOP, False), ("upstream_disconnected", True)])
async def test_a_request_that_comes_back_says_nothing_of_others(code: str, kept: bool) -> None:
    server = Server()
    server.names = BackendFault("no", code=code)
    with pytest.raises(BackendFault) as raised:
        await of_gateway(server)
    assert raised.value.code == code
    server.names = ["m"]
    if kept:
        with pytest.raises(BackendFault):
            await server.known.get()
    else:
        assert await server.known.get() == ["m"]


async def of_gateway(server: Server) -> list[str]:
    """The names, for a request that came through another gateway."""
    came = HOPS.set("0123456789abcdef")
    try:
        return await server.known.get()
    finally:
        HOPS.reset(came)


async def test_a_fault_is_an_answer_as_well() -> None:
    server = Server()
    server.names = BackendFault("gone")
    for _ in range(100):
        with pytest.raises(BackendFault, match="gone") as caught:
            await server.known.get()
    assert server.asked == 1
    assert len(caught.traceback) < 10, "it does not grow with each who is told"
    server.now += FRESH_S
    server.names = ["m"]
    assert await server.known.get() == ["m"]


async def test_the_last_list_counts_for_a_while() -> None:
    server = Server()
    await server.known.get()
    server.names = BackendFault("gone")
    server.now += STALE_S - 1
    assert await server.known.get() == ["m"]
    server.now += 1
    with pytest.raises(BackendFault):
        await server.known.get()
    assert server.asked == 2


async def test_the_list_is_bounded() -> None:
    server = Server()
    server.names = ["x" * 257, *(f"m{number}" for number in range(MOST + 10))]
    assert len(await server.known.get()) == MOST - 1


async def test_clients_share_what_a_server_says_and_each_key_sees_its_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the gateway: one question for all keys, and no key sees the models of a route that it may not use."""
    monkeypatch.setattr(model_names, "FRESH_S", 3600.0)  # so that however slow this machine is, it stays fresh
    lists: list[str] = []

    def listing(name: str) -> Any:
        def answer(asked: Any) -> Answer:
            lists.append(name)
            body = orjson.dumps({"data": [{"id": f"{name}-model"}]})
            return Answer([body], headers=JSON, framing="length")

        return answer

    async with Upstream() as one, Upstream() as two:
        one.listing, two.listing = listing("one"), listing("two")
        backends = {
            name: {"url": up.url, "identify_s": 0, "preset": "generic"} for name, up in (("one", one), ("two", two))
        }
        routes = [{"model": "one-*", "backend": "one"}, {"model": "two-*", "backend": "two"}]
        keys = [{"key": "k1", "routes": ["one-*"]}, {"key": "k2", "routes": ["two-*"]}, {"key": "k3"}]
        config = read_config({"backends": backends, "routes": routes, "auth": {"keys": keys}})
        async with serving(config) as server, aiohttp.ClientSession() as session:

            async def names(key: str) -> list[str]:
                headers = {"Authorization": f"Bearer {key}"}
                async with session.get(server.make_url("/v1/models"), headers=headers) as got:
                    return [entry["id"] for entry in (await got.json())["data"]]

            shown = await asyncio.gather(*(names(key) for key in ("k1", "k2", "k3") * 10))
    assert shown[:3] == [["one-model"], ["two-model"], ["one-model", "two-model"]]
    assert shown == shown[:3] * 10
    assert sorted(lists) == ["one", "two"]


@pytest.mark.parametrize("path", ["/ready", "/v1/models", "/v1/models/m"])
async def test_without_a_key_nobody_can_have_a_server_asked_often(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_names, "FRESH_S", 3600.0)  # so that however slow this machine is, it stays fresh
    monkeypatch.setattr("toolwire.upstream.pool.health.FRESH_S", 3600.0)
    async with Upstream() as up:
        config = read_config({"backends": {"up": {"url": up.url, "identify_s": 0}}})
        async with serving(config) as server, aiohttp.ClientSession() as session:

            async def ask() -> int:
                async with session.get(server.make_url(path)) as got:
                    return got.status

            assert set(await asyncio.gather(*(ask() for _ in range(50)))) == {200}
            for _ in range(20):
                assert await ask() == 200
    assert len(up.looks) <= 2
