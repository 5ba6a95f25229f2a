"""`/v1/conversations` (R28.7): the shapes of the published types, the items of a conversation before the input of a
request and behind its answer, on every store, over several gateways that share one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestServer
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList

from tests.e2e.conftest import Gateway, read_config, sdk, upstream_config
from tests.e2e.test_conversation import client
from toolwire.protocols.responses.conversations import ResponsesConversations
from toolwire.testing import Answer, Asked, Say, Upstream

CONVS = "/v1/conversations"


def echo(asked: Asked) -> Answer:
    return Say("You said ", asked.json["messages"][-1]["content"])(asked)


@pytest.fixture
async def two(store: dict[str, Any], gateway: Gateway) -> AsyncIterator[Sequence[TestServer]]:
    """Two gateways that share a store; twice the same one where it is in its memory."""
    async with Upstream([echo]) as upstream:
        config = upstream_config(upstream.url, store=store, auth={"keys": ["k1", "k2"]})
        one = await gateway(config)
        yield one, one if store["kind"] == "memory" else await gateway(config)


ON_DISK = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
"""For tests that see no difference between the stores."""


def said(items: Any) -> list[tuple[str, str]]:
    return [(item.role, item.content[0].text) for item in items]


@ON_DISK
async def test_its_whole_life(two: Sequence[TestServer]) -> None:
    async with sdk(two[0], api_key="k1") as one, sdk(two[1], api_key="k1") as other:
        made = await one.conversations.create(
            metadata={"topic": "demo"}, items=[{"type": "message", "role": "user", "content": "Hello"}]
        )
        Conversation.model_validate(made.model_dump(), strict=True)
        assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
        assert await other.conversations.retrieve(made.id) == made
        changed = await other.conversations.update(made.id, metadata={"topic": "other"})
        assert changed.metadata == {"topic": "other"}
        assert (await one.conversations.retrieve(made.id)).metadata == {"topic": "other"}
        added = await one.conversations.items.create(
            made.id,
            items=[
                {"role": "assistant", "content": "Hi."},
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
            ],
        )
        ConversationItemList.model_validate(added.model_dump(), strict=True)
        assert [item.type for item in added.data] == ["message", "function_call", "function_call_output"]
        listed = [item async for item in other.conversations.items.list(made.id, order="asc", limit=1)]
        assert said(listed[:2]) == [("user", "Hello"), ("assistant", "Hi.")]
        assert listed[1:] == added.data
        assert len({item.id for item in listed}) == 4
        newest = await other.conversations.items.list(made.id, limit=2, include=["message.output_text.logprobs"])
        assert newest.data == [*reversed(listed[2:])]
        assert newest.has_more
        assert not (await other.conversations.items.list(made.id, limit=4)).has_more
        assert await one.conversations.items.retrieve(listed[1].id, conversation_id=made.id) == listed[1]
        left = await other.conversations.items.delete(listed[1].id, conversation_id=made.id)
        assert (left.id, left.object) == (made.id, "conversation")
        with pytest.raises(openai.NotFoundError):
            await one.conversations.items.retrieve(listed[1].id, conversation_id=made.id)
        gone = await one.conversations.delete(made.id)
        ConversationDeletedResource.model_validate(gone.model_dump(), strict=True)
        assert (gone.id, gone.deleted) == (made.id, True)
        for again in (
            other.conversations.retrieve(made.id),
            other.conversations.delete(made.id),
            other.conversations.update(made.id, metadata={}),
            other.conversations.items.create(made.id, items=[{"role": "user", "content": "x"}]),
            other.conversations.items.list(made.id),
            other.responses.create(model="m", input="x", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError, match="Conversation with id"):
                await again


@ON_DISK
@pytest.mark.parametrize("stream", [False, True])
async def test_turns_in_a_conversation(two: Sequence[TestServer], stream: bool) -> None:
    """Each turn sees the ones before, at whichever gateway, and is added when its answer is there."""
    async with sdk(two[0], api_key="k1") as one, sdk(two[1], api_key="k1") as other:
        made = await one.conversations.create(items=[{"role": "developer", "content": "Be brief."}])
        for number, (session, named) in enumerate([(one, made.id), (other, {"id": made.id})]):
            asked: dict[str, Any] = {"model": "m", "input": f"turn {number}", "conversation": named}
            if stream:
                events = [event async for event in await session.responses.create(**asked, stream=True)]
                response = events[-1].response
                assert events[0].response.conversation.id == made.id
            else:
                response = await session.responses.create(**asked, store=False)
            assert response.conversation is not None
            assert response.conversation.id == made.id
            kept = [item async for item in other.conversations.items.list(made.id)]
            assert kept[0].model_dump(exclude_none=True) == response.output[0].model_dump(exclude_none=True)
        listed = [item async for item in one.conversations.items.list(made.id, order="asc")]
    assert said(listed) == [
        ("developer", "Be brief."),
        *(("user", "turn 0"), ("assistant", "You said turn 0")),
        *(("user", "turn 1"), ("assistant", "You said turn 1")),
    ]


async def test_two_turns_at_once_lose_nothing(two: Sequence[TestServer]) -> None:
    async with sdk(two[0], api_key="k1") as one, sdk(two[1], api_key="k1") as other:
        made = await one.conversations.create()
        sessions = [one, other] * 4

        async def turn(number: int) -> None:
            session = sessions[number]
            await session.responses.create(model="m", input=f"turn {number}", conversation=made.id)
            await session.conversations.items.create(made.id, items=[{"role": "user", "content": f"more {number}"}])

        await asyncio.gather(*(turn(number) for number in range(8)))
        listed = said([item async for item in one.conversations.items.list(made.id, order="asc")])
    assert sorted(listed) == sorted(
        pair
        for n in range(8)
        for pair in (("user", f"turn {n}"), ("assistant", f"You said turn {n}"), ("user", f"more {n}"))
    )
    for n in range(8):  # a turn stands together
        assert listed[listed.index(("user", f"turn {n}")) + 1] == ("assistant", f"You said turn {n}")


async def test_what_is_refused(gateway: Gateway) -> None:
    async with client(await gateway(script=["Hello."])) as session:
        async with session.post(CONVS, data=b"") as answer:
            made = (await answer.json())["id"]
        for method, path, body, status, param in (
            ("POST", "", {"items": "hello"}, 400, "items"),
            ("POST", "", {"items": [{"role": "user"}]}, 400, "items[0].content"),
            ("POST", "", {"items": [{"role": "king", "content": "x"}]}, 400, "items[0].role"),
            ("POST", "", {"metadata": {"a": 1}}, 400, "metadata.a"),
            ("POST", "", {"metadata": []}, 400, "metadata"),
            ("POST", f"/{made}", {}, 400, "metadata"),
            ("POST", f"/{made}/items", {}, 400, "items"),
            ("GET", f"/{made}/items?limit=0", None, 400, "limit"),
            ("GET", f"/{made}/items?limit={'9' * 5000}", None, 400, "limit"),
            ("GET", f"/{made}/items?order=up", None, 400, "order"),
            ("GET", f"/{made}/items?after=nope", None, 400, "after"),
            ("GET", f"/{made}/items/nope", None, 404, None),
            ("DELETE", f"/{made}/items/nope", None, 404, None),
            ("GET", "/conv_nope", None, 404, None),
        ):
            async with session.request(method, CONVS + path, json=body) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["param"]) == (status, param), (method, path, body)


async def test_bounds(gateway: Gateway) -> None:
    store = {"kind": "memory", "conversation_items": 3, "conversation_bytes": 2000}
    config = {"backends": {"m": {"kind": "mock", "script": ["Hello."]}}, "store": store}
    server = await gateway(read_config(config))
    item: Any = {"role": "user", "content": "x"}
    async with sdk(server) as session:
        for items in ([item] * 4, [{"role": "user", "content": "x" * 3000}]):
            with pytest.raises(openai.APIStatusError, match=r"store\.conversation_") as full:
                await session.conversations.create(items=items)
            assert full.value.status_code == 413
        made = await session.conversations.create(items=[item] * 2)
        with pytest.raises(openai.APIStatusError, match=r"store\.conversation_items"):
            await session.conversations.items.create(made.id, items=[item] * 2)
        await session.responses.create(model="m", input="an answer is added whole", conversation=made.id)
        with pytest.raises(openai.APIStatusError, match="Delete items"):
            await session.responses.create(model="m", input="x", conversation=made.id)
        (_, *rest) = (await session.conversations.items.list(made.id)).data
        await session.conversations.items.delete(rest[0].id, conversation_id=made.id)
        await session.responses.create(model="m", input="goes on", conversation=made.id)


async def test_an_answer_that_failed_is_not_added(gateway: Gateway) -> None:
    server = await gateway(script=[{"text": "Hel", "error": {"status": 500, "message": "no", "after": 2}}])
    async with sdk(server) as session:
        made = await session.conversations.create()
        with pytest.raises(openai.APIError):
            async for _ in await session.responses.create(model="m", input="x", conversation=made.id, stream=True):
                pass
        assert (await session.conversations.items.list(made.id)).data == []


def test_no_change_shortens_its_life() -> None:
    """A gateway may have been restarted with a shorter `store.max_age_s`."""
    form = ResponsesConversations()
    made = form.new("", {}, [], 0.0, 100.0)
    changes = (form.changed(made, 50.0, metadata={"a": "b"}), form.appended(made, [], 50.0), form.changed(made, 150.0))
    assert [turn.expires for turn in changes] == [100.0, 100.0, 150.0]
