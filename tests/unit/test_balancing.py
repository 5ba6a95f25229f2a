"""The rules by which a server is chosen: their laws (R10.6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolwire.upstream.pool.balancing import LeastBusy, Rotation, Sticky


@dataclass(frozen=True)
class Server:
    name: str
    weight: float = 1.0
    busy: int = 0


WEIGHTS = st.lists(st.integers(1, 6), min_size=1, max_size=5)
KEYS = st.binary(min_size=1, max_size=20)


def servers(weights: list[int]) -> list[Server]:
    return [Server(f"s{index}", float(weight)) for index, weight in enumerate(weights)]


@given(WEIGHTS, st.integers(1, 3))
def test_each_has_exactly_its_share(weights: list[int], rounds: int) -> None:
    rotation = Rotation()
    candidates = servers(weights)
    chosen = Counter(rotation(candidates, b"").name for _ in range(sum(weights) * rounds))
    assert chosen == {server.name: server.weight * rounds for server in candidates}


@given(WEIGHTS)
def test_weights_do_not_count_where_all_are_even(weights: list[int]) -> None:
    rotation = Rotation(even=True)
    candidates = servers(weights)
    assert turns(rotation, 2 * len(weights), *candidates) == 2 * "".join(server.name for server in candidates)


def turns(balance: Any, number: int, *candidates: Server) -> str:
    return "".join(balance(candidates, b"").name for _ in range(number))


def test_servers_take_turns() -> None:
    assert turns(Rotation(), 7, Server("a", 5), Server("b"), Server("c")) == "aabacaa", "as nginx does it"
    assert turns(LeastBusy(), 4, Server("a", busy=1), Server("b", busy=1), Server("c", busy=2)) == "abab"
    assert turns(Sticky(), 4, Server("a"), Server("b")) == "abab", "without a key"


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=5))
def test_nobody_is_less_busy(some: list[tuple[int, int]]) -> None:
    candidates = [Server(f"s{index}", float(weight), busy) for index, (weight, busy) in enumerate(some)]
    chosen = LeastBusy()(candidates, b"")
    assert all(chosen.busy / chosen.weight <= other.busy / other.weight for other in candidates)


@given(WEIGHTS, KEYS, st.randoms())
def test_a_key_stays_whatever_the_order(weights: list[int], key: bytes, random: object) -> None:
    candidates = servers(weights)
    shuffled = candidates[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Sticky()(candidates, key) == Sticky()(shuffled, key)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.sets(KEYS, min_size=1, max_size=30), st.integers(0, 5))
def test_a_lost_server_moves_its_own_keys_only(weights: list[int], keys: set[bytes], lost: int) -> None:
    candidates = servers(weights)
    gone = candidates[lost % len(candidates)]
    left = [server for server in candidates if server != gone]
    for key in keys:
        before = Sticky()(candidates, key)
        assert before == gone or Sticky()(left, key) == before


def test_keys_are_shared_by_weight() -> None:
    candidates = [Server("a", 3), Server("b", 1)]
    chosen = Counter(Sticky()(candidates, str(number).encode()).name for number in range(4000))
    assert abs(chosen["a"] / 4000 - 0.75) < 0.03


def test_the_choice_is_the_same_in_every_process() -> None:
    candidates = [Server("a"), Server("b"), Server("c")]
    assert "".join(Sticky()(candidates, str(number).encode()).name for number in range(12)) == "ccbbcbbcccaa"
