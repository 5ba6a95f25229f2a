"""Stored conversations over the wire: follow-ups, look-ups, isolation, and what happens when the store or the client is
away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import Gateway, lines_in, read_config, upstream_config
from tests.e2e.responses_answers import read_events
from tests.store.redis_server import RedisServer
from tests.waiting import GUARD_S, until
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import Batches
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.store.base import StoreUnavailable
from toolwire.testing import Answer, Say, Upstream, chunk, frame

RESPONSES = "/v1/responses"
CALL = '<tool_call>{"name":"look","arguments":"{\\"at\\":\\"sky\\"}"}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


@asynccontextmanager
async def client(server: TestServer, key: str = "k1") -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.make_url("/"), headers={"Authorization": f"Bearer {key}"}) as session:
        yield session


async def ask(session: aiohttp.ClientSession, status: int = 200, **body: Any) -> Any:
    async with session.post(RESPONSES, json={"model": "m", **body}) as response:
        answer = await response.json()
        assert response.status == status, answer
        return answer


async def get(session: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with session.get(f"{RESPONSES}/{path}") as response:
        answer = await response.json()
        assert response.status == status, answer
        return answer


def texts(request: Any) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in request.json["messages"]]


def ident_in(wire: bytes) -> str:
    """The id of the response that a stream is about."""
    return "resp_" + wire.decode().split('"id":"resp_')[1][:32]


@every("stream", [False, True])
async def test_a_conversation_goes_on_from_its_id(gateway: Gateway, stream: bool) -> None:
    turns = [Say(CALL), Say("It is blue."), Say("Bye.")]
    async with Upstream(turns) as upstream, client(await gateway(upstream_config(upstream.url))) as session:
        first = await ask(session, input="What colour?", instructions="Be brief.", tools=[LOOK])
        (call,) = first["output"]
        assert (call["type"], call["name"]) == ("function_call", "look")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}
        body = {"input": [result], "previous_response_id": first["id"], "stream": stream}
        if stream:
            async with session.post(RESPONSES, json={"model": "m", **body}) as response:
                wire = await response.read()
            assert b"event: response.completed" in wire
            second = await get(session, ident_in(wire))
        else:
            second = await ask(session, **body)
        assert (second["previous_response_id"], second["instructions"]) == (first["id"], None)
        third = await ask(session, input="Thanks.", previous_response_id=second["id"])
        assert third["output"][0]["content"][0]["text"] == "Bye."
    said = texts(upstream.requests[2])
    assert said[1][1].startswith('<tool_call>\n{"name":"look",')
    assert [said[0], *said[2:]] == [
        ("user", "What colour?"),
        ("user", "<tool_response>\nblue\n</tool_response>"),
        ("assistant", "It is blue."),
        ("user", "Thanks."),
    ]


@every("whole", [False, True])
async def test_an_input_that_grows_is_not_asked_again(gateway: Gateway, whole: bool) -> None:
    """Semantic Kernel's agents send their earlier inputs with every round, and the id of the last one. LlamaIndex sends
    the `whole` conversation."""
    sent: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": "What colour?"}]}]
    hurry = {"role": "user", "content": "Hurry.", "call_id": []}  # an unknown field
    turns = [Say(f"I look. {CALL}"), Say(CALL), Say("It is blue.")]
    async with Upstream(turns) as upstream, client(await gateway(upstream_config(upstream.url))) as session:
        made = await ask(session, input=sent, tools=[LOOK])
        for output in ("grey", "blue"):
            call = made["output"][-1]
            if whole:
                said = [{"role": "assistant", "content": "I look."}] if output == "grey" else []
                sent += [*said, {key: call[key] for key in ("type", "name", "arguments", "call_id")}]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
            sent += [*([hurry] if output == "blue" else []), result]
            made = await ask(session, input=sent, previous_response_id=made["id"], tools=[LOOK])
    assert [text for _, text in texts(upstream.requests[2])][1:] == [
        "What colour?",
        'I look.\n<tool_call>\n{"name":"look","arguments":{"at":"sky"}}\n</tool_call>',
        "<tool_response>\ngrey\n</tool_response>",
        '<tool_call>\n{"name":"look","arguments":{"at":"sky"}}\n</tool_call>',
        "<tool_response>\nblue\n</tool_response>",
        "Hurry.",
    ]


async def test_every_look_up(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with client(server) as session:
        made = await ask(session, input=[{"role": "user", "content": "one"}, {"role": "user", "content": "two"}])
        assert await get(session, made["id"]) == made
        listed = await get(session, f"{made['id']}/input_items?order=asc")
        assert [item["content"][0]["text"] for item in listed["data"]] == ["one", "two"]
        assert (listed["object"], listed["has_more"]) == ("list", False)
        page = await get(session, f"{made['id']}/input_items?limit=1")
        assert [item["content"][0]["text"] for item in page["data"]] == ["two"]
        assert page["has_more"] is True
        rest = await get(session, f"{made['id']}/input_items?after={page['last_id']}")
        assert [item["content"][0]["text"] for item in rest["data"]] == ["one"]
        for query in ("limit=0", "limit=101", "limit=x", f"limit={'9' * 5000}", "order=up", "after=nope"):
            refused = await get(session, f"{made['id']}/input_items?{query}", 400)
            assert refused["error"]["param"] == query.partition("=")[0]
        async with session.post(f"{RESPONSES}/{made['id']}/cancel") as response:
            assert await response.json() == made
        async with session.delete(f"{RESPONSES}/{made['id']}") as response:
            assert await response.json() == {"id": made["id"], "object": "response", "deleted": True}
        for path in (made["id"], f"{made['id']}/input_items", "resp_nope"):
            assert (await get(session, path, 404))["error"]["code"] == "not_found"
        gone = await ask(session, 400, input="x", previous_response_id=made["id"])
        assert (gone["error"]["code"], gone["error"]["param"]) == (
            "previous_response_not_found", "previous_response_id",
        )  # fmt: skip


async def test_somebody_elses_response_does_not_exist(gateway: Gateway) -> None:
    config = {"backends": {"m": {"kind": "mock", "script": ["Hello."]}}, "auth": {"keys": ["k1", "k2"]}}
    server = await gateway(read_config(config))
    async with client(server) as mine, client(server, "k2") as other:
        made = await ask(mine, input="hi")
        await get(other, made["id"], 404)
        await get(other, f"{made['id']}/input_items", 404)
        async with other.delete(f"{RESPONSES}/{made['id']}") as response:
            assert response.status == 404
        async with other.post(f"{RESPONSES}/{made['id']}/cancel") as response:
            assert response.status == 404
        await ask(other, 400, input="x", previous_response_id=made["id"])
        assert await get(mine, made["id"]) == made


@every("kind", ["none", "memory"])
async def test_what_is_not_kept_cannot_be_loaded(gateway: Gateway, kind: str) -> None:
    config = {"backends": {"m": {"kind": "mock", "script": ["Hello."]}}, "store": {"kind": kind}}
    async with client(await gateway(read_config(config))) as session:
        made = await ask(session, input="hi", store=False)
        assert made["store"] is False
        await get(session, made["id"], 404)
        await ask(session, 400, input="x", previous_response_id=made["id"])
        assert (await ask(session, input="hi"))["store"] is (kind != "none")


def waiting() -> Upstream:
    """A server that says something, and never more."""
    return Upstream([Answer([frame(chunk({"content": "slow"})), asyncio.Event(), b"data: [DONE]\n\n"])])


async def cancelled(first: aiohttp.ClientSession, second: aiohttp.ClientSession) -> list[Any]:
    """The frames of a stream that one client reads and another one cancels."""
    async with first.post(RESPONSES, json={"model": "m", "input": "hi", "stream": True}) as response:
        head = await response.content.readuntil(b"slow")
        ident = ident_in(head)
        assert (await get(second, ident))["status"] == "in_progress"
        await ask(second, 400, input="x", previous_response_id=ident)
        async with second.post(f"{RESPONSES}/{ident}/cancel") as answer:
            said = await answer.json()
        async with asyncio.timeout(GUARD_S):
            frames = read_events(head + await response.read())
    kept = await get(second, ident)
    assert kept == said == frames[-1]["response"]
    assert (kept["status"], kept["error"], kept["output"][0]["content"][0]["text"]) == ("cancelled", None, "slow")
    await ask(second, 400, input="x", previous_response_id=ident)
    return frames


class Waits(Middleware):
    """Makes answers go as events, through generators."""

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        reply.rewrite(self.same)

    async def same(self, batches: Batches) -> Batches:
        async for batch in batches:
            yield batch


ENDS = ("response.completed", "response.incomplete", "response.failed")


@every("waits", [False, True])
async def test_a_running_response_can_be_seen_and_cancelled(
    gateway: Gateway, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own stream says so: it ends incomplete, with the status, and nobody has failed. As bytes and as events."""
    caplog.set_level(logging.INFO, "toolwire.access")
    async with waiting() as upstream:
        chain = {"chain": ["conversation", "validation", {"use": f"{__name__}:Waits"}, "forwarding"]}
        async with client(await gateway(upstream_config(upstream.url, **(chain if waits else {})))) as session:
            kinds = [frame["type"] for frame in await cancelled(session, session)]
    assert [kind for kind in kinds if kind in (*ENDS, "error")] == ["response.incomplete"]
    assert (200, "response_cancelled") in lines_in(caplog)


async def test_another_process_cancels_it(gateway: Gateway, tmp_path: Path) -> None:
    """Through the store that both share."""
    store = {"kind": "sqlite", "path": str(tmp_path / "turns.sqlite3")}
    async with waiting() as upstream:
        servers = [await gateway(upstream_config(upstream.url, store=store)) for _ in range(2)]
        async with client(servers[0]) as first, client(servers[1]) as second:
            frames = await cancelled(first, second)
            assert frames[-1]["type"] == "response.incomplete"
            assert await servers[1].app[CONVERSATIONS].get(f"cancel_{frames[-1]['response']['id']}", "") is None


async def test_a_store_that_is_away_spoils_no_answer(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await gateway(script=["Hello."])

    async def broken(*args: object, **more: object) -> None:
        raise StoreUnavailable("the disk is full")

    async with client(server) as session:
        made = await ask(session, input="hi")
        for name in ("put", "get", "get_many", "delete"):
            monkeypatch.setattr(server.app[CONVERSATIONS], name, broken)
        assert (await ask(session, input="hi"))["store"] is False
        assert "the disk is full" in caplog.text
        refused = await ask(session, 503, input="x", previous_response_id=made["id"])
        assert refused["error"]["code"] == "store_unavailable"
        await get(session, made["id"], 503)


async def test_the_start_says_if_redis_cannot_store(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, own_server: RedisServer
) -> None:
    """Whether it is away or full; the gateway serves all the same."""
    config = read_config({"backends": {"m": {"kind": "mock"}}, "store": {"kind": "redis", "url": own_server.url}})
    await gateway(config)
    await until(lambda: "conversations cannot be stored now: the Redis server cannot be reached" in caplog.text)
    own_server.start()
    await own_server.ask(("CONFIG", "SET", "maxmemory", 1))
    await gateway(config)
    await until(lambda: "conversations cannot be stored now: the Redis server is out of memory" in caplog.text)
    await own_server.ask(("CONFIG", "SET", "maxmemory", 0))
    caplog.clear()
    server = await gateway(config)
    async with client(server) as session:
        assert (await ask(session, input="hi"))["store"] is True
    assert "cannot be stored" not in caplog.text
    assert await own_server.ask(("KEYS", "*probe*")) == [[]]


NO_STORE = {"store": {"kind": "none"}}
NO_MIDDLEWARE = {"chain": ["validation", "arguments", "transformation", "injection", "forwarding"]}
NOT_THERE: list[tuple[dict[str, Any], dict[str, Any], int, str]] = [
    (NO_MIDDLEWARE, {"previous_response_id": "resp_1"}, 400, "previous_response_id"),
    (NO_MIDDLEWARE, {"conversation": "conv_1"}, 400, "conversation"),
    (NO_MIDDLEWARE, {"background": True}, 400, "background"),
    (NO_STORE, {"conversation": "conv_1"}, 404, "conversation"),
    (NO_STORE, {"background": True}, 400, "background"),
]


@every("sections, fields, status, param", NOT_THERE)
async def test_without_a_store_or_the_middleware_nothing_is_ignored(
    gateway: Gateway, sections: dict[str, Any], fields: dict[str, Any], status: int, param: str
) -> None:
    server = await gateway(read_config({"backends": {"m": {"kind": "mock", "script": ["Hello."]}}, **sections}))
    async with client(server) as session:
        for stream in (False, True):
            refused = await ask(session, status, input="x", stream=stream, **fields)
            assert refused["error"]["param"] == param
        async with session.post("/v1/conversations", json={}) as made:
            assert made.status == (404 if sections is NO_STORE else 200)
