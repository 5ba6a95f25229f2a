"""Instructions that the compiled scanner executes, counted by valgrind: a regression shows without a timer.

    python -m bench.instructions            # count and compare with bench/instructions.json; about half a minute
    python -m bench.instructions --update   # count and keep

Counted is what happens inside `feed` of scanner, framer and gate, callees included (`--toggle-collect`), so neither the
interpreter's loop nor its start plays a part; the same binary gives the same count within a thousandth. Another
compiler or another Python gives another count, so the figures are kept by both, and where there are none for this
machine the check says so and passes. More than `TOLERANCE` above a kept figure fails, and so does work for which
nothing is kept. Needs `valgrind`; without it the check says so and passes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import callgrind, corpus

if TYPE_CHECKING:
    from toolwire._fastparse import CallScanner

    from toolwire.formats.base import ToolFormat
    from toolwire.scan._grammar import BlockSyntax, EarlyCall, Field

TOLERANCE: Final = 0.10
DELTAS: Final = 10_000
KEPT: Final = Path(__file__).with_name("instructions.json")


class _NoPolicy:
    """Opens every call. Has no further methods, because no block here ends."""

    strict = False
    unwrap = True
    callable_names = ("get_weather", "search_files", "write_file")

    def may_call(self, name: str, untaught: bool) -> bool:
        return name in self.callable_names

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """Ignores a block of an untaught syntax that was not a call."""

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> EarlyCall:
        from toolwire.scan._grammar import EarlyCall, FoundCall

        return EarlyCall(FoundCall(dict(pieces)["name"], "call_1", ""))


Run = Callable[[], int]
"""A function that does the counted work and returns the number of its units, by which the count is divided."""


def _scan(format: str, deltas: Sequence[str], recognise: bool = False, incremental: bool = False) -> Run:
    feed = _scanner(format, recognise, incremental).feed

    def run() -> int:
        for delta in deltas:
            feed(delta)
        return len(deltas)

    return run


def _scanner(format: str, recognise: bool = False, incremental: bool = False) -> CallScanner:
    from toolwire._fastparse import CallScanner

    from toolwire.formats.recognised.recognition import recognising
    from toolwire.scan.loose_head import loose_words

    grammar = recognising(_format(format).grammar, "any" if recognise else "taught")
    tags = dict.fromkeys([*grammar.reasoning, ("<think>", "</think>")])
    loose_words(_NoPolicy.callable_names)  # cached for a set of tools, as after an earlier answer
    return CallScanner(grammar, _NoPolicy(), reasoning=tuple(tags), stream_after=0 if incremental else None)


def _format(name: str) -> ToolFormat:
    """Returns a format by its module in `toolwire.formats` and its attribute; importing the registry would take long
    under valgrind."""
    module, _, attribute = name.partition(":")
    found: ToolFormat = getattr(import_module(f"toolwire.formats.{module}"), attribute)
    return found


def _long_call(format: str) -> list[str]:
    """Returns one call without its end, so that no policy is called."""
    from toolwire.model import ToolUse

    arguments = {"path": "a.py", "content": "    total = price * 1.19  # € gross\n" * (DELTAS // 8)}
    return corpus.cut(_format(format).render_call(ToolUse("", "write_file", json.dumps(arguments))))[:-20]


def prose() -> Run:
    """Scans prose in deltas like tokens."""
    return _scan("families.sentinel:FORMAT", corpus.prose(DELTAS))


def prose_recognised() -> Run:
    """Scans prose, and searches calls in other formats."""
    return _scan("families.sentinel:FORMAT", corpus.prose(DELTAS), recognise=True)


def prose_auto() -> Run:
    """Scans prose, and searches calls in every format."""
    return _scan("recognised.auto:FORMAT", corpus.prose(DELTAS))


def call() -> Run:
    """Scans one long call."""
    return _scan("families.sentinel:FORMAT", _long_call("families.sentinel:FORMAT"))


def call_tagged() -> Run:
    """Scans one long call with arguments in tags."""
    return _scan("families.qwen:QWEN3_CODER", _long_call("families.qwen:QWEN3_CODER"))


def call_given_out() -> Run:
    """Scans one long call whose arguments are streamed early: JSON."""
    return _scan("families.hermes:FORMAT", _long_call("families.hermes:FORMAT"), incremental=True)


def call_given_out_nested() -> Run:
    """Scans one long call whose arguments are streamed early: JSON in a JSON string."""
    return _scan("families.sentinel:FORMAT", _long_call("families.sentinel:FORMAT"), incremental=True)


def call_given_out_tagged() -> Run:
    """Scans one long call whose arguments are streamed early: text in tags."""
    return _scan("families.qwen:QWEN3_CODER", _long_call("families.qwen:QWEN3_CODER"), incremental=True)


def openers() -> Run:
    """Scans incomplete openers."""
    return _scan("families.sentinel:FORMAT", corpus.false_openers(DELTAS))


@cache
def _frames() -> list[bytes]:
    return [corpus.frame(delta) for delta in corpus.prose(DELTAS)]


def frames() -> Run:
    """Splits a stream into frames, one frame per read."""
    from toolwire._fastparse import SseFramer

    wire = _frames()
    feed = SseFramer().feed

    def run() -> int:
        for frame in wire:
            feed(frame)
        return len(wire)

    return run


def gate() -> Run:
    """Runs framing, JSON, scan and the client's frame in one step."""
    from toolwire._fastparse import ChunkGate

    wire = _frames()
    head, _, tail = corpus.frame("@").partition(b"@")
    scanner = _scanner("families.sentinel:FORMAT")
    scanner.feed("So")
    declined: list[bytes] = []

    def slow(data: bytes) -> bytes:
        made.take()
        declined.append(data)
        return b""

    made = ChunkGate(slow, lambda events: b"")
    made.open(scanner, head, tail)

    def run() -> int:
        for frame in wire:
            made.feed(frame)
        if len(declined) > len(wire) // 1000:  # some must, since what has passed is kept up to a bound
            raise RuntimeError(f"{len(declined)} frames did not pass the gate")
        return len(wire)

    return run


WORK: Final[dict[str, Callable[[], Run]]] = {
    work.__name__: work
    for work in (
        *(prose, prose_recognised, prose_auto),
        *(call, call_tagged, call_given_out, call_given_out_nested, call_given_out_tagged),
        *(openers, frames, gate),
    )
}


def count() -> dict[str, float]:
    """Returns the instructions per unit of each piece of work. All run in one process, because its start is slowest
    under valgrind."""
    totals, units = callgrind.count("bench.instructions", "--counted", inside="__pyx_pw_*feed*", times=len(WORK))
    return {
        name: round(total / int(each), 1) for name, total, each in zip(WORK, totals, units.splitlines(), strict=True)
    }


def worse(counts: Mapping[str, float], known: Mapping[str, float], tolerance: float = TOLERANCE) -> dict[str, str]:
    """Returns a message for each piece of work that costs too much or has no stored figure."""
    wrong: dict[str, str] = {}
    for name, now in counts.items():
        if name not in known:
            wrong[name] = "nothing is kept for it"
        elif now > known[name] * (1 + tolerance):
            wrong[name] = f"{now / known[name] - 1:+.1%} against {known[name]:,.1f}, more than {tolerance:.0%}"
    return wrong


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns 1 if something costs more than before."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="keep what is counted")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.counted:
        for work in WORK.values():
            run = work()
            callgrind.counted(lambda run=run: print(run()))
        return 0
    if not callgrind.installed():
        print("SKIPPED: valgrind is not installed")
        return 0
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text("utf-8"))
    known = kept.get(callgrind.toolchain(), {})
    if not known and not options.update:
        print(f"SKIPPED: nothing is kept for {callgrind.toolchain()}; `--update` keeps it")
        return 0
    counts = count()
    for name, now in counts.items():
        before = f", {now / known[name] - 1:+.1%}" if name in known else ""
        print(f"{name}: {now:,.1f} instructions each{before}")
    if options.update:
        KEPT.write_text(json.dumps({**kept, callgrind.toolchain(): counts}, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    wrong = worse(counts, known)
    for name, why in wrong.items():
        print(f"{name}: {why}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
