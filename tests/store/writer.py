"""A process of its own that writes to a SQLite store: `python writer.py PATH NAME COUNT MAX_TURNS TEXT_CHARS`.

Says `open`, then waits for a line; then puts each turn twice, first in progress, then completed, and says its number
after each put that has returned.
"""

from __future__ import annotations

import asyncio
import sys

from proxy.store.sqlite import SqliteStore
from tests.store.turns import Clock, turn


async def main(path: str, name: str, count: int, max_turns: int, chars: int) -> None:
    store = SqliteStore(path, max_turns, now=Clock(), busy_timeout_s=60)
    await store.start()
    print("open", flush=True)
    sys.stdin.readline()
    for i in range(count):
        for status in ("in_progress", "completed"):
            await store.put(turn(f"{name}_{i}", text=name * chars, status=status))
            print(i, status, flush=True)
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
