"""Which of several equal servers gets the next request (R10.6): rules over weights, knowing nothing of servers.

Each rule is asked with those that may be asked now, at least one, so that the share of a server that is down goes to
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar


class Weighted(Protocol):
    """What can be chosen."""

    @property
    def name(self) -> str:
        """Tells it from the others."""

    @property
    def weight(self) -> float:
        """Its share, above 0."""

    @property
    def busy(self) -> int:
        """Requests that it works on."""


T = TypeVar("T", bound=Weighted)
Balance = Callable[[Sequence[T], bytes], T]
"""A rule: the candidates, in the order of the configuration, and the key of the request."""


class Rotation:
    """Takes turns, each candidate as often as its weight says and as evenly as can be (nginx's smooth weighted round
    robin): in any run of as many turns as the weights add up to, each has exactly its share. With `even` weights do not
    count."""

    def __init__(self, *, even: bool = False) -> None:
        self._even = even
        self._credit: dict[str, float] = {}

    def __call__(self, candidates: Sequence[T], key: bytes) -> T:
        total = 0.0
        for candidate in candidates:
            weight = 1.0 if self._even else candidate.weight
            total += weight
            self._credit[candidate.name] = self._credit.get(candidate.name, 0.0) + weight
        chosen = max(candidates, key=lambda candidate: self._credit[candidate.name])
        self._credit[chosen.name] -= total
        return chosen


class LeastBusy:
    """The candidate that works on the fewest requests for its weight; those that are equal take turns."""

    def __init__(self) -> None:
        self._rotation = Rotation()

    def __call__(self, candidates: Sequence[T], key: bytes) -> T:
        least = min(candidate.busy / candidate.weight for candidate in candidates)
        return self._rotation([c for c in candidates if c.busy / c.weight == least], key)


class Sticky:
    """The same candidate for the same key (weighted rendezvous hashing): when one is lost only its own keys move, each
    to the candidate that is next for it, and they come back with it. The same in every process. Without a key they take
    turns."""

    def __init__(self) -> None:
        self._rotation = Rotation()

    def __call__(self, candidates: Sequence[T], key: bytes) -> T:
        if not key:
            return self._rotation(candidates, key)
        return max(candidates, key=lambda candidate: _score(candidate, key))


def _score(candidate: Weighted, key: bytes) -> float:
    """Of two candidates with equal keys the one with the higher score wins, with a chance in proportion to its
    weight."""
    digest = blake2b(key, digest_size=8, key=blake2b(candidate.name.encode(), digest_size=32).digest()).digest()
    fraction = ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52  # above 0 and below 1, also as a float
    return -candidate.weight / math.log(fraction)
