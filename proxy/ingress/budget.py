"""The memory budget for request bodies, one for each worker.

Rules of this module:

1. A byte counts from its arrival until its request has been answered. For a compressed body the decompressed bytes
   count. `Content-Length` alone does not count, so a client that announces much and sends little takes nothing from
   others.
2. A key may not hold more than is still free, so there is always room for another key. With one busy key half of the
   budget stays free, with two a third. (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking
   6(2), 1998, with a factor of 1.) Without keys all clients share one account, which may use everything.
3. A body that does not fit is refused at once and its bytes are freed. Waiting could deadlock: several half-received
   bodies would wait for each other until they time out.
4. After each `GIVE_BACK_BYTES` of bodies, freed memory is returned to the operating system.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aiohttp import web

from ..errors import ClientFault, GatewayError, Unavailable
from ..support.allocator import GIVE_BACK_BYTES, LARGE_BYTES, MemoryReturner

OPTION: Final = "limits.total_body_bytes"


class Cells(Protocol):
    """The storage of metric values."""

    @property
    def numbers(self) -> memoryview[float]:
        """The values, by position."""


class BodyBudget:
    """The bytes that this worker's requests hold, in total and for each account. `limit`: maximum in total. `fair`:
    there are several accounts (rule 2). `gauge`: the position of the metric."""

    def __init__(self, limit: int, *, fair: bool, gauge: tuple[Cells, int]) -> None:
        self.bytes = 0
        self.held: dict[str, int] = {}
        """Bytes by account, if there are several."""
        self.inflating = asyncio.Lock()
        """Held during one decompression step: see `toolwire.ingress.receiving`."""
        self.limit = limit
        self.fair = fair
        self.cells, self.place = gauge
        self.memory = MemoryReturner(GIVE_BACK_BYTES)


class BodyShare:
    """The bytes of a budget that one request holds. Its creator must call `release` in the end."""

    __slots__ = ("account", "budget", "bytes")

    def __init__(self, budget: BodyBudget, account: str) -> None:
        self.budget = budget
        self.account = account
        self.bytes = 0

    def check(self, size: int) -> None:
        """Raises like `take` if `size` more bytes would not fit now."""
        budget = self.budget
        free = budget.limit - budget.bytes - size
        if free < 0 or (budget.fair and budget.held.get(self.account, 0) + size > free):
            raise self._refusal(size)

    def take(self, size: int) -> None:
        """Counts `size` more bytes. Raises `Unavailable` `overloaded` if they do not fit now, `ClientFault`
        `request_too_large` if they never would."""
        budget = self.budget
        if budget.fair:
            self.check(size)
            budget.held[self.account] = budget.held.get(self.account, 0) + size
        elif budget.bytes + size > budget.limit:
            raise self._refusal(size)
        budget.bytes += size
        budget.cells.numbers[budget.place] += size
        self.bytes += size

    def release(self) -> None:
        """Frees all bytes. May be called twice."""
        if self.bytes:
            self.give(self.bytes)

    def give(self, size: int) -> None:
        """Frees `size` bytes, at least one and at most all."""
        self.bytes -= size
        budget = self.budget
        budget.bytes -= size
        budget.cells.numbers[budget.place] -= size
        if size >= LARGE_BYTES:
            budget.memory.free(size)
        if budget.fair:
            held = budget.held.pop(self.account) - size
            if held:
                budget.held[self.account] = held

    def _refusal(self, size: int) -> GatewayError:
        budget = self.budget
        most = budget.limit // 2 if budget.fair else budget.limit
        if self.bytes + size > most:
            return ClientFault(
                f"The body is larger than {most} bytes.", code="request_too_large", hint=f"The limit is `{OPTION}`."
            )
        whose, held = "all clients", budget.bytes
        if budget.fair:
            whose, held = "this API key", budget.held.get(self.account, 0)
        return Unavailable(
            f"The bodies of the running requests of {whose} take {held} bytes, and "
            f"{max(0, budget.limit - budget.bytes)} bytes are free. Please try again when one has ended. "
            f"The limit is `{OPTION}`."
        )


BODY_BUDGET: Final = web.AppKey("toolwire.body_budget", BodyBudget)
