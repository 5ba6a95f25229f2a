"""Memory is given back after many large bodies, once, and not in the middle of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from proxy.support import allocator
from proxy.support.allocator import GivingBack, give_back
from tests.waiting import until

MOST = 1000


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the loop at which memory was given back."""
    times: list[float] = []
    monkeypatch.setattr(allocator, "SETTLE_S", 0.01)
    monkeypatch.setattr(allocator, "EVERY_S", 0.05)
    monkeypatch.setattr(allocator, "give_back", lambda: times.append(1))
    return times


async def settled(given: list[float], count: int) -> None:
    await until(lambda: len(given) >= count)
    await asyncio.sleep(0.1)


async def test_memory_is_given_back_once_for_many_bodies(given: list[float]) -> None:
    memory = GivingBack(MOST)
    for _ in range(50):
        memory.free(MOST // 10)
    assert given == []  # while they go
    await settled(given, 1)
    assert len(given) == 1
    assert memory.freed == 0


async def test_little_gives_nothing_back(given: list[float]) -> None:
    memory = GivingBack(MOST)
    memory.free(MOST - 1)
    await asyncio.sleep(0.1)
    assert given == []
    memory.free(1)
    await settled(given, 1)


async def test_a_burst_puts_it_off_but_not_for_ever(given: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "SETTLE_S", 1000.0)
    memory = GivingBack(MOST)
    memory.free(MOST)
    memory.free(MOST)
    await settled(given, 1)
    memory.free(MOST)
    await settled(given, 2)
    assert len(given) == 2


@pytest.mark.skipif(allocator._trim() is None, reason="the C library has no `malloc_trim`")
def test_freed_memory_goes_back() -> None:
    def resident() -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) // 1024

    blocks = [bytes(40_000) for _ in range(4000)]
    last = bytes(40_000)  # behind them all
    full = resident()
    del blocks
    give_back()
    assert resident() < full - 100
    assert last[:1] == b"\0"
