"""Clocks that run back, as the wall clocks of several machines do: a limit neither opens nor closes by it."""

from __future__ import annotations

from tests.ratelimit.conftest import Clock, MakeLedger
from toolwire.ratelimit.base import Bound

REQUESTS = Bound("key", "requests", "key:a", 6)


BACK_S = (0.001, 1.0, 3600.0)


def test_nothing_comes_into_a_bucket_by_a_clock_that_runs_back() -> None:
    assert [REQUESTS.drained(6, -back_s) for back_s in BACK_S] == [6] * 3
    assert REQUESTS.drained(6, 0) == 6
    assert REQUESTS.drained(6, 10) == 5


async def test_what_is_used_stays_used_when_the_clock_runs_back(make_ledger: MakeLedger, clock: Clock) -> None:
    for number, back_s in enumerate(BACK_S):
        for bound in (Bound("key", "requests", f"r{number}", 6), Bound("key", "tokens", f"t{number}", 10)):
            counts = make_ledger()
            assert (await counts.book([bound], 4, "1")).used == (bound.cost(4),)
            clock.now -= back_s
            assert (await counts.book([bound], 4, "2")).used == (2 * bound.cost(4),)
            if bound.kind == "tokens":
                refused = await counts.book([bound, bound], 10, "3")
                assert (refused.granted, refused.used[0]) == (False, 8)


async def test_a_bucket_empties_again_once_the_clock_is_where_it_was(make_ledger: MakeLedger, clock: Clock) -> None:
    """Two machines whose clocks are a second apart, one of them behind, count one bucket."""
    counts = make_ledger()
    for n in range(6):
        assert (await counts.book([REQUESTS], 1, str(n))).granted
        clock.now += 1 if n % 2 else -1
    assert not (await counts.book([REQUESTS], 1, "x")).granted
    clock.now += 61
    assert (await counts.book([REQUESTS], 1, "y")).used == (1,)
