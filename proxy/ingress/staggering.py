"""Requests that come together start staggered, so that they do not hold up what is under way.

Reading a request, teaching its tools and sending it on takes a good part of a millisecond in one go. Of 64 that come
together each is short enough, but all of them would run before the event loop looks at its sockets again, and the next
frame of every open stream would wait as long.
"""

from __future__ import annotations

import asyncio
from collections import deque


class StaggeredStart:
    """In each iteration of the event loop one request may start, in the order in which they came."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until this one may start."""
        loop = asyncio.get_running_loop()
        if self._taken:
            mine: asyncio.Future[None] = loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._taken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # a client may have gone
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._taken = False
