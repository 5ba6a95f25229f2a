"""The names of one server's models, for `GET /v1/models`: the server is asked once, however many clients want to know.

Rules:

1. Names, or the fault of a server that could not say, are the answer for `FRESH_S`. While the server is asked, all who
   want to know wait for that one answer.
2. If a server that has said its names cannot say them any more, they are still the answer for `STALE_S`.
3. A request that came through another gateway does not wait for an answer that others wait for: in a ring of gateways
   that one may wait for this request. It asks by itself. If it came back, that is not kept: it says nothing of a client
   that asks this gateway first. Anybody can send such requests, so beyond `ALONE` at once they wait like others.
4. At most `MOST` names are kept, of at most `NAME_CHARS` each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from toolwire.errors import GatewayError
from toolwire.upstream.servers.hops import HOPS, LOOP
from toolwire.upstream.servers.identity import NAME_CHARS

FRESH_S: Final = 5.0
STALE_S: Final = 300.0
MOST: Final = 10_000
ALONE: Final = 4


class ModelNames:
    """`ask` asks the server, and raises `GatewayError` if it cannot say."""

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
        """The names. Raises the server's `GatewayError`."""
        fault = self._fault
        if not self._known or self._clock() - self._asked_at >= FRESH_S:
            alone = HOPS.get() and self._alone < ALONE
            fault = await (self._learn_alone() if alone else self._learn_together())
        if fault is None or (self._names is not None and self._clock() - self._said_at < STALE_S):
            return list(self._names or ())
        raise fault.with_traceback(None)

    def forget(self) -> None:
        """It is another server now."""
        self._known, self._names = False, None

    async def _learn_alone(self) -> GatewayError | None:
        self._alone += 1
        try:
            return await self._learn()
        finally:
            self._alone -= 1

    async def _learn_together(self) -> GatewayError | None:
        """As `_learn`, once for all who wait for it."""
        task = self._asking
        if task is None or task.done():
            task = self._asking = asyncio.create_task(self._learn(), context=Context())  # of no request
        self._waiting += 1
        try:
            return await asyncio.shield(task)  # one client that goes does not spoil it for the others
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._asking = None
                task.cancel()

    async def _learn(self) -> GatewayError | None:
        """Asks, and keeps what the server says. Returns its fault."""
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
