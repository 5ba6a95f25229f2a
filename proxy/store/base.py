"""What a response store is: where finished and running turns are kept between requests (R12).

Rules:

1. The owner (a hash of the API key, empty without keys) is part of every look-up: a turn of somebody else does not
   exist.
2. A turn knows the ids of its ancestors, oldest first, so loading a conversation is one multi-get and never a walk.
3. `put` is atomic: after a crash a turn is there as it was before or as it is after, never half.
4. What is older than its time, or beyond the bound on their number (oldest first), goes away by itself.

Laws and bounds are tested by one suite over all stores.
"""

from __future__ import annotations

from typing import Protocol

from ..protocols.turn import Turn


class StoreUnavailable(Exception):
    """The store cannot be reached or cannot write. The message says why, without addresses or keys."""


class ResponseStore(Protocol):
    """Keeps turns. Every method but `start` and `close` may raise `StoreUnavailable`."""

    async def start(self) -> None:
        """Open it. Called once, in the running loop. Raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Close it. May be called twice."""

    async def put(self, turn: Turn) -> None:
        """Keep a turn, or replace the one with its id and owner."""

    async def get(self, turn_id: str, owner: str) -> Turn | None:
        """A turn that has not expired."""

    async def get_chain(self, turn_id: str, owner: str) -> tuple[Turn, ...] | None:
        """The conversation up to and with a turn, oldest first; None if it or any ancestor is gone."""

    async def delete(self, turn_id: str, owner: str) -> bool:
        """Remove a turn; whether it was there."""

    async def prune(self, now: float) -> int:
        """Remove what has expired at `now`, and the oldest beyond the bound; how many went. Called by the gateway now
        and then; a store may do it earlier on its own."""
