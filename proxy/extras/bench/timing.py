"""Measures times in nanoseconds. The garbage collector stays on, as in a gateway.

Single deltas are measured by the wall clock, because reading CPU time is a system call and takes longer than a delta.
Whole runs are measured in CPU time of the thread, which other programs affect little.

For each position in the text the best time of all repeats is kept: the time without disturbances. Disturbances (by the
machine, the collector, memory) are in the raw times, which are reported too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p
from time import perf_counter_ns, thread_time_ns
from typing import Final

from ...events import Event
from .contestants import Make

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
CONFIDENCE: Final = 0.95
BATCH: Final = 16
"""Pieces between two readings of the clock if single pieces are not timed."""

BOUNDS: Final = tuple(round(10 ** (1 + step / 8)) for step in range(8 * 9 + 1))
"""Upper bounds of the histogram's buckets in nanoseconds: 8 per power of ten, from 10 ns to 10 s."""


def clock_ns() -> int:
    """Returns the time that one reading of the clock takes: the median of many. It is subtracted from each
    measurement."""
    spans = []
    for _ in range(20_000):
        start = perf_counter_ns()
        spans.append(perf_counter_ns() - start)
    return sorted(spans)[len(spans) // 2]


def fed(make: Make, pieces: Sequence[str | bytes], budget_s: float) -> tuple[list[Event], int]:
    """Returns the events of a run, and the number of pieces that were fed within the time limit."""
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
    """Returns the nanoseconds of each `feed`, and of `finish`."""
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
    """Returns the CPU time of a run without reading the clock at each piece; None if it exceeds the limit in
    wall time."""
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
    """Returns the smallest value that is at least as large as this percentage of the values (nearest rank)."""
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A percentile of a sample, and its 95 % confidence interval. None: the sample is too small for a bound on that
    side."""

    value: int
    low: int | None
    high: int | None


def estimate(values: Sequence[int], percent: float) -> Estimate:
    """Returns a percentile with its confidence interval. It assumes no distribution: the bounds are values of the
    sample, chosen by the binomial distribution of the number of values below the true percentile."""
    ordered = sorted(values)
    low, high = _ranks(len(ordered), percent / 100)
    return Estimate(
        percentile(ordered, percent),
        ordered[low - 1] if low else None,
        ordered[high - 1] if high <= len(ordered) else None,
    )


def _ranks(number: int, share: float) -> tuple[int, int]:
    """Returns the ranks of the bounds, counted from 1; 0 and `number` + 1 mean no bound."""
    low, high = 0, number + 1
    below = 0.0  # the probability that fewer than `rank` values are below
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
    """The distribution of times, in nanoseconds."""

    percentiles: tuple[int, ...]
    """The percentiles of `PERCENTILES`."""
    max: int
    histogram: tuple[tuple[int, int], ...]
    """Upper bound and count of each bucket that is not empty."""


def spread(times: Sequence[int]) -> Spread:
    """Returns the distribution of times."""
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
        """Measures one more run, and one without reading the clock at each piece."""
        times, finish = latencies(make, pieces, clock)
        self.best = array("q", map(min, self.best, times))
        self.raw += times
        self.finish = min(self.finish, finish)
        self.run = min(self.run, whole_run(make, pieces) or self.run)
        self.repeats += 1
