"""Balancing rules: which of several equal servers gets the next request (R10.6). Independent of what a server is.

A rule is called with the available servers only, at least one. So the others get the requests of a server that is down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar


class Weighted(Protocol):
    """A candidate of a balancing rule."""

    @property
    def name(self) -> str:
        """Its unique name."""

    @property
    def weight(self) -> float:
        """Its share of the requests, above 0."""

    @property
    def busy(self) -> int:
        """Number of its open requests."""


T = TypeVar("T", bound=Weighted)
Balance = Callable[[Sequence[T], bytes], T]
"""A rule: takes the candidates, in configured order, and the key of the request, and returns one candidate."""


class Rotation:
    """Weighted round robin, as even as possible (nginx's smooth algorithm): in any run of as many turns as the sum of
    the weights, each candidate has exactly its share. With `even`, weights are ignored."""

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
    """Chooses the candidate with the fewest open requests for its weight; equal ones take turns."""

    def __init__(self) -> None:
        self._rotation = Rotation()

    def __call__(self, candidates: Sequence[T], key: bytes) -> T:
        least = min(candidate.busy / candidate.weight for candidate in candidates)
        return self._rotation([c for c in candidates if c.busy / c.weight == least], key)


class Sticky:
    """Chooses the same candidate for the same key (weighted rendezvous hashing), also in other processes. When a
    candidate is lost only its own keys move to others, and they return with it. Requests without a key take turns."""

    def __init__(self) -> None:
        self._rotation = Rotation()

    def __call__(self, candidates: Sequence[T], key: bytes) -> T:
        if not key:
            return self._rotation(candidates, key)
        return max(candidates, key=lambda candidate: _score(candidate, key))


def _score(candidate: Weighted, key: bytes) -> float:
    """Returns the score of a candidate for a key; the highest score wins. The chance to win is proportional to the
    weight."""
    digest = blake2b(key, digest_size=8, key=blake2b(candidate.name.encode(), digest_size=32).digest()).digest()
    fraction = ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52  # above 0 and below 1, also as a float
    return -candidate.weight / math.log(fraction)
