"""Counts in a SQLite file, shared by the workers of one gateway.

Rules of this module:

1. The file lives only as long as the gateway and holds nothing of lasting value. So times are those of the machine's
   monotonic clock, which all processes share, and writes do not wait for the disk (`synchronous=OFF`).
2. One thread does all work with the file: a worker that is stopped within a transaction makes the others wait, which
   must not block their event loops.
3. Each booking is one transaction, with a write lock from its first statement on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from ..support.sqlite_thread import SqliteThread, write_ahead
from .base import LEASE_S, Booking, Bound, Change, Ledger, LedgerUnavailable, fits

T = TypeVar("T")

LAYOUT: Final = """
CREATE TABLE IF NOT EXISTS levels (account TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    account TEXT NOT NULL, lease TEXT NOT NULL, expires REAL NOT NULL, PRIMARY KEY (account, lease)
) WITHOUT ROWID;
"""
_SET_LEVEL: Final = "INSERT OR REPLACE INTO levels VALUES (?, ?, ?)"
_SET_LEASE: Final = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)"


class SqliteLedger(Ledger):
    """Counts in the file `path`. A call that waits longer than `timeout_s` for another worker fails. `now` returns
    seconds."""

    def __init__(self, path: Path, *, timeout_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._now = now
        self._thread = SqliteThread("toolwire-limits", self._connect)

    async def start(self) -> None:
        await self._call(self._probe)

    async def close(self) -> None:
        await self._thread.close()

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        return await self._call(lambda db: self._book(db, bounds, tokens, lease))

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        await self._call(lambda db: self._settle(db, made, lease))

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        leases = [(b.name, lease) for lease, bounds in held.items() for b in bounds if b.kind == "concurrent"]
        await self._call(lambda db: self._renew(db, leases))

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _probe(self, db: sqlite3.Connection) -> None:
        """Writes, because a file on a full disk can still be opened and locked."""
        db.execute(_SET_LEVEL, ("", 0.0, self._now()))

    def _book(self, db: sqlite3.Connection, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        now = self._now()
        used = [self._used(db, bound, now) for bound in bounds]
        if not fits(bounds, used, tokens):
            return Booking(False, tuple(used))
        for index, bound in enumerate(bounds):
            used[index] += bound.cost(tokens)
            if bound.kind == "concurrent":
                db.execute(_SET_LEASE, (bound.name, lease, now + LEASE_S))
            else:
                db.execute(_SET_LEVEL, (bound.name, used[index], now))
        return Booking(True, tuple(used))

    def _settle(self, db: sqlite3.Connection, made: Sequence[Change], lease: str) -> None:
        now = self._now()
        for bound, change in made:
            if bound.kind == "concurrent":
                db.execute("DELETE FROM leases WHERE account = ? AND lease = ?", (bound.name, lease))
            elif change:
                db.execute(_SET_LEVEL, (bound.name, max(0.0, self._used(db, bound, now) + change), now))

    def _renew(self, db: sqlite3.Connection, leases: Iterable[tuple[str, str]]) -> None:
        expires = self._now() + LEASE_S
        db.executemany(_SET_LEASE, ((account, lease, expires) for account, lease in leases))

    def _used(self, db: sqlite3.Connection, bound: Bound, now: float) -> float:
        if bound.kind == "concurrent":
            db.execute("DELETE FROM leases WHERE account = ? AND expires <= ?", (bound.name, now))
            row = db.execute("SELECT count(*) FROM leases WHERE account = ?", (bound.name,)).fetchone()
            return float(row[0])
        level, at = db.execute("SELECT level, at FROM levels WHERE account = ?", (bound.name,)).fetchone() or (0.0, now)
        return bound.drained(level, now - at)

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread.closed:
            raise LedgerUnavailable("the counts are closed")
        return await self._thread.run(lambda: self._do(work))

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in a transaction. Raises `LedgerUnavailable`."""
        try:
            db = self._thread.db
            with db:
                db.execute("BEGIN IMMEDIATE")
                return work(db)
        except sqlite3.Error as error:
            self._thread.disconnect()  # the connection may be unusable after an error
            raise LedgerUnavailable(f"the file of the counts cannot be used ({_name(error)})") from None

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None)
        try:
            write_ahead(db, self._timeout_s)
            db.execute("PRAGMA synchronous = OFF")
            db.executescript(LAYOUT)
        except sqlite3.Error:
            db.close()
            raise
        return db


def _name(error: sqlite3.Error) -> str:
    name: str = getattr(error, "sqlite_errorname", type(error).__name__)  # only errors of SQLite itself have it
    return name
