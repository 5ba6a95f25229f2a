"""Takes times, in nanoseconds; the garbage collector stays on, since it does in a gateway.

Single deltas are timed by the wall clock, because the clock of CPU time is a system call and costs more than a delta.
Whole runs are timed in CPU time of the thread, which other programs disturb little.

For each position in the text the best of all repeats is kept: what the parser needs when nothing disturbs it. What did
disturb it (the machine, the collector, memory) is in the raw times, all of them, which are reported beside it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p
from time import perf_counter_ns, thread_time_ns
from typing import Final

from toolwire.events import Event
from toolwire.extras.bench.contestants import Make

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
CONFIDENCE: Final = 0.95
BATCH: Final = 16
"""Pieces between two looks at the clock where single pieces are not timed."""

BOUNDS: Final = tuple(round(10 ** (1 + step / 8)) for step in range(8 * 9 + 1))
"""Upper bounds of the histogram's buckets in nanoseconds: 8 to a power of ten, from 10 ns to 10 s."""


def clock_ns() -> int:
    """What taking one time costs: the median of many readings with nothing between them. It is subtracted from each."""
    spans = []
    for _ in range(20_000):
        start = perf_counter_ns()
        spans.append(perf_counter_ns() - start)
    return sorted(spans)[len(spans) // 2]


def fed(make: Make, pieces: Sequence[str | bytes], budget_s: float) -> tuple[list[Event], int]:
    """The events of a run, and how many pieces were fed before the time was over."""
    parser = make()
    deadline = perf_counter_ns() + budget_s * 1e9
    events: list[Event] = []
    for number, piece in enumerate(pieces):
        if perf_counter_ns() > deadline:
            return events, number
        events += parser.feed(piece)
    events += parser.finish()
    return events, len(pieces)


def latencies(make: Make, pieces: Sequence[str | bytes], clock: int) -> tuple[array[int], int]:
    """Nanoseconds of each `feed`, and of `finish`."""
    parser = make()
    feed, now = parser.feed, perf_counter_ns
    times = array("q", bytes(8 * len(pieces)))
    for number, piece in enumerate(pieces):
        start = now()
        feed(piece)
        times[number] = now() - start
    start = now()
    parser.finish()
    end = now() - start
    for number, time in enumerate(times):
        times[number] = max(time - clock, 0)
    return times, max(end - clock, 0)


def whole_run(make: Make, pieces: Sequence[str | bytes], budget_s: float = inf) -> int | None:
    """CPU time of a run without a clock at each piece; None if the time (by the wall clock) was over first."""
    parser = make()
    feed = parser.feed
    deadline = perf_counter_ns() + budget_s * 1e9
    start = thread_time_ns()
    for first in range(0, len(pieces), BATCH):
        for piece in pieces[first : first + BATCH]:
            feed(piece)
        if perf_counter_ns() > deadline:
            return None
    parser.finish()
    return max(thread_time_ns() - start, 1)


def percentile(ordered: Sequence[int], percent: float) -> int:
    """The smallest value that so many percent of the values do not exceed (nearest rank)."""
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A percentile of what was sampled, and the interval that holds the true one 95 times of 100. None: the sample is
    too small to bound it on that side."""

    value: int
    low: int | None
    high: int | None


def estimate(values: Sequence[int], percent: float) -> Estimate:
    """A percentile with its confidence interval, which assumes nothing of how the values are spread: its bounds are
    values themselves, by the binomial distribution of how many lie below the true percentile."""
    ordered = sorted(values)
    low, high = _ranks(len(ordered), percent / 100)
    return Estimate(
        percentile(ordered, percent),
        ordered[low - 1] if low else None,
        ordered[high - 1] if high <= len(ordered) else None,
    )


def _ranks(number: int, share: float) -> tuple[int, int]:
    """The ranks of the bounds, from 1; 0 and `number` + 1 stand for none."""
    low, high = 0, number + 1
    below = 0.0  # the probability that fewer than `rank` values lie below
    for rank in range(1, number + 1):
        below += exp(
            lgamma(number + 1)
            - lgamma(rank)
            - lgamma(number - rank + 2)
            + (rank - 1) * log(share)
            + (number - rank + 1) * log1p(-share)
        )
        if below <= (1 - CONFIDENCE) / 2:
            low = rank
        if below >= (1 + CONFIDENCE) / 2:
            high = rank
            break
    return low, high


@dataclass(frozen=True, slots=True)
class Spread:
    """How times are spread: nanoseconds."""

    percentiles: tuple[int, ...]
    """Those of `PERCENTILES`."""
    max: int
    histogram: tuple[tuple[int, int], ...]
    """Upper bound and count of each bucket that is not empty."""


def spread(times: Sequence[int]) -> Spread:
    """How times are spread."""
    ordered = sorted(times)
    counts: dict[int, int] = {}
    for time in ordered:
        bound = BOUNDS[min(bisect_left(BOUNDS, time), len(BOUNDS) - 1)]
        counts[bound] = counts.get(bound, 0) + 1
    return Spread(tuple(percentile(ordered, p) for p in PERCENTILES), ordered[-1], tuple(counts.items()))


class Times:
    """The times of one contestant over several repeats."""

    def __init__(self, pieces: int) -> None:
        self.best = array("q", [2**62]) * pieces
        self.raw = array("q")
        self.finish = 2**62
        self.run = 2**62
        self.repeats = 0

    def repeat(self, make: Make, pieces: Sequence[str | bytes], clock: int) -> None:
        """Take the times of one more run, and of one without a clock at each piece."""
        times, finish = latencies(make, pieces, clock)
        self.best = array("q", map(min, self.best, times))
        self.raw += times
        self.finish = min(self.finish, finish)
        self.run = min(self.run, whole_run(make, pieces) or self.run)
        self.repeats += 1
