"""What a response store is: where finished and running turns are kept between requests (R12).

Rules:

1. The owner (a hash of the API key, empty without keys) is part of every look-up: a turn of somebody else does not
   exist.
2. A turn knows the ids of its ancestors, oldest first, so loading a conversation is one multi-get and never a walk.
3. `put` is atomic: after a crash a turn is there as it was before or as it is after, never half.
4. A conversation lives as long as its youngest turn: a put prolongs the ancestors of what it puts, and counts as a
   use of them.
5. A turn's size is known before it is read, so a reader can say how much it takes (`ReadBudget`, R33.2).
6. What is older than its time goes away by itself, and so does what is beyond a bound: of the owner who has the most,
   what was used longest ago. So no owner can push out what another has who has less (docs/adr/0034).

Laws and bounds are tested by one suite over all stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal, Protocol

from toolwire.protocols.shared.turn import StoredTurn

Change = Callable[[StoredTurn | None], StoredTurn | None]
"""Makes of a turn that is there, or None, the one to put in its place; None: nothing is put."""


class StoreUnavailable(Exception):
    """The store cannot be reached or cannot write. The message says why, without addresses or keys."""


class BudgetExceeded(Exception):
    """The turns that were asked for hold more than may be read: of `kind`, at least `size` where `most` were left."""

    def __init__(self, kind: Literal["bytes", "values"], size: int, most: int) -> None:
        self.kind = kind
        self.size = size
        self.most = most
        super().__init__(f"{size} {kind} of stored turns, {most} may be read")


class ReadBudget:
    """How much may be read from a store for one request: `bytes` as they are stored, and JSON `values`. Both say what
    is left. A store takes the bytes before it reads the turn they belong to."""

    def __init__(self, bytes: int, values: int) -> None:
        self.bytes = bytes
        self.values = values

    def take_bytes(self, size: int) -> None:
        """Raises `BudgetExceeded`, and takes nothing then."""
        if size > self.bytes:
            raise BudgetExceeded("bytes", size, self.bytes)
        self.bytes -= size

    def take_values(self, number: int) -> None:
        """As `take_bytes`."""
        if number > self.values:
            raise BudgetExceeded("values", number, self.values)
        self.values -= number


class ResponseStore(Protocol):
    """Keeps turns. Every method but `start` and `close` may raise `StoreUnavailable`."""

    shared: bool
    """Other processes may see the same turns."""

    async def start(self) -> None:
        """Open it. Called once, in the running loop. Raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Close it. May be called twice."""

    async def put(self, turn: StoredTurn) -> None:
        """Keep a turn, or replace the one with its id and owner; rule 4."""

    async def change(self, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        """Put what `work` makes of the turn that is there now; returns that. Changes of one turn follow each other,
        also from several processes, so none of them is lost. `work` may be called again, in a thread, and with what it
        made itself, so it has to see that it is done. What it raises is raised, and nothing is put then."""

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        """Let turns live until then at least, and count as just used. Those that are not there are passed over."""

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Which of these, by id and owner, are there: one question for all of them."""

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        """A turn that has not expired. Its `expires` says how long it is kept now. Raises `BudgetExceeded` without
        having read the turn."""

    async def get_chain(
        self, turn_id: str, owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        """The conversation up to and with a turn, oldest first; None if it or any ancestor is gone. Raises
        `BudgetExceeded`: beyond the bytes without having read any ancestor, beyond the values with the first turn that
        has too many."""

    async def delete(self, turn_id: str, owner: str) -> bool:
        """Remove a turn; whether it was there."""

    async def prune(self, now: float) -> int:
        """Remove what has expired at `now`, and the oldest beyond the bound; how many went. Called by the gateway now
        and then; a store may do it earlier on its own."""
