"""A gateway in a process of its own that says how long its event loop was held: run by `test_hostile.py`.

A coroutine ticks all the time. A stall is a gap between two ticks, counted only as far as this process used the CPU in
it: a machine that has other things to do makes gaps too, but not of this process's making. The command line
names a JSON file with the configuration; the port is printed; `GET /probe` gives the longest stall and the CPU time
since the last look, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from toolwire.app import create_app

TICK_S = 0.001


class Probe:
    """The ticking coroutine and what it saw."""

    def __init__(self) -> None:
        self.stall = 0.0
        self.used = time.process_time()

    async def tick(self) -> None:
        last, used = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(TICK_S)
            now, now_used = time.perf_counter(), time.process_time()
            self.stall = max(self.stall, min(now - last - TICK_S, now_used - used))
            last, used = now, now_used

    async def look(self, request: web.Request) -> web.Response:
        await asyncio.sleep(10 * TICK_S)  # so that a stall that is just over has been seen
        now = time.process_time()
        seen = {"stall": self.stall, "cpu": now - self.used}
        self.stall, self.used = 0.0, now
        return web.json_response(seen)


async def main(config: dict[str, Any]) -> None:
    probe = Probe()
    app = create_app(config)
    app.router.add_get("/probe", probe.look)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ticking = asyncio.create_task(probe.tick())
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the test closes it, or is gone
    ticking.cancel()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_bytes())))
