"""Each key gets its share and no more, over two workers (`bench/shares.py` does it over real time). Over two gateways:
`tests/ratelimit`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.conftest import CHAT, USER
from tests.e2e.processes import running
from tests.waiting import GUARD_S

LIMITS = {"a": 5, "b": 10, "c": 15, "d": 20}
CONFIG: Mapping[str, Any] = {
    "auth": {"keys": [{"key": key, "name": key, "requests_per_min": limit} for key, limit in LIMITS.items()]},
    "backends": {"mock": {"kind": "mock", "script": ["Hello."]}},
}
BODY = {"model": "m", "messages": USER}


async def ask(session: aiohttp.ClientSession, url: str, key: str) -> int:
    """One request on a connection of its own, so that the system deals it to any worker."""
    async with session.post(url + CHAT, json=BODY, headers={"Authorization": f"Bearer {key}"}) as response:
        await response.read()
        return response.status


async def shares(url: str) -> tuple[Mapping[str, Counter[int]], float]:
    """Every key asks for twice its limit, all at once: what it got, and in what time."""
    began = time.monotonic()
    connector = aiohttp.TCPConnector(limit=16, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        asked = [key for key, limit in LIMITS.items() for _ in range(2 * limit)]
        statuses = await asyncio.gather(*(ask(session, url, key) for key in asked))
    found: dict[str, Counter[int]] = {key: Counter() for key in LIMITS}
    for key, status in zip(asked, statuses, strict=True):
        found[key][status] += 1
    return found, time.monotonic() - began


def fair(found: Mapping[str, Counter[int]], seconds: float) -> None:
    """Its limit at once, and what came free in the time that it took: by law, however long that was."""
    for key, limit in LIMITS.items():
        assert set(found[key]) <= {200, 429}
        assert limit <= found[key][200] <= limit + limit * seconds / 60


async def test_two_workers(tmp_path: Path) -> None:
    config = {**CONFIG, "server": {"port": 0, "workers": 2}, "rate_limits": {"timeout_s": GUARD_S}}
    async with running(tmp_path, config) as gateway:
        fair(*await shares(gateway.url))
        await gateway.logged(" key=a ", 2 * LIMITS["a"])  # its name, which is no secret


async def test_a_reload_goes_on_counting_and_reads_the_keys_anew(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("[{key: a, requests_per_min: 2}]")
    config = {**CONFIG, "auth": {"keys_file": str(keys)}}
    async with running(tmp_path, config) as gateway, aiohttp.ClientSession() as session:
        assert [await ask(session, gateway.url, "a") for _ in range(3)] == [200, 200, 429]
        keys.write_text("[{key: a, requests_per_min: 3}, {key: b, requests_per_min: 1}]")
        await gateway.reload()
        assert [await ask(session, gateway.url, "a") for _ in range(2)] == [200, 429]
        assert [await ask(session, gateway.url, "b") for _ in range(2)] == [200, 429]
        keys.write_text("[b]")
        await gateway.reload()
        assert [await ask(session, gateway.url, key) for key in "ab"] == [401, 200]
