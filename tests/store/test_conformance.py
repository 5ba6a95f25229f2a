"""Rules for every store. Each test runs for each kind; those about several keys at once also for groups of Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.store.redis_server import GROUPS
from tests.store.turns import DAY, HOUR, START, Clock, chain_of, turn
from toolwire.model import Message, Text, ToolResult, ToolUse
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.store.base import ResponseStore, StoreUnavailable
from toolwire.store.encoding import TurnTooLarge

MakeStore = Callable[..., ResponseStore]
SHARED = pytest.mark.parametrize("make_store", ["sqlite", *GROUPS], indirect=True)
EVERYWHERE = pytest.mark.parametrize("make_store", ["memory", "sqlite", *GROUPS], indirect=True)


# --- one turn ---------------------------------------------------------------------------------------------------------


async def test_what_was_put_is_there(store: ResponseStore) -> None:
    kept = replace(
        turn("resp_1", ancestors=("resp_a", "resp_b"), usage={"total_tokens": 3, "cost": 0.1}, error=None, deep=[[{"a": []}]]),
        created=START + 0.123456,
        rounds=(Message("assistant", (ToolUse("call_s", "add", "{}"),)), Message("tool", (ToolResult("call_s", (Text("3"),)),))),
    )  # fmt: skip
    await store.put(kept)
    assert await store.get("resp_1", "alice") == kept


async def test_changing_what_was_put_or_got_does_not_change_what_is_kept(store: ResponseStore) -> None:
    put = turn("resp_1", tags=["a"])
    await store.put(put)
    put.extra["responses"]["tags"].append("b")
    got = await store.get("resp_1", "alice")
    assert got == turn("resp_1", tags=["a"])
    assert got is not None
    got.extra["responses"]["tags"].append("c")
    assert await store.get("resp_1", "alice") == turn("resp_1", tags=["a"])


# --- conversations ----------------------------------------------------------------------------------------------------


async def test_a_second_put_need_not_prolong_again(store: ResponseStore) -> None:
    """`prolongs` says that the first one did."""
    first = turn("resp_1")
    await store.put(first)
    await store.put(turn("resp_2", ancestors=["resp_1"], status="in_progress", expires=START + 2 * DAY))
    prolonged = replace(first, expires=START + 2 * DAY)
    assert await store.get("resp_1", "alice") == prolonged
    done = turn("resp_2", ancestors=["resp_1"], text="Done.", expires=START + 3 * DAY)
    await store.put(done, prolongs=False)
    assert await chain_of(store, "resp_2", "alice") == (prolonged, done)


async def test_a_conversation_with_a_gap_is_none(store: ResponseStore) -> None:
    for i in range(3):
        await store.put(turn(f"resp_{i}", ancestors=[f"resp_{j}" for j in range(i)]))
    for missing in range(3):
        await store.delete(f"resp_{missing}", "alice")
        await store.put(turn(f"resp_{missing}", owner="bob"))  # a turn of somebody else fills no gap
        assert await chain_of(store, "resp_2", "alice") is None, missing
        await store.put(turn(f"resp_{missing}", ancestors=[f"resp_{j}" for j in range(missing)]))
        assert await chain_of(store, "resp_2", "alice") is not None, missing


@EVERYWHERE
async def test_a_conversation_lives_as_long_as_its_youngest_turn(store: ResponseStore, clock: Clock) -> None:
    """However slowly it goes on: each turn lives for ten hours, and the next one comes after six."""
    turns = []
    for i in range(5):
        turns.append(turn(f"resp_{i}", ancestors=[each.id for each in turns], expires=clock.now + 10 * HOUR))
        await store.put(replace(turns[-1], status="in_progress"))
        await store.put(turns[-1])
        clock.now += 6 * HOUR
        await store.prune(clock.now)
    last = turns[-1].expires
    assert await chain_of(store, "resp_4", "alice") == tuple(replace(each, expires=last) for each in turns)
    assert await store.get("resp_0", "alice") == replace(turns[0], expires=last)
    clock.now = last - 0.001
    assert await chain_of(store, "resp_4", "alice") is not None
    clock.now = last
    assert await chain_of(store, "resp_4", "alice") is None
    assert await store.get("resp_0", "alice") is None
    assert await store.prune(clock.now) == 5


async def test_what_is_prolonged_lives_and_counts_as_used(make_store: MakeStore, clock: Clock) -> None:
    store = make_store(max_turns=3)
    for i in range(3):
        await store.put(turn(f"resp_{i}", expires=START + 10 * HOUR))
    await store.prolong(["resp_0", "resp_never"], "alice", START + 20 * HOUR)
    await store.prolong(["resp_0"], "bob", START + 90 * HOUR)
    await store.prolong([], "alice", START + 90 * HOUR)
    await store.put(turn("resp_3"))
    assert await store.get("resp_1", "alice") is None
    clock.now = START + 15 * HOUR
    assert await store.get("resp_0", "alice") == turn("resp_0", expires=START + 20 * HOUR)


@EVERYWHERE
async def test_which_are_there(store: ResponseStore, clock: Clock) -> None:
    for i in range(0, 1300, 100):
        await store.put(turn(f"resp_{i}", expires=START + (HOUR if i else 1)))
    clock.now = START + 1
    await store.put(turn("resp_100", owner="bob"))
    asked = [(f"resp_{i}", "alice") for i in range(1300)] + [("resp_100", "bob"), ("resp_200", "bob"), ("", "")]
    there = {(f"resp_{i}", "alice") for i in range(100, 1300, 100)} | {("resp_100", "bob")}
    assert await store.present(asked) == there
    assert await store.present([]) == set()


# --- owners -----------------------------------------------------------------------------------------------------------


async def test_the_turn_of_somebody_else_does_not_exist(store: ResponseStore) -> None:
    await store.put(turn("resp_1", owner="alice"))
    for other in ("bob", "", "alic", "alicer", "Alice", "alice\0"):
        assert await store.get("resp_1", other) is None
        assert await chain_of(store, "resp_1", other) is None
        assert await store.delete("resp_1", other) is False
    assert await store.get("resp_1", "alice") == turn("resp_1", owner="alice")
    assert await store.get("eresp_1", "alic") is None, "owner and id do not run into each other"
    assert await store.get("aliceresp_1", "") is None


# --- texts ------------------------------------------------------------------------------------------------------------

TEXTS = [
    "\0\x01\x1f\x7f\u2028\u2029\ufeff",
    "Grüße 日本語 👩‍👩‍👧 \U0010ffff \ufffe",
    '"\\\\u0000{}[]</script>',
    "",
]


async def test_texts_come_back_as_they_were(store: ResponseStore) -> None:
    for text in TEXTS:
        kept = turn("resp_1", text=text, metadata={text: text})
        await store.put(kept)
        assert await store.get("resp_1", "alice") == kept
    # Half characters come back as the client saw them.
    await store.put(turn("resp_1", text="a\ud83d\ude00b \ud800 c\udc00"))
    assert await store.get("resp_1", "alice") == turn("resp_1", text="a😀b \ufffd c\ufffd")


async def test_any_text_may_be_asked_for_as_an_id(store: ResponseStore) -> None:
    await store.put(turn("resp_1"))
    for ident in ("", "\0", "\ud800", "resp_" + "x" * 100_000, "' OR 1=1 --", "*", "日本"):
        assert await store.get(ident, "alice") is None
        assert await chain_of(store, ident, ident) is None
        assert await store.delete(ident, "alice") is False


async def test_what_json_cannot_hold_is_a_bug_of_the_caller_and_keeps_nothing(store: ResponseStore) -> None:
    await store.put(turn("resp_1", status="in_progress"))
    with pytest.raises(TypeError):
        await store.put(turn("resp_1", wrong=object()))
    assert await store.get("resp_1", "alice") == turn("resp_1", status="in_progress")


# --- size -------------------------------------------------------------------------------------------------------------


async def test_a_turn_beyond_the_limit_is_refused_and_changes_nothing(make_store: MakeStore) -> None:
    store = make_store(max_turn_bytes=10_000)
    await store.start()
    await store.put(turn("resp_1", status="in_progress"))
    with pytest.raises(
        TurnTooLarge, match=r"^the response and its input have 1\d{4} bytes, the store keeps at most 10000$"
    ):
        await store.put(turn("resp_1", text="x" * 10_000))
    assert await store.get("resp_1", "alice") == turn("resp_1", status="in_progress")


async def test_bounds_must_be_positive(make_store: MakeStore) -> None:
    for bounds in ({"max_turns": 0}, {"max_turn_bytes": 0}, {"max_turns_per_owner": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            make_store(**bounds)


# --- what goes away by itself -----------------------------------------------------------------------------------------


async def test_a_conversation_is_used_with_its_youngest_turn(make_store: MakeStore) -> None:
    """Beyond the bound the longest unused go first, and never the beginning of what has just gone on."""
    store = make_store(max_turns=4)
    await store.put(turn("old_0"))
    await store.put(turn("other_0"))
    await store.put(turn("other_1", ancestors=["other_0"]))
    await store.put(turn("old_1", ancestors=["old_0"]))
    await store.put(turn("old_2", ancestors=["old_0", "old_1"]))
    assert await chain_of(store, "old_2", "alice") is not None
    assert await store.get("other_0", "alice") is None
    await store.put(turn("new"))
    assert await store.get("other_1", "alice") is None
    assert await chain_of(store, "old_2", "alice") is not None


@EVERYWHERE
async def test_one_owner_cannot_push_out_what_another_has(make_store: MakeStore) -> None:
    store = make_store(max_turns=8)
    for i in range(3):
        await store.put(turn(f"resp_{i}", owner="bob"))
    for i in range(40):
        await store.put(turn(f"resp_{i}"))
    there = [i for i in range(40) if await store.get(f"resp_{i}", "alice")]
    assert there == [35, 36, 37, 38, 39]
    assert all([await store.get(f"resp_{i}", "bob") for i in range(3)])
    for i in range(3, 10):  # up to the same share, and then the share is what each has
        await store.put(turn(f"resp_{i}", owner="bob"))
    assert [i for i in range(10) if await store.get(f"resp_{i}", "bob")] == [6, 7, 8, 9]
    assert [i for i in range(40) if await store.get(f"resp_{i}", "alice")] == [36, 37, 38, 39]


async def test_a_bound_for_each_owner(make_store: MakeStore) -> None:
    store = make_store(max_turns=100, max_turns_per_owner=3)
    for owner in ("alice", "bob"):
        for i in range(5):
            await store.put(turn(f"resp_{i}", owner=owner))
    for owner in ("alice", "bob"):
        assert [i for i in range(5) if await store.get(f"resp_{i}", owner)] == [2, 3, 4]


async def test_the_bound_counts_all_owners(make_store: MakeStore) -> None:
    store = make_store(max_turns=2)
    for owner in ("alice", "bob", "carol"):
        await store.put(turn("resp_1", owner=owner))
    assert await store.get("resp_1", "alice") is None
    assert await store.get("resp_1", "bob") is not None
    assert await store.get("resp_1", "carol") is not None


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_a_cancelled_put_harms_nobody(store: ResponseStore) -> None:
    tasks = [asyncio.create_task(store.put(turn(f"resp_{i}"))) for i in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for i in range(1, 50, 2):
        assert await store.get(f"resp_{i}", "alice") == turn(f"resp_{i}")
    for i in range(0, 50, 2):
        assert await store.get(f"resp_{i}", "alice") in (None, turn(f"resp_{i}"))


# --- changes that build on what is there ------------------------------------------------------------------------------


def _counted(before: StoredTurn | None) -> StoredTurn:
    number = 0 if before is None else before.extra["responses"]["number"]
    return turn("resp_1", number=number + 1)


@EVERYWHERE
async def test_changes_at_once_are_all_made(make_store: MakeStore) -> None:
    stores = [make_store()] * 2
    if stores[0].shared:
        stores[1] = make_store()

    def slowly(before: StoredTurn | None) -> StoredTurn:
        time.sleep(0.002)  # so that others come meanwhile, where they can
        return _counted(before)

    changed = await asyncio.gather(*(stores[i % 2].change("resp_1", "alice", slowly) for i in range(16)))
    assert await stores[0].get("resp_1", "alice") == turn("resp_1", number=16)
    assert all(turn("resp_1", number=number) in changed for number in range(1, 17)), "each gives what it has put"


async def test_a_change_to_nothing_or_that_fails_leaves_what_was_there(store: ResponseStore) -> None:
    await store.put(turn("resp_1", expires=START + HOUR))
    await store.prolong(["resp_1"], "alice", START + DAY)
    seen: list[StoredTurn | None] = []

    def fail(before: StoredTurn | None) -> StoredTurn:
        raise KeyError("of the one who changes")

    assert await store.change("resp_1", "alice", lambda before: seen.append(before)) is None
    assert await store.change("resp_2", "alice", lambda before: seen.append(before)) is None
    with pytest.raises(KeyError):
        await store.change("resp_1", "alice", fail)
    kept = turn("resp_1", expires=START + DAY)
    assert seen == [kept, None], "how long it lives now"
    assert await store.get("resp_1", "alice") == kept
    assert await store.get("resp_2", "alice") is None


async def test_a_change_sees_nothing_of_others_or_of_what_has_expired(store: ResponseStore, clock: Clock) -> None:
    seen: list[StoredTurn | None] = []

    def note(before: StoredTurn | None) -> StoredTurn:
        seen.append(before)
        return turn("resp_1", owner="bob", expires=clock.now + DAY, text="new")

    await store.put(turn("resp_1", owner="alice"))
    await store.put(turn("resp_1", owner="bob", expires=START + HOUR))
    clock.now = START + HOUR
    await store.change("resp_1", "bob", note)
    assert seen == [None]
    assert await store.get("resp_1", "bob") == turn("resp_1", owner="bob", expires=clock.now + DAY, text="new")
    assert await store.get("resp_1", "alice") == turn("resp_1")


async def test_a_change_is_held_to_the_bounds(make_store: MakeStore) -> None:
    store = make_store(max_turns=2, max_turn_bytes=2000)
    for ident in ("resp_1", "resp_2", "resp_3"):
        await store.change(ident, "alice", lambda _, ident=ident: turn(ident))  # type: ignore[misc]
    assert await store.get("resp_1", "alice") is None
    with pytest.raises(TurnTooLarge):
        await store.change("resp_3", "alice", lambda _: turn("resp_3", text="x" * 3000))
    assert await store.get("resp_3", "alice") == turn("resp_3")


# --- opening and closing ----------------------------------------------------------------------------------------------


async def test_closing_twice_and_using_it_after(make_store: MakeStore) -> None:
    await make_store().close()
    store = make_store()
    await store.put(turn("resp_1"))
    await store.close()
    await store.close()
    for call in (
        store.put(turn("resp_1")),
        store.get("resp_1", "alice"),
        store.get_many(["resp_1"], "alice"),
        store.delete("resp_1", "alice"),
        store.change("resp_1", "alice", _counted),
        store.prolong(["resp_1"], "alice", START),
        store.present([("resp_1", "alice")]),
        store.prune(START),
    ):
        with pytest.raises(StoreUnavailable, match=r"^the store is closed$"):
            await call


@SHARED
async def test_what_others_put_is_there(make_store: MakeStore) -> None:
    one, two = make_store(max_turns=3), make_store(max_turns=3)
    await one.start()
    await two.start()
    await one.put(turn("resp_1", status="in_progress"))
    await two.put(turn("resp_1"))
    assert await one.get("resp_1", "alice") == turn("resp_1")
    for i in range(2, 5):
        await (one, two)[i % 2].put(turn(f"resp_{i}"))
    assert await one.get("resp_1", "alice") is None
    await one.close()
    assert await two.get("resp_4", "alice") == turn("resp_4")
    three = make_store(max_turns=3)
    assert await three.get("resp_4", "alice") == turn("resp_4")
