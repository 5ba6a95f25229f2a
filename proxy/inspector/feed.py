"""The live list as server-sent events, for one viewer.

Rules of this module:

1. For a viewer there is at most one state of each exchange waiting: the latest. One who reads slowly gets fewer of
   them, and nothing of a request ever waits for him.
2. A feed ends after `LONGEST_S`, when the application has been replaced or is about to end; the page asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from .ring import Changes, Row
from .sources import WAIT_S, Source, SourceGone, Sources

PAUSE_S: Final = 0.1
"""Between two events: what changes meanwhile goes together."""

LIFE_S: Final = 5.0
"""After this silence a comment is sent, and is looked for workers that have come."""

LONGEST_S: Final = 120.0

MOST_ROWS: Final = 2_000
"""Of one worker at the beginning: the youngest."""


class Feed:
    """What one viewer has not been shown. `owner` is whose exchanges he may see, None: all."""

    def __init__(self, sources: Sources, owner: str | None) -> None:
        self._sources = sources
        self._owner = owner
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._rows: dict[str, Row] = {}
        self._gone: set[str] = set()
        self._skipped = 0
        self._news = asyncio.Event()

    async def events(self, ends: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """The events, until `ends` says so."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_S
        try:
            while loop.time() < until and not ends():
                if self._look():
                    yield _event("workers", {"answering": len(self._followed), "of": len(self._followed)})
                with suppress(TimeoutError):
                    async with asyncio.timeout(LIFE_S):
                        await self._news.wait()
                news = self._take()
                yield b": here\n\n" if news is None else _event("rows", news)
                await asyncio.sleep(PAUSE_S)
        finally:
            for task in self._followed.values():
                task.cancel()
            await asyncio.gather(*self._followed.values(), return_exceptions=True)

    def _look(self) -> bool:
        """Follow workers that have come; whether they are others than before."""
        before = set(self._followed)
        self._followed = {name: task for name, task in self._followed.items() if not task.done()}
        for source in self._sources.all():
            if source.name not in self._followed:
                self._followed[source.name] = asyncio.create_task(self._follow(source))
        return set(self._followed) != before

    async def _follow(self, source: Source) -> None:
        since, wait_s = 0, 0.0
        while True:
            try:
                changes = await source.changes(since, self._owner, wait_s)
            except SourceGone:
                return
            self._add(changes)
            since, wait_s = changes.version, WAIT_S
            await asyncio.sleep(PAUSE_S)

    def _add(self, changes: Changes) -> None:
        rows = changes.rows[-MOST_ROWS:]
        self._skipped += changes.skipped + len(changes.rows) - len(rows)
        for row in rows:
            self._rows[row["id"]] = row
        for name in changes.gone:
            self._rows.pop(name, None)
            self._gone.add(name)
        if rows or changes.gone or changes.skipped:
            self._news.set()

    def _take(self) -> dict[str, Any] | None:
        if not self._news.is_set():
            return None
        self._news.clear()
        news = {"rows": list(self._rows.values()), "gone": sorted(self._gone), "skipped": self._skipped}
        self._rows, self._gone, self._skipped = {}, set(), 0
        return news


def _event(name: str, value: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(value))
