"""The cost of long answers, up to 10,000,000 deltas: time and memory per delta, in prose and in one call.

    python -m bench.growth            # answers, the compiled scanner; about a minute
    python -m bench.growth --turns    # requests: functions of the gateway that are called
    python -m bench.growth --conversations   # memory after up to 10,000 conversations of agents

Each cell is a process of its own, whose deltas are generated, so that only the scanner holds them. Time is CPU time,
the lowest of `ROUNDS`, beside that of `len` for the same deltas; `end` is what follows the last delta (a call is
judged). Memory is what was allocated at most while it came, and in all, as resident memory beyond that at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from bench import corpus
from bench.budget import AGENTS, SHORT, calls
from bench.contestants import resident
from bench.inprocess import Gateway, Work
from bench.load import Ask
from bench.measuring import Table
from toolwire.config import CallsConfig, RouteOptions
from toolwire.extras.bench.contestants import LIMITS
from toolwire.extras.bench.corpus import CorpusCall, rendered
from toolwire.observability.logs import flush_logs, set_up_logging
from toolwire.registry import registries
from toolwire.scanner import open_scanner

COUNTS: Final = (100_000, 1_000_000, 10_000_000)
KINDS: Final = ("prose", "one long call", "one long call, buffered")
TURNS: Final = (20, 60, 200, 600)
"""Messages of an agent's conversation, of 1.5 kB each."""
CONVERSATIONS: Final = (0, 100, 1_000, 2_000, 5_000, 10_000)
AGENT_PATH: Final = "/v1/chat/completions"
FIRST_WORDS: Final = b"Look at it all."
"""The user's first words in `corpus.agent_body`."""
ROUNDS: Final = 3
ROOT: Final = Path(__file__).parent.parent
STRETCH: Final = 1_000
"""The number of different deltas, which are repeated."""


def deltas_of(kind: str, count: int) -> tuple[list[str], Iterator[str], list[str]]:
    """Returns the begin of an answer, this many deltas, and the end of the answer."""
    pieces = [piece.replace("\n", " ") for piece in corpus.prose(STRETCH)]  # so that they are valid in a JSON string
    stretch = islice(cycle(pieces), count)
    if kind == "prose":
        return [], stretch, []
    format = registries().formats.get("sentinel")
    begin, _, end = rendered(format, [CorpusCall("write_file", {"path": "a.md", "content": "@"})]).partition("@")
    return corpus.cut(begin), stretch, corpus.cut(end)


def measured(kind: str, count: int) -> dict[str, float]:
    """Returns nanoseconds and bytes per delta."""
    argument_streaming: Any = "buffered" if kind.endswith("buffered") else 256
    options = RouteOptions(calls=CallsConfig(recognise="taught", argument_streaming=argument_streaming))
    scanner = open_scanner("sentinel", options=options, limits=LIMITS)
    begin, stretch, end = deltas_of(kind, count)
    _time(scanner.feed, begin)
    before = _resident()
    ns = _time(scanner.feed, stretch)
    held = _resident() - before
    end_ns = _time(scanner.feed, end)
    scanner.finish()
    peak = _resident() - before
    beside = _time(len, deltas_of(kind, count)[1])
    return {
        name: value / count
        for name, value in {"ns": ns, "len": beside, "end": end_ns, "held": held, "peak": peak}.items()
    }


def _time(take: Callable[[str], object], deltas: Iterable[str]) -> int:
    began = time.process_time_ns()
    for delta in deltas:
        take(delta)
    return time.process_time_ns() - began


def _resident() -> int:
    """Returns the peak of resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cell(kind: str, count: int) -> dict[str, float]:
    """Returns the minimum of each figure."""
    command = (sys.executable, "-m", "bench.growth", "--only", kind, str(count))
    runs: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    return {name: min(run[name] for run in runs) for name in runs[0]}


def by_turns() -> Table:
    """Functions that are called for a request of an agent, by the messages before it. Instructions grow a little, since
    bytes are compared and copied (`bench.budget`)."""
    table = Table("Growth of an agent's requests", "each request")
    for title, api in AGENTS.items():
        for turns in TURNS:
            work = Work(title, 10, stream=True, frames=SHORT, api=api, turns=turns, store=False)
            row = f"{title}: {turns} messages, {len(work.ask(work.warm).raw) // 1000} kB"
            table.put(row, "functions called", f"{calls(work):.0f}")
    return table


def by_conversations() -> Table:
    """The gateway's memory after this many conversations, each of two turns with 20 and 23 messages, one after the
    other. Each begins with other words, so nothing of it is known."""
    table = Table("Memory after conversations of agents", "resident MB")
    work = Work("", 10, stream=True, frames=SHORT, turns=1, store=False)

    async def fill() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with Gateway(work, folder) as gateway:
                ask = gateway.client()
                for number in range(CONVERSATIONS[-1] + 1):
                    if number in CONVERSATIONS:
                        table.put("memory", f"{number:,}", f"{resident() / 1e6:.1f}")
                    for messages in (20, 23):
                        body = corpus.agent_body(10, messages).replace(FIRST_WORDS, b"Task %d." % number, 1)
                        answer = await ask(Ask(AGENT_PATH, body).raw)
                        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]

    with open(os.devnull, "w") as log:
        set_up_logging("text", "info", log)
        asyncio.run(fill())
        flush_logs()
        logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    return table


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs=2, metavar=("KIND", "COUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help="measure an agent's requests")
    parser.add_argument("--conversations", action="store_true", help="measure the memory of many agents")
    options = parser.parse_args(arguments)
    if options.conversations:
        print(by_conversations().text())
        return 0
    if options.turns:
        print(by_turns().text())
        return 0
    only = options.only
    if only:
        print(json.dumps(measured(only[0], int(only[1]))))
        return 0
    table = Table("Growth of one answer", "each delta")
    for kind in KINDS:
        first = 0.0
        for count in COUNTS:
            found = cell(kind, count)
            first = first or found["ns"]
            row = f"{kind}: {count:,} deltas"
            table.put(row, "ns", f"{found['ns']:.0f} ({found['ns'] / first:.2f})")
            table.put(row, "ns of `len`", f"{found['len']:.0f}")
            table.put(row, "ns at the end", f"{found['end']:.1f}")
            table.put(row, "bytes while it comes", f"{found['held']:.1f}")
            table.put(row, "bytes at most", f"{found['peak']:.1f}")
    print(table.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
