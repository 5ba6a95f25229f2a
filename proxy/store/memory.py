"""Stores turns in the memory of this process: for tests, and for single-worker gateways that may forget at a
restart."""

from __future__ import annotations

import time
from asyncio import sleep
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..protocols.shared.turn import StoredTurn
from ..support.offload import OFFLOAD_BYTES, offload
from .base import Change, ReadBudget, ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of, with_expiry

MAX_BYTES: Final = 256 * 1024 * 1024


@dataclass(slots=True)
class _StoredTurn:
    """A stored turn: its expiry and its encoded text."""

    expires: float
    text: bytes


@dataclass(slots=True)
class _Owner:
    """The turns of one owner by key, least recently used first."""

    turns: OrderedDict[str, _StoredTurn] = field(default_factory=OrderedDict)
    bytes: int = 0


class MemoryStore(ResponseStore):
    """The reference implementation of a store.

    Turns are stored in encoded form, so later changes to the object do not affect them, and `max_bytes` is an exact
    bound. `now` returns Unix seconds.
    """

    shared = False

    def __init__(
        self,
        max_turns: int = MAX_TURNS,
        *,
        max_turns_per_owner: int | None = None,
        max_bytes: int = MAX_BYTES,
        max_turn_bytes: int = MAX_TURN_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_turns_per_owner, max_bytes, max_turn_bytes)
        self._max_turns = max_turns
        self._max_turns_per_owner = max_turns if max_turns_per_owner is None else max_turns_per_owner
        self._max_bytes = max_bytes
        self._max_turn_bytes = min(max_turn_bytes, max_bytes)
        self._now = now
        self._owners: OrderedDict[str, _Owner] = OrderedDict()
        """In order of their last put, oldest first."""
        self._turns = self._bytes = 0
        self._closed = False

    async def start(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        self._closed = True
        self._owners.clear()
        self._turns = self._bytes = 0

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        self._check_open()
        self._store(turn, await encoded(turn, self._max_turn_bytes), prolongs)

    async def change(self, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        while True:
            self._check_open()
            stored = self._live(turn_id, owner)
            turn = await offload(
                stored is not None and len(stored.text) > OFFLOAD_BYTES, work, await self._read(stored, None)
            )
            if turn is None:
                return None
            text = await encoded(turn, self._max_turn_bytes)
            if self._live(turn_id, owner) is stored:
                self._check_open()
                self._store(turn, text)
                return turn

    def _store(self, turn: StoredTurn, text: bytes, prolongs: bool = True) -> None:
        key = key_of(turn.id, turn.owner)
        self._drop(turn.owner, key)
        if prolongs:
            self._use(turn.ancestors, turn.owner, turn.expires)
        owner = self._owners.setdefault(turn.owner, _Owner())
        self._owners.move_to_end(turn.owner)
        owner.turns[key] = _StoredTurn(turn.expires, text)
        owner.bytes += len(text)
        self._turns += 1
        self._bytes += len(text)
        while len(owner.turns) > self._max_turns_per_owner:
            self._drop_oldest(turn.owner)
        self._trim(turn.owner)

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        self._check_open()
        self._use(turn_ids, owner, expires)

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        self._check_open()
        return {each for each in turns if self._live(*each) is not None}

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        self._check_open()
        stored = self._live(turn_id, owner)
        if stored is not None and budget is not None:
            budget.take_bytes(len(stored.text))
        return await self._read(stored, budget)

    async def get_many(
        self, turn_ids: Sequence[str], owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        self._check_open()
        stored = [self._live(turn_id, owner) for turn_id in turn_ids]
        if budget is not None:
            budget.take_bytes(sum(len(each.text) for each in stored if each is not None))
        turns: list[StoredTurn] = []
        for each in stored:
            turn = await self._read(each, budget)
            if turn is None:
                return None
            turns.append(turn)
            await sleep(0)  # a long conversation has megabytes: lets other tasks run
        return tuple(turns)

    async def delete(self, turn_id: str, owner: str) -> bool:
        self._check_open()
        there = self._live(turn_id, owner) is not None
        self._drop(owner, key_of(turn_id, owner))
        return there

    async def prune(self, now: float) -> int:
        self._check_open()
        expired = [
            (owner, key)
            for owner, has in self._owners.items()
            for key, stored in has.turns.items()
            if stored.expires <= now
        ]
        for owner, key in expired:
            self._drop(owner, key)
        return len(expired) + self._trim(None)

    async def _read(self, stored: _StoredTurn | None, budget: ReadBudget | None) -> StoredTurn | None:
        return None if stored is None else with_expiry(await decoded(stored.text, budget), stored.expires)

    def _live(self, turn_id: str, owner: str) -> _StoredTurn | None:
        has = self._owners.get(owner)
        stored = None if has is None else has.turns.get(key_of(turn_id, owner))
        return stored if stored is not None and stored.expires > self._now() else None

    def _use(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        for turn_id in turn_ids:
            stored = self._live(turn_id, owner)
            if stored is not None:
                stored.expires = max(stored.expires, expires)
                self._owners[owner].turns.move_to_end(key_of(turn_id, owner))

    def _drop(self, owner: str, key: str) -> None:
        has = self._owners.get(owner)
        stored = None if has is None else has.turns.pop(key, None)
        if has is None or stored is None:
            return
        has.bytes -= len(stored.text)
        self._turns -= 1
        self._bytes -= len(stored.text)
        if not has.turns:
            del self._owners[owner]

    def _drop_oldest(self, owner: str) -> None:
        self._drop(owner, next(iter(self._owners[owner].turns)))

    def _trim(self, putting: str | None) -> int:
        """Removes turns beyond the bounds, but never the one just put by the owner `putting`. Returns their number."""
        removed = 0
        while self._turns > self._max_turns or self._bytes > self._max_bytes:
            by_number = self._turns > self._max_turns
            others = ((owner, has) for owner, has in self._owners.items() if owner != putting or len(has.turns) > 1)
            owner, _ = max(others, key=lambda each: len(each[1].turns) if by_number else each[1].bytes)
            self._drop_oldest(owner)
            removed += 1
        return removed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
