"""Keeps turns in the memory of this process: for tests, and for gateways of one worker that may forget at a restart."""

from __future__ import annotations

import time
from asyncio import sleep
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ..protocols.turn import Turn
from .base import ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of

MAX_BYTES: Final = 256 * 1024 * 1024


class MemoryStore(ResponseStore):
    """The reference for what a store does.

    Turns are kept as the bytes that other stores would keep, so nobody changes a kept turn by changing what was put,
    and `max_bytes` of them all together is a true bound. `now` gives Unix seconds.
    """

    def __init__(
        self,
        max_turns: int = MAX_TURNS,
        *,
        max_bytes: int = MAX_BYTES,
        max_turn_bytes: int = MAX_TURN_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_bytes, max_turn_bytes)
        self._max_turns = max_turns
        self._max_bytes = max_bytes
        self._max_turn_bytes = min(max_turn_bytes, max_bytes)
        self._now = now
        self._turns: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        """Key -> (expires, text), in the order of putting."""
        self._bytes = 0
        self._closed = False

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        self._closed = True
        self._turns.clear()
        self._bytes = 0

    async def put(self, turn: Turn) -> None:
        self._check_open()
        text = await encoded(turn, self._max_turn_bytes)
        key = key_of(turn.id, turn.owner)
        self._drop(key)
        self._turns[key] = (turn.expires, text)
        self._bytes += len(text)
        self._trim()

    async def get(self, turn_id: str, owner: str) -> Turn | None:
        self._check_open()
        text = self._live(turn_id, owner)
        return None if text is None else await decoded(text)

    async def get_chain(self, turn_id: str, owner: str) -> tuple[Turn, ...] | None:
        last = await self.get(turn_id, owner)
        if last is None:
            return None
        kept = [self._live(ancestor, owner) for ancestor in last.ancestors]
        turns: list[Turn] = []
        for text in kept:
            if text is None:
                return None
            turns.append(await decoded(text))
            await sleep(0)  # A long conversation is megabytes: others are served in between.
        return (*turns, last)

    async def delete(self, turn_id: str, owner: str) -> bool:
        self._check_open()
        there = self._live(turn_id, owner) is not None
        self._drop(key_of(turn_id, owner))
        return there

    async def prune(self, now: float) -> int:
        self._check_open()
        expired = [key for key, (expires, _) in self._turns.items() if expires <= now]
        for key in expired:
            self._drop(key)
        return len(expired) + self._trim()

    def _live(self, turn_id: str, owner: str) -> bytes | None:
        expires, text = self._turns.get(key_of(turn_id, owner), (0.0, None))
        return text if expires > self._now() else None

    def _drop(self, key: str) -> None:
        _, text = self._turns.pop(key, (0.0, b""))
        self._bytes -= len(text)

    def _trim(self) -> int:
        """Remove the oldest beyond the bounds, never the one just put; how many."""
        gone = 0
        while len(self._turns) > self._max_turns or self._bytes > self._max_bytes:
            self._drop(next(iter(self._turns)))
            gone += 1
        return gone

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
