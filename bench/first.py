"""Compares the cost of a process's first request with the hundredth: `python -m bench.first`.

It measures CPU time of the thread, in a process for each kind of request of `bench.budget`, with and without the
rehearsal of `toolwire serve`. The first request also opens both connections, and is the first with its tools: reading
and describing ten tools takes some milliseconds once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Final

from bench.budget import WORKS
from bench.callgrind import ROOT
from bench.inprocess import Gateway, Work
from toolwire.configuration.settings import load
from toolwire.observability.logs import set_up_logging
from toolwire.server.process import gateway
from toolwire.server.rehearsal import rehearse

LATER: Final = slice(90, 110)
"""The requests whose median stands for the hundredth."""


async def times_ms(work: Work, folder: str, *, rehearsed: bool) -> list[float]:
    """Returns the milliseconds of each request, from the first."""
    if rehearsed:
        await rehearse(gateway, load(None, env={}, overrides={"backends": {"a": {"url": "http://127.0.0.1:9"}}}))
    times = []
    async with Gateway(work, folder) as asked:
        for _ in range(LATER.stop):
            one = asked.asks(1)
            before = time.thread_time_ns()
            await asked.serve(one)
            times.append((time.thread_time_ns() - before) / 1e6)
    return times


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.first", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:
            set_up_logging("text", "info", log)
            times = asyncio.run(times_ms(WORKS[options.only], folder, rehearsed=not options.cold))
            print(
                f"{times[0]:.2f} ms, {times[0] / statistics.median(times[LATER]):.1f} times the hundredth", flush=True
            )
            os._exit(0)  # the log's file is closed
    for number, work in enumerate(WORKS):
        command = [sys.executable, "-m", "bench.first", "--only", str(number)]
        cold, warm = (
            subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for more in (["--cold"], [])
        )
        print(f"{work.title}: {warm} (without a rehearsal: {cold})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
