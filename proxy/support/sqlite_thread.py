"""A SQLite connection in a thread of its own, so that the event loop never waits for the disk or for another process.
Errors of SQLite are raised to the caller unchanged."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

LOOK_AGAIN_S: Final = 0.005

_CONTENDED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""Error codes of SQLite when another connection does the same at the same time."""

T = TypeVar("T")


class SqliteThread:
    """A thread called `name` with a SQLite connection, which `connect` opens on first use."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self.closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._connect = connect
        self._db: sqlite3.Connection | None = None
        """Opened, used and closed in the thread only."""

    def begin(self, work: Callable[[], None]) -> None:
        """Starts `work`, which must not raise, in the thread and returns at once."""
        self._thread.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`, which runs in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Closes the connection and ends the thread after all earlier work is done. May be called twice."""
        if not self.closed:
            self.closed = True
            try:
                await self.run(self.disconnect)
            finally:
                self._thread.shutdown(wait=False)

    # --- in the thread ----------------------------------------------------------------------------------------------

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, opened if necessary. Use it in the thread only. Raises what `connect` raises."""
        if self._db is None:
            self._db = self._connect()
        return self._db

    def disconnect(self) -> None:
        """Closes the connection; the next use opens a new one. Call it in the thread only."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def write_ahead(db: sqlite3.Connection, patience_s: float) -> bool:
    """Switches the database to a write-ahead log. Returns False if its file cannot have one (not on a local disk).
    Raises `sqlite3.OperationalError`.

    When several processes open a new file at once, SQLite fails in all but one without waiting; this retries for
    `patience_s` seconds.
    """
    give_up = time.monotonic() + patience_s
    while True:
        try:
            mode: tuple[str] = db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _CONTENDED or time.monotonic() > give_up:
                raise
            time.sleep(LOOK_AGAIN_S)
        else:
            return mode == ("wal",)
