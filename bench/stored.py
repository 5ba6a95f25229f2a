"""What it costs to keep Responses answers in SQLite, against `store: false`, in one process and without sockets.

    python -m bench.stored              # some ten seconds
    python -m bench.stored --clients 1  # one request after the other: each waits for a transaction of its own

Calls are counted (see `bench.budget`); CPU microseconds of a request are the least of some rounds, in which both kinds
take turns: `loop` is the thread that serves, `process` has the store's thread besides. Both wait for the clock of a
machine that may be busy, so only their ratio says something.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bench import budget
from bench.budget import SHORT
from bench.inprocess import Gateway, Work
from toolwire.observability.logs import flush_logs, set_up_logging

CLIENTS: Final = 32
REQUESTS: Final = 640
ROUNDS: Final = 4
WARM: Final = 5

Spent = tuple[float, float]
"""CPU seconds of a request: of the loop's thread, and of the process."""


def works(store: bool) -> tuple[Work, ...]:
    """Returns the kinds of request."""
    return (
        Work("whole, no tools", 0, api="responses", store=store),
        Work("stream, 10 tools, a call", 10, call=True, stream=True, api="responses", frames=SHORT, store=store),
    )


async def spent(work: Work, clients: int, requests: int) -> Spent:
    """Returns the CPU time of a request in one gateway with a new store."""
    each = requests // clients

    wanted = work.ask().raw

    async def repeat(ask: Callable[[bytes], Awaitable[bytes]], times: int) -> None:
        for _ in range(times):
            await ask(wanted)

    with tempfile.TemporaryDirectory() as folder:
        async with Gateway(work, folder) as gateway:
            asks = [gateway.client() for _ in range(clients)]
            await asyncio.gather(*(repeat(ask, WARM) for ask in asks))
            thread, process = time.thread_time(), time.process_time()
            await asyncio.gather(*(repeat(ask, each) for ask in asks))
            asked = each * clients
            return (time.thread_time() - thread) / asked, (time.process_time() - process) / asked


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.stored", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"that ask at once (default: {CLIENTS})")
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"in a round (default: {REQUESTS})")
    options = parser.parse_args(arguments)
    with open(os.devnull, "w") as log:
        for pair in zip(works(store=False), works(store=True), strict=True):
            calls = [budget.calls(work) for work in pair]
            set_up_logging("text", "info", log)
            rounds = [
                [asyncio.run(spent(work, options.clients, options.requests)) for work in pair] for _ in range(ROUNDS)
            ]
            loop, process = ([min(turn[kind][what] for turn in rounds) * 1e6 for kind in (0, 1)] for what in (0, 1))
            print(pair[0].title)
            for name, (without, kept) in (("calls", calls), ("loop us", loop), ("process us", process)):
                print(f"  {name}: {without:,.0f} without, {kept:,.0f} kept ({kept / without:.2f})", flush=True)
        flush_logs()
        logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
