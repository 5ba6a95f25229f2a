from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.store.redis_server import GROUPS
from tests.store.turns import Clock
from tests.waiting import GUARD_S
from toolwire.store.base import ResponseStore
from toolwire.store.memory import MemoryStore
from toolwire.store.sqlite import SqliteStore

MakeStore = Callable[..., ResponseStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Callable[..., ResponseStore]]:
    """Makes stores of one kind; the tests run for each. A second one of all but `memory` sees what the first one
    keeps."""
    made: list[ResponseStore] = []
    prefix = f"test-{uuid4().hex}"

    def make(**bounds: Any) -> ResponseStore:
        store: ResponseStore
        match request.param:
            case "memory":
                store = MemoryStore(now=clock, **bounds)
            case "sqlite":
                store = SqliteStore(tmp_path / "turns.sqlite3", now=clock, **bounds)
            case _:
                from toolwire.store.redis import RedisStore

                url = request.getfixturevalue(GROUPS[request.param]).url
                store = RedisStore(url, prefix=prefix, now=clock, timeout_s=GUARD_S, **bounds)
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make_store: MakeStore) -> ResponseStore:
    opened = make_store()
    await opened.start()
    return opened
