"""A process of its own that writes to a SQLite store: `python writer.py PATH NAME COUNT MAX_TURNS TEXT_CHARS BESIDE`.

Says `open`, then waits for a line; then puts each turn twice, first in progress, then completed, and says its number
after each put that has returned. Beside each one, so many others of the same content are put at once.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from proxy.store.sqlite import SqliteStore
from tests.store.turns import Clock, turn
from tests.waiting import GUARD_S


async def main(path: str, name: str, count: int, max_turns: int, chars: int, beside: int) -> None:
    store = SqliteStore(path, max_turns, now=Clock(), busy_timeout_s=GUARD_S)
    await store.start()
    print("open", flush=True)
    sys.stdin.readline()
    for i in range(count):
        for status in ("in_progress", "completed"):
            kept = turn(f"{name}_{i}", text=name * chars, status=status)
            await asyncio.gather(
                store.put(kept), *(store.put(replace(kept, id=f"{kept.id}_{n}")) for n in range(beside))
            )
            print(i, status, flush=True)
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
