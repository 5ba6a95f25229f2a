"""Work that comes together is done in turns, so that it does not hold up what is under way.

Reading a request, teaching its tools and sending it on takes a good part of a millisecond in one go. Of 64 that come
together each is short enough, but all of them would run before the event loop looks at its sockets again, and the next
frame of every open stream would wait as long. The same holds for what arrives of hundreds of bodies at once.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """In each iteration of the event loop `most` may go on, in the order in which they came."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._taken = 0
        """Turns of this iteration. Not 0 exactly while the next call of `_next` is due."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until this one may go on."""
        if not self.take():
            await self.next()

    def take(self) -> bool:
        """Returns whether this one may go on at once."""
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next)
        elif self._taken >= self._most or self._waiting:
            return False
        self._taken += 1
        return True

    def next(self) -> asyncio.Future[None]:
        """Done when this one may go on, which `take` has refused."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        return mine

    def _next(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._most:
            first = self._waiting.popleft()
            if not first.done():  # a client may have gone
                first.set_result(None)
                self._taken += 1
        if self._taken:
            asyncio.get_running_loop().call_soon(self._next)
