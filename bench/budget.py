"""What a request costs: calls of the gateway's own functions, and instructions. Both are counted, without a timer.

    python -m bench.budget                # count and compare with bench/budget.json; a minute
    python -m bench.budget --only calls   # a few seconds
    python -m bench.budget --update       # count and keep: in the commit with the reason

Both from the bytes of a request to those of its answer, with the transports of `bench.inprocess`, on asyncio's own
loop, whose clock stands still while there is work.

- Calls: functions of the package that begin, coroutines once and comprehensions not. Two counts differ by
  less than a hundredth, whatever machine counts; another Python may have others.
- Instructions: of the thread with the event loop, not of the store's, by valgrind. Kept, as those of
  `bench.instructions`, for each processor, Python and compiler; where there is nothing for this machine, or no
  valgrind, that is said and passes.

More than `TOLERANCE` above a kept figure fails, and so does a kind of request for which nothing is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import json
import platform
import selectors
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import toolwire
from bench import callgrind
from bench.inprocess import Api, Work, measure
from bench.instructions import worse

TOLERANCE: Final = 0.05
REQUESTS: Final = 20
AGENTS_REQUESTS: Final = 4
"""Each is some messages longer."""
RECOUNTS: Final = 2
"""Counts again if something seems worse: beside other work timers fire and reads are cut more often, which costs 1 %.
All kinds again, because a kind that is counted alone takes 1 or 2 % less."""
SHORT: Final = 12
"""Frames of a stream: few, because requests are measured, not frames."""
KEPT: Final = Path(__file__).with_name("budget.json")
SHORT_S: Final = 0.01
"""A stored response waits for a timer of 2 ms; all others are longer, and what they do is no part of a request."""
SLOWER: Final = 100
"""How much longer they take. Counting makes work some 50 times as long, and the store's thread is slow on a loaded
machine: timers that fire in a request because of that would count."""
PACKAGE: Final = Path(toolwire.__file__).parent
OWN: Final = f"{PACKAGE}/"
PLAYED: Final = str(PACKAGE / "server" / "simulated.py")
"""Both ends of the connections are no part of the gateway."""

AGENTS: Final[Mapping[str, Api]] = {"Chat": "chat", "Messages": "messages", "Responses": "responses"}
WORKS: Final = (
    Work("whole, no tools", 0),
    Work("whole, 10 tools, a call", 10, call=True),
    Work("stream, no tools", 0, stream=True, frames=SHORT),
    Work("stream, 10 tools, prose", 10, stream=True, frames=SHORT),
    Work("stream, 10 tools, a call", 10, call=True, stream=True, frames=SHORT),
    Work("Responses, whole, kept, no tools", 0, api="responses"),
    Work("Responses, stream, kept, 10 tools, a call", 10, call=True, stream=True, api="responses", frames=SHORT),
    Work("Messages, stream, 10 tools, a call", 10, call=True, stream=True, api="messages", frames=SHORT),
    *(
        Work(f"{title}, an agent's message {turns}", 10, stream=True, frames=SHORT, api=api, turns=turns, store=False)
        for title, api in AGENTS.items()
        for turns in (20, 60, 200)
    ),
    *(
        Work(
            f"Responses, kept, an agent's request {turns} by id",
            10,
            stream=True,
            frames=SHORT,
            api="responses",
            turns=turns,
            by_id=True,
        )
        for turns in (20, 60)
    ),
    Work("Messages, 150 tools, an agent's message 60", 150, stream=True, frames=SHORT, api="messages", turns=60),
    Work("Chat, native, an agent's message 200", 10, stream=True, frames=SHORT, turns=200, mode="native"),
)


@cache
def begin(code: CodeType) -> int:
    """Returns the offset of the instruction up to which a frame of this code begins; later it is resumed. -2: it is not
    counted."""
    if not code.co_filename.startswith(OWN) or code.co_filename == PLAYED or code.co_name.startswith("<"):
        return -2
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


class IdleSelector(selectors.DefaultSelector):
    """A selector with the clock of a loop in which work takes no time: it goes on when a timeout has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits for events, up to the timeout."""
        waits = timeout is not None and timeout > SHORT_S
        events = super().select(timeout * SLOWER if waits and timeout else timeout)
        if timeout and not events:
            self.seconds += timeout
        return events


class IdleLoop(asyncio.SelectorEventLoop):
    """A loop in whose requests only those timers fire that they wait for."""

    def __init__(self) -> None:
        self._idle = IdleSelector()
        super().__init__(self._idle)

    def time(self) -> float:
        """Returns the seconds of the selector's clock."""
        return self._idle.seconds


def requests_of(work: Work) -> int:
    """How many are counted."""
    return AGENTS_REQUESTS if work.turns else REQUESTS


def calls(work: Work) -> float:
    """Returns the calls per request."""
    begun = 0

    def see(frame: FrameType, what: str, _: Any) -> None:
        nonlocal begun
        if what == "call" and frame.f_lasti <= begin(frame.f_code):
            begun += 1

    def run(serve: Callable[[], None], again: object) -> None:
        sys.setprofile(see)
        try:
            serve()
        finally:
            sys.setprofile(None)

    measure(work, requests_of(work), run, IdleLoop)
    return begun / requests_of(work)


def count_calls() -> dict[str, float]:
    """Returns the calls per request of each kind, by title."""
    return {work.title: round(calls(work), 1) for work in WORKS}


def count_instructions() -> dict[str, float]:
    """Returns the instructions per request of each kind, by title."""
    totals, _ = callgrind.count("bench.budget", "--counted", times=len(WORKS))
    return {work.title: float(total // requests_of(work)) for work, total in zip(WORKS, totals, strict=True)}


def count_warm(works: Sequence[Work], ready: Sequence[tuple[Callable[[], None], Callable[[], None]]] = ()) -> None:
    """Counts the requests of each kind after the gateways of all were warmed up. `ready`: those that were."""
    if not works:
        callgrind.counted_in_turn(ready)
        return
    first, *others = works

    def go_on(serve: Callable[[], None], again: Callable[[], None]) -> None:
        count_warm(others, [*ready, (serve, again)])

    measure(first, requests_of(first), go_on, IdleLoop)


def python() -> str:
    """Returns the Python version, on which calls depend besides the source."""
    return f"Python {'.'.join(platform.python_version_tuple()[:2])}"


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns 1 if a request takes more than before."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep what is counted")
    parser.add_argument("--only", choices=("calls", "instructions"), help="count only these")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.counted:
        count_warm(WORKS)
        return 0
    status = 0
    if options.only != "instructions":
        status |= _compare("calls", python(), count_calls, update=options.update)
    if options.only != "calls":
        if callgrind.installed():
            status |= _compare("instructions", callgrind.toolchain(), count_instructions, update=options.update)
        else:
            print("instructions SKIPPED: valgrind is not installed")
    return status


def _compare(what: str, machine: str, count: Callable[[], dict[str, float]], *, update: bool) -> int:
    kept: dict[str, dict[str, dict[str, float]]] = json.loads(KEPT.read_text("utf-8"))
    known = kept[what].get(machine, {})
    if not known and not update:
        print(f"{what} SKIPPED: nothing is kept for {machine}; `--update` keeps it")
        return 0
    counts = count()
    for _ in range(0 if update else RECOUNTS):
        if worse(counts, known, TOLERANCE):
            counts = {name: min(now, counts[name]) for name, now in count().items()}
    for name, now in counts.items():
        print(f"{name}: {now:,.1f} {what}" + (f", {now / known[name] - 1:+.1%}" if name in known else ""))
    if update:
        kept[what][machine] = counts
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    wrong = worse(counts, known, TOLERANCE)
    for name, why in wrong.items():
        print(f"{name}: {what} {why}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
