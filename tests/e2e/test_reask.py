"""Asking again over real sockets, after a near miss (R23.4) and after an answer that may not be given (R9.8): what the
client sees meanwhile, and when. What is asked again and how: `tests/chain/test_near_misses.py`,
`tests/chain/test_reask.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import CHAT, Gateway, function, get, post, upstream_config
from tests.e2e.meaning import CLIENTS, RESPONSES, meant
from tests.e2e.responses_answers import of_stream
from tests.e2e.speaking import in_pieces, speaking
from tests.e2e.test_cut_calls import asking
from tests.waiting import GUARD_S
from toolwire.model import ModelReply, ReplyChoice, Text
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

NEAR = '<tool_call>{"name":"reed","arguments":{"path":"a"}}</tool_call>'
GOOD = '<tool_call>{"name":"read","arguments":{"path":"a"}}</tool_call>'
WRONG = GOOD.replace('"a"', "1")
KEEPALIVE: dict[str, Any] = {"server": {"keepalive_s": 0.01}}

PATHS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])


def body(path: str, *, stream: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": "m", **asking(path, stream), **more}


STRICT = body(CHAT, tools=[function("read", strict=True, path="string")])
DEMANDED = body(CHAT, tool_choice="required")


@asynccontextmanager
async def asked(server: Any, sent: dict[str, Any], path: str = CHAT) -> AsyncIterator[aiohttp.ClientResponse]:
    """An answer that is read bit by bit."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.make_url(path), json=sent) as got,
    ):
        yield got


async def test_the_client_gets_the_call_and_nothing_else(gateway: Gateway) -> None:
    """In one answer. What a near miss is, for each protocol and scanner: `tests/chain/test_near_misses.py`."""
    script = [Say(*in_pieces(NEAR, 9), usage=(10, 3)), Say(GOOD, usage=(20, 5))]
    async with Upstream(script * len(CLIENTS)) as upstream:
        server = await gateway(upstream_config(upstream.url))
        for path in CLIENTS:
            answer = await post(server, body(path), path=path)
            assert meant(path, answer, True) == ("", [("read", {"path": "a"})], "", 30), path
            if path == CHAT:
                chunks = answer.frames()[:-1]
                assert sum("role" in choice["delta"] for chunk in chunks for choice in chunk["choices"]) == 1
                assert len({chunk["id"] for chunk in chunks}) == 1
            elif path == RESPONSES:
                of_stream(answer)
            first, second = (asked.json["messages"] for asked in upstream.posts[-2:])
            assert second[: len(first)] == first, "a server's cache of prompts holds"
            assert [message["role"] for message in second[len(first) :]] == ["assistant", "user"]
        page = (await get(server, "/metrics")).body
    assert b"toolwire_near_misses_total 3.0" in page
    assert b"toolwire_reasks_total 3.0" in page


@PATHS
async def test_prose_is_not_waited_with(gateway: Gateway, path: str) -> None:
    """Text at the beginning is sent at once and decides: a near miss after it is text."""
    more = asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say("one", more, NEAR)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        async with asked(server, body(path), path) as got:
            assert await got.content.readuntil(b"one")
            more.set()
            assert b"reed" in await got.read()
    assert len(upstream.posts) == 1


@PATHS
@pytest.mark.parametrize("silent", [True, False])
async def test_the_second_answer_comes_as_it_is_written(gateway: Gateway, path: str, silent: bool) -> None:
    waits, more = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say(NEAR), Say(waits, "one", more, "two")]) as upstream:
        server = await gateway(upstream_config(upstream.url, **(KEEPALIVE if silent else {})))
        if not silent:
            waits.set()
        async with asked(server, body(path), path) as got:
            if silent:
                assert await got.content.readuntil(b": keep-alive"), "signs of life meanwhile"
                waits.set()
            early = await got.content.readuntil(b"one")
            more.set()
            rest = await got.read()
    assert b"reed" not in early + rest
    assert b"two" in rest


@PATHS
async def test_a_fault_of_the_second_answer(gateway: Gateway, path: str) -> None:
    """While nothing of it was sent, the first answer is given; later it is a fault like any other."""
    async with Upstream([Say(NEAR), Refuse(400), Say(NEAR), Say("one", cut=True)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        answer = await post(server, body(path), path=path)
        assert b"reed" in answer.body
        assert b'"error":{' not in answer.body
        answer = await post(server, body(path), path=path)
        assert b"one" in answer.body
        assert b"upstream_disconnected" in answer.body
    assert len(upstream.posts) == 4


def choices(*texts: str) -> Callable[[Asked], Answer]:
    """A whole answer with several choices."""
    made = tuple(ReplyChoice((Text(text),), "stop") for text in texts)
    return speaking(ChatProtocol(), ModelReply("c", "m", 1, made))


async def test_several_answers_are_one_in_this(gateway: Gateway) -> None:
    script = [choices("Hi.", NEAR), choices(GOOD, "So."), choices(GOOD, NEAR)]
    async with Upstream(script) as upstream:
        server = await gateway(upstream_config(upstream.url, backend={"multiple_choices": True}))
        asked = {**body(CHAT, stream=False), "n": 2}
        first, second = (await post(server, asked)).json()["choices"]
        assert first["message"]["tool_calls"][0]["function"]["name"] == "read"
        assert second["message"]["content"] == "So."
        assert upstream.posts[1].json["messages"][-2]["content"] == NEAR, "what was wrong, and nothing else"
        assert upstream.posts[1].json["n"] == 2
        first, second = (await post(server, asked)).json()["choices"]
        assert second["message"]["content"] == NEAR, "there is a good call beside it"
    assert len(upstream.posts) == 3


# --- what is held back -----------------------------------------------------------------------------------------------


async def test_what_may_fail_is_held_back_and_the_client_sees_life(gateway: Gateway) -> None:
    more = asyncio.Event()
    turns = [Say("one", more, WRONG), Say("two", GOOD)]
    async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
        server = await gateway(upstream_config(upstream.url, **KEEPALIVE, defaults={"reask": 1}))
        async with asked(server, STRICT) as got:
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
    turns = [Say("I would", " rather", " not."), Say("So:\n", GOOD, more, "end")]
    async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
        server = await gateway(upstream_config(upstream.url))
        async with asked(server, DEMANDED) as got:
            begun = await got.content.readuntil(b"read")
            more.set()
            rest = begun + await got.read()
    assert b"rather" not in rest
    assert b"So:" in begun
    assert rest.count(b'"finish_reason":"tool_calls"') == 1
    assert len(upstream.requests) == 2


async def test_held_text_arrives_whole_if_nothing_better_comes(gateway: Gateway) -> None:
    """Text that waits for a demanded call is sent as it was written, whether or not the call follows."""
    pieces = [f"word{n} " for n in range(40)]
    for turns in ([Say("No."), Say(*pieces)], [Say(*pieces, GOOD)]):
        async with asyncio.timeout(GUARD_S), Upstream(turns) as upstream:
            server = await gateway(upstream_config(upstream.url))
            async with asked(server, DEMANDED) as got:
                frames = [
                    orjson.loads(line[6:]) for line in (await got.read()).splitlines() if line.startswith(b"data: {")
                ]
        text = "".join(choice["delta"].get("content") or "" for frame in frames for choice in frame["choices"])
        assert text.split() == "".join(pieces).split()
