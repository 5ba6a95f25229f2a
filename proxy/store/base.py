"""The interface of a response store, which holds finished and running turns between requests (R12).

Rules:

1. The owner (a hash of the API key, empty without keys) is part of every lookup: turns of other owners are never found.
2. A turn contains the ids of its ancestors, oldest first, so a conversation is loaded with one multi-get.
3. `put` is atomic: after a crash a turn is stored in its old or its new form, never partially.
4. A conversation lives as long as its newest turn: a put prolongs the turn's ancestors, and counts as a use of them.
5. A turn's size is known before it is read, so that a reader can limit it (`ReadBudget`, R33.2).
6. Expired turns are removed automatically. Beyond a bound the least recently used turns of the owner with most turns
   are removed, so an owner cannot push out turns of another owner who has fewer (docs/adr/0034).

One test suite checks these laws and bounds for all stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, Protocol

from ..protocols.shared.turn import StoredTurn

Change = Callable[[StoredTurn | None], StoredTurn | None]
"""Takes the stored turn, or None, and returns the turn to store; None stores nothing."""


class StoreUnavailable(Exception):
    """The store cannot be reached or cannot write. The message says why, without addresses or keys."""


class BudgetExceeded(Exception):
    """The requested turns exceed the read budget. `kind`: bytes or values; `size`: at least this many; `most`: how many
    were left."""

    def __init__(self, kind: Literal["bytes", "values"], size: int, most: int) -> None:
        self.kind = kind
        self.size = size
        self.most = most
        super().__init__(f"{size} {kind} of stored turns, {most} may be read")


class ReadBudget:
    """How much one request may still read from a store: `bytes` as stored, and JSON `values`. A store takes the bytes
    before it reads a turn."""

    def __init__(self, bytes: int, values: int) -> None:
        self.bytes = bytes
        self.values = values

    def take_bytes(self, size: int) -> None:
        """Takes `size` bytes. Raises `BudgetExceeded`, and takes nothing then."""
        if size > self.bytes:
            raise BudgetExceeded("bytes", size, self.bytes)
        self.bytes -= size

    def take_values(self, number: int) -> None:
        """Takes `number` values. Raises `BudgetExceeded`, and takes nothing then."""
        if number > self.values:
            raise BudgetExceeded("values", number, self.values)
        self.values -= number


class ResponseStore(Protocol):
    """Stores turns. Every method except `close` may raise `StoreUnavailable`."""

    shared: bool
    """True if other processes use the same turns."""

    async def start(self) -> None:
        """Opens the store. Called once, in the running event loop."""

    async def check(self) -> None:
        """Returns if the store's server can be written now. Needs no `start`, and changes nothing."""
        return  # a store without a server

    async def close(self) -> None:
        """Closes the store. May be called twice."""

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        """Stores a turn, replacing one with the same id and owner. `prolongs`: also prolongs its ancestors (rule 4);
        False if an earlier put of this turn, with the same `expires`, did so."""

    async def change(self, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        """Stores the result of `work` for the turn that is stored now, and returns it. Returns None if `work` does.

        Changes of one turn are serialised, also between processes, so none is lost. `work` may run in a thread and more
        than once, even with its own earlier result, so it must recognise that. An exception of `work` is raised, and
        nothing is stored.
        """

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        """Keeps turns until `expires` at least, and counts them as just used. Unknown ids are ignored."""

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Returns those of the turns (id and owner) that are stored, with one query."""

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        """Returns a turn that has not expired, or None. Its `expires` is the current one. Raises `BudgetExceeded`
        before reading the turn."""

    async def get_many(
        self, turn_ids: Sequence[str], owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        """Returns these turns, in their order; None if any is missing.

        Raises `BudgetExceeded`: for bytes before any turn is read, for values at the first turn with too many.
        """

    async def delete(self, turn_id: str, owner: str) -> bool:
        """Removes a turn. Returns True if it was stored."""

    async def prune(self, now: float) -> int:
        """Removes the turns that have expired at `now`, and the oldest ones beyond the bound. Returns their number. The
        gateway calls this regularly; a store may also do it by itself."""
