"""The metrics page: the numbers of all workers, in the formats that Prometheus reads.

The formats come from `prometheus_client`: its text format, and OpenMetrics for clients that request it. The numbers are
our own (docs/adr/0015). Imported at the first scrape, because that library takes 50 ms to import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .metrics import CELLS, Counter, Family, Gauge, Histogram, Series, SharedCounters, read_file

_Merged = Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]]


def page(families: Sequence[Family], cells: SharedCounters, accept: str) -> tuple[bytes, str]:
    """Returns the page and its content type, for a client that sent this `Accept` header."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot(families, cells))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class Snapshot(Collector):
    """Collects the numbers of `cells` and of the files beside it, and adds them up."""

    def __init__(self, families: Sequence[Family], cells: SharedCounters) -> None:
        self._families = families
        self._cells = cells

    def collect(self) -> Iterator[Metric]:
        """Yields the families with their samples."""
        merged = merge(self._families, self._read())
        for family in self._families:
            yield _metric(family, merged[family.name])

    def _read(self) -> Iterator[tuple[bool, Sequence[Series]]]:
        """Yields for each process whether it is alive, and its numbers."""
        yield True, self._cells.read()
        own = self._cells.path
        if own is None:
            return
        for path in sorted(own.parent.glob(f"*{CELLS}")):
            if path != own:
                pid, series = read_file(path)
                yield _lives(pid), series


def merge(families: Iterable[Family], read: Iterable[tuple[bool, Sequence[Series]]]) -> _Merged:
    """Returns the cells of every series, added up over all processes. Gauges of dead processes are ignored."""
    known = {family.name: family for family in families}
    out: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {name: {} for name in known}
    for lives, all_series in read:
        for series in all_series:
            family = known.get(series.name)
            if family is None or (isinstance(family, Gauge) and not lives):
                continue
            before = out[series.name].get(series.values)
            out[series.name][series.values] = series.cells if before is None else _both(family, before, series.cells)
    return out


def _both(family: Family, one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    if isinstance(family, Gauge) and family.merge == "last":
        return max(one, other, key=lambda cells: cells[1])
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _metric(family: Family, series: Mapping[tuple[str, ...], tuple[float, ...]]) -> Metric:
    match family:
        case Counter():
            counter = CounterMetricFamily(family.name, family.documentation, labels=family.labels)
            for values, cells in series.items():
                counter.add_metric(values, cells[0])
            return counter
        case Gauge():
            gauge = GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
            for values, cells in series.items():
                if family.merge == "sum" or cells[1]:  # `last`: cells[1] is 0 if no living process has set it
                    gauge.add_metric(values, cells[0])
            return gauge
        case Histogram():
            histogram = HistogramMetricFamily(family.name, family.documentation, labels=family.labels)
            bounds = [*map(floatToGoString, family.bounds), "+Inf"]
            for values, cells in series.items():
                counts = accumulate(cells[:-1])
                histogram.add_metric(values, list(zip(bounds, counts, strict=True)), cells[-1])
            return histogram
        case _:
            raise TypeError(f"{type(family).__name__} has no form on the metrics page")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
