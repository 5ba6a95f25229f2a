"""Handles outages of the shared counts.

Rules:

1. After one failure requests no longer use the shared counts; a background check every `RETRY_S` finds out when they
   are back. So only requests that are running at the first failure wait in vain.
2. During the outage `on_store_failure` decides: with `open` each worker counts by itself, with `closed` requests are
   refused.
3. An exchange ends in the ledger where it was booked. Ends during the outage are sent afterwards. An end that may have
   been received is not sent again.
4. A call to the ledger completes even if its exchange is cancelled, because its booking must be given back.
5. Each change is logged once, and shown by the gauge.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ..support.tasks import BackgroundTasks
from .base import RENEW_S, Booking, Bound, Change, Ledger, LedgerUnavailable, MemoryLedger, changes, gives_back

LOG: Final = logging.getLogger("toolwire.limits")

RETRY_S: Final = 1.0


class FailoverLedger(Ledger):
    """Uses `shared` while it can be reached. With `closed`, bookings raise `LedgerUnavailable` during an outage.
    `report` is called at the start and at each change with whether it can be reached."""

    def __init__(
        self, shared: Ledger, *, closed: bool, report: Callable[[bool], None], retry_s: float = RETRY_S
    ) -> None:
        self._shared = shared
        self._alone = None if closed else MemoryLedger()
        self._report = report
        self._retry_s = retry_s
        self._up = True
        self._epoch = 0
        """Number of recoveries. A failed call that began before the last one says nothing about the present."""
        self._held: dict[str, Sequence[Bound]] = {}
        """Running exchanges that are booked in the shared counts and have something to settle, by lease."""
        self._owed: list[tuple[Sequence[Change], str]] = []
        """Ends of such exchanges that happened during an outage."""
        self._calls = BackgroundTasks()  # each completes in any case (rule 4)
        self._renewed = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Never raises, because unreachable counts may become reachable later. May be called twice."""
        if self._task is not None:
            return
        self._task = asyncio.get_running_loop().create_task(self._watch_shared())
        self._report(True)
        try:
            await self._shared.start()
        except LedgerUnavailable as error:
            self._down(error, self._epoch)
        self._renewed = time.monotonic()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._calls.idle()
        await self._shared.close()

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        if self._up:
            booking = self._calls.start(self._book(bounds, tokens, lease))
            try:
                verdict = await asyncio.shield(booking)
            except asyncio.CancelledError:
                self._calls.start(self._undo(booking, bounds, tokens, lease))
                raise
            if verdict is not None:
                return verdict
        if self._alone is None:
            raise LedgerUnavailable("the counts cannot be reached")
        return await self._alone.book(bounds, tokens, lease)

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        """Never raises."""
        if self._held.pop(lease, None) is None:
            if self._alone is not None:
                await self._alone.settle(made, lease)
        elif self._up:
            await asyncio.shield(self._calls.start(self._settle(made, lease)))
        else:
            self._owed.append((made, lease))

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        """Does nothing: this ledger renews its own leases."""

    async def _watch_shared(self) -> None:
        while True:
            await asyncio.sleep(self._retry_s)
            with suppress(LedgerUnavailable):
                if not self._up:
                    await self._recover()
                elif time.monotonic() - self._renewed >= RENEW_S:
                    await self._renew()

    async def _recover(self) -> None:
        await self._shared.start()
        await self._shared.renew(self._held)
        while self._owed:
            await self._shared.settle(*self._owed.pop())
        self._renewed = time.monotonic()
        self._up = True
        self._epoch += 1
        self._report(True)
        LOG.warning("the shared counts of the rate limits can be reached again")

    async def _renew(self) -> None:
        epoch = self._epoch
        try:
            await self._shared.renew(self._held)
        except LedgerUnavailable as error:
            self._down(error, epoch)
        self._renewed = time.monotonic()

    async def _book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking | None:
        """Returns None if the shared counts cannot be reached."""
        epoch = self._epoch
        try:
            verdict = await self._shared.book(bounds, tokens, lease)
        except LedgerUnavailable as error:
            self._down(error, epoch)
            return None
        if verdict.granted and gives_back(bounds):
            self._held[lease] = bounds
        return verdict

    async def _undo(
        self, booking: asyncio.Task[Booking | None], bounds: Sequence[Bound], tokens: int, lease: str
    ) -> None:
        verdict = await booking
        if verdict is not None and verdict.granted:
            await self.settle(changes(bounds, tokens, 0), lease)

    async def _settle(self, made: Sequence[Change], lease: str) -> None:
        epoch = self._epoch
        try:
            await self._shared.settle(made, lease)
        except LedgerUnavailable as error:
            self._down(error, epoch)

    def _down(self, error: LedgerUnavailable, epoch: int) -> None:
        if not self._up or epoch != self._epoch:
            return
        self._up = False
        self._report(False)
        policy = "each worker counts by itself" if self._alone is not None else "limited requests are refused"
        LOG.error("the shared counts of the rate limits cannot be reached: %s; %s until they are back", error, policy)
