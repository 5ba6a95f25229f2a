"""Turns that are read for a request: the same with and without those that are known (R34.2, R33.1, R33.2)."""

from __future__ import annotations

from tests.cases import every
from tests.store.turns import turn
from toolwire.known.past import fold_items
from toolwire.model import Message, Text
from toolwire.pipeline.conversations.known_turns import Continuing, EarlierTurns, KnownTurns
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.store.base import BudgetExceeded, ReadBudget
from toolwire.store.memory import MemoryStore
from toolwire.support.cache import CacheBudget

FAR = 4_000_000_000.0
MANY = 10**9


class Counting(MemoryStore):
    """Counts the turns that are read."""

    read = 0

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        self.read += 1
        return await super().get(turn_id, owner, budget)

    async def get_many(
        self, turn_ids: tuple[str, ...], owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        self.read += len(turn_ids)
        return await super().get_many(turn_ids, owner, budget)


class Talk:
    """A conversation in a store, read by one that knows turns and by one that does not."""

    def __init__(self, cache_bytes: int = 64 * 1024 * 1024) -> None:
        self.store = Counting()
        self.caches = CacheBudget(cache_bytes)
        self.known = KnownTurns(self.caches.cache("turns"))
        self.fresh = KnownTurns(CacheBudget(0).cache("turns"))
        self.reduced: list[str] = []

    async def put(self, number: int, text: str = "", **more: str) -> None:
        """Store a turn after those with smaller numbers."""
        before = [f"resp_{one}" for one in range(number)]
        await self.store.put(turn(f"resp_{number}", ancestors=before, text=text or f"{number}", expires=FAR, **more))  # type: ignore[arg-type]

    async def read(self, number: int, budget: ReadBudget | None = None, own: tuple[Message, ...] = ()) -> EarlierTurns:
        """The turns up to one, and the results of earlier requests."""

        def reduced(one: StoredTurn) -> StoredTurn:
            self.reduced.append(one.id)
            return one

        request = Continuing(10, own, budget or ReadBudget(MANY, MANY), reduced)
        earlier = await self.known.read(self.store, "alice", f"resp_{number}", request)
        assert earlier is not None
        return earlier

    async def outcome(self, known: KnownTurns, ident: str, size: int, values: int) -> object:
        """The turns read and what is left of the budget; the kind of the limit that was exceeded; or None."""
        budget = ReadBudget(size, values)
        try:
            earlier = await known.read(self.store, "alice", ident, Continuing(10, (), budget, lambda one: one))
        except BudgetExceeded as error:
            return error.kind
        return None if earlier is None else (earlier.turns, budget.bytes, budget.values)


async def test_only_the_last_turn_is_read() -> None:
    talk = Talk()
    for number in range(5):
        await talk.put(number)
        before = talk.store.read
        earlier = await talk.read(number)
        assert [one.id for one in earlier.turns] == [f"resp_{one}" for one in range(number + 1)]
        assert talk.store.read == before + 1
    assert talk.reduced == [f"resp_{number}" for number in range(5)], "each once"
    before = talk.store.read
    again = await talk.read(4)
    assert again.turns == earlier.turns
    assert talk.store.read == before, "a second try reads none"
    await talk.read(2)
    assert talk.store.read == before + 3, "a branch is read once more"


@every("missing", ["resp_0", "resp_2", "resp_3"])
async def test_without_one_of_its_turns_there_is_no_conversation(missing: str) -> None:
    for seen in (3, 2):
        talk = Talk()
        for number in range(4):
            await talk.put(number)
        await talk.read(seen)
        await talk.store.delete(missing, "alice")
        for known in (talk.known, talk.fresh):
            assert await talk.outcome(known, "resp_3", MANY, MANY) is None, (seen, known)


async def test_law_a_budget_is_charged_the_same() -> None:
    """At each limit, with nothing known, all but the last turn, and all."""
    talk = Talk()
    for number in range(4):
        await talk.put(number, text="x" * 100 * number)
    whole = await talk.read(3)
    total, values = (sum(getattr(one, name) for one in whole.turns) for name in ("size", "values"))
    assert values > 4
    limits = [(total + more, MANY) for more in (-1, 0, 1)] + [(MANY, values + more) for more in (-1, 0, 1)]
    limits += [(whole.turns[-1].size - 1, MANY), (MANY, whole.turns[-1].values - 1), (0, 0)]
    for size, number in limits:
        for seen in (2, 3):
            known = KnownTurns(CacheBudget().cache("turns"))
            assert await talk.outcome(known, f"resp_{seen}", MANY, MANY) is not None
            expected = await talk.outcome(talk.fresh, "resp_3", size, number)
            assert await talk.outcome(known, "resp_3", size, number) == expected, (size, number, seen)


async def test_a_turn_that_may_still_change_is_not_kept() -> None:
    talk = Talk()
    await talk.put(0)
    await talk.put(1, status="in_progress")
    assert (await talk.read(1)).turns[-1].status == "in_progress"
    await talk.put(1, text="Done.")
    assert (await talk.read(1)).turns[-1].status == "completed"


async def test_other_owners_know_nothing() -> None:
    talk = Talk()
    await talk.put(0)
    await talk.read(0)
    request = Continuing(0, (), ReadBudget(MANY, MANY), lambda one: one)
    assert await talk.known.read(talk.store, "bob", "resp_0", request) is None


async def test_results_for_earlier_messages_are_reused() -> None:
    """Also for those of the request before, which are read from the store now."""
    talk, steps = Talk(), list[int]()

    def step(before: int, messages: object, start: int, made: list[object]) -> int:
        steps.append(start)
        return before

    before: tuple[Message, ...] = ()
    for number in range(3):
        await talk.put(number)
        own = (Message("user", (Text(f"{number + 1}"),)),)
        earlier = await talk.read(number, own=own)
        assert all(one is other for one, other in zip(earlier.turns[-1].input, before, strict=False))
        fold_items(earlier.past, "f", [*[one for each in earlier.turns for one in each.messages], *own], 0, step)
        before = own
    assert steps == [0, 2, 3, 5], "the first in two parts, the others from where the one before ended"


async def test_memory_is_that_of_the_latest_version() -> None:
    """A conversation that goes on replaces what was kept of it; results for its messages are weighed too."""
    talk = Talk()
    for number in range(3):
        await talk.put(number, text="x" * 10_000)
        earlier = await talk.read(number)
        use = talk.caches.use["turns"]
        assert use.entries == 1
        assert 10_000 * (number + 1) < use.bytes < 13_000 * (number + 1)
    before = use.bytes
    fold_items(earlier.past, "f", ["y"], 0, _long)
    assert use.bytes > before + 50_000


def _long(before: int, items: object, start: int, made: list[str]) -> int:
    made.append("z" * 50_001)
    return before
