"""What stages of earlier requests have left: the same as without, and nothing done twice (R34.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.fastparse import bytes_of
from toolwire.known.past import (
    ITEM_BYTES,
    LEFT_BYTES,
    LISTS,
    MOST,
    MOST_KEYS,
    REPORTED_BYTES,
    KnownItems,
    Past,
    fold_items,
    make_once,
    map_items,
    past_of,
)

WORDS = [str(number) * 3 for number in range(4)]
"""Items: the same word is the same object."""


class Stage:
    """Adds up and carries how often each word came; refuses to go on behind a place where the next item is `odd`."""

    def __init__(self, odd: str | None = None) -> None:
        self.odd = odd
        self.seen = 0

    def __call__(self, carried: int, items: Sequence[str], start: int, made: list[str]) -> int | None:
        if start and items and items[0] == self.odd:
            return None
        for index, item in enumerate(items, start):
            self.seen += 1
            carried += int(item)
            made.append(f"{index}{item}{carried}")
        return carried


words = st.lists(st.sampled_from(WORDS), max_size=12)
odd = st.sampled_from([None, *WORDS])


@given(several=st.lists(words, min_size=1, max_size=6), odd=odd, back=st.integers(0, 2))
def test_law_with_a_past_a_stage_makes_the_same(several: list[list[str]], odd: str | None, back: int) -> None:
    """Whatever came before, wherever places are kept, and wherever it can go on from."""
    past = Past(0)
    for items in several:
        past = Past(0, past)
        for key in ("a", "b"):
            made = fold_items(past, key, items, 0, Stage(odd), lambda items, at: max(0, at - back))
            assert made == fold_items(None, key, items, 0, Stage(odd))


@given(several=st.lists(words, min_size=1, max_size=6))
def test_law_the_weight_is_that_of_what_is_kept(several: list[list[str]]) -> None:
    grown: list[int] = []
    past, before = Past(0), 0
    for items in several:
        past = Past(0, past)
        before = past.weight
        grown.clear()
        past.grown = grown.append
        fold_items(past, "a", items, 0, Stage())
    places = past.places("a")
    each = sum(ITEM_BYTES * len(left.items) + LEFT_BYTES for left in places)
    made = [bytes_of(left.made, left.items) for left in places]
    assert len(places) <= MOST * LISTS
    assert abs(past.weight - before - sum(grown)) < REPORTED_BYTES
    assert each + max(made, default=0) <= past.weight <= each + sum(made)


def test_only_what_is_new_is_done() -> None:
    """Also where the end of the last request is another one now, from the second time on."""
    past, said = Past(0), [f"{number:03}" for number in range(100)]
    for turn in range(5):
        past, stage = Past(0, past), Stage()
        fold_items(past, "goes on", said[: 50 + 2 * turn], 0, stage)
        assert stage.seen == (50 if not turn else 2)
        past, stage = Past(0, past), Stage()
        fold_items(past, "its end moves", [*said[: 50 + 2 * turn], f"{turn + 900}"], 0, stage)
        assert stage.seen == (51 if not turn else 3)


def test_a_stage_goes_on_in_each_of_several_lists() -> None:
    """It looks at the messages of the client, and at those with the gateway's own in the place of the first."""
    past, said = Past(0), [f"{number:03}" for number in range(100)]
    for turn in range(3):
        past, stage = Past(0, past), Stage()
        for first in said[:2]:
            fold_items(past, "a", [first, *said[2 : 50 + 2 * turn]], 0, stage)
        assert stage.seen == (2 * 49 if not turn else 2 * 2)


def test_a_stage_goes_on_from_where_it_can() -> None:
    past, stage = Past(0), Stage()
    fold_items(past, "a", ["1", "2"], 0, stage)
    fold_items(past, "a", ["1", "2", "3"], 0, stage)
    refusing = Stage("4")
    assert fold_items(past, "a", ["1", "2", "3", "4"], 0, refusing)[1] == 10
    assert refusing.seen == 2  # from behind "2"


def test_equal_items_that_are_not_the_same_are_others() -> None:
    past = Past(0)
    first: list[object] = [[1], [2]]
    fold_items(past, "a", first, 0, lambda carried, items, start, made: made.extend(map(repr, items)) or carried)
    again: list[object] = [[1.0], first[1]]
    made, _ = fold_items(
        past, "a", again, 0, lambda carried, items, start, made: made.extend(map(repr, items)) or carried
    )
    assert made == ["[1.0]", "[2]"]


def test_one_object_is_made_once() -> None:
    past, item = Past(0), "item"
    assert make_once(past, "a", (item,), lambda: [1]) is make_once(Past(0, past), "a", (item,), lambda: [2])
    assert make_once(past, "a", ("other",), lambda: [3]) == [3]
    assert make_once(past, "b", (), lambda: [4]) is make_once(past, "b", (), lambda: [5])
    assert make_once(None, "a", (item,), lambda: [6]) == [6]


@pytest.mark.parametrize(
    "change", [lambda word: word, lambda word: word * 2, lambda word: word if word > "1" else None]
)
@given(several=st.lists(words, min_size=1, max_size=5))
def test_law_items_are_changed_one_by_one_as_without_a_past(change: Any, several: list[list[str]]) -> None:
    """And come back as the same object where all stay as they are."""
    past = Past(0)
    for items in map(tuple, several):
        past = Past(0, past)
        changed = map_items(past, "a", items, change)
        assert changed == tuple(found for item in items if (found := change(item)) is not None)
        assert (changed is items) == all(change(item) is item for item in items)


def test_a_past_that_is_let_go_lives_as_long_as_its_conversation() -> None:
    kept = [Past(0)]
    items = KnownItems([1], kept[0])
    items.release()
    assert past_of(items) is kept[0]
    kept.clear()
    assert past_of(items) is None


def test_stages_are_bounded_and_items_know_their_past() -> None:
    past = Past(0)
    for key in range(MOST_KEYS + 1):
        fold_items(past, key, ["1"], 0, Stage())
    assert past.places(MOST_KEYS)
    assert not past.places(0)
    assert past.weight == bytes_of(["011"]) + ITEM_BYTES + LEFT_BYTES
    assert past_of(KnownItems([1], past)) is past
    assert past_of([1]) is None


@every("value", ["x" * 100, b"x" * 100, {"a": "x" * 100}, ["x" * 100], ("x" * 100,)])
def test_values_are_weighed_by_what_they_keep(value: object) -> None:
    assert 100 < bytes_of([value]) < 800
