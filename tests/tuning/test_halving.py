"""Successive halving, without anybody who answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.extras.tune.halving import ALIKE, FAULTS, Race

Points = Callable[[int, int], float | None]


def play(race: Race, points: Points, *, at_once: int = 1, random: Random | None = None) -> list[tuple[int, int]]:
    """Run a race to its end; what was asked, in order. With several at once answers come in any order."""
    asked: list[tuple[int, int]] = []
    running: list[tuple[int, int]] = []
    while True:
        while len(running) < at_once and (what := race.next()) is not None:
            asked.append(what)
            running.append(what)
        if not running:
            return asked
        entrant, case = running.pop(random.randrange(len(running)) if random else 0)
        race.put(entrant, case, points(entrant, case))


def constant(*values: float) -> Points:
    return lambda entrant, case: values[entrant]


def test_the_best_wins_and_others_are_asked_less() -> None:
    race = Race(range(8), 48)
    asked = play(race, lambda entrant, case: 0.1 * entrant + 0.01 * (case % 3))
    assert race.ranking()[0] == 7
    counts = [sum(who == entrant for who, _ in asked) for entrant in range(8)]
    assert counts[7] == max(counts)
    assert counts[0] <= 6
    assert len(asked) < 0.4 * 8 * 48
    assert race.over
    assert race.next() is None
    assert race.to_come == 0


def test_nothing_is_asked_twice() -> None:
    for seed in range(20):
        random = Random(seed)
        table = {(e, c): random.random() for e in range(9) for c in range(40)}
        asked = play(Race(range(9), 40), lambda e, c, table=table: table[e, c], at_once=4, random=random)
        assert len(set(asked)) == len(asked)


def test_it_ends_when_nobody_can_win_any_more() -> None:
    race = Race(range(2), 60)
    asked = play(race, constant(0.0, 1.0))
    assert race.decided
    assert race.ranking() == [1, 0]
    assert len(asked) == 61, "one case more than half of them settles it"


def test_whoever_cannot_reach_the_better_half_is_out_at_once() -> None:
    race = Race(range(6), 60, first=10)
    asked = play(race, constant(1, 1, 1, 0, 0, 0))
    assert max(case for who, case in asked if who > 2) < 10
    assert any("early" in why for why in race.out.values())


def test_candidates_that_are_alike_are_not_asked_for_ever() -> None:
    race = Race(range(8), 60)
    asked = play(race, lambda entrant, case: float(case % 2))
    assert race.decided
    assert race.ranking()[0] == 0, "of equals the first is better"
    assert max(case for _, case in asked) + 1 == ALIKE


def test_a_difference_that_shows_late_still_counts() -> None:
    race = Race(range(2), 60)
    play(race, lambda entrant, case: float(entrant == 1 and case == ALIKE - 1))
    assert race.ranking()[0] == 1


def test_a_fault_counts_neither_way() -> None:
    race = Race(range(2), 12)
    play(race, lambda entrant, case: None if entrant == 1 and case % 2 else 0.5 + 0.1 * entrant)
    assert race.ranking()[0] == 1
    assert race.score(1) == pytest.approx(0.6)


def test_whoever_never_gets_an_answer_is_out() -> None:
    race = Race(range(3), 30)
    asked = play(race, lambda entrant, case: None if entrant == 0 else 0.1 * entrant)
    assert sum(who == 0 for who, _ in asked) == FAULTS
    assert race.out[0] == "the model server fails"


def test_all_may_fail() -> None:
    race = Race(range(2), 30)
    play(race, lambda entrant, case: None)
    assert race.over
    assert set(race.ranking()) == {0, 1}


def test_one_candidate_is_asked_everything() -> None:
    race = Race([5], 10)
    assert len(play(race, lambda entrant, case: 0.0)) == 10
    assert not race.decided


def test_what_is_known_is_not_asked_again() -> None:
    race = Race(range(2), 8)
    for case in range(8):
        race.put(0, case, 0.5)
    asked = play(race, constant(0.5, 0.6))
    assert {who for who, _ in asked} == {1}
    assert race.ranking()[0] == 1


def test_candidates_are_compared_by_the_cases_that_all_answered() -> None:
    race = Race(range(2), 48)
    for case in range(24):
        race.put(0, case, float(case < 6))
    for case in range(6):
        race.put(1, case, 0.5)
    assert race.ranking()[0] == 0


def test_of_equal_ones_the_first_wins_in_whatever_order_they_answer() -> None:
    for seed in range(40):
        random = Random(seed)
        points = random.choices((0.0, 0.1, 0.4, 1.0), k=48)
        race = Race(range(random.randint(2, 20)), 48)
        play(race, lambda entrant, case, points=points: points[case], at_once=8, random=random)
        assert race.ranking()[0] == 0, seed


def test_the_forecast_is_never_too_low() -> None:
    race = Race(range(10), 50)
    total = race.to_come
    asked = play(race, lambda entrant, case: (entrant * 7 + case * 3) % 10 / 10)
    assert len(asked) <= total


@given(st.data())
def test_whoever_is_better_in_every_case_wins(data: st.DataObject) -> None:
    entrants = data.draw(st.integers(2, 9))
    cases = data.draw(st.integers(1, 30))
    best = data.draw(st.integers(0, entrants - 1))
    table = {
        (e, c): data.draw(st.floats(0, 0.5)) + (0.5 if e == best else 0.0)
        for e in range(entrants)
        for c in range(cases)
    }
    race = Race(range(entrants), cases)
    asked = play(race, lambda e, c: table[e, c], at_once=data.draw(st.integers(1, 5)), random=Random(1))
    winner = race.ranking()[0]
    # Of those that are equal in every case so far the first may win.
    assert winner == best or all(table[winner, c] == table[best, c] for c in range(cases) if (best, c) in asked)
    assert race.over
    assert sorted(race.ranking()) == list(range(entrants))
