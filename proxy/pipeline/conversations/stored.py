"""Stored responses and conversations of an application: the store, and the responses that are being made."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

from aiohttp import web

from ...config import StoreConfig
from ...errors import Cancelled, GatewayError, Unavailable
from ...protocols.shared.turn import RUNNING, StoredTurn
from ...record import AccessField
from ...store.base import Change, ReadBudget, ResponseStore, StoreUnavailable

LOG: Final = logging.getLogger("toolwire.conversation")

STORE_FAILURES: Final = AccessField("store_failures", "A response could not be kept.")

PRUNE_S: Final = 60.0
"""How often expired turns are removed, at most."""
MARKS_S: Final = 0.25
"""How often is looked for responses that another process wants to have cancelled, while any are made."""
MARKS_AT_ONCE: Final = 256
"""For more streams there are several questions, between which they go on: a millisecond each."""
CANCEL_S: Final = 5.0
"""So long is waited for whoever makes a response to end it."""
CANCEL_LOOK_S: Final = 0.05
CANCEL_MARK_S: Final = 60.0


class Stoppable(Protocol):
    """An answer that is made."""

    def stop(self, reason: GatewayError) -> None:
        """End it."""


class Conversations:
    """The store of an application, and the responses that are being made in this process.

    The store is opened when it is first used, so that it takes no space if nothing is stored.

    Only the process that makes a response can cancel it. Other processes leave a mark for it in the store, a turn of
    its own, which each process looks for while it makes responses (docs/adr/0034).
    """

    def __init__(self, store: ResponseStore | None, config: StoreConfig) -> None:
        self.max_age_s = config.max_age_s
        self.config = config
        self.running: dict[tuple[str, str], Stoppable] = {}  # by the ids of their marks, and owners
        self._looking: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._store = store
        self._open = False
        self._opening = asyncio.Lock()
        self._pruned = 0.0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def keeps(self) -> bool:
        """There is a store."""
        return self._store is not None

    async def get(self, ident: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        """A turn. Raises `StoreUnavailable`, and `BudgetExceeded` as a store."""
        store = await self._opened()
        return None if store is None else await store.get(ident, owner, budget)

    async def get_chain(self, ident: str, owner: str, budget: ReadBudget) -> tuple[StoredTurn, ...] | None:
        """A conversation, oldest first. Raises as `get`."""
        store = await self._opened()
        return None if store is None else await store.get_chain(ident, owner, budget)

    async def put(self, turn: StoredTurn) -> None:
        """Stores a turn. Raises `StoreUnavailable`."""
        store = self._store if self._open else await self._opened()
        if store is not None:
            await store.put(turn)
            if time.time() - self._pruned >= PRUNE_S:
                await self._prune(store)

    async def change(self, ident: str, owner: str, work: Change) -> StoredTurn | None:
        """As `ResponseStore.change`; without a store nothing is there and nothing is put."""
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
        """Keep turns for as long as what is put now. Raises `StoreUnavailable`."""
        store = await self._opened()
        if store is not None:
            await store.prolong(idents, owner, time.time() + self.max_age_s)

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """As `ResponseStore.present`."""
        store = await self._opened()
        return set() if store is None else await store.present(turns)

    async def delete(self, ident: str, owner: str) -> bool:
        """Forget a turn; whether it was there. Raises `StoreUnavailable`."""
        store = await self._opened()
        return store is not None and await store.delete(ident, owner)

    # --- cancelling -------------------------------------------------------------------------------------------------

    def began(self, turn: StoredTurn, reply: Stoppable) -> None:
        """This process makes the response that is kept as `turn`."""
        self.running[_mark_of(turn.id), turn.owner] = reply
        if self._looking is None and self._store is not None and self._store.shared:
            self._look_later()

    def ended(self, turn: StoredTurn) -> None:
        """It does so no more."""
        self.running.pop((_mark_of(turn.id), turn.owner), None)

    async def cancel(self, turn: StoredTurn) -> StoredTurn:
        """End a response that is in progress, wherever it is made; what has become of it then. One that nobody ends in
        `CANCEL_S` is made by nobody any more. Raises `StoreUnavailable`."""
        store = await self._opened()
        assert store is not None  # whose turn it is
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
            wait *= 2  # the turn may be large
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
        """Stop those responses of this process that another one has marked."""
        assert self._store is not None
        running = list(self.running.items())
        try:
            for at in range(0, len(running), MARKS_AT_ONCE):
                some = dict(running[at : at + MARKS_AT_ONCE])
                for mark in await self._store.present(some):
                    some[mark].stop(Cancelled())
        except StoreUnavailable as error:
            LOG.debug("cancelled responses cannot be looked for: %s", error)
        self._look_later()

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine that no request waits for; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what is under way and close the store, if it was opened."""
        if self._looking is not None:
            self._looking.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
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
    """The id of the turn that says that a response is to be cancelled."""
    return f"cancel_{ident}"


CONVERSATIONS: Final = web.AppKey("toolwire.conversations", Conversations)


def away(error: StoreUnavailable) -> Unavailable:
    """What the client gets to see when the store cannot be reached."""
    return Unavailable(f"The response store cannot be used now: {error}.", code="store_unavailable", retry_after_s=5)
