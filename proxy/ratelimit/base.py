"""The kinds of limits, the interface of ledgers, which store the counts, and the ledger in memory.

Rules:

1. Requests and tokens per minute are leaky buckets: a bucket of `most` units drains `most` units per minute, and a
   request that does not fit has to wait. So a limit of 60 allows 60 requests at once and then one per second, like
   OpenAI's limits.
2. All limits of an exchange are checked and booked together, or none is. A request refused by one limit uses nothing of
   the others.
3. Tokens are booked by estimate and corrected at the end. Use beyond the limit stays in the bucket, so later requests
   wait longer. The level never falls below 0.
4. A slot of `concurrent` is a lease. Shared ledgers drop a lease that was not renewed, because its worker may be dead.

One test suite checks these laws for all ledgers against a simple model. Reasons: docs/adr/0013.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

LEASE_S: Final = 30.0
"""A lease that is not renewed expires after this time."""
RENEW_S: Final = 10.0
"""Interval at which leases are renewed."""
WINDOW_S: Final = 60.0
"""A rate is a number of units within this time."""

Scope = Literal["gateway", "key", "route", "key_route"]
Kind = Literal["requests", "tokens", "concurrent"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit on one account. `most`, at least 1: units per minute, or concurrent leases."""

    scope: Scope
    kind: Kind
    account: str
    most: int

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        return f"{self.account}:{self.kind}"

    def cost(self, tokens: int) -> int:
        """Returns the units that an exchange of `tokens` books. Never more than the limit, so that no exchange waits
        for ever."""
        return min(tokens, self.most) if self.kind == "tokens" else 1

    def drained(self, level: float, elapsed_s: float) -> float:
        """Returns the level after `elapsed_s` seconds."""
        return max(0.0, level - max(0.0, elapsed_s) * self.most / WINDOW_S)


Change = tuple[Bound, int]
"""A bound, and its correction at the end of an exchange: tokens used in excess of those booked (negative if fewer)."""


@dataclass(frozen=True, slots=True)
class Booking:
    """The result of a booking. `used`: units used of each bound, including this booking if it was granted."""

    granted: bool
    used: tuple[float, ...]


class LedgerUnavailable(Exception):
    """The counts cannot be reached. The message says why, without addresses or keys."""


class Ledger(Protocol):
    """Stores the counts. Every method except `close` may raise `LedgerUnavailable`."""

    async def start(self) -> None:
        """Opens the ledger in the running event loop. After a failure the ledger can still be used; another call tells
        whether it can be reached now."""

    async def close(self) -> None:
        """Closes the ledger. May be called twice."""

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        """Books an exchange on all `bounds` if it fits all. `lease` is its unique name."""

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        """Ends an exchange that `gives_back` something: corrects its tokens and ends its lease."""

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        """Renews leases, and recreates those that have expired."""


def gives_back(bounds: Sequence[Bound]) -> bool:
    """True if an exchange has something to settle at its end, that is, any bound other than requests."""
    return any(bound.kind != "requests" for bound in bounds)


def changes(bounds: Sequence[Bound], booked: int, used: int) -> list[Change]:
    """Returns the corrections at the end of an exchange that was booked with `booked` tokens and has used `used`."""
    return [(b, used - b.cost(booked) if b.kind == "tokens" else 0) for b in bounds if b.kind != "requests"]


def fits(bounds: Sequence[Bound], used: Sequence[float], tokens: int) -> bool:
    """True if an exchange of `tokens` fits, when `used` units of the bounds are in use."""
    return all(not wait_s(bound, units, tokens) for bound, units in zip(bounds, used, strict=True))


def wait_s(bound: Bound, used: float, tokens: int) -> float:
    """Returns the seconds until an exchange of `tokens` fits; 0 if it does now. For leases, where that is unknown, one
    second."""
    over = used + bound.cost(tokens) - bound.most
    if over <= ROUNDING:
        return 0.0
    return 1.0 if bound.kind == "concurrent" else over * WINDOW_S / bound.most


ROUNDING: Final = 1e-6
"""Tolerance for sums of floats, in units."""


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
