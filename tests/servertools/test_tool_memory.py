"""Calls that a client brings back lead to the gateway's own calls (R15.9); unknown ids lead nowhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.wires import CHAT
from toolwire.call_policy.ids import new_call_id
from toolwire.config import LimitsConfig
from toolwire.errors import ClientFault
from toolwire.model import Message, ModelRequest, Text, ToolResult, ToolUse
from toolwire.pipeline.conversations.stored import Conversations
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.tool_memory import MAX_LOOKUPS, ToolMemory, is_marked, keep, marked_id, restored
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.record import AccessRecord
from toolwire.store.base import ReadBudget, StoreUnavailable
from toolwire.store.encoding import MAX_TURN_BYTES, decode, encode

LIMITS = LimitsConfig()


class Kept:
    """As `Conversations`, with the look-ups counted."""

    keeps = True
    max_age_s = 60.0

    def __init__(self) -> None:
        self.turns: dict[tuple[str, str], StoredTurn] = {}
        self.prolonged: list[str] = []
        self.asked: list[str] = []
        self.away = False

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.turns[turn.id, turn.owner] = turn

    async def get(self, ident: str, owner: str, budget: ReadBudget) -> StoredTurn | None:
        self.asked.append(ident)
        if self.away:
            raise StoreUnavailable("away")
        turn = self.turns.get((ident, owner))
        if turn is None:
            return None
        text = encode(turn, MAX_TURN_BYTES)
        budget.take_bytes(len(text))
        return decode(text, budget)

    async def prolong(self, idents: Iterable[str], owner: str) -> None:
        self.prolonged += idents

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.get_running_loop().create_task(work)


def exchange(owner: str = "ann", limits: LimitsConfig = LIMITS) -> Exchange:
    route = SimpleNamespace(limits=limits)
    return cast(Exchange, SimpleNamespace(id="req_1", owner=owner, record=AccessRecord(), protocol=CHAT, route=route))


def conversations(kept: Kept) -> Conversations:
    return cast(Any, kept)


async def put_back(asked: Exchange, kept: Kept, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return (await restored(asked, conversations(kept), ModelRequest("m", messages))).messages


OURS = ToolUse("call_s", "add", "{}")
RESULT = ToolResult("call_s", (Text("3"),), "add")
BEFORE = (Message("assistant", (Text("Let me see."), OURS)), Message("tool", (RESULT,)))


def asking(call_id: str) -> tuple[Message, ...]:
    said = Message("assistant", (Text("Now you."), ToolUse(call_id, "look", "{}")))
    return (Message("user", (Text("hi"),)), said, Message("tool", (ToolResult(call_id, (Text("a tree"),), "look"),)))


def test_marked_ids_are_ordinary_ids() -> None:
    ids = {marked_id() for _ in range(100)}
    assert len(ids) == 100
    for ident in ids:
        assert re.fullmatch(r"call_[a-zA-Z0-9]+", ident)
        assert UUID(ident.removeprefix("call_")).version == 4
        assert is_marked(ident)


@given(st.text(max_size=60) | st.text("0123456789abcdef", min_size=32, max_size=32).map("call_{}".format))
def test_other_ids_are_not_taken_for_marked_ones(ident: str) -> None:
    assert not is_marked(ident)
    assert not is_marked(new_call_id())


async def test_what_was_kept_stands_in_its_place_again() -> None:
    kept, ident = Kept(), marked_id()
    beside = ToolUse("call_b", "add", '{"a":1}')
    await keep(
        exchange(),
        conversations(kept),
        ident,
        ToolMemory(BEFORE, [beside], [ToolResult("call_b", (Text("1"),), "add")]),
    )
    user, said, result = asking(ident)
    out = await put_back(exchange(), kept, (user, said, result))
    assert [message.role for message in out] == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert [part for part in out[1].parts if isinstance(part, Text)] == []  # the client has seen it, and echoes it
    assert out[2].parts[0] == RESULT
    assert [part.call_id for part in out[3].parts if isinstance(part, ToolUse)] == ["call_b", ident]
    assert out[3].text == "Now you."
    assert out[5] is result
    await asyncio.sleep(0)
    assert kept.prolonged == [f"kept_{ident}"]  # it lives as long as anything goes on from it


async def test_it_belongs_to_the_key_that_asked() -> None:
    kept, ident = Kept(), marked_id()
    await keep(exchange(), conversations(kept), ident, ToolMemory(BEFORE, (), ()))
    messages = asking(ident)
    assert await put_back(exchange("eve"), kept, messages) is messages
    assert len(await put_back(exchange(), kept, messages)) == 5


async def test_a_store_that_is_away_spoils_nothing() -> None:
    kept, ident, asked = Kept(), marked_id(), exchange()
    kept.away = True
    await keep(asked, conversations(kept), ident, ToolMemory(BEFORE, (), ()))
    messages = asking(ident)
    assert await put_back(asked, kept, messages) is messages
    assert asked.record.counts["store_failures"] == 2


async def test_ordinary_ids_cost_no_look_up_and_others_not_many() -> None:
    kept = Kept()
    messages = asking(new_call_id())
    assert await put_back(exchange(), kept, messages) is messages
    assert kept.asked == []
    ids = [marked_id() for _ in range(MAX_LOOKUPS + 9)]
    await put_back(exchange(), kept, tuple(m for ident in ids for m in asking(ident)))
    assert kept.asked == [f"kept_{ident}" for ident in ids[9:]]


async def test_what_is_put_in_has_the_limits_of_a_body() -> None:
    """An id that a client repeats is read once, and what was kept counts each time it is put in."""
    kept, ident = Kept(), marked_id()
    await keep(exchange(), conversations(kept), ident, ToolMemory(BEFORE, (), ()))
    (turn,) = kept.turns.values()
    size = len(encode(turn, MAX_TURN_BYTES))
    request = ModelRequest("m", asking(ident) * 5, grown=7)
    limits = replace(LIMITS, body_bytes=7 + 5 * size)
    out = await restored(exchange(limits=limits), conversations(kept), request)
    assert len(out.messages) == 5 * 5
    assert out.size == limits.body_bytes
    assert len(kept.asked) == 1
    limits = replace(LIMITS, body_bytes=7 + 5 * size - 1)
    with pytest.raises(ClientFault) as caught:
        await restored(exchange(limits=limits), conversations(kept), request)
    assert (caught.value.code, caught.value.status) == ("request_too_large", 413)
