"""The tables of the SQLite store, and the check that a file has them. `sqlite.py` explains what they hold."""

from __future__ import annotations

import sqlite3
from typing import Final

from .base import StoreUnavailable

APPLICATION: Final = 0x746F6F6C
"""SQLite's application id of the file ("tool")."""
LAYOUT: Final = 3
"""The version of the layout (`PRAGMA user_version`)."""
SCHEMA: Final = (
    # `place` grows with each put. Columns that change later are in `lives`, without the turn's text; `used`
    # grows with each use. Triggers maintain the sums: counting rows in each put would cost more than the put.
    """CREATE TABLE turns (
        place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, expires REAL NOT NULL, bytes INTEGER NOT NULL,
        head INTEGER, turn BLOB NOT NULL
    )""",
    """CREATE TABLE lives (
        place INTEGER PRIMARY KEY, owner TEXT NOT NULL, expires REAL NOT NULL, used INTEGER NOT NULL, bytes INTEGER NOT NULL
    )""",
    "CREATE INDEX lives_by_expiry ON lives (expires)",
    # `length` includes the texts before; `uses` counts turns and texts that begin with this one.
    """CREATE TABLE shared (
        id INTEGER PRIMARY KEY, owner TEXT NOT NULL, before INTEGER, length INTEGER NOT NULL, uses INTEGER NOT NULL
    )""",
    "CREATE TABLE texts (id INTEGER PRIMARY KEY, text BLOB NOT NULL)",
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
        UPDATE shared SET uses = uses + 1 WHERE id = new.head;
    END""",
    """CREATE TRIGGER turn_moves AFTER UPDATE OF head ON turns WHEN old.head IS NOT new.head BEGIN
        UPDATE shared SET uses = uses + 1 WHERE id = new.head;
        UPDATE shared SET uses = uses - 1 WHERE id = old.head;
    END""",
    """CREATE TRIGGER text_unused AFTER UPDATE OF uses ON shared WHEN new.uses = 0 BEGIN
        DELETE FROM texts WHERE id = new.id;
        DELETE FROM shared WHERE id = new.id;
        UPDATE shared SET uses = uses - 1 WHERE id = new.before;
    END""",
    """CREATE TRIGGER turn_out AFTER DELETE ON turns BEGIN
        UPDATE total SET turns = turns - 1, bytes = bytes - old.bytes;
        UPDATE owners SET turns = turns - 1, bytes = bytes - old.bytes
            WHERE owner = (SELECT owner FROM lives WHERE place = old.place);
        DELETE FROM owners WHERE turns = 0 AND owner = (SELECT owner FROM lives WHERE place = old.place);
        DELETE FROM lives WHERE place = old.place;
        UPDATE shared SET uses = uses - 1 WHERE id = old.head;
    END""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {LAYOUT}",
)
"""Creates the tables of a new file, whose version is 0."""


def check_ours(db: sqlite3.Connection) -> None:
    """Raises `StoreUnavailable` for a database of another program. Writes nothing."""
    # The order matters: another process may be creating the file, which writes both in one transaction.
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


def create_tables(db: sqlite3.Connection) -> None:
    """Creates the tables in a new file. Takes the write lock, so that a read-only file is detected at once."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) == 0:
            for statement in SCHEMA:
                db.execute(statement)
