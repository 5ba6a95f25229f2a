"""The live list as server-sent events, for one viewer.

Rules of this module:

1. For a viewer there is at most one answer of each worker waiting. While he does not read no worker is asked for more,
   so one who reads slowly gets fewer states of the same exchanges, and nothing of a request ever waits for him.
2. A feed ends after `LONGEST_S`, when a worker is lost, when the application has been replaced or is about to end; the
   page asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from toolwire.extras.inspector.holders import WAIT_S, Holder, HolderGone, Holders
from toolwire.extras.inspector.ring import Changes, Row

PAUSE_S: Final = 0.1
"""Between two events: what changes meanwhile goes together."""

LIFE_S: Final = 5.0
"""After this silence a comment is sent, and is looked for workers that have come."""

LONGEST_S: Final = 120.0

MOST_ROWS: Final = 2_000
"""Of one worker at the beginning: the youngest."""


class Feed:
    """What one viewer has not been shown. `owner` is whose exchanges he may see, None: all."""

    def __init__(self, holders: Holders, owner: str | None) -> None:
        self._holders = holders
        self._owner = owner
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._lost = False
        self._rows: dict[str, Row] = {}
        self._gone: set[str] = set()
        self._skipped = 0
        self._waits = False  # something does, for the viewer
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()

    async def events(self, ends: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """The events, until `ends` says so, or a worker is lost: whoever asks again is told what there is then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_S
        told: dict[str, int] = {}
        try:
            while loop.time() < until and not ends() and not self._lost:
                self._look()
                workers = {"answering": len(self._answering), "of": len(self._followed)}
                if workers != told:
                    yield _event("workers", workers)
                    told = workers
                with suppress(TimeoutError):
                    async with asyncio.timeout(LIFE_S):
                        await self._wake.wait()
                self._wake.clear()
                yield _event("rows", self._take()) if self._waits else b": here\n\n"
                await asyncio.sleep(PAUSE_S)
        finally:
            for task in self._followed.values():
                task.cancel()
            await asyncio.gather(*self._followed.values(), return_exceptions=True)

    def _look(self) -> None:
        """Follow workers that have come, and try those again that did not answer."""
        holders = {holder.name: holder for holder in self._holders.all()}
        self._followed = {name: task for name, task in self._followed.items() if name in holders and not task.done()}
        for name, holder in holders.items():
            if name not in self._followed:
                self._followed[name] = asyncio.create_task(self._follow(holder))

    async def _follow(self, holder: Holder) -> None:
        since, wait_s, first = 0, 0.0, True
        while True:
            try:
                changes = await holder.changes(since, self._owner, wait_s)
                if changes.version < since:
                    raise HolderGone(holder.name)  # another one has taken its place
            except HolderGone:
                self._lost = self._lost or holder.name in self._answering
                self._wake.set()
                return
            self._answering.add(holder.name)
            self._add(changes, first=first)
            since, wait_s, first = changes.version, WAIT_S, False
            while self._waits:  # the next one is asked for what is new then
                await self._taken.wait()
            await asyncio.sleep(PAUSE_S)

    def _add(self, changes: Changes, *, first: bool) -> None:
        rows = changes.rows[-MOST_ROWS:]
        self._skipped += changes.skipped + len(changes.rows) - len(rows)
        for row in rows:
            self._rows[row["exchange_id"]] = row
        for name in changes.gone:
            self._rows.pop(name, None)
            self._gone.add(name)
        if first or rows or changes.gone or changes.skipped:
            self._waits = True
            self._wake.set()

    def _take(self) -> dict[str, Any]:
        news = {"rows": list(self._rows.values()), "gone": sorted(self._gone), "skipped": self._skipped}
        self._rows, self._gone, self._skipped, self._waits = {}, set(), 0, False
        self._taken.set()
        self._taken.clear()
        return news


def _event(name: str, value: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(value))
