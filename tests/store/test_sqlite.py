"""The SQLite store alone: a file, what turns share, and other processes."""

# ruff: noqa: ASYNC240  # The files are small, and nothing else runs in the loop.

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.store.turns import Clock, turn
from tests.waiting import GUARD_S
from toolwire.protocols.shared.turn import Beginning, Place, StoredBeginning, StoredTurn
from toolwire.protocols.shared.wire import dump, load
from toolwire.store.base import StoreUnavailable
from toolwire.store.encoding import WIRE_FORM_KEY, encode
from toolwire.store.memory import MemoryStore
from toolwire.store.sqlite import MOST_TEXTS, SqliteStore

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turns.sqlite3"


Writer = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    """Starts processes that open the store at `path`; they begin to write when `begin` is called."""
    script = str(Path(__file__).with_name("writer.py"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *, count: int, max_turns: int, chars: int, beside: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, script, str(path), name, *map(str, (count, max_turns, chars, beside))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:  # Closes the pipes and waits.
            process.kill()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def check(path: Path) -> tuple[int, int]:
    """How many turns the file holds and their bytes, after a look at whether it is sound."""
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        counted: tuple[int, int] = db.execute(
            "SELECT count(*), coalesce(sum(length(turn) + coalesce(length, 0)), 0) FROM turns LEFT JOIN shared ON id = head"
        ).fetchone()
        used = """SELECT id, count(*) FROM (
            SELECT head AS id FROM turns UNION ALL SELECT before FROM shared
        ) WHERE id IS NOT NULL GROUP BY id ORDER BY id"""
        assert db.execute("SELECT id, uses FROM shared ORDER BY id").fetchall() == db.execute(used).fetchall()
        assert db.execute("SELECT id FROM texts ORDER BY id").fetchall() == [(id,) for id, _ in db.execute(used)]
        assert db.execute("SELECT turns, bytes FROM total").fetchone() == counted
        assert db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM lives").fetchone() == counted
        assert db.execute("SELECT coalesce(sum(turns), 0), coalesce(sum(bytes), 0) FROM owners").fetchone() == counted
        by_owner = "SELECT owner, count(*), sum(bytes) FROM lives GROUP BY owner ORDER BY owner"
        assert db.execute("SELECT owner, turns, bytes FROM owners ORDER BY owner").fetchall() == list(
            db.execute(by_owner)
        )
    db.close()
    return counted


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_nobody_else_may_read_it(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "new" / "folder" / "turns.sqlite3"
    before = os.umask(0)
    try:
        store = SqliteStore(path, now=clock)
        await store.put(turn("resp_1"))
    finally:
        os.umask(before)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["turns.sqlite3", "turns.sqlite3-shm", "turns.sqlite3-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await store.close()


async def test_an_existing_file_is_taken_away_from_others(path: Path, clock: Clock) -> None:
    path.touch()
    path.chmod(0o644)
    store = SqliteStore(path, now=clock)
    await store.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await store.close()


async def test_a_second_store_in_one_process_leaves_the_locks_of_the_first_alone(path: Path, clock: Clock) -> None:
    """Closing any descriptor of a file drops all locks that the process has on it."""
    first, second = SqliteStore(path, now=clock), SqliteStore(path, now=clock, busy_timeout_s=0)
    await first.start()

    def hold(db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")

    await first._call(hold)
    with pytest.raises(StoreUnavailable, match="locked"):
        await second.start()
    code = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    other = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True)
    assert "database is locked" in other.stderr
    await first.close()
    await second.close()


async def test_the_loop_goes_on_while_another_process_writes(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock, busy_timeout_s=GUARD_S)
    await store.put(turn("resp_1"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    put = asyncio.create_task(store.put(turn("resp_2")))
    memory = MemoryStore(now=clock)
    for i in range(20):
        await memory.put(turn(f"resp_{i}"))
        await asyncio.sleep(0)
    assert not put.done()
    other.execute("COMMIT")
    await put
    assert await store.get("resp_2", "alice") == turn("resp_2")
    other.close()
    await store.close()


# --- what turns share -------------------------------------------------------------------------------------------------


def saying(ident: str, texts: list[str], before: StoredTurn | None = None, **changes: Any) -> StoredTurn:
    """A turn whose input are messages, which go on where those of the turn `before` end."""
    items = [dump({"role": "user", "content": each}) for each in texts]
    pieces = [b'{"input":', *(b"%b%b" % (b"," if at else b"[", item) for at, item in enumerate(items))]
    beginning = Beginning(pieces, sum(map(len, pieces)), StoredBeginning(), None if before is None else place(before))
    said = b'],"resource":%b}' % dump({"output": [], "id": ident})
    return replace(turn(ident, **changes), input=(), output=(), wire_form=said, beginning=beginning)


def place(turn: StoredTurn) -> Place | None:
    return None if turn.beginning is None else turn.beginning.written.place


async def reads(store: SqliteStore, turn: StoredTurn) -> bool:
    """The turn is read back as it was put, with its size."""
    read = await store.get(turn.id, turn.owner)
    assert read is not None
    return (read.wire_form, read.status, read.size) == (
        load(turn.whole_wire_form),
        turn.status,
        len(encode(turn, 1 << 30)),
    )


def count(path: Path) -> tuple[int, int]:
    """The number of shared texts in the file, and their bytes."""
    with closing(sqlite3.connect(path)) as db:
        row: tuple[int, int] = db.execute("SELECT count(*), coalesce(sum(length(text)), 0) FROM texts").fetchone()
    return row


async def test_a_turn_is_written_once(path: Path, clock: Clock) -> None:
    """R34.1: with its answer, and with the turn after it, only what is new is written."""
    store = SqliteStore(path, now=clock)
    texts = [f"{at}" + "x" * 1000 for at in range(300)]
    first = saying("resp_1", texts, status="in_progress")
    await store.put(first)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await store.put(done := replace(first, status="completed"))
    after = saying("resp_2", [*texts, "more"], done)
    await store.put(after)
    assert path.with_name(f"{path.name}-wal").stat().st_size < 150_000
    assert await reads(store, done)
    assert await reads(store, after)
    assert after.beginning is not None
    assert count(path) == (2, len(WIRE_FORM_KEY) + after.beginning.length)
    await store.close()
    assert check(path)[0] == 2


async def test_what_is_shared_lives_as_long_as_any_turn_needs_it(path: Path, clock: Clock) -> None:
    """Branches, a retry with the same input, a turn of another owner, a change, and the end of each."""
    store = SqliteStore(path, now=clock)
    texts = ["x" * 1000]
    first = saying("resp_1", texts)
    await store.put(first)
    turns = [
        saying("resp_2", [*texts, "2"], first),
        saying("resp_3", [*texts, "3"], first),
        saying("resp_4", texts, first),
        saying("resp_5", [*texts, "5"], first, owner="bob"),
    ]
    for each in turns:
        await store.put(each)
    assert count(path)[0] == 4  # that of the other owner is whole
    await store.delete("resp_1", "alice")
    for each in turns:
        assert await reads(store, each)
    late = saying("resp_6", [*texts, "6"], first)
    await store.put(late)
    assert await reads(store, late)
    await store.change("resp_4", "alice", lambda now: None if now is None else replace(now, status="failed"))
    for each in (*turns[:3], late):
        check(path)
        await store.delete(each.id, each.owner)
    assert count(path)[0] == 1
    await store.delete("resp_5", "bob")
    assert count(path) == (0, 0)
    gone = saying("resp_7", [*texts, "7"], first)  # what it goes on from is gone
    await store.put(gone)
    assert await reads(store, gone)
    await store.close()
    check(path)


async def test_a_long_conversation_has_a_bounded_number_of_pieces(path: Path, clock: Clock) -> None:
    store = SqliteStore(path, now=clock)
    turns: list[StoredTurn] = []
    for number in range(MOST_TEXTS + 3):
        turns.append(saying(f"resp_{number}", [str(each) for each in range(number + 1)], turns[-1] if turns else None))
        await store.put(turns[-1])
    assert [found.texts for each in turns[-4:] if (found := place(each))] == [MOST_TEXTS, 1, 2, 3]
    for each in turns:
        assert await reads(store, each)
    check(path)
    for each in turns:
        await store.delete(each.id, each.owner)
    assert count(path) == (0, 0)
    await store.close()


# --- several processes ------------------------------------------------------------------------------------------------


async def test_many_open_a_new_file_together(tmp_path: Path, clock: Clock) -> None:
    for attempt in range(12):
        path = tmp_path / f"{attempt}.sqlite3"
        stores = [SqliteStore(path, now=clock) for _ in range(6)]
        await asyncio.gather(*(store.put(turn(f"resp_{i}")) for i, store in enumerate(stores)))
        for store in stores:
            await store.close()
        assert check(path)[0] == len(stores)


@pytest.mark.parametrize(("chars", "beside", "puts"), [(300_000, 0, 1), (300_000, 0, 7), (100, 6, 60)])
async def test_a_process_that_is_killed_while_it_writes(
    path: Path, clock: Clock, writer: Writer, chars: int, beside: int, puts: int
) -> None:
    """Each turn is there as before the last put or as after it, and what a put returned for is there, also of puts that
    are written together."""
    process = await asyncio.to_thread(writer, "w", count=10_000, max_turns=90_000, chars=chars, beside=beside)
    await asyncio.to_thread(begin, process)
    assert process.stdout is not None
    said = [await asyncio.to_thread(process.stdout.readline) for _ in range(puts)]
    process.kill()
    rest = await asyncio.to_thread(process.stdout.read)  # `communicate` passes over what `readline` has read ahead
    await asyncio.to_thread(process.communicate)
    said += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    number, status = said[-1].split()
    store = SqliteStore(path, now=clock)

    async def check_there(at: int, *statuses: Any) -> None:
        for ident in (f"w_{at}", *(f"w_{at}_{n}" for n in range(beside))):
            versions = [turn(ident, text="w" * chars, status=each) if each else None for each in statuses]
            assert await store.get(ident, "alice") in versions, ident

    for i in range(int(number)):
        await check_there(i, "completed")
    await check_there(int(number), "completed", *(["in_progress"] if status == "in_progress" else []))
    await check_there(int(number) + 1, None, "in_progress")
    await store.close()
    check(path)
