"""The SQLite store where something is wrong: a folder, a file or a disk that cannot be used, damage, other programs."""

# ruff: noqa: ASYNC240  # The files are small, and nothing else runs in the loop.

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cases import every
from tests.store.test_sqlite import check
from tests.store.turns import Clock, turn
from tests.waiting import GUARD_S
from toolwire.store import sqlite
from toolwire.store.base import StoreUnavailable
from toolwire.store.encoding import TurnTooLarge
from toolwire.store.sqlite import SqliteStore
from toolwire.store.sqlite_layout import APPLICATION, LAYOUT, SCHEMA

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turns.sqlite3"


async def refuses(store: SqliteStore, message: str) -> None:
    """Starting and every call end in `StoreUnavailable`; closing does not."""
    for call in (store.start(), store.put(turn("resp_1")), store.get("resp_1", "alice"), store.prune(0)):
        with pytest.raises(StoreUnavailable) as caught:
            await call
        assert str(caught.value) == message
    await store.close()


def change(path: Path, statement: str) -> None:
    """What another program does to the file."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.fixture
def sealed() -> Iterator[Path]:
    """A folder with a store's file in it, neither of which this process may change: even root must not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(_fill(folder / "there.sqlite3"))
        (folder / "there.sqlite3").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


async def _fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.put(turn("resp_1"))
    await store.close()


async def test_a_folder_that_is_read_only(sealed: Path, clock: Clock) -> None:
    for path in (sealed / "new.sqlite3", sealed / "new" / "new.sqlite3"):
        await refuses(SqliteStore(path, now=clock), "the store's file cannot be opened: Permission denied")


async def test_a_file_that_is_read_only(sealed: Path, clock: Clock) -> None:
    store = SqliteStore(sealed / "there.sqlite3", now=clock)
    with pytest.raises(StoreUnavailable, match=r"^the store's file (or its folder is read-only|cannot be opened)$"):
        await store.start()
    await store.close()


LETTER = b"This is a letter to my grandmother.\n" * 200
NO_STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "the store's path is not that of a file"),
    "no database": (lambda path: path.write_bytes(LETTER), "the store's file is not a database"),
    "a database of another program": (
        lambda path: change(path, "CREATE TABLE letters (text)"),
        "the store's file is the database of another program",
    ),
}


@every("name", NO_STORES)
async def test_what_is_no_store_is_left_alone(tmp_path: Path, clock: Clock, name: str) -> None:
    make, message = NO_STORES[name]
    path = tmp_path / name
    make(path)
    before = path.stat().st_mode if path.is_dir() else path.read_bytes()
    await refuses(SqliteStore(path, now=clock), message)
    assert before == (path.stat().st_mode if path.is_dir() else path.read_bytes())


async def test_a_path_behind_a_file(path: Path, clock: Clock) -> None:
    path.touch()
    await refuses(SqliteStore(path / "x", now=clock), "the store's file cannot be opened: File exists")


async def test_a_file_of_another_layout(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock)
    await store.start()
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        assert db.execute("PRAGMA user_version").fetchone() == (LAYOUT,)
    for layout in (LAYOUT - 1, LAYOUT + 1):
        change(path, f"PRAGMA user_version = {layout}")
        before = path.read_bytes()
        await refuses(
            SqliteStore(path, now=clock),
            f"the store's file has layout {layout}, and this version of the gateway uses layout {LAYOUT} only: "
            "move the file away, or run the version that made it",
        )
        assert path.read_bytes() == before


async def test_what_waits_is_written_together(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction for all; and what cannot be written fails by itself."""
    store = SqliteStore(path, now=clock, max_turn_bytes=10_000)
    await store.start()
    gate = threading.Event()
    store._thread.begin(lambda: [gate.wait(GUARD_S)].clear())
    said: list[str] = []
    store._thread.begin(lambda: store._thread.db.set_trace_callback(said.append))
    puts = [
        asyncio.ensure_future(store.put(turn(f"resp_{i}", text="x" * (20_000 if i == 7 else 10)))) for i in range(20)
    ]
    await asyncio.sleep(0)
    assert not any(put.done() for put in puts)
    gate.set()
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(each) for each in ended] == [TurnTooLarge if i == 7 else type(None) for i in range(20)]
    assert sum(statement.startswith("BEGIN") for statement in said) == 1
    await store.close()
    assert check(path)[0] == 19


async def test_a_file_that_could_not_be_made_is_made_later(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("toolwire.store.sqlite_layout.SCHEMA", (*SCHEMA, "nonsense"))
        await refuses(SqliteStore(path, now=clock), "the store's file cannot be used (SQLITE_ERROR)")
    store = SqliteStore(path, now=clock)
    await store.put(turn("resp_1"))
    await store.close()
    assert check(path)[0] == 1


async def test_a_file_that_is_damaged_and_mended(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock)
    for i in range(50):
        await store.put(turn(f"resp_{i}", text="x" * 5000))
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    store = SqliteStore(path, now=clock)
    with pytest.raises(StoreUnavailable, match=r"^the store's file is damaged$"):
        await store.put(turn("resp_1"))
    path.write_bytes(whole)
    assert await store.get("resp_1", "alice") is not None
    await store.close()


async def test_a_sum_that_is_wrong_removes_nothing(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock)
    await store.put(turn("resp_1"))
    change(path, "UPDATE total SET turns = 1000000")
    with pytest.raises(StoreUnavailable, match=r"^the store's file is damaged$"):
        await store.put(turn("resp_2"))
    assert await store.get("resp_1", "alice") == turn("resp_1")
    await store.close()


async def test_a_turn_that_is_damaged(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock)
    await store.put(turn("resp_1"))
    await store.put(turn("resp_2"))
    change(path, "UPDATE turns SET turn = substr(turn, 1, 20) WHERE place = 1")
    with pytest.raises(StoreUnavailable, match="a stored response is damaged"):
        await store.get("resp_1", "alice")
    assert await store.get("resp_2", "alice") == turn("resp_2")
    await store.put(turn("resp_1"))
    assert await store.get("resp_1", "alice") == turn("resp_1")
    await store.close()


async def test_a_full_disk(path: Path, clock: Clock) -> None:
    """Stored turns stay readable, nothing is half written, and the store goes on when there is room again."""
    store = SqliteStore(path, now=clock)
    await store.put(turn("resp_1", status="in_progress"))

    def work(pages: int) -> Callable[[sqlite3.Connection], object]:
        return lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    await store._call(work(20))
    for large in (turn("resp_1", text="x" * 500_000), turn("resp_2", text="x" * 500_000)):
        with pytest.raises(StoreUnavailable, match=r"^the disk is full$"):
            await store.put(large)
    assert await store.get("resp_1", "alice") == turn("resp_1", status="in_progress")
    assert await store.get("resp_2", "alice") is None
    await store.put(turn("resp_3"))
    await store._call(work(1_000_000))
    await store.put(turn("resp_2", text="x" * 500_000))
    assert await store.get("resp_2", "alice") is not None
    await store.close()
    assert check(path)[0] == 3


async def test_a_lock_that_nobody_gives_back(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tried = 0.0, list[int]()
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: now))
    store = SqliteStore(path, now=clock, busy_timeout_s=0.1)
    write = store._put
    monkeypatch.setattr(store, "_put", lambda db, puts: (tried.append(len(puts)), write(db, puts)))
    await store.put(turn("resp_1"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    puts = [store.put(turn(f"resp_{number}")) for number in (2, 3, 4)]
    for error in await asyncio.gather(*puts, return_exceptions=True):
        assert isinstance(error, StoreUnavailable)
        assert str(error) == "another program holds the store's file locked"
    assert tried == [1, 3], "they wait once for all"
    assert await store.get("resp_1", "alice") == turn("resp_1")  # Readers never wait for writers.

    async def patience_ms() -> int:
        return await store._call(lambda db: db.execute("PRAGMA busy_timeout").fetchone()[0])

    assert await patience_ms() == 50
    now = 0.1
    assert await patience_ms() == 100
    now = 0.0
    other.close()

    def write_but_one(db: sqlite3.Connection, puts: list[sqlite._Put]) -> None:
        if any(put.turn.id == "resp_3" for put in puts):
            raise ValueError
        write(db, puts)

    monkeypatch.setattr(store, "_put", write_but_one)
    puts = [store.put(turn(f"resp_{number}")) for number in (9, 2, 3, 4)]
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert list(map(type, ended)) == [type(None), type(None), ValueError, type(None)], "that one fails alone"
    assert await patience_ms() == 100, "the lock is gone"
    await store.close()
