"""How many calls of the gateway's own functions a request takes: half of what makes it dear, and counted without noise.

    python -m bench.budget            # count and compare with bench/budget.json; a few seconds
    python -m bench.budget --update   # count and keep: in the commit with the reason

Counted are functions of `proxy` and `middlewares` that begin, coroutines once and comprehensions not, from the bytes of
a request to those of its answer, with the transports of `bench.inprocess`. Two counts differ by less than a hundredth,
whatever machine counts; another Python may have others. More than `TOLERANCE` above a kept figure fails, and so does a
kind of request for which nothing is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import json
import platform
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from bench.inprocess import ROOT, Work, measure
from bench.instructions import worse

TOLERANCE: Final = 0.05
REQUESTS: Final = 20
SHORT: Final = 12
"""Frames of a stream: what a request costs, and not what a frame does."""
KEPT: Final = Path(__file__).with_name("budget.json")
OWN: Final = tuple(f"{ROOT / room}/" for room in ("proxy", "middlewares"))

WORKS: Final = (
    Work("whole, no tools", 0),
    Work("whole, 10 tools, a call", 10, call=True),
    Work("stream, no tools", 0, stream=True, frames=SHORT),
    Work("stream, 10 tools, prose", 10, stream=True, frames=SHORT),
    Work("stream, 10 tools, a call", 10, call=True, stream=True, frames=SHORT),
    Work("Responses, whole, kept, no tools", 0, api="responses"),
    Work("Responses, stream, kept, 10 tools, a call", 10, call=True, stream=True, api="responses", frames=SHORT),
    Work("Messages, stream, 10 tools, a call", 10, call=True, stream=True, api="messages", frames=SHORT),
)


@cache
def begin(code: CodeType) -> int:
    """Up to which instruction a frame with this code begins; beyond, it goes on. -2: it does not count."""
    if not code.co_filename.startswith(OWN) or code.co_name.startswith("<"):
        return -2
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def count(work: Work) -> float:
    """Calls for each request."""
    calls = 0

    def see(frame: FrameType, what: str, _: Any) -> None:
        nonlocal calls
        if what == "call" and frame.f_lasti <= begin(frame.f_code):
            calls += 1

    def run(serve: Callable[[], None]) -> None:
        sys.setprofile(see)
        try:
            serve()
        finally:
            sys.setprofile(None)

    measure(work, REQUESTS, run, asyncio.new_event_loop)
    return calls / REQUESTS


def main(arguments: Sequence[str]) -> int:
    """The command. 1 if a request takes more than it did."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep what is counted")
    options = parser.parse_args(arguments)
    python = ".".join(platform.python_version_tuple()[:2])
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    known = kept.get(python, {})
    if not known and not options.update:
        print(f"SKIPPED: nothing is kept for Python {python}; `--update` keeps it")
        return 0
    counts = {work.title: round(count(work), 1) for work in WORKS}
    for name, now in counts.items():
        print(f"{name}: {now:,.1f} calls" + (f", {now / known[name] - 1:+.1%}" if name in known else ""))
    if options.update:
        KEPT.write_text(json.dumps({**kept, python: counts}, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    wrong = worse(counts, known, TOLERANCE)
    for name, why in wrong.items():
        print(f"{name}: {why}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
