"""How frames get to an app-server and back, whatever lies between."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Final, Protocol

from ...support.lines import OversizedLine

MOST_UNSENT: Final = 64 * 1024 * 1024
"""A server that leaves so many bytes unread has stopped reading."""

READ_BYTES: Final = 64 * 1024
"""After so many bytes others get their turn on the event loop."""


class Broken(Exception):
    """The connection is no good any more. The text is for the log."""


class Transport(Protocol):
    """One connection to one server."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame, at once or when there is room. Raises `Broken` if there is too little of it, or nobody is
        there."""

    @abstractmethod
    def frames(self) -> AsyncIterator[bytes | OversizedLine]:
        """What comes, until the server hangs up. Raises `Broken`. Lets others run between two reads, also where a
        server never stops talking."""

    async def wait_ended(self) -> None:
        """Until the server is known to have ended, also where `frames` does not tell."""
        await asyncio.Event().wait()

    @abstractmethod
    async def close(self) -> None:
        """Hang up, and see to it that nothing is left running. May be called twice; must be called once."""
