"""Spreads simultaneous work over iterations of the event loop, so that running streams are not delayed.

Parsing a request, teaching its tools and sending it on takes a good part of a millisecond without a pause. If 64
requests arrive together, all would run before the event loop reads its sockets again, and the next frame of every open
stream would wait. The same applies to data that arrives at once for hundreds of bodies.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopPacer:
    """Lets `most` callers continue in each iteration of the event loop, in order of arrival."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._taken = 0
        """Turns taken in this iteration. Not 0 if, and only if, a call of `_begin_iteration` is scheduled."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Waits until the caller may continue."""
        if not self.take():
            await self.next()

    def take(self) -> bool:
        """Returns True if the caller may continue at once."""
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._begin_iteration)
        elif self._taken >= self._most or self._waiting:
            return False
        self._taken += 1
        return True

    def next(self) -> asyncio.Future[None]:
        """Returns a future that is done when the caller, which `take` has refused, may continue."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        return mine

    def _begin_iteration(self) -> None:
        """Lets the first waiting callers continue, in a new iteration of the event loop."""
        self._taken = 0
        while self._waiting and self._taken < self._most:
            first = self._waiting.popleft()
            if not first.done():  # the waiting request may have been cancelled
                first.set_result(None)
                self._taken += 1
        if self._taken:
            asyncio.get_running_loop().call_soon(self._begin_iteration)
