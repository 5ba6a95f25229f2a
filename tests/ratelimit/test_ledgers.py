"""Rules for every ledger: one suite, and a naive model as the oracle for any interleaving."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.ratelimit.conftest import Clock, MakeLedger, ledger
from tests.store.redis_server import GROUPS
from tests.waiting import GUARD_S
from toolwire.ratelimit.base import LEASE_S, Bound, Ledger, LedgerUnavailable, changes
from toolwire.ratelimit.sqlite import SqliteLedger

REQUESTS = Bound("key", "requests", "key:a", 6)
SLOTS = Bound("key", "concurrent", "key:a", 2)


async def granted(counts: Ledger, bounds: Sequence[Bound], tokens: int = 1, lease: str = "l") -> bool:
    return (await counts.book(bounds, tokens, lease)).granted


async def test_a_bucket_lets_its_limit_through_at_once_and_then_at_its_rate(
    make_ledger: MakeLedger, clock: Clock
) -> None:
    counts = make_ledger()
    assert [await granted(counts, [REQUESTS]) for _ in range(7)] == [True] * 6 + [False]
    clock.now += 9.999
    assert not await granted(counts, [REQUESTS])
    clock.now += 0.001
    assert [await granted(counts, [REQUESTS]) for _ in range(2)] == [True, False]
    clock.now += 1000
    assert [await granted(counts, [REQUESTS]) for _ in range(7)] == [True] * 6 + [False]


async def test_two_gateways_count_together(kind: str, make_ledger: MakeLedger) -> None:
    if kind == "memory":
        pytest.skip("counts in memory are of one process")
    one, two = make_ledger(), make_ledger()
    answers = await asyncio.gather(*(granted(each, [REQUESTS]) for each in (one, two) * 20))
    assert sum(answers) == REQUESTS.most
    assert await granted(one, [SLOTS], 1, "1")
    assert await granted(two, [SLOTS], 1, "2")
    await two.settle(changes([SLOTS], 1, 0), "1")  # whoever ends it
    assert [await granted(one, [SLOTS], 1, str(number)) for number in (3, 4)] == [True, False]


async def test_slots_of_a_dead_worker_come_free(kind: str, make_ledger: MakeLedger, clock: Clock) -> None:
    if kind == "memory":
        pytest.skip("leases in memory end with the process")
    counts = make_ledger()
    assert await granted(counts, [SLOTS], 1, "dead")
    assert await granted(counts, [SLOTS], 1, "alive")
    for _ in range(4):
        clock.now += LEASE_S * 0.4
        await counts.renew({"alive": [REQUESTS, SLOTS]})
    assert (await counts.book([SLOTS], 1, "new")).used == (2,)
    assert not await granted(counts, [SLOTS], 1, "one too many")
    clock.now += LEASE_S
    await counts.renew({"new": [SLOTS]})  # was forgotten, is known again
    assert (await counts.book([SLOTS], 1, "next")).used == (2,)


async def test_counts_that_cannot_be_written_do_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the file can be opened and locked, as on a full disk."""
    connect = SqliteLedger._connect

    def refuse(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_INSERT else sqlite3.SQLITE_OK

    def full(counts: SqliteLedger) -> sqlite3.Connection:
        db = connect(counts)
        db.set_authorizer(refuse)
        return db

    monkeypatch.setattr(SqliteLedger, "_connect", full)
    counts = SqliteLedger(tmp_path / "limits.sqlite3", timeout_s=GUARD_S)
    with pytest.raises(LedgerUnavailable):
        await counts.start()
    await counts.close()


# --- against a naive model ------------------------------------------------------------------------------------------

ACCOUNTS = (
    *(Bound("key", "requests", name, most) for name, most in (("key:a", 3), ("key:b", 10))),
    *(Bound("key", "tokens", name, most) for name, most in (("key:a", 10), ("key:b", 4))),
    *(Bound("key", "concurrent", name, most) for name, most in (("key:a", 1), ("key:b", 3))),
)


@dataclass
class Naive:
    """Exact fractions, one step after the other."""

    now: int = 0
    levels: dict[Bound, Fraction] = field(default_factory=dict)
    leases: dict[Bound, dict[str, int]] = field(default_factory=dict)

    def advance(self, seconds: int) -> None:
        self.now += seconds
        for bound, level in self.levels.items():
            self.levels[bound] = max(Fraction(0), level - Fraction(seconds * bound.most, 60))

    def used(self, bound: Bound) -> Fraction:
        if bound.kind == "concurrent":
            return Fraction(len(self.leases.get(bound, {})))
        return self.levels.get(bound, Fraction(0))

    def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> bool:
        if any(self.used(bound) + bound.cost(tokens) > bound.most for bound in bounds):
            return False
        for bound in bounds:
            if bound.kind == "concurrent":
                self.leases.setdefault(bound, {})[lease] = self.now
            else:
                self.levels[bound] = self.used(bound) + bound.cost(tokens)
        return True

    def end(self, bounds: Sequence[Bound], tokens: int, used: int, lease: str) -> None:
        for bound in bounds:
            if bound.kind == "concurrent":
                self.leases.get(bound, {}).pop(lease, None)
            elif bound.kind == "tokens":
                self.levels[bound] = max(Fraction(0), self.used(bound) + used - min(tokens, bound.most))

    def forget(self) -> None:
        for held in self.leases.values():
            for lease in [lease for lease, since in held.items() if self.now - since >= LEASE_S]:
                del held[lease]


class Interleaving(RuleBasedStateMachine):
    """Exchanges begin, are refused, end and are forgotten in any order, while time passes."""

    kind = "memory"
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.naive = Naive()
        self.open: dict[str, tuple[list[Bound], int]] = {}

    @initialize()
    def begin(self) -> None:
        self.counts = ledger(self.kind, self.clock, Path(self.folder.name), self.url, uuid4().hex)

    @rule(bounds=st.lists(st.sampled_from(ACCOUNTS), min_size=1, unique=True), tokens=st.integers(1, 12))
    def book(self, bounds: list[Bound], tokens: int) -> None:
        lease = uuid4().hex
        before = [self.naive.used(bound) for bound in bounds]
        verdict = self.loop.run_until_complete(self.counts.book(bounds, tokens, lease))
        assert verdict.granted is self.naive.book(bounds, tokens, lease)
        after = [self.naive.used(bound) for bound in bounds]
        assert verdict.used == pytest.approx([float(used) for used in after], abs=1e-6)
        if verdict.granted:
            self.open[lease] = (bounds, tokens)
        else:
            assert before == after

    @rule(choice=st.integers(0, 1000), used=st.integers(0, 30))
    def end(self, choice: int, used: int) -> None:
        if self.open:
            lease = sorted(self.open)[choice % len(self.open)]
            bounds, tokens = self.open.pop(lease)
            self.loop.run_until_complete(self.counts.settle(changes(bounds, tokens, used), lease))
            self.naive.end(bounds, tokens, used, lease)

    @rule(seconds=st.integers(1, 20))
    def advance(self, seconds: int) -> None:
        self.clock.now += seconds
        self.naive.advance(seconds)
        if self.kind != "memory":
            self.naive.forget()

    @rule()
    def renew(self) -> None:
        self.loop.run_until_complete(self.counts.renew({lease: bounds for lease, (bounds, _) in self.open.items()}))
        if self.kind != "memory":
            for lease, (bounds, _) in self.open.items():
                for bound in bounds:
                    if bound.kind == "concurrent":
                        self.naive.leases.setdefault(bound, {})[lease] = self.naive.now

    @invariant()
    def never_less_than_nothing(self) -> None:
        assert all(level >= 0 for level in self.naive.levels.values())

    def teardown(self) -> None:
        self.loop.run_until_complete(self.counts.close())
        self.loop.close()
        self.folder.cleanup()


def test_any_interleaving_counts_as_the_naive_model(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(GROUPS[kind]).url if kind in GROUPS else ""
    machine = type("Machine", (Interleaving,), {"kind": kind, "url": url})
    run_state_machine_as_test(machine, settings=settings(max_examples=50 if kind == "memory" else 8))  # type: ignore[no-untyped-call]
