"""What is limited, and what keeps the counts.

Rules:

1. Requests and tokens per minute are token buckets: a bucket of `most` units empties at `most` units a minute, and
   whoever does not fit waits. So a limit of 60 lets 60 through at once and then one a second, as OpenAI's limits do.
2. All limits of an exchange are looked at together and booked together, or none is: who is refused by one takes nothing
   from the others.
3. Tokens are booked by estimate and corrected at the end. Use beyond the limit stays in the bucket as a debt that later
   requests wait for; it never holds less than nothing.
4. A slot of `concurrent` is a lease. Shared ledgers forget one that was not renewed, because its worker may be dead.

Laws are tested by one suite over all ledgers, against a naive model. Why so: docs/adr/0013.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

LEASE_S: Final = 30.0
"""A lease that was not renewed for so long is forgotten."""
RENEW_S: Final = 10.0
"""How often leases are renewed."""
WINDOW_S: Final = 60.0
"""A rate is so many units in this time."""

Scope = Literal["gateway", "key", "route", "key_route"]
Kind = Literal["requests", "tokens", "concurrent"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit on one account. `most` is at least 1: units a minute, or leases at once."""

    scope: Scope
    kind: Kind
    account: str
    most: int

    @property
    def name(self) -> str:
        """What it is counted under."""
        return f"{self.account}:{self.kind}"

    def cost(self, tokens: int) -> int:
        """What an exchange of so many tokens books: never more than the limit, so that none has to wait for ever."""
        return min(tokens, self.most) if self.kind == "tokens" else 1

    def drained(self, level: float, elapsed_s: float) -> float:
        """What is left of `level` after a time."""
        return max(0.0, level - max(0.0, elapsed_s) * self.most / WINDOW_S)


Change = tuple[Bound, int]
"""What the end of an exchange does to a bound: tokens used beyond what was booked, negative if fewer were."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a booking. `used` are the units of each bound: with the booking if it was granted, else
    without."""

    granted: bool
    used: tuple[float, ...]


class LedgerUnavailable(Exception):
    """The counts cannot be reached. The message says why, without addresses or keys."""


class Ledger(Protocol):
    """Keeps counts. Every method but `close` may raise `LedgerUnavailable`."""

    async def start(self) -> None:
        """Open it, in the running loop. If it fails the ledger may be used all the same; a further call tells whether
        it can be reached now."""

    async def close(self) -> None:
        """Close it. May be called twice."""

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Verdict:
        """Book an exchange on all `bounds`, if it fits all; `lease` names it."""

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        """The end of an exchange that `gives_back` something: correct its tokens, end its lease."""

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        """Renew leases, or make them anew if they were forgotten."""


def gives_back(bounds: Sequence[Bound]) -> bool:
    """Whether an exchange has something to settle at its end: all but counted requests."""
    return any(bound.kind != "requests" for bound in bounds)


def changes(bounds: Sequence[Bound], booked: int, used: int) -> list[Change]:
    """What an exchange that was booked with so many tokens and has used so many comes to in the end."""
    return [(b, used - b.cost(booked) if b.kind == "tokens" else 0) for b in bounds if b.kind != "requests"]


def fits(bounds: Sequence[Bound], used: Sequence[float], tokens: int) -> bool:
    """Whether an exchange of so many tokens fits, given what is used of each bound."""
    return all(not wait_s(bound, units, tokens) for bound, units in zip(bounds, used, strict=True))


def wait_s(bound: Bound, used: float, tokens: int) -> float:
    """How long until an exchange of so many tokens fits; 0 if it does now. For a lease that is not known: a second."""
    over = used + bound.cost(tokens) - bound.most
    if over <= ROUNDING:
        return 0.0
    return 1.0 if bound.kind == "concurrent" else over * WINDOW_S / bound.most


ROUNDING: Final = 1e-6
"""Units by which sums of floats may be off."""
