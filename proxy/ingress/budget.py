"""The memory that the bodies of requests take: one budget for each worker.

Rules of this module:

1. A byte counts from the moment it is read until its request has been answered. Of a compressed body the bytes that
   come out count. A `Content-Length` alone counts nothing: a client that announces much and sends little takes nothing
   from others.
2. No key may hold more than is still free, so that there is always room for another one. With one busy key half of the
   budget stays free, with two a third. (Dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking
   6(2), 1998, with a factor of 1.) Without keys all clients are one account, which may use all of it.
3. A body that does not fit is refused and gives back what it holds. It does not wait: bodies that wait for each other,
   each half there, would all wait until they time out.
4. After `GIVE_BACK_BYTES` of bodies the memory that they took is given back to the system.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aiohttp import web

from toolwire.errors import ClientFault, GatewayError, Unavailable
from toolwire.support.allocator import GivingBack

OPTION: Final = "limits.total_body_bytes"
GIVE_BACK_BYTES: Final = 64 * 1024 * 1024
LARGE_BYTES: Final = 256 * 1024
"""Smaller bodies leave no gaps worth looking for."""


class Cells(Protocol):
    """Where numbers of the metrics are."""

    @property
    def numbers(self) -> memoryview[float]:
        """By place."""


class BodyBudget:
    """The bytes that the requests of this worker hold, in all and for each account. `limit` is the most in all; `fair`
    says that there are several accounts (rule 2). `gauge` is the place of the metric."""

    def __init__(self, limit: int, *, fair: bool, gauge: tuple[Cells, int]) -> None:
        self.bytes = 0
        self.held: dict[str, int] = {}
        """By account, if there are several."""
        self.inflating = asyncio.Lock()
        """Held for one step of inflating a body: see `toolwire.ingress.receiving`."""
        self.limit = limit
        self.fair = fair
        self.cells, self.place = gauge
        self.memory = GivingBack(GIVE_BACK_BYTES)


class BodyShare:
    """The bytes that one request of an account holds of a budget. Its maker must call `release` in the end."""

    __slots__ = ("account", "budget", "bytes")

    def __init__(self, budget: BodyBudget, account: str) -> None:
        self.budget = budget
        self.account = account
        self.bytes = 0

    def check(self, size: int) -> None:
        """Raises the `GatewayError` of `take` if `size` bytes more would not fit now."""
        budget = self.budget
        free = budget.limit - budget.bytes - size
        if free < 0 or (budget.fair and budget.held.get(self.account, 0) + size > free):
            raise self._refusal(size)

    def take(self, size: int) -> None:
        """Counts `size` bytes more. Raises `Unavailable` `overloaded` if they do not fit now, `ClientFault`
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
        """Gives back all. May be called twice."""
        if self.bytes:
            self.give(self.bytes)

    def give(self, size: int) -> None:
        """Gives back `size` bytes, which are at least one and at most all."""
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
