"""Random calls: SQLite and Redis do what memory does, call by call, also after being closed and opened again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.cases import examples
from tests.store.redis_server import RedisServer
from tests.store.turns import HOUR, Clock, turn
from tests.waiting import GUARD_S
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.store.base import ResponseStore
from toolwire.store.memory import MemoryStore
from toolwire.store.sqlite import SqliteStore

T = TypeVar("T")

IDS = st.sampled_from([f"resp_{i}" for i in range(7)])
OWNERS = st.sampled_from(["alice", "bob"])
MAX_TURNS = 6


class Comparison(RuleBasedStateMachine):
    """Every call goes to both stores; they must answer the same. Time passes in hours, so that a server with a clock of
    its own drops nothing while the test runs."""

    max_bytes = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.model = MemoryStore(MAX_TURNS, max_bytes=self.max_bytes, now=self.clock)
        self.store = self.run(self.opened())

    async def opened(self) -> ResponseStore:
        raise NotImplementedError

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def both(self, name: str, *values: object, **more: object) -> Any:
        expected = self.run(getattr(self.model, name)(*values, **more))
        assert self.run(getattr(self.store, name)(*values, **more)) == expected
        return expected

    @rule(
        ident=IDS,
        owner=OWNERS,
        ancestors=st.lists(IDS, max_size=3),
        text=st.one_of(st.text(max_size=5), st.sampled_from(["x" * 1500, "y" * 2500])),
        status=st.sampled_from(["in_progress", "completed"]),
        lives=st.integers(-1, 30),
        prolongs=st.booleans(),
    )
    def put(
        self, ident: str, owner: str, ancestors: list[str], text: str, status: str, lives: int, prolongs: bool
    ) -> None:
        kept: StoredTurn = turn(
            ident, owner=owner, ancestors=ancestors, text=text, status=status, expires=self.clock.now + lives * HOUR
        )
        self.both("put", kept, prolongs=prolongs)
        assert self.both("get", ident, owner) == (kept if lives > 0 else None)

    @rule(idents=st.lists(IDS, max_size=3), owner=OWNERS, lives=st.integers(-1, 30))
    def prolong(self, idents: list[str], owner: str, lives: int) -> None:
        self.both("prolong", idents, owner, self.clock.now + lives * HOUR)

    @rule(idents=st.lists(IDS, max_size=3), owner=OWNERS)
    def get_many(self, idents: list[str], owner: str) -> None:
        self.both("get_many", idents, owner)

    @rule(ident=IDS, owner=OWNERS)
    def delete(self, ident: str, owner: str) -> None:
        self.both("delete", ident, owner)
        assert self.both("get", ident, owner) is None

    @rule(ahead=st.integers(-5, 5))
    def prune(self, ahead: int) -> None:
        self.both("prune", self.clock.now + ahead * HOUR)

    @rule(hours=st.integers(1, 10))
    def wait(self, hours: int) -> None:
        self.clock.now += hours * HOUR

    @rule()
    def open_again(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.opened())

    @invariant()
    def the_same_turns_are_there(self) -> None:
        there = self.both("present", [(f"resp_{i}", owner) for i in range(7) for owner in ("alice", "bob", "carol")])
        assert len(there) <= MAX_TURNS
        assert not any(owner == "carol" for _, owner in there)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()


class SqliteComparison(Comparison):
    max_bytes = 6000

    async def opened(self) -> ResponseStore:
        if not hasattr(self, "folder"):
            self.folder = tempfile.TemporaryDirectory()
        store = SqliteStore(
            Path(self.folder.name) / "turns.sqlite3", MAX_TURNS, max_bytes=self.max_bytes, now=self.clock
        )
        await store.start()
        return store

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


RULES = settings(examples(0.4), stateful_step_count=40, deadline=None)


def test_sqlite_does_what_memory_does() -> None:
    run_state_machine_as_test(SqliteComparison, settings=RULES)


def test_redis_does_what_memory_does(redis_server: RedisServer) -> None:
    from toolwire.store.redis import RedisStore

    class RedisComparison(Comparison):
        async def opened(self) -> ResponseStore:
            if not hasattr(self, "prefix"):
                self.prefix = f"machine-{uuid4().hex}"
            store = RedisStore(redis_server.url, MAX_TURNS, prefix=self.prefix, timeout_s=GUARD_S, now=self.clock)
            await store.start()
            return store

    run_state_machine_as_test(RedisComparison, settings=RULES)
