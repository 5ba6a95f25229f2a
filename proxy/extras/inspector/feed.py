"""The live list of exchanges as server-sent events, for one viewer.

Rules:

1. For each viewer at most one answer of each worker waits. While the viewer does not read, no worker is asked for more.
   So a slow viewer gets fewer states of the same exchanges, and never delays a request.
2. A feed ends after `LONGEST_S`, when a worker is lost, and when the application was replaced or is about to stop; then
   the page reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from ...support.tasks import cancel_all
from .holders import WAIT_S, Holder, HolderGone, Holders
from .ring import Changes, Row

PAUSE_S: Final = 0.1
"""The pause between two events; changes in between are combined."""

LIFE_S: Final = 5.0
"""Silence after which a comment is sent to the viewer and new workers are looked for."""

LONGEST_S: Final = 120.0

MOST_ROWS: Final = 2_000
"""Maximum number of rows that a new viewer gets from one worker: the latest."""


class Feed:
    """The changes that one viewer has not got yet. `owner`: whose exchanges the viewer may see, None for all."""

    def __init__(self, holders: Holders, owner: str | None) -> None:
        self._holders = holders
        self._owner = owner
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._lost = False
        self._rows: dict[str, Row] = {}
        self._gone: set[str] = set()
        self._skipped = 0
        self._waits = False  # True if there are changes for the viewer
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()

    async def events(self, ends: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Yields the events until `ends` returns True or a worker is lost. A viewer that reconnects gets the current
        list."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_S
        reported: dict[str, int] = {}
        try:
            while loop.time() < until and not ends() and not self._lost:
                self._find_workers()
                workers = {"answering": len(self._answering), "of": len(self._followed)}
                if workers != reported:
                    yield _event("workers", workers)
                    reported = workers
                with suppress(TimeoutError):
                    async with asyncio.timeout(LIFE_S):
                        await self._wake.wait()
                self._wake.clear()
                yield _event("rows", self._take()) if self._waits else b": here\n\n"
                await asyncio.sleep(PAUSE_S)
        finally:
            await cancel_all(self._followed.values())

    def _find_workers(self) -> None:
        """Follows new workers, and retries workers that did not answer."""
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
                    raise HolderGone(holder.name)  # another worker has replaced it
            except HolderGone:
                self._lost = self._lost or holder.name in self._answering
                self._wake.set()
                return
            self._answering.add(holder.name)
            self._add(changes, first=first)
            since, wait_s, first = changes.version, WAIT_S, False
            while self._waits:  # new changes are requested after the viewer has read these
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
