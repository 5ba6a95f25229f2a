"""Measures the gain of a second worker: `python -m bench.workers`.

On two CPUs, load, model server and two workers compete, so throughput would measure the scheduler. Instead the CPU time
of all gateway processes per request is measured, alternately with one worker and with two: with one CPU each, two
workers serve `2 / ratio` times as much as one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench import played
from bench.load import load
from bench.test_gateway import Cell, contestant

CELLS: Final = (
    Cell("whole answers, no tools", 0, 4_000, 32),
    Cell("whole answers, 10 tools, a call in each", 10, 2_000, 32, call=True),
    Cell("streams of 50 frames, 10 tools, a call in each", 10, 500, 32, frames=50, call=True),
    Cell("Responses, kept, 10 tools, a call in each", 10, 500, 32, frames=50, call=True, api="responses"),
)
ROUNDS: Final = 7
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway in its own processes."""

    pid: int
    port: int
    name: str = "gateway"

    def cpu_s(self) -> float:
        """Returns the CPU time of all its processes so far."""
        return sum(map(_cpu_s, [self.pid, *played.workers_of(self.pid)]))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S  # utime, stime: fields 14 and 15 of proc(5)


@contextmanager
def gateway(upstream: str, workers: int) -> Iterator[Gateway]:
    """Starts a gateway as an operator does, and ends it afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "backends": {"default": {"url": upstream}},
            "server": {"port": 0, "workers": workers},
            "store": {"path": f"{folder}/responses.sqlite3"},
        }
        with played.gateway(folder, config, quiet=True) as (url, pid):
            yield Gateway(pid, int(url.rpartition(":")[2]))


def cost_us(cell: Cell, who: Gateway) -> float:
    """Returns the CPU microseconds per request. Raises `RuntimeError` if a request failed."""
    before = who.cpu_s()
    seen = asyncio.run(
        load(who.port, cell.ask(who.name), connections=cell.connections, requests=cell.requests, spread_s=0)
    )
    if seen.failed or len(seen.latencies) != cell.requests:
        raise RuntimeError(f"{cell.title}: {seen.failed[:1]}")
    return (who.cpu_s() - before) / cell.requests * 1e6


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"in turns (default: {ROUNDS})")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        upstream = stack.enter_context(contestant("upstream"))
        both = [stack.enter_context(gateway(f"http://127.0.0.1:{upstream.port}", number)) for number in (1, 2)]
        for cell in CELLS:
            for who in both:
                cost_us(cell, who)  # warms up
            rounds = [[cost_us(cell, who) for who in both] for _ in range(options.rounds)]
            one, two = (median(each[place] for each in rounds) for place in (0, 1))
            ratio = median(two / one for one, two in rounds)
            print(
                f"{cell.title}: {one:,.0f} us with one worker, {two:,.0f} with two; "
                f"two CPUs serve {2 / ratio:.2f} times as much as one",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
