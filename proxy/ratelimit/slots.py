"""Slots for concurrent requests, taken before a body is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence

from ..errors import GatewayError
from ..ingress.liveness import LivenessMonitor
from .base import Bound, Ledger, changes


class Slot:
    """The slot of one request, booked on `bounds` of `ledger` under `lease`. `later` runs work in the background."""

    __slots__ = ("_arrivals", "_bounds", "_later", "_ledger", "_monitor", "_open", "lease", "owner")

    def __init__(
        self,
        bounds: Sequence[Bound],
        owner: str,
        ledger: Ledger,
        later: Callable[[Coroutine[None, None, None]], None],
        arrivals: Arrivals,
    ) -> None:
        self.lease = os.urandom(16).hex()
        self.owner = owner
        self._bounds = bounds
        self._ledger = ledger
        self._later = later
        self._arrivals = arrivals
        self._monitor: LivenessMonitor | None = None
        self._open = False

    def begin(self, arriving: LivenessMonitor | None) -> None:
        """Called when it has been booked. `arriving`: see `Admission.enter`."""
        self._open = True
        self._monitor = arriving
        if arriving is not None:
            self._arrivals.add(self)

    def arrived(self) -> None:
        """Called when the body has arrived. From then on the request does not give way to others."""
        if self._monitor is not None:
            self._monitor = None
            self._arrivals.discard(self)

    async def end(self) -> None:
        """Frees the slot. Only the first call has an effect."""
        self.arrived()
        if self._open:
            self._open = False
            await self._ledger.settle(changes(self._bounds, 0, 0), self.lease)

    def abandon(self) -> None:
        """Frees the slot in the background, for a request that cannot wait."""
        if self._open:
            self._later(self.end())

    async def give_way(self, reason: GatewayError) -> None:
        """Frees the slot and ends its request with `reason`."""
        monitor = self._monitor
        await self.end()
        if monitor is not None:
            monitor.stop(reason)


class Arrivals:
    """Slots of this worker's requests whose bodies have not arrived yet, by owner, oldest first."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[Slot, None]] = {}

    def add(self, slot: Slot) -> None:
        """Called when a body begins to arrive."""
        self._slots.setdefault(slot.owner, {})[slot] = None

    def discard(self, slot: Slot) -> None:
        """Called when a body has arrived or was given up."""
        mine = self._slots.get(slot.owner)
        if mine is not None:
            mine.pop(slot, None)
            if not mine:
                del self._slots[slot.owner]

    def longest(self, owner: str) -> Slot | None:
        """Returns the oldest slot of the owner with the most slots, or None if that owner would keep fewer than `owner`
        has with one more."""
        most = max(self._slots.values(), key=len, default=None)
        if most is None or len(most) <= len(self._slots.get(owner, ())) + 1:
            return None
        return next(iter(most))
