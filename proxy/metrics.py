"""Counters in Prometheus' text form, version 0.0.4.

Made for counting on every request and rendering once in a while: counting is one or two operations on a dictionary or a list,
everything else waits for the scrape. Not for threads: one event loop counts and renders.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family:
    """All samples of one name. `kind` is Prometheus' word for it."""

    kind: str

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels

    def samples(self) -> Iterator[str]:
        """The lines of the samples."""
        raise NotImplementedError

    def render(self) -> Iterator[str]:
        """All lines."""
        yield f"# HELP {self.name} {self.documentation}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def _sample(self, suffix: str, values: Sequence[str], number: float, *, le: str | None = None) -> str:
        pairs = [*zip(self.labels, values, strict=True), *(() if le is None else (("le", le),))]
        shown = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in pairs)
        return f"{self.name}{suffix}{{{shown}}} {float(number)}" if pairs else f"{self.name}{suffix} {float(number)}"


class Counter(Family):
    """A number for each combination of label values that occurred. Its name ends with `_total`."""

    kind = "counter"

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        super().__init__(name, documentation, *labels)
        self._numbers: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def inc(self, *values: str, by: int = 1) -> None:
        """Count, under these label values."""
        self._numbers[values] = self._numbers.get(values, 0) + by

    def samples(self) -> Iterator[str]:
        """See `Family`."""
        for values, number in self._numbers.items():
            yield self._sample("", values, number)


class Gauge(Family):
    """One number that goes up and down."""

    kind = "gauge"

    def __init__(self, name: str, documentation: str) -> None:
        super().__init__(name, documentation)
        self.value = 0

    def samples(self) -> Iterator[str]:
        """See `Family`."""
        yield self._sample("", (), self.value)


class Histogram(Family):
    """How many values were at most as large as each of the `bounds`, by one label."""

    kind = "histogram"

    def __init__(self, name: str, documentation: str, label: str, bounds: Sequence[float]) -> None:
        super().__init__(name, documentation, label)
        self._bounds = tuple(float(bound) for bound in bounds)
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, label: str, value: float) -> None:
        """Count one value under that label value."""
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * (len(self._bounds) + 1)
            self._sums[label] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[label] += value

    def samples(self) -> Iterator[str]:
        """See `Family`."""
        for label, counts in self._counts.items():
            total = 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                total += count
                yield self._sample("_bucket", (label,), total, le=bound)
            yield self._sample("_count", (label,), total)
            yield self._sample("_sum", (label,), self._sums[label])


def render(families: Sequence[Family]) -> bytes:
    """The whole page."""
    return "".join(f"{line}\n" for family in families for line in family.render()).encode()
