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
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from ..errors import ClientFault, GatewayError, Unavailable

OPTION: Final = "limits.total_body_bytes"


class BodyBudget:
    """The bytes that the requests of this worker hold, in all and for each account. `limit` is the most in all; `fair`
    says that there are several accounts (rule 2). `changed` is told each difference."""

    def __init__(self, limit: int, *, fair: bool, changed: Callable[[int], None] = lambda _: None) -> None:
        self.bytes = 0
        self.inflating = asyncio.Lock()
        """Held for one step of inflating a body: see `proxy.ingress.receiving`."""
        self._limit = limit
        self._fair = fair
        self._changed = changed
        self._held: dict[str, int] = {}

    def open(self, account: str) -> BodyShare:
        """The share of a request of this account. The caller must call `BodyShare.release` in the end."""
        return BodyShare(self, account)

    def held(self, account: str) -> int:
        """Bytes that the requests of this account hold."""
        return self._held.get(account, 0)

    def check(self, share: BodyShare, size: int) -> None:
        """Raises the `GatewayError` of `take` if `size` bytes more would not fit now."""
        free = self._limit - self.bytes - size
        held = self.held(share.account) + size if self._fair else 0
        if held > free or free < 0:
            raise self._refusal(share, size)

    def take(self, share: BodyShare, size: int) -> None:
        """Counts `size` bytes more for a request. Raises `Unavailable` `overloaded` if they do not fit now,
        `ClientFault` `request_too_large` if they never would."""
        self.check(share, size)
        self._count(share, size)

    def give_back(self, share: BodyShare) -> None:
        """Counts nothing any more for a request."""
        self._count(share, -share.bytes)

    def _count(self, share: BodyShare, size: int) -> None:
        held = self._held.get(share.account, 0) + size
        if held:
            self._held[share.account] = held
        else:
            self._held.pop(share.account, None)
        share.bytes += size
        self.bytes += size
        self._changed(size)

    def _refusal(self, share: BodyShare, size: int) -> GatewayError:
        most = self._limit // 2 if self._fair else self._limit
        if share.bytes + size > most:
            return ClientFault(
                f"The body is larger than {most} bytes.", code="request_too_large", hint=f"The limit is `{OPTION}`."
            )
        whose = "this API key" if self._fair else "all clients"
        return Unavailable(
            f"The bodies of the running requests of {whose} take {self.held(share.account)} bytes, and "
            f"{max(0, self._limit - self.bytes)} bytes are free. Please try again when one has ended. "
            f"The limit is `{OPTION}`."
        )


class BodyShare:
    """What one request holds of a `BodyBudget`."""

    __slots__ = ("_budget", "account", "bytes")

    def __init__(self, budget: BodyBudget, account: str) -> None:
        self._budget = budget
        self.account = account
        self.bytes = 0

    @property
    def inflating(self) -> asyncio.Lock:
        """See `BodyBudget.inflating`."""
        return self._budget.inflating

    def check(self, size: int) -> None:
        """See `BodyBudget.check`."""
        self._budget.check(self, size)

    def take(self, size: int) -> None:
        """See `BodyBudget.take`."""
        self._budget.take(self, size)

    def release(self) -> None:
        """Gives back all. May be called twice."""
        if self.bytes:
            self._budget.give_back(self)


BODY_BUDGET: Final = web.AppKey("toolwire.body_budget", BodyBudget)
BODY_SHARE: Final = web.RequestKey("toolwire.body_share", BodyShare)
