"""Stores turns in a SQLite file, shared by the worker processes of one machine. The default store (R12.1).

Rules of this module:

1. One thread does all work with the file, so the event loop never waits for the disk. Turns are encoded and decoded
   there.
2. A change is one transaction, with a write lock from its first statement on (`BEGIN IMMEDIATE`), so processes wait for
   each other. A put, its prolongations and the turns that it pushes out are one change. Puts that arrive while another
   one is written are written together, and each returns when all are written (group commit).
3. The journal is a write-ahead log with `synchronous=NORMAL`: killing a process loses nothing; a power cut may lose the
   last turns but never damages the file.
4. The file belongs to the user that runs the gateway, with mode 0600.
5. The layout has a version. A file of another version or another program is refused and left unchanged.
6. What turns of a conversation share is written once (`Beginning`): a turn's row has its last part, and `head` names
   the text before it. A text may itself continue an earlier one. A text is deleted with the last turn or text that
   needs it. The bounds count each turn in full, as it is read.

Reasons and costs: docs/adr/0034.
"""

from __future__ import annotations

import math
import os
import secrets
import sqlite3
import time
from asyncio import AbstractEventLoop, Future, get_running_loop, wait
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from ..protocols.shared.turn import Beginning, Place, StoredTurn
from ..support.sqlite_thread import SqliteThread, write_ahead
from .base import Change, ReadBudget, ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, WIRE_FORM_KEY, check_bounds, decode, encode_rest, key_of, with_expiry
from .sqlite_layout import check_ours, create_tables

T = TypeVar("T")

MAX_BYTES: Final = 4 * 1024 * 1024 * 1024
BUSY_TIMEOUT_S: Final = 5.0
"""How long a call waits while another process writes."""
BUSY_AGAIN_S: Final = 0.05
"""How long calls wait in the `BUSY_TIMEOUT_S` after one that waited in vain, until one has written. Calls wait in turn,
so longer waits would add up to minutes."""
LOG_BYTES: Final = 16 * 1024 * 1024
"""The write-ahead log is truncated to this size after a checkpoint."""

_NEW: Final = """INSERT INTO turns (key, expires, bytes, head, turn, owner) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO NOTHING"""
_THERE: Final = "SELECT place, lives.owner, lives.bytes FROM turns JOIN lives USING (place) WHERE key = ?"
_SIZE: Final = """SELECT lives.bytes FROM turns JOIN lives USING (place) WHERE key = ? AND lives.expires > ?"""
_LIVES_ON: Final = "UPDATE lives SET expires = ?, bytes = ?, used = (SELECT uses FROM total) WHERE place = ?"
_OWNS: Final = "UPDATE owners SET bytes = bytes + ?, last = (SELECT uses FROM total) WHERE owner = ?"
_PROLONG: Final = """UPDATE lives SET expires = max(expires, ?), used = ?
    WHERE place = (SELECT place FROM turns WHERE key = ?) AND expires > ?"""
_OLDEST: Final = "DELETE FROM turns WHERE place = (SELECT place FROM lives WHERE owner = ? ORDER BY used LIMIT 1)"
_MOST: Final = "SELECT owner FROM owners WHERE owner IS NOT ? OR turns > 1 ORDER BY {} DESC, last LIMIT 1"
"""Selects the owner with the most turns or bytes, but not the owner of the new turn if it is the owner's only one."""
_TEXTS: Final = """WITH RECURSIVE parts (id, before, number) AS (
        SELECT id, before, 0 FROM shared WHERE id = ?
        UNION ALL SELECT shared.id, shared.before, number + 1 FROM shared JOIN parts ON shared.id = parts.before
    ) SELECT text FROM parts JOIN texts USING (id) ORDER BY number DESC"""
MOST_TEXTS: Final = 64
"""Maximum number of texts of one turn. The text after them is written in full, so that turns are read and deleted in a
bounded number of steps."""
LINGER_S: Final = 0.002
"""Puts that arrive within this time after a transaction wait for others, because a transaction costs as much as a
request."""
ASKED_AT_ONCE: Final = 500
"""Maximum number of keys per statement. Older versions of SQLite allow 999 values."""

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
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_PASSING: Final = (sqlite3.SQLITE_FULL, *_LOCKED)
"""Temporary errors. After any other error the file is reopened, because the connection may be unusable."""


class SqliteStore(ResponseStore):
    """Turns in the file `path`, whose folder is created if necessary.

    At most `max_turns`, at most `max_turns_per_owner` of one owner, and at most `max_bytes` in total; the file itself
    is somewhat larger and does not shrink. `now` returns Unix seconds. After a failed `start` the store can still be
    used: each call tries to open the file again.
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
        self._busy_timeout_s = self._timeout_s = busy_timeout_s
        self._locked_until = -math.inf  # by the monotonic clock; used in the thread only, as `_timeout_s`
        self._now = now
        self._thread = SqliteThread("toolwire-store", self._connect)
        self._waiting: list[_Put] = []
        self._writing: list[_Put] = []
        self._wrote = -math.inf  # when the last transaction was over, by the loop's clock

    async def start(self) -> None:
        await self._call(lambda _: None)

    async def close(self) -> None:
        while pending := [put.done for put in (*self._writing, *self._waiting) if put.done and not put.done.done()]:
            await wait(pending)
        await self._thread.close()

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        if self._thread.closed:
            raise StoreUnavailable("the store is closed")
        loop = get_running_loop()
        done = loop.create_future()
        self._waiting.append(_Put(turn, done, prolongs))
        if len(self._waiting) == 1 and not self._writing:
            self._schedule_write(loop)
        await done

    async def change(self, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        return await self._call(lambda db: self._change(db, turn_id, owner, work))

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        keys = [key_of(turn_id, owner) for turn_id in turn_ids]
        await self._call(lambda db: self._prolong(db, keys, expires))

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        keys = {key_of(*each): each for each in turns}
        there = await self._call(lambda db: self._present(db, list(keys)))
        return {keys[key] for key in there}

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        return await self._call(lambda db: self._get(db, turn_id, owner, budget))

    async def get_many(
        self, turn_ids: Sequence[str], owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        return await self._call(lambda db: self._get_many(db, turn_ids, owner, budget))

    async def delete(self, turn_id: str, owner: str) -> bool:
        return await self._call(lambda db: self._delete(db, turn_id, owner))

    async def prune(self, now: float) -> int:
        return await self._call(lambda db: self._prune(db, now))

    def _schedule_write(self, loop: AbstractEventLoop) -> None:
        """Schedules writing the waiting puts: at once if the last transaction is long enough ago, else after a short
        delay, together with puts that arrive meanwhile."""
        wait = self._wrote + LINGER_S - loop.time()
        if wait > 0:
            loop.call_later(wait, self._write_waiting, loop)
        else:
            loop.call_soon(self._write_waiting, loop)

    def _write_waiting(self, loop: AbstractEventLoop) -> None:
        """Writes the waiting puts in the thread, then those that arrived meanwhile."""
        self._writing, self._waiting = self._waiting, []

        def written() -> None:
            for put in self._writing:
                put.tell()
            self._writing = []
            self._wrote = loop.time()
            if self._waiting:
                self._schedule_write(loop)

        def work() -> None:
            self._write(self._writing)
            with suppress(RuntimeError):  # the event loop is closed, and all waiting tasks with it
                loop.call_soon_threadsafe(written)

        self._thread.begin(work)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _write(self, puts: Sequence[_Put]) -> None:
        """Writes these puts in one transaction. If that fails, writes each by itself, so that one bad put does not fail
        the others; unless the file is locked, which fails all."""
        for put in puts:
            try:
                put.rest = encode_rest(put.turn, self._max_turn_bytes)
            except Exception as error:
                put.error = error
        good = [put for put in puts if put.error is None]
        if not good:
            return
        for together in ([good], [[put] for put in good]):
            for some in together:
                before = self._locked_until
                try:
                    self._with_store_errors(lambda db, some=some: self._put(db, some))  # type: ignore[misc]
                except Exception as error:
                    if len(some) == 1 or self._locked_until > before:
                        for put in some:
                            put.error = error
                else:
                    for put in some:
                        put.written = True
                        if put.turn.beginning is not None:
                            put.turn.beginning.written.place = put.place
            if all(put.written or put.error is not None for put in good):
                return

    def _put(self, db: sqlite3.Connection, puts: Sequence[_Put]) -> None:
        with db:
            db.execute("BEGIN IMMEDIATE")
            self._put_in(db, puts)

    def _put_in(self, db: sqlite3.Connection, puts: Sequence[_Put]) -> None:
        """Writes puts within the current transaction."""
        turns, size = db.execute("SELECT turns, bytes FROM total").fetchone()
        size += sum(put.size for put in puts)
        fits = turns + len(puts) <= self._max_turns and size <= self._max_bytes
        for put in puts:
            turn = put.turn
            if turn.ancestors and put.prolongs:
                self._use(db, [key_of(ancestor, turn.owner) for ancestor in turn.ancestors], turn.expires)
            key = key_of(turn.id, turn.owner)
            if turn.beginning is not None:
                put.place = self._store_beginning(db, turn.owner, turn.beginning)
            head = None if put.place is None else put.place.id
            if not db.execute(_NEW, (key, turn.expires, put.size, head, put.rest, turn.owner)).rowcount:
                self._replace(db, key, head, put)
            if self._max_turns_per_owner < self._max_turns:
                self._trim_owner(db, turn.owner)
            if not fits:
                self._trim(db, turn.owner)

    def _change(self, db: sqlite3.Connection, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        with db:
            db.execute("BEGIN IMMEDIATE")
            turn = work(self._read(db, turn_id, owner, None))
            if turn is not None:
                put = _Put(turn)
                put.rest = encode_rest(turn, self._max_turn_bytes)
                self._put_in(db, [put])
            return turn

    def _store_beginning(self, db: sqlite3.Connection, owner: str, beginning: Beginning) -> Place:
        """Returns the place of a turn's beginning, which is written if necessary."""
        length = len(WIRE_FORM_KEY) + beginning.length
        before = beginning.before
        for known in (beginning.written.place, before):
            if known is not None and known.length == length and self._has(db, owner, known):
                return known
        if before is None or before.texts >= MOST_TEXTS or not self._has(db, owner, before):
            before = None
        pieces = (WIRE_FORM_KEY, *beginning.pieces) if before is None else beginning.pieces[before.pieces :]
        ident = secrets.randbits(62)  # a place is never that of another text, not even after the file was replaced
        earlier = None if before is None else before.id
        db.execute("INSERT INTO shared VALUES (?, ?, ?, ?, 0)", (ident, owner, earlier, length))
        db.execute("INSERT INTO texts VALUES (?, ?)", (ident, b"".join(pieces)))
        db.execute("UPDATE shared SET uses = uses + 1 WHERE id = ?", (earlier,))
        return Place(ident, 1 if before is None else before.texts + 1, len(beginning.pieces), length)

    def _has(self, db: sqlite3.Connection, owner: str, place: Place) -> bool:
        """Returns True if the text at `place` still exists."""
        row = db.execute(
            "SELECT 1 FROM shared WHERE id = ? AND owner = ? AND length = ?", (place.id, owner, place.length)
        )
        return row.fetchone() is not None

    def _replace(self, db: sqlite3.Connection, key: str, head: int | None, put: _Put) -> None:
        """Updates an existing row. This costs half of deleting and inserting it."""
        place, owner, size = db.execute(_THERE, (key,)).fetchone()
        expires = put.turn.expires
        db.execute(
            "UPDATE turns SET expires = ?, bytes = ?, head = ?, turn = ? WHERE place = ?",
            (expires, put.size, head, put.rest, place),
        )
        db.execute("UPDATE total SET bytes = bytes + ?, uses = uses + 1", (put.size - size,))
        db.execute(_LIVES_ON, (expires, put.size, place))
        db.execute(_OWNS, (put.size - size, owner))

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

    def _get(self, db: sqlite3.Connection, turn_id: str, owner: str, budget: ReadBudget | None) -> StoredTurn | None:
        if budget is not None:
            budget.take_bytes(self._size(db, [turn_id], owner))
        return self._read(db, turn_id, owner, budget)

    def _read(self, db: sqlite3.Connection, turn_id: str, owner: str, budget: ReadBudget | None) -> StoredTurn | None:
        row = db.execute(
            "SELECT turn, head, lives.expires FROM turns JOIN lives USING (place) WHERE key = ? AND lives.expires > ?",
            (key_of(turn_id, owner), self._now()),
        ).fetchone()
        if row is None:
            return None
        last, head, expires = row
        text = last if head is None else b"".join((*[piece for (piece,) in db.execute(_TEXTS, (head,))], last))
        return with_expiry(decode(text, budget), expires)

    def _size(self, db: sqlite3.Connection, turn_ids: Sequence[str], owner: str) -> int:
        """Returns the total size of those of the turns that exist."""
        now = self._now()
        rows = (db.execute(_SIZE, (key_of(turn_id, owner), now)).fetchone() for turn_id in turn_ids)
        return sum(row[0] for row in rows if row is not None)

    def _get_many(
        self, db: sqlite3.Connection, turn_ids: Sequence[str], owner: str, budget: ReadBudget | None
    ) -> tuple[StoredTurn, ...] | None:
        turns: list[StoredTurn] = []
        with db:
            db.execute("BEGIN")
            if budget is not None:
                budget.take_bytes(self._size(db, turn_ids, owner))
            for turn_id in turn_ids:  # a lookup takes microseconds, unlike a network round trip
                turn = self._read(db, turn_id, owner, budget)
                if turn is None:
                    return None
                turns.append(turn)
        return tuple(turns)

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
        """Removes turns beyond the bounds, but never the one just put by the owner `putting`. Returns their number."""
        removed = 0
        while True:
            turns, size = db.execute("SELECT turns, bytes FROM total").fetchone()
            if turns <= self._max_turns and size <= self._max_bytes:
                return removed
            most = _MOST.format("turns" if turns > self._max_turns else "bytes")
            row = db.execute(most, (putting,)).fetchone()
            if row is None or not db.execute(_OLDEST, row).rowcount:
                raise StoreUnavailable(_FAULTS[sqlite3.SQLITE_CORRUPT])  # the sums count turns that do not exist
            removed += 1

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` in the thread. Raises `StoreUnavailable`."""
        if self._thread.closed:
            raise StoreUnavailable("the store is closed")
        return await self._thread.run(lambda: self._with_store_errors(work))

    def _with_store_errors(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db = self._thread.db
            if (patience_s := self._patience_s()) != self._timeout_s:
                self._timeout_s = patience_s
                db.execute(f"PRAGMA busy_timeout = {patience_s * 1000:.0f}")
            changes = db.total_changes
            made = work(db)
            if db.total_changes > changes:
                self._locked_until = -math.inf  # unlocked: a short lock of another worker is worth waiting for again
            return made
        except sqlite3.Error as error:
            if not hasattr(error, "sqlite_errorcode"):
                raise  # a wrong use of the module, not an error of the file
            code = error.sqlite_errorcode & 0xFF
            if code in _LOCKED:
                self._locked_until = time.monotonic() + self._busy_timeout_s
            if code not in _PASSING:
                self._thread.disconnect()
            raise StoreUnavailable(
                _FAULTS.get(code, f"the store's file cannot be used ({error.sqlite_errorname})")
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"the store's file cannot be opened: {error.strerror}") from error

    def _patience_s(self) -> float:
        """Returns how long the next call waits while another process writes."""
        locked = time.monotonic() < self._locked_until
        return min(BUSY_AGAIN_S, self._busy_timeout_s) if locked else self._busy_timeout_s

    def _connect(self) -> sqlite3.Connection:
        self._own_file()
        self._timeout_s = self._patience_s()
        db = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None)
        try:
            check_ours(db)
            if not write_ahead(db, self._timeout_s):
                raise StoreUnavailable("the store's file must be on a local disk, where it can have a write-ahead log")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            db.execute("PRAGMA recursive_triggers = ON")  # so that replaced rows fire the delete trigger
            create_tables(db)
        except BaseException:
            db.close()
            raise
        return db

    def _own_file(self) -> None:
        """Creates the file, or removes access for other users. An existing file is not opened here: closing it would
        drop the locks that another connection of this process holds."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            if not self._path.is_file():
                raise StoreUnavailable("the store's path is not that of a file") from None
            with suppress(PermissionError):  # another user's file; opening it fails later if that is not allowed
                self._path.chmod(0o600)


class _Put:
    """A turn that waits to be written. `done` is set when it was written, or to the error. `rest` is its JSON
    after its beginning, and `place` is where that is stored."""

    __slots__ = ("done", "error", "place", "prolongs", "rest", "turn", "written")

    def __init__(self, turn: StoredTurn, done: Future[None] | None = None, prolongs: bool = True) -> None:
        self.turn = turn
        self.prolongs = prolongs
        self.done = done
        self.rest = b""
        self.place: Place | None = None
        self.written = False
        self.error: Exception | None = None

    @property
    def size(self) -> int:
        """The number of bytes of the turn's whole JSON."""
        beginning = self.turn.beginning
        return len(self.rest) + (0 if beginning is None else len(WIRE_FORM_KEY) + beginning.length)

    def tell(self) -> None:
        """Sets the result of `done`."""
        if self.done is None or self.done.done():
            return  # the caller was cancelled
        if self.error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self.error)
