"""A connection that is kept: made before it is needed, watched, and made again when it is lost.

Rules:

1. There is one connection at a time, and one attempt.
2. The pause before an attempt doubles with each one that came to nothing, up to `LONGEST_S`. A connection that was
   never of use counts as such an attempt: a process that dies as soon as it runs is not run in a circle.
3. Who needs a connection waits for the next attempt, which then begins `SOONEST_S` after the last one, and is told what
   becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from toolwire.errors import GatewayError
from toolwire.extras.codex_app.rpc import Connection
from toolwire.upstream.client.connections import CONNECTING, timed_out, unreachable

LOG: Final = logging.getLogger("toolwire.backends")

FIRST_S: Final = 0.25
"""The pause after the first attempt that came to nothing, at most."""

LONGEST_S: Final = 30.0
SOONEST_S: Final = 0.5


class Link:
    """Of the backend `name`. `dial` makes a connection, and raises `GatewayError`. Who waits for one waits at most
    `connect_s` seconds."""

    def __init__(self, name: str, dial: Callable[[], Awaitable[Connection]], connect_s: float | None) -> None:
        self._name = name
        self._dial = dial
        self._connect_s = connect_s
        self._connection: Connection | None = None
        self._waiting: list[asyncio.Future[Connection | GatewayError]] = []
        self._wanted = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to keep a connection."""
        self._keeping = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End it, and make no more."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await asyncio.gather(*self._closing, return_exceptions=True)
        self._tell(unreachable())

    async def connection(self) -> Connection:
        """The connection. Raises `GatewayError` if there is none and none can be made."""
        known = self._connection
        if known is not None and known.alive:
            return known
        if self._keeping is None:
            raise unreachable()
        answer: asyncio.Future[Connection | GatewayError] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._wanted.set()
        try:
            async with asyncio.timeout(self._connect_s) as limit:
                found = await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out(CONNECTING, self._connect_s) from None
        finally:
            if answer in self._waiting:
                self._waiting.remove(answer)
        if isinstance(found, GatewayError):
            raise found
        return found

    def discard(self, connection: Connection) -> None:
        """Close a connection of which nobody has any use. Nobody waits for a server that takes its time to go."""
        task = asyncio.create_task(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _keep(self) -> None:
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

    async def _attempt(self, failed: int) -> Connection | None:
        self._wanted.clear()
        try:
            self._connection = await self._dial()
        except GatewayError as error:
            if failed & (failed + 1) == 0:  # more and more seldom
                LOG.warning("backend %r cannot be used (attempt %d): %s", self._name, failed + 1, error.message)
            self._tell(error)
            return None
        except Exception:  # whatever else goes wrong is a bug here, and must not end the keeping
            LOG.exception("an attempt to connect failed")
            self._tell(unreachable())
            return None
        self._tell(self._connection)
        return self._connection

    def _tell(self, outcome: Connection | GatewayError) -> None:
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
