"""Keeps turns in a file of SQLite, shared by the worker processes of one machine. The default store (R12.1).

Rules of this module:

1. One thread of its own does everything with the file, so the event loop never waits for a disk. Turns are encoded and
   decoded there as well.
2. A change is one transaction, taken for writing from its first statement on (`BEGIN IMMEDIATE`): two processes wait
   for each other and never meet half-way. A put, what it prolongs and what it pushes out are one change. Puts that wait
   while another one is written are written together, and each returns when all of them are (group commit).
3. The journal is a write-ahead log with `synchronous=NORMAL`: nothing is lost or torn when a process is killed; a power
   cut may lose the last turns and never damages the file.
4. The file belongs to the user that runs the gateway and nobody else may read it (mode 0600).
5. The layout has a version. A file of another version, or of another program, is refused untouched.

Why, and what it costs: docs/adr/0005.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from asyncio import AbstractEventLoop, Future, get_running_loop, wait
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from ..protocols.turn import Turn
from ..support.sqlite_thread import SqliteThread, write_ahead
from .base import Change, ReadBudget, ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decode, encode, key_of, living_until

T = TypeVar("T")

MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
BUSY_TIMEOUT_S: Final = 5.0
"""How long a call waits while another process writes."""
LOG_BYTES: Final = 16 * 1024 * 1024
"""The write-ahead log is cut back to this size after a checkpoint."""

APPLICATION: Final = 0x746F6F6C
"""Marks the file as ours ("tool")."""
LAYOUT: Final = 2
"""The version of the layout, `PRAGMA user_version`."""
SCHEMA: Final = (
    # `place` grows with each put. What changes while a turn is kept stands beside it, in a row without its text; `used`
    # grows with each use. Sizes are summed up by triggers: counting the rows in each put would cost more than the put.
    """CREATE TABLE turns (
        place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, expires REAL NOT NULL, bytes INTEGER NOT NULL, turn BLOB NOT NULL
    )""",
    """CREATE TABLE lives (
        place INTEGER PRIMARY KEY, owner TEXT NOT NULL, expires REAL NOT NULL, used INTEGER NOT NULL, bytes INTEGER NOT NULL
    )""",
    "CREATE INDEX lives_by_expiry ON lives (expires)",
    "CREATE INDEX lives_by_use ON lives (owner, used)",
    """CREATE TABLE owners (
        owner TEXT PRIMARY KEY, turns INTEGER NOT NULL, bytes INTEGER NOT NULL, last INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE total (turns INTEGER NOT NULL, bytes INTEGER NOT NULL, uses INTEGER NOT NULL)",
    "INSERT INTO total VALUES (0, 0, 0)",
    """CREATE TRIGGER turn_in AFTER INSERT ON turns BEGIN
        UPDATE total SET turns = turns + 1, bytes = bytes + new.bytes, uses = uses + 1;
        INSERT INTO lives SELECT new.place, new.owner, new.expires, uses, new.bytes FROM total;
        INSERT INTO owners SELECT new.owner, 0, 0, 0 WHERE new.owner NOT IN (SELECT owner FROM owners);
        UPDATE owners SET turns = turns + 1, bytes = bytes + new.bytes, last = (SELECT uses FROM total)
            WHERE owner = new.owner;
    END""",
    """CREATE TRIGGER turn_out AFTER DELETE ON turns BEGIN
        UPDATE total SET turns = turns - 1, bytes = bytes - old.bytes;
        UPDATE owners SET turns = turns - 1, bytes = bytes - old.bytes
            WHERE owner = (SELECT owner FROM lives WHERE place = old.place);
        DELETE FROM owners WHERE turns = 0 AND owner = (SELECT owner FROM lives WHERE place = old.place);
        DELETE FROM lives WHERE place = old.place;
    END""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {LAYOUT}",
)
"""What makes a new file, whose version is 0."""

_NEW: Final = """INSERT INTO turns (key, expires, bytes, turn, owner) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key) DO NOTHING"""
_THERE: Final = "SELECT place, lives.owner, lives.bytes FROM turns JOIN lives USING (place) WHERE key = ?"
_SIZE: Final = """SELECT lives.bytes FROM turns JOIN lives USING (place) WHERE key = ? AND lives.expires > ?"""
_LIVES_ON: Final = "UPDATE lives SET expires = ?, bytes = ?, used = (SELECT uses FROM total) WHERE place = ?"
_OWNS: Final = "UPDATE owners SET bytes = bytes + ?, last = (SELECT uses FROM total) WHERE owner = ?"
_PROLONG: Final = """UPDATE lives SET expires = max(expires, ?), used = ?
    WHERE place = (SELECT place FROM turns WHERE key = ?) AND expires > ?"""
_OLDEST: Final = "DELETE FROM turns WHERE place = (SELECT place FROM lives WHERE owner = ? ORDER BY used LIMIT 1)"
_MOST: Final = "SELECT owner FROM owners WHERE owner IS NOT ? OR turns > 1 ORDER BY {} DESC, last LIMIT 1"
"""The owner who has the most; never the one who just put all that is his."""
LINGER_S: Final = 0.002
"""So long after a transaction what comes then waits for others: a transaction of its own costs as much as a request."""
ASKED_AT_ONCE: Final = 500
"""Older versions of SQLite take no more than 999 values in a statement."""

_FAULTS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the store's file or its folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "the store's file cannot be opened",
    sqlite3.SQLITE_PERM: "the store's file may not be opened",
    sqlite3.SQLITE_BUSY: "another program holds the store's file locked",
    sqlite3.SQLITE_LOCKED: "another program holds the store's file locked",
    sqlite3.SQLITE_NOTADB: "the store's file is not a database",
    sqlite3.SQLITE_CORRUPT: "the store's file is damaged",
    sqlite3.SQLITE_IOERR: "reading or writing the store's file failed",
}
_PASSING: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""After any other fault the file is opened anew: a connection may not get over it."""


class SqliteStore(ResponseStore):
    """Turns in the file `path`, whose folder is made if it is missing.

    At most `max_turns`, of one owner at most `max_turns_per_owner`, and at most `max_bytes` of all together; the file
    itself is somewhat larger and does not shrink. `now` gives Unix seconds. If `start` fails the store may be used all
    the same: each call tries to open the file again.
    """

    shared = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_turns: int = MAX_TURNS,
        *,
        max_turns_per_owner: int | None = None,
        max_bytes: int = MAX_BYTES,
        max_turn_bytes: int = MAX_TURN_BYTES,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_turns_per_owner, max_bytes, max_turn_bytes)
        self._path = Path(path).expanduser()
        self._max_turns = max_turns
        self._max_turns_per_owner = max_turns if max_turns_per_owner is None else max_turns_per_owner
        self._max_bytes = max_bytes
        self._max_turn_bytes = min(max_turn_bytes, max_bytes)
        self._busy_timeout_s = busy_timeout_s
        self._now = now
        self._thread = SqliteThread("toolwire-store", self._connect)
        self._waiting: list[_Put] = []
        self._writing: list[_Put] = []
        self._wrote = -math.inf  # when the last transaction was over, by the loop's clock

    async def start(self) -> None:
        await self._call(lambda _: None)

    async def close(self) -> None:
        while pending := [put.done for put in (*self._writing, *self._waiting) if not put.done.done()]:
            await wait(pending)
        await self._thread.close()

    async def put(self, turn: Turn) -> None:
        if self._thread.closed:
            raise StoreUnavailable("the store is closed")
        loop = get_running_loop()
        put = _Put(turn, loop.create_future())
        self._waiting.append(put)
        if len(self._waiting) == 1 and not self._writing:
            self._soon(loop)
        await put.done

    async def change(self, turn_id: str, owner: str, work: Change) -> Turn | None:
        return await self._call(lambda db: self._change(db, turn_id, owner, work))

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        keys = [key_of(turn_id, owner) for turn_id in turn_ids]
        await self._call(lambda db: self._prolong(db, keys, expires))

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        keys = {key_of(*each): each for each in turns}
        there = await self._call(lambda db: self._present(db, list(keys)))
        return {keys[key] for key in there}

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> Turn | None:
        return await self._call(lambda db: self._get(db, turn_id, owner, budget))

    async def get_chain(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> tuple[Turn, ...] | None:
        return await self._call(lambda db: self._get_chain(db, turn_id, owner, budget))

    async def delete(self, turn_id: str, owner: str) -> bool:
        return await self._call(lambda db: self._delete(db, turn_id, owner))

    async def prune(self, now: float) -> int:
        return await self._call(lambda db: self._prune(db, now))

    def _soon(self, loop: AbstractEventLoop) -> None:
        """Write what waits: at once where that is rare, else with those who come in the next moment."""
        wait = self._wrote + LINGER_S - loop.time()
        if wait > 0:
            loop.call_later(wait, self._write_waiting, loop)
        else:
            loop.call_soon(self._write_waiting, loop)

    def _write_waiting(self, loop: AbstractEventLoop) -> None:
        """Let the thread write what waits, and then what waits by then."""
        self._writing, self._waiting = self._waiting, []

        def written() -> None:
            for put in self._writing:
                put.tell()
            self._writing = []
            self._wrote = loop.time()
            if self._waiting:
                self._soon(loop)

        def work() -> None:
            self._write(self._writing)
            with suppress(RuntimeError):  # the loop is closed, and with it all who wait
                loop.call_soon_threadsafe(written)

        self._thread.begin(work)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _write(self, puts: Sequence[_Put]) -> None:
        """Write these in one transaction; if that fails, each by itself, so that nobody fails for another."""
        for put in puts:
            try:
                put.text = encode(put.turn, self._max_turn_bytes)
            except Exception as error:
                put.error = error
        good = [put for put in puts if put.error is None]
        if not good:
            return
        for together in ([good], [[put] for put in good]):
            for some in together:
                try:
                    self._guarded(lambda db, some=some: self._put(db, some))  # type: ignore[misc]
                except Exception as error:
                    if len(some) == 1:
                        some[0].error = error
                else:
                    for put in some:
                        put.written = True
            if all(put.written or put.error is not None for put in good):
                return

    def _put(self, db: sqlite3.Connection, puts: Sequence[_Put]) -> None:
        with db:
            db.execute("BEGIN IMMEDIATE")
            self._put_in(db, [(put.turn, put.text) for put in puts])

    def _put_in(self, db: sqlite3.Connection, puts: Sequence[tuple[Turn, bytes]]) -> None:
        """In the transaction that was begun."""
        turns, size = db.execute("SELECT turns, bytes FROM total").fetchone()
        size += sum(len(text) for _, text in puts)
        fits = turns + len(puts) <= self._max_turns and size <= self._max_bytes
        for turn, text in puts:
            if turn.ancestors:
                self._use(db, [key_of(ancestor, turn.owner) for ancestor in turn.ancestors], turn.expires)
            key = key_of(turn.id, turn.owner)
            if not db.execute(_NEW, (key, turn.expires, len(text), text, turn.owner)).rowcount:
                self._replace(db, key, turn.expires, text)
            if self._max_turns_per_owner < self._max_turns:
                self._trim_owner(db, turn.owner)
            if not fits:
                self._trim(db, turn.owner)

    def _change(self, db: sqlite3.Connection, turn_id: str, owner: str, work: Change) -> Turn | None:
        with db:
            db.execute("BEGIN IMMEDIATE")
            turn = work(self._read(db, turn_id, owner, None))
            if turn is not None:
                self._put_in(db, [(turn, encode(turn, self._max_turn_bytes))])
            return turn

    def _replace(self, db: sqlite3.Connection, key: str, expires: float, text: bytes) -> None:
        """Put it in the place of what stands there, which takes half of what taking that out and this in would."""
        place, owner, size = db.execute(_THERE, (key,)).fetchone()
        db.execute(
            "UPDATE turns SET expires = ?, bytes = ?, turn = ? WHERE place = ?", (expires, len(text), text, place)
        )
        db.execute("UPDATE total SET bytes = bytes + ?, uses = uses + 1", (len(text) - size,))
        db.execute(_LIVES_ON, (expires, len(text), place))
        db.execute(_OWNS, (len(text) - size, owner))

    def _prolong(self, db: sqlite3.Connection, keys: Sequence[str], expires: float) -> None:
        with db:
            db.execute("BEGIN IMMEDIATE")
            self._use(db, keys, expires)

    def _use(self, db: sqlite3.Connection, keys: Sequence[str], expires: float) -> None:
        (uses,) = db.execute("SELECT uses FROM total").fetchone()
        now = self._now()
        db.executemany(_PROLONG, [(expires, uses + number, key, now) for number, key in enumerate(keys, 1)])
        db.execute("UPDATE total SET uses = uses + ?", (len(keys),))

    def _present(self, db: sqlite3.Connection, keys: Sequence[str]) -> list[str]:
        there: list[str] = []
        for at in range(0, len(keys), ASKED_AT_ONCE):
            some = keys[at : at + ASKED_AT_ONCE]
            marks = ", ".join("?" * len(some))
            there += [
                key
                for (key,) in db.execute(
                    f"SELECT key FROM turns JOIN lives USING (place) WHERE key IN ({marks}) AND lives.expires > ?",
                    (*some, self._now()),
                )
            ]
        return there

    def _get(self, db: sqlite3.Connection, turn_id: str, owner: str, budget: ReadBudget | None) -> Turn | None:
        if budget is not None:
            budget.take_bytes(self._size(db, [turn_id], owner))
        return self._read(db, turn_id, owner, budget)

    def _read(self, db: sqlite3.Connection, turn_id: str, owner: str, budget: ReadBudget | None) -> Turn | None:
        row = db.execute(
            "SELECT turn, lives.expires FROM turns JOIN lives USING (place) WHERE key = ? AND lives.expires > ?",
            (key_of(turn_id, owner), self._now()),
        ).fetchone()
        return None if row is None else living_until(decode(row[0], budget), row[1])

    def _size(self, db: sqlite3.Connection, turn_ids: Sequence[str], owner: str) -> int:
        """The bytes of these turns together, as far as they are there."""
        now = self._now()
        rows = (db.execute(_SIZE, (key_of(turn_id, owner), now)).fetchone() for turn_id in turn_ids)
        return sum(row[0] for row in rows if row is not None)

    def _get_chain(
        self, db: sqlite3.Connection, turn_id: str, owner: str, budget: ReadBudget | None
    ) -> tuple[Turn, ...] | None:
        turns: list[Turn] = []
        with db:
            db.execute("BEGIN")
            last = self._get(db, turn_id, owner, budget)
            if last is None:
                return None
            if budget is not None:
                budget.take_bytes(self._size(db, last.ancestors, owner))
            for ancestor in last.ancestors:  # Look-ups here are microseconds, not round trips.
                turn = self._read(db, ancestor, owner, budget)
                if turn is None:
                    return None
                turns.append(turn)
        return (*turns, last)

    def _delete(self, db: sqlite3.Connection, turn_id: str, owner: str) -> bool:
        key = key_of(turn_id, owner)
        with db:
            db.execute("BEGIN IMMEDIATE")
            there = bool(self._present(db, [key]))
            db.execute("DELETE FROM turns WHERE key = ?", (key,))
        return there

    def _prune(self, db: sqlite3.Connection, now: float) -> int:
        with db:
            db.execute("BEGIN IMMEDIATE")
            expired = db.execute(
                "DELETE FROM turns WHERE place IN (SELECT place FROM lives WHERE expires <= ?)", (now,)
            ).rowcount
            return expired + self._trim(db, None)

    def _trim_owner(self, db: sqlite3.Connection, owner: str) -> None:
        (turns,) = db.execute("SELECT turns FROM owners WHERE owner = ?", (owner,)).fetchone()
        for _ in range(turns - self._max_turns_per_owner):
            db.execute(_OLDEST, (owner,))

    def _trim(self, db: sqlite3.Connection, putting: str | None) -> int:
        """Remove what is beyond the bounds, never the turn that was just put by the owner `putting`; how many."""
        gone = 0
        while True:
            turns, size = db.execute("SELECT turns, bytes FROM total").fetchone()
            if turns <= self._max_turns and size <= self._max_bytes:
                return gone
            most = _MOST.format("turns" if turns > self._max_turns else "bytes")
            found = db.execute(most, (putting,)).fetchone()
            if found is None or not db.execute(_OLDEST, found).rowcount:
                raise StoreUnavailable(_FAULTS[sqlite3.SQLITE_CORRUPT])  # The sum speaks of turns that are not there.
            gone += 1

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in the thread. Raises `StoreUnavailable`."""
        if self._thread.closed:
            raise StoreUnavailable("the store is closed")
        return await self._thread.run(lambda: self._guarded(work))

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._thread.db)
        except sqlite3.Error as error:
            if not hasattr(error, "sqlite_errorcode"):
                raise  # Not SQLite's word on the file but a wrong use of the module.
            code = error.sqlite_errorcode & 0xFF
            if code not in _PASSING:
                self._thread.hang_up()
            raise StoreUnavailable(
                _FAULTS.get(code, f"the store's file cannot be used ({error.sqlite_errorname})")
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"the store's file cannot be opened: {error.strerror}") from error

    def _connect(self) -> sqlite3.Connection:
        self._own_file()
        db = sqlite3.connect(self._path, timeout=self._busy_timeout_s, isolation_level=None)
        try:
            _check_ours(db)
            if not write_ahead(db, self._busy_timeout_s):
                raise StoreUnavailable("the store's file must be on a local disk, where it can have a write-ahead log")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            db.execute("PRAGMA recursive_triggers = ON")  # what is replaced is counted off
            _make(db)
        except BaseException:
            db.close()
            raise
        return db

    def _own_file(self) -> None:
        """Make the file, or take it away from others. An existing one is never opened here: closing it would drop the
        locks that another connection of this process has on it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            if not self._path.is_file():
                raise StoreUnavailable("the store's path is not that of a file") from None
            with suppress(PermissionError):  # Somebody else's file: whether we may use it is theirs to say.
                self._path.chmod(0o600)


class _Put:
    """A turn that waits to be written. `done` is when it is, or what went wrong."""

    __slots__ = ("done", "error", "text", "turn", "written")

    def __init__(self, turn: Turn, done: Future[None]) -> None:
        self.turn = turn
        self.done = done
        self.text = b""
        self.written = False
        self.error: Exception | None = None

    def tell(self) -> None:
        """It is over."""
        if self.done.done():
            return  # whoever put it has gone
        if self.error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self.error)


def _check_ours(db: sqlite3.Connection) -> None:
    """Raises `StoreUnavailable` for a database that we did not make; nothing is written before this."""
    # In this order: a process that makes the file now writes both at once.
    empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    if not empty and db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
        raise StoreUnavailable("the store's file is the database of another program")
    _version(db)


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, LAYOUT):
        raise StoreUnavailable(
            f"the store's file has layout {version}, and this version of the gateway uses layout {LAYOUT} only: "
            "move the file away, or run the version that made it"
        )
    return version


def _make(db: sqlite3.Connection) -> None:
    """Make the tables of a new file. Takes the file for writing, so that a read-only one is noticed at once."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) == 0:
            for statement in SCHEMA:
                db.execute(statement)
