"""Asking again over real sockets: what is held back, and what is not (R9.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson

from tests.e2e.conftest import CHAT, USER, Gateway, function, upstream_config
from tests.waiting import GUARD_S
from toolwire.testing import Answer, Say, Upstream

SETTINGS: dict[str, Any] = {"server": {"keepalive_s": 0.01}, "defaults": {"reask": 1}}


def call(path: Any) -> str:
    """A call as the format teaches it."""
    block = {"name": "read_file", "arguments": orjson.dumps({"path": path}).decode()}
    return f"<tool_call>{orjson.dumps(block).decode()}</tool_call>"


def body(*, strict: bool) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": USER,
        "stream": True,
        "tools": [function("read_file", strict=strict, path="string")],
    }


async def test_where_nothing_can_fail_nothing_is_held_back(gateway: Gateway) -> None:
    more = asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say("one", more, "two")]) as upstream:
        server = await gateway(upstream_config(upstream.url, **SETTINGS))
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.make_url(CHAT), json=body(strict=False)) as got,
        ):
            assert await got.content.readuntil(b"one")
            more.set()
            assert b"two" in await got.read()


async def test_what_may_fail_is_held_back_and_the_client_sees_life(gateway: Gateway) -> None:
    more = asyncio.Event()
    turns = [Say("one", more, call(1)), Say("two", call("a"))]
    async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
        server = await gateway(upstream_config(upstream.url, **SETTINGS))
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.make_url(CHAT), json=body(strict=True)) as got,
        ):
            assert (await got.content.readuntil(b"\n\n")).startswith(b":")
            more.set()
            rest = await got.read()
    assert b"one" not in rest
    assert b"two" in rest
    assert rest.count(b'"finish_reason":"tool_calls"') == 1
    assert len(upstream.requests) == 2


async def test_prose_in_place_of_a_demanded_call_is_held_back_and_asked_for_again(gateway: Gateway) -> None:
    """R9.9 without an option: no text of the answer was sent, so another can replace it; and a call is not held."""
    more = asyncio.Event()
    turns = [Say("I would", " rather", " not."), Say("So:\n", call("a"), more, "end")]
    async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
        server = await gateway(upstream_config(upstream.url))
        demanded = {**body(strict=False), "tool_choice": "required"}
        async with aiohttp.ClientSession() as session, session.post(server.make_url(CHAT), json=demanded) as got:
            begun = await got.content.readuntil(b"read_file")
            more.set()
            rest = begun + await got.read()
    assert b"rather" not in rest
    assert b"So:" in begun
    assert rest.count(b'"finish_reason":"tool_calls"') == 1
    assert len(upstream.requests) == 2


async def test_held_text_arrives_whole_if_nothing_better_comes(gateway: Gateway) -> None:
    """Text that waits for a demanded call is sent as it was written, whether or not the call follows."""
    pieces = [f"word{n} " for n in range(40)]
    for turns in ([Say("No."), Say(*pieces)], [Say(*pieces, call("a"))]):
        async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
            server = await gateway(upstream_config(upstream.url))
            demanded = {**body(strict=False), "tool_choice": "required"}
            async with aiohttp.ClientSession() as session, session.post(server.make_url(CHAT), json=demanded) as got:
                frames = [
                    orjson.loads(line[6:]) for line in (await got.read()).splitlines() if line.startswith(b"data: {")
                ]
        text = "".join(choice["delta"].get("content") or "" for frame in frames for choice in frame["choices"])
        assert text.split() == "".join(pieces).split()


async def test_a_client_that_goes_is_asked_nothing_more_for(gateway: Gateway) -> None:
    """The second attempt is given up like any other request (R10.7)."""
    never = Answer(headers={"Content-Type": "text/event-stream"}, hang=True)
    async with asyncio.timeout(GUARD_S), Upstream([Say(call(1)), never]) as upstream:
        server = await gateway(upstream_config(upstream.url, **SETTINGS))
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(session.post(server.make_url(CHAT), json=body(strict=True)))
            await upstream.next_request()
            second = await upstream.next_request()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await second.dropped.wait()
