"""The interface of a transport for frames to and from an app-server."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Final, Protocol

from ...support.lines import OversizedLine

MOST_UNSENT: Final = 64 * 1024 * 1024
"""A server that leaves this many bytes unread is considered stuck."""

READ_BYTES: Final = 64 * 1024
"""Bytes that are processed before other tasks get a turn on the event loop."""


class TransportBroken(Exception):
    """The connection can no longer be used. The text is for the log."""


class Transport(Protocol):
    """One connection to one server."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Sends a frame, possibly buffered. Raises `TransportBroken` if the buffer is full or the connection is
        closed."""

    @abstractmethod
    def frames(self) -> AsyncIterator[bytes | OversizedLine]:
        """Yields the frames until the server closes the connection. Raises `TransportBroken`. Lets other tasks run
        between two reads, even if the server never stops sending."""

    async def wait_ended(self) -> None:
        """Returns when the server is known to have ended, if `frames` cannot tell."""
        await asyncio.Event().wait()

    @abstractmethod
    async def close(self) -> None:
        """Closes the connection and leaves nothing running. May be called twice; must be called once."""
