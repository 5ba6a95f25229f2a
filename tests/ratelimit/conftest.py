"""Ledgers of each kind, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.store.redis_server import GROUPS
from tests.waiting import GUARD_S
from toolwire.ratelimit.base import Ledger, MemoryLedger
from toolwire.ratelimit.sqlite import SqliteLedger

MakeLedger = Callable[[], Ledger]


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ledger(kind: str, clock: Clock, folder: Path, url: str, prefix: str) -> Ledger:
    """A ledger of this kind. A second one of all but `memory` at the same place sees what the first one counted."""
    match kind:
        case "memory":
            return MemoryLedger(now=clock)
        case "sqlite":
            return SqliteLedger(folder / "limits.sqlite3", timeout_s=GUARD_S, now=clock)
        case _:
            from toolwire.ratelimit.redis import RedisLedger

            return RedisLedger(url, timeout_s=GUARD_S, prefix=prefix, now=clock)


@pytest.fixture(params=["memory", "sqlite", *GROUPS])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make_ledger(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[MakeLedger]:
    made: list[Ledger] = []
    prefix = uuid4().hex
    url = request.getfixturevalue(GROUPS[kind]).url if kind in GROUPS else ""

    def make() -> Ledger:
        made.append(ledger(kind, clock, tmp_path, url, prefix))
        return made[-1]

    yield make
    for each in made:
        await each.close()
