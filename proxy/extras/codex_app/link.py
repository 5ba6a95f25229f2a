"""Keeps one connection open: opens it before it is needed, watches it, and reopens it when it is lost.

Rules:

1. There is at most one connection and one attempt at a time.
2. The pause before an attempt doubles with each failed one, up to `LONGEST_S`. A connection over which no answer came
   counts as a failed attempt, so that a process which dies at once is not restarted in a tight loop.
3. A request that needs a connection waits for the next attempt, which then begins `SOONEST_S` after the last one, and
   gets its result.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ...errors import GatewayError
from ...support.tasks import BackgroundTasks, cancel_all
from ...upstream.client.connections import CONNECTING, timed_out, unreachable
from .rpc import RpcConnection

LOG: Final = logging.getLogger("toolwire.backends")

FIRST_S: Final = 0.25
"""Maximum pause after the first failed attempt."""

LONGEST_S: Final = 30.0
SOONEST_S: Final = 0.5


class Link:
    """The connection of the backend `name`. `dial` opens a connection and raises `GatewayError`. Requests wait for it
    at most `connect_s` seconds."""

    def __init__(self, name: str, dial: Callable[[], Awaitable[RpcConnection]], connect_s: float | None) -> None:
        self._name = name
        self._dial = dial
        self._connect_s = connect_s
        self._connection: RpcConnection | None = None
        self._waiting: list[asyncio.Future[RpcConnection | GatewayError]] = []
        self._wanted = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._closing = BackgroundTasks()

    def start(self) -> None:
        """Begins to keep a connection open."""
        self._keeping = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        """Closes the connection and opens no more."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            await cancel_all([keeping])
            await self._closing.idle()
        self._notify(unreachable())

    async def connection(self) -> RpcConnection:
        """Returns the connection. Raises `GatewayError` if there is none and none can be opened."""
        known = self._connection
        if known is not None and known.alive:
            return known
        if self._keeping is None:
            raise unreachable()
        answer: asyncio.Future[RpcConnection | GatewayError] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._wanted.set()
        try:
            async with asyncio.timeout(self._connect_s) as limit:
                outcome = await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out(CONNECTING, self._connect_s) from None
        finally:
            if answer in self._waiting:
                self._waiting.remove(answer)
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    def discard(self, connection: RpcConnection) -> None:
        """Closes a connection in the background."""
        self._closing.start(connection.close())

    async def _stay_connected(self) -> None:
        failed = 0
        while True:
            connection = await self._attempt(failed)
            if connection is not None:
                try:
                    await connection.wait_over()
                finally:
                    self._connection = None
                    self.discard(connection)
            failed = 1 if connection is not None and connection.useful else failed + 1
            await self._pause(failed)

    async def _attempt(self, failed: int) -> RpcConnection | None:
        self._wanted.clear()
        try:
            self._connection = await self._dial()
        except GatewayError as error:
            if failed & (failed + 1) == 0:  # logged ever more rarely
                LOG.warning("backend %r cannot be used (attempt %d): %s", self._name, failed + 1, error.message)
            self._notify(error)
            return None
        except Exception:  # a bug, which must not end this loop
            LOG.exception("an attempt to connect failed")
            self._notify(unreachable())
            return None
        self._notify(self._connection)
        return self._connection

    def _notify(self, outcome: RpcConnection | GatewayError) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_result(outcome)
        self._waiting.clear()

    async def _pause(self, failed: int) -> None:
        longest = min(LONGEST_S, FIRST_S * 2.0 ** min(failed - 1, 16)) * random.uniform(0.5, 1.0)
        soonest = min(longest, SOONEST_S)
        await asyncio.sleep(soonest)
        try:
            async with asyncio.timeout(longest - soonest):
                await self._wanted.wait()
        except TimeoutError:
            pass
