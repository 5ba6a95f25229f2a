"""A reader says how much it takes (`ReadBudget`, R33.2): no store reads more, and within it nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.store.turns import chain_of, turn
from toolwire.model import Message, Text
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.protocols.shared.wire import dump
from toolwire.store import encoding, memory, redis, sqlite
from toolwire.store.base import BudgetExceeded, ReadBudget, ResponseStore

MANY = 10**9


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of the turns that are decoded, one by one."""
    sizes: list[int] = []
    real = encoding.decode

    def counted(text: bytes, budget: ReadBudget | None = None) -> StoredTurn:
        sizes.append(len(text))
        return real(text, budget)

    async def counted_later(text: bytes, budget: ReadBudget | None = None) -> StoredTurn:
        return counted(text, budget)

    monkeypatch.setattr(sqlite, "decode", counted)
    for module in (memory, redis):
        monkeypatch.setattr(module, "decoded", counted_later)
    return sizes


async def conversation(store: ResponseStore, *texts: str, **more: Any) -> list[StoredTurn]:
    turns: list[StoredTurn] = []
    for number, text in enumerate(texts):
        one = turn(f"resp_{number}", ancestors=[each.id for each in turns], text=text, **more)
        await store.put(one)
        turns.append(one)
    return turns


async def test_one_byte_beyond_the_turn_is_not_read(store: ResponseStore, read: list[int]) -> None:
    (kept,) = await conversation(store, "hello" * 100)
    whole = await store.get(kept.id, "alice")
    assert whole is not None
    exact = ReadBudget(whole.size, MANY)
    assert await store.get(kept.id, "alice", exact) == whole
    assert (exact.bytes, read) == (0, [whole.size] * 2)
    assert 0 < MANY - exact.values < 100
    short = ReadBudget(whole.size - 1, MANY)
    with pytest.raises(BudgetExceeded) as caught:
        await store.get(kept.id, "alice", short)
    assert (caught.value.kind, caught.value.size, caught.value.most) == ("bytes", whole.size, whole.size - 1)
    assert len(read) == 2
    assert short.bytes == whole.size - 1


async def test_beyond_it_only_the_last_turn_is_read(store: ResponseStore, read: list[int]) -> None:
    """Which says who the others are."""
    turns = await conversation(store, "a", "b" * 1000, "c" * 70_000, "d")
    whole = await chain_of(store, "resp_3", "alice")
    assert whole == tuple(turns)
    size = sum(each.size for each in whole)
    budget = ReadBudget(size + 5, MANY)
    assert await chain_of(store, "resp_3", "alice", budget) == whole
    assert budget.bytes == 5
    for most, decoded in ((size - 1, [whole[-1].size]), (whole[-1].size - 1, [])):
        read.clear()
        with pytest.raises(BudgetExceeded):
            await chain_of(store, "resp_3", "alice", ReadBudget(most, MANY))
        assert read == decoded


async def test_no_further_turn_is_read_once_there_are_too_many_values(store: ResponseStore, read: list[int]) -> None:
    turns = [
        replace(
            turn(f"resp_{number}", ancestors=[f"resp_{one}" for one in range(number)]),
            input=(Message("user", (Text("x"),) * 300),),
        )
        for number in range(4)
    ]
    for one in turns:
        await store.put(one)
    enough = ReadBudget(MANY, 4 * 1000)
    assert await chain_of(store, "resp_3", "alice", enough) == tuple(turns)
    read.clear()
    with pytest.raises(BudgetExceeded) as caught:
        await chain_of(store, "resp_3", "alice", ReadBudget(MANY, 2500))
    assert caught.value.kind == "values"
    assert len(read) == 3


async def test_what_each_response_echoes_takes_no_values(store: ResponseStore) -> None:
    """A conversation with many tools does not end for the tools of its earlier turns."""
    echoed = {"output": [], "tools": [{"name": f"tool_{number}"} for number in range(1000)]}
    said = {"input": [{"type": "message", "role": "user", "content": "hello"}], "resource": echoed}
    await store.put(replace(turn("resp_0"), input=(), output=(), wire_form=dump(said)))
    budget = ReadBudget(MANY, 50)
    assert await chain_of(store, "resp_0", "alice", budget) is not None
    assert 30 < budget.values < 50
