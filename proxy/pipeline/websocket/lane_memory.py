"""Conversations that a WebSocket connection remembers, also those that are not stored.

Each lane remembers its latest response with the turns before it, and every lane of the connection can continue it. The
turns have the form of the store. All connections of a worker share one bounded `MemoryStore`, in which each lane is an
owner. If a response was dropped for lack of room, a request that continues it gets `previous_response_not_found`, and
the client sends the whole conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from aiohttp import web

from ...protocols.shared.turn import StoredTurn
from ...store.base import StoreUnavailable
from ...store.memory import MemoryStore

FOREVER_S: Final = 10 * 365 * 86_400.0
"""Seconds after which a turn expires: practically never, because the end of the connection removes it."""

TURNS: Final = 1_000_000
"""Maximum number of turns in the shared store: practically unlimited, because its bytes are limited."""

_NUMBERS: Final = count(1)


class LaneMemory:
    """The latest response of one lane. `lanes` are all lanes of its connection. `close` must be called at the end of
    the connection."""

    def __init__(self, store: MemoryStore, lanes: Iterable[LaneMemory]) -> None:
        self._store = store
        self._lanes = lanes
        self._owner = f"lane-{next(_NUMBERS)}"
        self._held: tuple[str, ...] = ()

    @property
    def latest(self) -> str | None:
        """The id of the latest response; None if there is none."""
        return self._held[-1] if self._held else None

    def find(self, ident: str) -> tuple[MemoryStore, str] | None:
        """Returns the store with the conversation up to and including the response `ident`, and the conversation's
        owner in it; None if `ident` is not the latest response of any lane."""
        for lane in self._lanes:
            if ident == lane.latest:
                return self._store, lane._owner
        return None

    async def remember(self, turn: StoredTurn, before: Sequence[StoredTurn]) -> None:
        """Makes `turn`, which continues the turns `before`, the latest response."""
        wanted = (*(earlier.id for earlier in before), turn.id)
        known = set(self._held).intersection(wanted)
        await self._drop(set(self._held).difference(wanted))
        self._held = wanted
        try:
            for each in (*before, turn):
                if each.id not in known:
                    expires = each.created + FOREVER_S
                    await self._store.put(
                        replace(each, owner=self._owner, ancestors=wanted[: wanted.index(each.id)], expires=expires)
                    )
        except StoreUnavailable:  # the turns are too large
            await self.close()

    async def forget(self, ident: str) -> None:
        """Forgets `ident` in every lane where it is the latest response."""
        for lane in list(self._lanes):
            if ident == lane.latest:
                await lane.close()

    async def close(self) -> None:
        """Forgets all turns of the lane."""
        held, self._held = self._held, ()
        await self._drop(held)

    async def _drop(self, idents: Iterable[str]) -> None:
        for ident in idents:
            await self._store.delete(ident, self._owner)


LANE: Final = web.RequestKey("toolwire.lane", LaneMemory)
"""The memory of the lane of a request. Requests over HTTP have none."""
