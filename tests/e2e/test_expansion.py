"""A request has the limits of a body, whatever it refers to and goes on from (R33.2), and what is large by
then is worked on in threads (R33.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, function, gateway_before, post, upstream_config
from tests.e2e.test_conversation import RESPONSES, ask, client, get
from tests.e2e.test_item_references import refer
from toolwire.config import LimitsConfig
from toolwire.ingress.budget import BODY_BUDGET, BodyShare
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.support.offload import OFFLOAD_BYTES, THREADS
from toolwire.testing import Say, Upstream

READ = function("read_file", path="string")
NEAR = '<tool_call>{"name":"red_file","arguments":{"path":"a"}}</tool_call>'
GOOD = '<tool_call>{"name":"read_file","arguments":{"path":"a"}}</tool_call>'


async def size_of(server: TestServer, ident: str) -> int:
    """The bytes of a turn in its store."""
    turn = await server.app[CONVERSATIONS].get(ident, "")
    assert turn is not None
    return turn.size


def body_of(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", **fields})


async def send(session: aiohttp.ClientSession, body: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    async with session.post(RESPONSES, data=body, headers=headers) as response:
        return response.status, await response.json()


def is_too_large(answer: tuple[int, Any], param: str, option: str = "limits.body_bytes") -> None:
    status, said = answer
    assert (status, said["error"]["code"], said["error"]["param"]) == (413, "request_too_large", param)
    assert option in said["error"]["message"]


async def answers_at(gateway: Gateway, url: str, store: dict[str, Any], limit: int, body: bytes) -> Any:
    """The answer of a gateway with this limit, which has the store of another one."""
    async with client(await gateway(upstream_config(url, store=store, limits={"body_bytes": limit}))) as session:
        return await send(session, body)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_references_count_each_time(gateway: Gateway, store: dict[str, Any]) -> None:
    """To the byte: with the limit exactly met the server gets what it would get without one, one byte less and it is
    not asked."""
    async with gateway_before([Say("Yes."), Say("Two."), Say("Three.")], store=store) as (server, upstream):
        async with client(server) as session:
            first = await ask(session, input="x" * 100_000)
            (item,) = (await get(session, f"{first['id']}/input_items"))["data"]
            body = body_of(input=refer(*[item] * 5), store=False)
            becomes = len(body) + 5 * len(orjson.dumps(item))
            assert becomes > len(body) + await size_of(server, first["id"])
            assert (await send(session, body))[0] == 200
        sent = upstream.requests[-1].body
        assert (await answers_at(gateway, upstream.url, store, becomes, body))[0] == 200
        assert upstream.requests[-1].body == sent
        is_too_large(await answers_at(gateway, upstream.url, store, becomes - 1, body), "input")
        assert len(upstream.requests) == 3


# --- where it happens -----------------------------------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The threads in which functions ran."""
    seen: dict[str, set[str]] = {}

    def watch(place: str) -> None:
        owner, _, name = place.rpartition(".")
        module, _, kind = owner.partition(":")
        holder: Any = __import__(module, fromlist=["_"])
        holder = getattr(holder, kind) if kind else holder
        real: Callable[..., Any] = getattr(holder, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            seen.setdefault(name, set()).add(threading.current_thread().name)
            return real(*args, **kwargs)

        monkeypatch.setattr(holder, name, watched)

    for place in (
        "toolwire.store.encoding.decode",
        "toolwire.protocols.responses.turns:ResponsesTurns.full_conversation",
        "toolwire.protocols.responses.turns:ResponsesTurns.finished",
        "toolwire.protocols.responses.turns:ResponsesTurns.shown",
        "toolwire.pipeline.handlers.responses._page",
        "toolwire.middlewares.injection.inject",
        "toolwire.middlewares.reask._as_text",
        "toolwire.prompting.transcript:TranscriptWriter.talk",
    ):
        watch(place)
    return seen


def are_off_the_loop(threads: dict[str, set[str]], *names: str) -> None:
    for name in names:
        assert threads[name], name
        assert all(thread.startswith("toolwire-large") for thread in threads[name]), (name, threads[name])


async def test_a_short_request_after_a_long_turn_and_after_a_short_one(
    gateway: Gateway, threads: dict[str, set[str]]
) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    async with Upstream([Say("Yes.")]) as upstream, client(await gateway(upstream_config(upstream.url))) as session:
        first = await ask(session, input="<tool_call> word " * 20_000, tools=[tool])
        threads.clear()
        await ask(session, input="hi", previous_response_id=first["id"], tools=[tool])
        are_off_the_loop(threads, "decode", "full_conversation", "finished", "inject", "talk")
        threads.clear()
        first = await ask(session, input="hello")
        await ask(session, input="hi", previous_response_id=first["id"])
        await get(session, f"{first['id']}/input_items")
    for name in ("decode", "full_conversation", "_page"):
        assert threads[name] == {threading.current_thread().name}, name


@pytest.mark.parametrize("stream", [False, True])
async def test_a_near_miss_is_put_into_words_elsewhere(threads: dict[str, set[str]], stream: bool) -> None:
    near = [NEAR, *[" word <|im_end|>"] * 10_000]
    said = near if stream else ["".join(near)]
    async with gateway_before([Say(*said), Say(GOOD)]) as (server, upstream):
        answer = await post(server, {"model": "m", "messages": USER, "tools": [READ], "stream": stream}, path=CHAT)
        assert answer.status == 200
        first, second = (asked.json["messages"] for asked in upstream.posts)
    assert len(second[len(first)]["content"]) >= sum(map(len, near))
    are_off_the_loop(threads, "_as_text")
    assert THREADS == 2
    assert any(thread.startswith("toolwire-large") for thread in threads["talk"])


async def test_an_attempt_that_does_not_fit_is_left_out() -> None:
    """The model is told what was wrong, and not what it wrote."""
    turns = [Say(NEAR + " word" * 10_000), Say(GOOD)]
    async with gateway_before(turns, limits={"body_bytes": 20_000}) as (server, upstream):
        answer = await post(server, {"model": "m", "messages": USER, "tools": [READ]}, path=CHAT)
        assert answer.status == 200
        first, second = (asked.json["messages"] for asked in upstream.posts)
    assert [message["role"] for message in second[len(first) :]] == ["user"]
    assert "not accepted" in second[-1]["content"]


# --- looking at what is stored --------------------------------------------------------------------------------------


@every("path", ["", "/input_items"])
async def test_looking_counts_in_the_limits_of_a_key(gateway: Gateway, path: str) -> None:
    async with Upstream([Say("Yes.")]) as upstream:
        keys = {"keys": [{"key": "k1", "requests_per_min": 3}]}
        server = await gateway(upstream_config(upstream.url, auth=keys))
        async with client(server) as session:
            first = await ask(session, input="hello")
            await get(session, first["id"] + path)
            await get(session, first["id"] + path)
            refused = await get(session, first["id"] + path, 429)
    assert refused["error"]["code"] == "rate_limit_exceeded"


async def test_large_turns_that_are_looked_at_have_a_budget() -> None:
    """That of bodies, until the client has taken the answer. Small ones do not need it."""
    async with gateway_before([Say("Yes."), Say("Two.")]) as (server, _):
        budget = server.app[BODY_BUDGET]
        async with client(server) as session:
            large = await ask(session, input="x" * 2 * OFFLOAD_BYTES)
            small = await ask(session, input="hello")
            others = BodyShare(budget, "")
            others.take(LimitsConfig().total_body_bytes - OFFLOAD_BYTES)
            refused = await get(session, f"{large['id']}/input_items", 503)
            assert refused["error"]["code"] == "overloaded"
            await get(session, f"{small['id']}/input_items")
            others.release()
            await get(session, f"{large['id']}/input_items")
        assert budget.bytes == 0
