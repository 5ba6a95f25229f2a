"""Does each key get its share? Four keys with different limits ask for more than they may have, of two workers and of
two gateways.

    python -m bench.shares                  # two workers, then two gateways with a Redis of their own
    python -m bench.shares --seconds 60     # how long is measured
    python -m bench.shares --redis URL      # with this Redis instead of one that is started

It is measured from the moment when every key has used up what it may take at once. From there each may have its limit a
minute and no more; the exit status is 1 if one is off by more than 5 %. The gateways run as an operator starts them,
with the built-in mock as their model server. Needs no more than the gateway itself, and `redis-server` for the second
part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench import played

LIMITS: Final = {"bronze": 120, "silver": 240, "gold": 480, "platinum": 960}
"""Requests per minute of each key."""
CONNECTIONS: Final = 6
"""Simultaneous requests of each key."""
TOO_MUCH: Final = 3.0
"""The factor by which each key exceeds its limit."""
ALLOWED: Final = 0.05


@dataclass(slots=True)
class Client:
    """Sends requests with one key until it is cancelled. `statuses` counts the answers that arrive while it
    `measures`."""

    key: str
    urls: Sequence[str]
    statuses: Counter[int] = field(default_factory=Counter)
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    measures: bool = False

    async def run(self, session: aiohttp.ClientSession, number: int) -> None:
        """Sends the requests of one connection, alternately to the gateways. Each request uses a new connection, so
        that the system distributes them over the workers."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "Connection": "close"}
        while True:
            number += 1
            url = self.urls[number % len(self.urls)] + "/v1/chat/completions"
            async with session.post(url, data=body, headers=headers) as response:
                await response.read()
            if self.measures:
                self.statuses[response.status] += 1
            if response.status != 200:
                self.refused.set()
                await asyncio.sleep(CONNECTIONS * 60 / LIMITS[self.key] / TOO_MUCH)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[str]:
    """A Redis server on a free port; yields its URL. Raises `FileNotFoundError` if Redis is not installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise FileNotFoundError("redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        await process.wait()


async def measure(urls: Sequence[str], seconds: float) -> tuple[dict[str, Counter[int]], float]:
    """Returns the statuses that each key got in about `seconds`, and the exact time."""
    clients = [Client(key, urls) for key in LIMITS]
    connector = aiohttp.TCPConnector(limit=len(clients) * CONNECTIONS, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        running = [
            asyncio.ensure_future(client.run(session, number)) for client in clients for number in range(CONNECTIONS)
        ]
        spent = asyncio.gather(*(client.refused.wait() for client in clients))
        done, _ = await asyncio.wait([spent, *running], return_when=asyncio.FIRST_COMPLETED)
        if spent in done:
            began = time.monotonic()
            for client in clients:
                client.measures = True
            done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for client in clients:
                client.measures = False
            took = time.monotonic() - began
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        for task in done:
            task.result()  # a client ends only if it failed
    return {client.key: client.statuses for client in clients}, took


def report(title: str, got: dict[str, Counter[int]], seconds: float) -> bool:
    """Prints the table. Returns True if every key got its share."""
    print(f"\n{title}, {seconds:.1f} s\n")
    print("| key | limit a minute | asked | let through | share | off by |")
    print("| --- | --- | --- | --- | --- | --- |")
    worst = 0.0
    for key, statuses in got.items():
        share = LIMITS[key] * seconds / 60
        off = statuses[200] / share - 1
        worst = max(worst, abs(off))
        print(f"| {key} | {LIMITS[key]} | {statuses.total()} | {statuses[200]} | {share:.1f} | {off:+.1%} |")
    strange = {status for statuses in got.values() for status in statuses} - {200, 429}
    if strange:
        print(f"\nother answers came as well: {sorted(strange)}")
    return worst <= ALLOWED and not strange


async def run(seconds: float, redis_url: str | None) -> int:
    """Runs both parts and returns the exit status."""
    server = {"port": 0, "log_level": "error"}
    config: dict[str, Any] = {
        "auth": {"keys": [{"key": key, "name": key, "requests_per_min": limit} for key, limit in LIMITS.items()]},
        "backends": {"mock": {"kind": "mock", "script": ["Hello."]}},
        "store": {"kind": "none"},
    }
    fair = []
    with tempfile.TemporaryDirectory() as folder:
        with played.gateway(folder, {**config, "server": {**server, "workers": 2}}) as (url, _):
            fair.append(report("Two workers", *await measure([url], seconds)))
        async with AsyncExitStack() as stack:
            try:
                redis_url = redis_url or await stack.enter_async_context(redis(Path(folder)))
            except FileNotFoundError:
                print("\nSKIPPED: two gateways need a Redis server (Debian: apt-get install redis-server)")
                return 0 if all(fair) else 1
            shared = {**config, "server": server, "rate_limits": {"url": redis_url}}
            urls = [stack.enter_context(played.gateway(folder, shared))[0] for _ in range(2)]
            fair.append(report("Two gateways with one Redis", *await measure(urls, seconds)))
    return 0 if all(fair) else 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each part is measured (default: 30)")
    parser.add_argument("--redis", metavar="URL", help="use this Redis server")
    options = parser.parse_args()
    return asyncio.run(run(options.seconds, options.redis))


if __name__ == "__main__":
    sys.exit(main())
