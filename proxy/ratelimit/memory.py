"""Counts in the memory of this process: for a single worker, and for each worker during an outage of the shared
counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from .base import Booking, Bound, Change, Ledger, fits


class MemoryLedger(Ledger):
    """The reference implementation of a ledger. `now` returns seconds of a monotonic clock. Accounts come from the
    configuration, so their number is bounded."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._levels: dict[str, tuple[float, float]] = {}
        """Maps an account to its level and the time of that level."""
        self._leases: dict[str, set[str]] = {}

    async def start(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        self._levels.clear()
        self._leases.clear()

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        now = self._now()
        used = [self._used(bound, now) for bound in bounds]
        if not fits(bounds, used, tokens):
            return Booking(False, tuple(used))
        for index, bound in enumerate(bounds):
            used[index] += bound.cost(tokens)
            if bound.kind == "concurrent":
                self._leases.setdefault(bound.name, set()).add(lease)
            else:
                self._levels[bound.name] = (used[index], now)
        return Booking(True, tuple(used))

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        now = self._now()
        for bound, change in made:
            if bound.kind == "concurrent":
                self._leases.get(bound.name, set()).discard(lease)
            elif change:
                self._levels[bound.name] = (max(0.0, self._used(bound, now) + change), now)

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        """Does nothing: leases end with the process."""

    def _used(self, bound: Bound, now: float) -> float:
        if bound.kind == "concurrent":
            return float(len(self._leases.get(bound.name, ())))
        level, at = self._levels.get(bound.name, (0.0, now))
        return bound.drained(level, now - at)
