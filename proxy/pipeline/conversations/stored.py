"""The store of an application with its responses and conversations, and the responses that this process is running."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from aiohttp import web

from ...config import StoreConfig
from ...errors import Cancelled, GatewayError, Unavailable
from ...protocols.shared.turn import RUNNING, StoredTurn
from ...record import AccessField
from ...store.base import BudgetExceeded, Change, ReadBudget, ResponseStore, StoreUnavailable
from ...support.offload import OFFLOAD_BYTES
from ...support.tasks import BackgroundTasks

LOG: Final = logging.getLogger("toolwire.conversation")

STORE_FAILURES: Final = AccessField("store_failures", "A response could not be stored.")

PRUNE_S: Final = 60.0
"""Minimum number of seconds between two deletions of expired turns."""
MARKS_S: Final = 0.25
"""Seconds between two checks for marks of other processes, while this process runs responses."""
MARKS_AT_ONCE: Final = 256
"""Maximum number of marks (requests to cancel) in one query, which takes a millisecond. Streams continue between two
queries."""
CANCEL_S: Final = 5.0
"""Seconds that a cancelling request waits for the process that runs the response."""
CANCEL_LOOK_S: Final = 0.05
CANCEL_MARK_S: Final = 60.0


class Stoppable(Protocol):
    """A running response, which can be stopped."""

    def stop(self, reason: GatewayError) -> None:
        """Ends the response with this error."""


class Conversations:
    """The store of an application, and the responses that this process is running.

    The store is opened at its first use, so that it takes no disk space if nothing is stored.

    Only the process that runs a response can cancel it. Another process writes a *mark* for it into the store, an entry
    that each process checks for while it runs responses (docs/adr/0034).
    """

    def __init__(self, store: ResponseStore | None, config: StoreConfig) -> None:
        self.max_age_s = config.max_age_s
        self.config = config
        self.running: dict[tuple[str, str], Stoppable] = {}  # keys: id of the mark, owner
        self._looking: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._store = store
        self._open = False
        self._opening = asyncio.Lock()
        self._pruned = 0.0
        self._tasks = BackgroundTasks()

    @property
    def keeps(self) -> bool:
        """True if the application has a store."""
        return self._store is not None

    async def get(self, ident: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        """Returns a turn; None if it does not exist. Raises `StoreUnavailable`, and `BudgetExceeded` if it is larger
        than `budget`."""
        store = await self._opened()
        return None if store is None else await store.get(ident, owner, budget)

    async def get_counted(self, ident: str, owner: str, hold: Callable[[int], None]) -> StoredTurn | None:
        """Returns a turn; None if it does not exist. `hold` is called with the bytes of a large one before it is read.
        Raises as `get`, and the error of `hold`."""
        try:
            return await self.get(ident, owner, ReadBudget(OFFLOAD_BYTES, OFFLOAD_BYTES))
        except BudgetExceeded as large:
            hold(large.size)
            return await self.get(ident, owner)

    async def get_many(self, idents: Sequence[str], owner: str, budget: ReadBudget) -> tuple[StoredTurn, ...] | None:
        """Returns these turns; None if any is missing. Raises as `get`."""
        store = await self._opened()
        return None if store is None else await store.get_many(idents, owner, budget)

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        """Stores a turn: see `ResponseStore.put`. Raises `StoreUnavailable`."""
        store = self._store if self._open else await self._opened()
        if store is not None:
            await store.put(turn, prolongs=prolongs)
            if time.time() - self._pruned >= PRUNE_S:
                await self._prune(store)

    async def change(self, ident: str, owner: str, work: Change) -> StoredTurn | None:
        """See `ResponseStore.change`. Returns None without a store."""
        store = await self._opened()
        if store is None:
            return None
        turn = await store.change(ident, owner, work)
        if time.time() - self._pruned >= PRUNE_S:
            await self._prune(store)
        return turn

    async def _prune(self, store: ResponseStore) -> None:
        self._pruned = time.time()
        await store.prune(self._pruned)

    async def prolong(self, idents: Iterable[str], owner: str) -> None:
        """Extends the life of turns to that of a turn stored now. Raises `StoreUnavailable`."""
        store = await self._opened()
        if store is not None:
            await store.prolong(idents, owner, time.time() + self.max_age_s)

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """See `ResponseStore.present`. Returns an empty set without a store."""
        store = await self._opened()
        return set() if store is None else await store.present(turns)

    async def delete(self, ident: str, owner: str) -> bool:
        """Deletes a turn. Returns True if it existed. Raises `StoreUnavailable`."""
        store = await self._opened()
        return store is not None and await store.delete(ident, owner)

    # --- cancellation------------------------------------------------------------------------------------------------

    def began(self, turn: StoredTurn, reply: Stoppable) -> None:
        """Notes that this process runs the response of `turn`; `reply` can stop it."""
        self.running[_mark_of(turn.id), turn.owner] = reply
        if self._looking is None and self._store is not None and self._store.shared:
            self._look_later()

    def ended(self, turn: StoredTurn) -> None:
        """Notes that this process no longer runs the response of `turn`."""
        self.running.pop((_mark_of(turn.id), turn.owner), None)

    async def cancel(self, turn: StoredTurn) -> StoredTurn:
        """Ends a running response, in whichever process it runs. Returns the turn as it is then. A response that has
        not ended after `CANCEL_S` has lost its worker and is stored as cancelled. Raises `StoreUnavailable`."""
        store = await self._opened()
        assert store is not None  # the turn came from it
        reply = self.running.get((_mark_of(turn.id), turn.owner))
        mark = None
        if reply is not None:
            reply.stop(Cancelled())
        elif store.shared:
            now = time.time()
            mark = StoredTurn(
                id=_mark_of(turn.id), owner=turn.owner, status="kept", created=now, expires=now + CANCEL_MARK_S
            )
            await store.put(mark)
        wait, waited = CANCEL_LOOK_S, 0.0
        while waited < CANCEL_S:
            await asyncio.sleep(wait)
            waited += wait
            wait *= 2  # each look reads the turn, which may be large
            latest = await store.get(turn.id, turn.owner)
            if latest is None or latest.status not in RUNNING:
                if mark is not None:
                    await store.delete(mark.id, mark.owner)
                return replace(turn, status="cancelled") if latest is None else latest
        ended = await store.change(
            turn.id,
            turn.owner,
            lambda now: replace(now, status="cancelled") if now is not None and now.status in RUNNING else None,
        )
        return ended or await store.get(turn.id, turn.owner) or replace(turn, status="cancelled")

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(MARKS_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if self.running:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_marks())

    async def _look_for_marks(self) -> None:
        """Stops the responses of this process for which another process has stored a mark."""
        assert self._store is not None
        running = list(self.running.items())
        try:
            for at in range(0, len(running), MARKS_AT_ONCE):
                some = dict(running[at : at + MARKS_AT_ONCE])
                for mark in await self._store.present(some):
                    some[mark].stop(Cancelled())
        except StoreUnavailable as error:
            LOG.debug("the store cannot be searched for cancelled responses: %s", error)
        self._look_later()

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine in the background. `close` waits for it."""
        self._tasks.start(work)

    async def checked(self, app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: logs an error if the store is a server that cannot be written now. The start does not
        wait for it. Stores in files are opened at their first use."""
        if self.config.kind == "redis":
            self.later(self._check())
        yield

    async def _check(self) -> None:
        try:
            store = await self._opened()
            if store is not None:
                await store.check()
        except StoreUnavailable as error:
            LOG.error("conversations cannot be stored now: %s", error)

    async def close(self) -> None:
        """Waits for background coroutines and closes the store, if it was opened."""
        if self._looking is not None:
            self._looking.cancel()
        await self._tasks.idle()
        if self._store is not None and self._open:
            await self._store.close()

    async def _opened(self) -> ResponseStore | None:
        if self._store is not None and not self._open:
            async with self._opening:
                if not self._open:
                    await self._store.start()
                    self._open = True
        return self._store


def _mark_of(ident: str) -> str:
    """Returns the id of the mark that asks for a response to be cancelled."""
    return f"cancel_{ident}"


CONVERSATIONS: Final = web.AppKey("toolwire.conversations", Conversations)


def store_fault(error: StoreUnavailable) -> Unavailable:
    """Returns the client's error for an unavailable store."""
    return Unavailable(f"The response store cannot be used now: {error}.", code="store_unavailable", retry_after_s=5)
