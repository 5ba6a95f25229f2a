"""Several servers behind one route, over real sockets (R10.6): who is asked, who is left alone, what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, USER, Gateway, function, get, post, read_config
from tests.waiting import GUARD_S
from toolwire.registry import registries
from toolwire.startup.description import describe
from toolwire.startup.names import check_names
from toolwire.support.conversion import ConfigError
from toolwire.testing import Raw, Refuse, Say, Upstream

ASK: dict[str, Any] = {"messages": USER}


def config(upstreams: Mapping[str, str], server: Mapping[str, Any] | None = None, /, **route: Any) -> Any:
    backends = {name: {"url": url, **(server or {})} for name, url in upstreams.items()}
    return read_config({"backends": backends, "routes": [{"model": "m", **route}]})


async def until(server: TestServer, path: str, text: str) -> str:
    """The page as soon as the text is in it."""
    while text not in (page := (await get(server, path)).body.decode()):
        pass
    return page


# --- who is asked ---------------------------------------------------------------------------------------------------


async def test_weights(gateway: Gateway) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say("a")]) as a, Upstream([Say("b")]) as b:
        shares = [{"backend": "a", "weight": 3}, "b"]
        server = await gateway(config({"a": a.url, "b": b.url}, backends=shares))
        for _ in range(8):
            assert (await post(server, ASK)).status == 200
    assert (len(a.requests), len(b.requests)) == (6, 2)


async def test_the_least_busy(gateway: Gateway) -> None:
    more = asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say("a", more)]) as a, Upstream([Say("b")]) as b:
        server = await gateway(config({"a": a.url, "b": b.url}, backends=["a", "b"], balance="least_busy"))
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.make_url(CHAT), json={"model": "m", **ASK, "stream": True}) as response,
        ):
            await response.content.readuntil(b"\n\n")
            for _ in range(3):
                await post(server, ASK)
            assert (len(a.requests), len(b.requests)) == (1, 3)
            more.set()
            await response.read()
        for _ in range(2):
            await post(server, ASK)
    assert (len(a.requests), len(b.requests)) == (2, 4), "it counts no more, and they take turns"


async def test_a_session_stays_where_it_is_and_moves_when_it_must(gateway: Gateway) -> None:
    async with (
        asyncio.timeout(GUARD_S),
        Upstream([Say("x")]) as a,
        Upstream([Say("x")]) as b,
        Upstream([Say("x")]) as c,
    ):
        upstreams = {"a": a, "b": b, "c": c}
        settings: dict[str, Any] = {"backends": [*upstreams], "balance": "sticky", "sticky_by": "X-Session"}
        settings["options"] = {"retry": {"attempts": 2}}
        server = await gateway(config({name: up.url for name, up in upstreams.items()}, **settings))

        async def homes() -> dict[str, str]:
            found = {}
            for session in map(str, range(12)):
                before = {name: len(up.requests) for name, up in upstreams.items()}
                assert (await post(server, ASK, headers={"X-Session": session})).status == 200
                (found[session],) = [name for name, up in upstreams.items() if len(up.requests) > before[name]]
            return found

        first = await homes()
        assert set(first.values()) == {"a", "b", "c"}
        assert await homes() == first
        c.script = [Refuse(429, headers={"Retry-After": "300"})]
        for session in first:  # the first of its sessions finds out
            assert (await post(server, ASK, headers={"X-Session": session})).status == 200
        c.requests.clear()
        later = await homes()
        assert not c.requests
        assert all(later[session] == home for session, home in first.items() if home != "c")


async def test_a_conversation_stays_where_it_is(gateway: Gateway) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say("x")]) as a, Upstream([Say("x")]) as b:
        settings = {"backends": ["a", "b"], "balance": "sticky"}
        server = await gateway(config({"a": a.url, "b": b.url}, **settings))
        for number in range(6):
            messages = [{"role": "user", "content": f"question {number}"}]
            counts = []
            for _ in range(3):
                counts.append(len(a.requests))
                await post(server, {"messages": messages})
                messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": "go on"}]
            assert len(a.requests) - counts[0] in (0, 3)
        assert a.requests
        assert b.requests


async def test_each_server_gets_its_own_name_and_form(gateway: Gateway) -> None:
    """What is sent is made for the server that gets it, also in a retry."""
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500)]) as a, Upstream([Say("fine")]) as b:
        backends = {"a": {"url": a.url, "preset": "openai"}, "b": {"url": b.url, "system_role": False}}
        route = {
            "model": "m",
            "backends": [{"backend": "a", "upstream_model": "big"}],
            "fallback": [{"backend": "b", "upstream_model": "small"}],
        }
        server = await gateway(read_config({"backends": backends, "routes": [route]}))
        tools = [function("look", path="string")]
        answer = await post(server, {"messages": [{"role": "developer", "content": "d"}, *USER], "tools": tools})
    assert answer.status == 200
    first, second = a.requests[0].json, b.requests[0].json
    assert (first["model"], [m["role"] for m in first["messages"]]) == ("big", ["developer", "user"])
    assert (second["model"], [m["role"] for m in second["messages"]]) == ("small", ["user"])


# --- who is left alone ----------------------------------------------------------------------------------------------


async def test_a_server_that_fails_is_left_alone(gateway: Gateway) -> None:
    breaker = {"breaker": {"failures": 2, "open_s": 3600}}
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500)]) as a, Upstream([Say("b")]) as b:
        server = await gateway(config({"a": a.url, "b": b.url}, breaker, backend="a", fallback=["b"]))
        for _ in range(5):
            assert (await post(server, ASK)).status == 200
        page = (await get(server, "/metrics")).body.decode()
    assert (len(a.requests), len(b.requests)) == (2, 5)
    assert 'toolwire_backend_up{backend="a"} 0.0' in page


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_when_all_are_left_alone(gateway: Gateway, stream: bool) -> None:
    breaker = {"breaker": {"failures": 1, "open_s": 3600}}
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500)]) as a, Upstream([Raw()]) as b:
        server = await gateway(config({"a": a.url, "b": b.url}, breaker, backend="a", fallback=["b"]))
        first = await post(server, {**ASK, "stream": stream})
        second = await post(server, {**ASK, "stream": stream})
    assert (first.status, first.json()["error"]["code"]) == (502, "upstream_disconnected")
    assert (second.status, second.json()["error"]["code"]) == (503, "no_backend_available")
    assert 3590 <= int(second.headers["Retry-After"]) <= 3600
    assert (len(a.requests), len(b.requests)) == (1, 1)


# --- health ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_down_gets_nothing(gateway: Gateway, nobody: str) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say("b")]) as b:
        server = await gateway(config({"a": nobody, "b": b.url}, {"health_check_s": 0.02}, backends=["a", "b"]))
        page = await until(server, "/metrics", 'toolwire_backend_up{backend="a"} 0.0')
        page = await until(server, "/metrics", 'toolwire_backend_up{backend="b"} 1.0')
        assert 'toolwire_backend_up{backend="a"} 0.0' in page
        for _ in range(4):
            assert (await post(server, ASK)).status == 200
        ready = await get(server, "/ready")
        assert (ready.status, ready.json()) == (200, {"status": "ready", "backends": {"a": "down", "b": "up"}})
        page = (await get(server, "/metrics")).body.decode()
    assert 'backend_errors_total{backend="a"' not in page, "nobody had to find out"


# --- the configuration ----------------------------------------------------------------------------------------------


def test_check_shows_the_servers() -> None:
    names = dict.fromkeys(("a", "b", "c"), "http://127.0.0.1:1")
    shares = [{"backend": "a", "weight": 3}, {"backend": "b", "upstream_model": "x"}]
    shown = describe(config(names, backends=shares, fallback=["c"], upstream_model="y"), registries())
    assert "route m -> weighted (a x3, b x1 as x) else c as y" in shown
    shown = describe(config(names, backends=["a", "b"], balance="sticky", sticky_by="X-Session"), registries())
    assert "route m -> sticky by X-Session (a, b): prompt" in shown


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ({"backends": ["a", "q"]}, "routes[0].backends[1]: no backend 'q'"),
        ({"backends": ["a", "a"]}, "routes[0].backends[1]: 'a' is already taken by routes[0].backends[0]"),
        ({"backend": "a", "fallback": ["a"]}, "routes[0].fallback[0]: 'a' is already taken by routes[0].backend"),
        ({"backends": [{"backend": "a", "weight": 0}]}, "routes[0].backends[0].weight: must be above 0"),
        ({"backends": [{"backend": "a", "weigth": 2}]}, "routes[0].backends[0].weigth: unknown key, did you mean"),
        ({"backend": "b", "backends": ["a"]}, "routes[0].backend: give either `backend` or `backends`"),
        ({"backends": ["a", "b"], "balance": "random"}, "routes[0].balance: expected one of"),
        (
            {"backend": "a", "options": {"retry": {"attempts": 0}}},
            "routes[0].options.retry.attempts: expected at least 1",
        ),
        (
            {"backend": "a", "options": {"bad_answers": {"reask": 4}}},
            "routes[0].options.bad_answers.reask: expected one of 0, 1, 2, 3",
        ),
        (
            {"backend": "a", "options": {"bad_answers": {"reask": 1}}, "chain": ["forwarding"]},
            "routes[0].options.bad_answers.reask: needs `reask`",
        ),
        (
            {"backend": "a", "options": {"bad_answers": {"reask": 1}}, "chain": ["arguments", "reask", "forwarding"]},
            "routes[0].chain[1]: `reask` needs `arguments` further in, which detects bad answers",
        ),
    ],
)
def test_mistakes_are_named(route: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names(config({"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}, **route), registries())
    assert problem in str(caught.value)
