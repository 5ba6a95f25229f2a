"""Counts in the memory of this process: for one worker, and for each alone while the shared counts are away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from toolwire.ratelimit.base import Bound, Change, Ledger, Verdict, fits


class MemoryLedger(Ledger):
    """The reference for what a ledger does. `now` gives seconds on a monotonic clock. Accounts come from the
    configuration, so their number is bounded."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._levels: dict[str, tuple[float, float]] = {}
        """Account -> (level, when it was so)."""
        self._leases: dict[str, set[str]] = {}

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        self._levels.clear()
        self._leases.clear()

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Verdict:
        now = self._now()
        used = [self._used(bound, now) for bound in bounds]
        if not fits(bounds, used, tokens):
            return Verdict(False, tuple(used))
        for index, bound in enumerate(bounds):
            used[index] += bound.cost(tokens)
            if bound.kind == "concurrent":
                self._leases.setdefault(bound.name, set()).add(lease)
            else:
                self._levels[bound.name] = (used[index], now)
        return Verdict(True, tuple(used))

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        now = self._now()
        for bound, change in made:
            if bound.kind == "concurrent":
                self._leases.get(bound.name, set()).discard(lease)
            elif change:
                self._levels[bound.name] = (max(0.0, self._used(bound, now) + change), now)

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        """Leases here end with the process."""

    def _used(self, bound: Bound, now: float) -> float:
        if bound.kind == "concurrent":
            return float(len(self._leases.get(bound.name, ())))
        level, at = self._levels.get(bound.name, (0.0, now))
        return bound.drained(level, now - at)
