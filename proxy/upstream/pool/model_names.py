"""Caches the names of one server's models for `GET /v1/models`, so that many clients cause one query.

Rules:

1. The names, or the error of a server that could not be asked, are valid for `FRESH_S`. Concurrent clients share one
   query.
2. If a later query fails, the last names stay valid for `STALE_S`.
3. A request that came through another gateway does not wait for a shared query: in a loop of gateways that query may
   wait for this request. It makes its own query. The error of a detected loop is not cached, because a client that asks
   this gateway directly would not get it. At most `ALONE` such queries run at once; further requests share one like
   others.
4. At most `MOST` names are stored, of at most `NAME_CHARS` each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from ...errors import GatewayError
from ..servers.hops import HOPS, LOOP
from ..servers.identity import NAME_CHARS

FRESH_S: Final = 5.0
STALE_S: Final = 300.0
MOST: Final = 10_000
ALONE: Final = 4


class ModelNames:
    """The cached names of one server. `ask` queries the server and raises `GatewayError`."""

    def __init__(self, ask: Callable[[], Awaitable[list[str]]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._names: list[str] | None = None
        self._fault: GatewayError | None = None
        self._asked_at = self._said_at = 0.0
        self._known = False
        self._asking: asyncio.Task[GatewayError | None] | None = None
        self._waiting = 0
        self._alone = 0

    async def get(self) -> list[str]:
        """Returns the names. Raises the server's `GatewayError`."""
        fault = self._fault
        if not self._known or self._clock() - self._asked_at >= FRESH_S:
            alone = HOPS.get() and self._alone < ALONE
            fault = await (self._learn_alone() if alone else self._learn_together())
        if fault is None or (self._names is not None and self._clock() - self._said_at < STALE_S):
            return list(self._names or ())
        raise fault.with_traceback(None)

    def forget(self) -> None:
        """Discards the names: the server is another one now."""
        self._known, self._names = False, None

    async def _learn_alone(self) -> GatewayError | None:
        self._alone += 1
        try:
            return await self._learn()
        finally:
            self._alone -= 1

    async def _learn_together(self) -> GatewayError | None:
        """Like `_learn`, but concurrent callers share one query."""
        task = self._asking
        if task is None or task.done():
            task = self._asking = asyncio.create_task(
                self._learn(), context=Context()
            )  # not in the context of a request
        self._waiting += 1
        try:
            return await asyncio.shield(task)  # a cancelled client must not cancel the shared query
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._asking = None
                task.cancel()

    async def _learn(self) -> GatewayError | None:
        """Queries the server and stores the result. Returns its error, or None."""
        asked_at = self._clock()
        try:
            names = await self._ask()
        except GatewayError as fault:
            if fault.code == LOOP and HOPS.get():
                return fault
            self._fault = fault
        else:
            self._fault = None
            self._names = [name for name in names[:MOST] if len(name) <= NAME_CHARS]
            self._said_at = self._clock()
        self._known, self._asked_at = True, asked_at
        return self._fault
