"""Counters, gauges and histograms whose numbers survive the worker that counted them.

Rules:

1. Counting is one look-up and one addition in a memory-mapped array of doubles (docs/adr/0015). With several workers
   the array is a file in a folder that they share, so the system keeps the numbers even if the worker is killed.
2. A file belongs to a worker's slot, not to a process: the successor of a dead worker continues its counters and
   histograms, and sets its gauges to zero. So there are never more files than workers.
3. One process writes a file, any process may read it. A series is written before the header includes it.
4. Not thread-safe: one event loop counts.

`toolwire.observability.exposition` turns the numbers into a page.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import orjson

SERIES_PER_FAMILY: Final = 4000
"""Further combinations of label values are counted together, with `OTHER` for every label."""

OTHER: Final = "other"

NONE: Final = "none"
"""The label value if there is no value."""

CELLS: Final = ".cells"
"""Suffix of the files that hold a process's numbers."""

_HEAD: Final = struct.Struct("=QQ")
"""The number of bytes in use, and the process that writes."""
_SERIES: Final = struct.Struct("=II")
"""Length of the key and number of cells. The key follows, padded to a multiple of 8, then the cells: doubles."""
_FIRST_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Series:
    """The cells of one combination of label values, at the time they were read."""

    name: str
    values: tuple[str, ...]
    cells: tuple[float, ...]


class SharedCounters:
    """The numbers of one process: in the file at `path`, continuing earlier ones, or in memory.

    `numbers` is indexed by the results of `place`. It may be a new object after a call of `place`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._places: dict[bytes, int] = {}
        self._file = -1
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._map = self._mapped(max(_FIRST_BYTES, os.fstat(self._file).st_size if path is not None else 0))
        self._used: int = max(_HEAD.size, _HEAD.unpack_from(self._map)[0])
        for key, start, _ in _walk(self._map, self._used):
            self._places[key] = start // 8
        self.numbers = memoryview(self._map).cast("d")
        self._note()

    def place(self, name: str, values: Sequence[str], size: int) -> int:
        """Returns the index of the first of the `size` cells of a series, and creates them with zeros if needed."""
        key = orjson.dumps([name, *values])
        known = self._places.get(key)
        if known is not None:
            return known
        start: int = self._used + _SERIES.size + -(-len(key) // 8) * 8
        end = start + size * 8
        if end > len(self._map):
            self._grow(end)
        _SERIES.pack_into(self._map, self._used, len(key), size)
        self._map[self._used + _SERIES.size : self._used + _SERIES.size + len(key)] = key
        self._used = end
        self._note()
        self._places[key] = start // 8
        return start // 8

    def read(self) -> list[Series]:
        """Returns all series."""
        return _series(self._map, self._used)

    def close(self) -> None:
        """Releases the memory. The content of a file stays."""
        self.numbers.release()
        self._map.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _mapped(self, size: int) -> mmap.mmap:
        if self._file < 0:
            return mmap.mmap(-1, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, 0, size)  # in a sparse file on a full disk an addition would raise SIGBUS
        else:
            os.ftruncate(self._file, size)
        return mmap.mmap(self._file, size)

    def _grow(self, least: int) -> None:
        before = self._map
        self._map = self._mapped(max(least, 2 * len(before)))
        if self._file < 0:
            self._map[: self._used] = before[: self._used]
        self.numbers.release()
        self.numbers = memoryview(self._map).cast("d")
        before.close()

    def _note(self) -> None:
        _HEAD.pack_into(self._map, 0, self._used, os.getpid())


def read_file(path: Path) -> tuple[int, list[Series]]:
    """Returns the process id and the series that another process has written so far."""
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return 0, []  # the file was just created
        used, pid = _HEAD.unpack(head)
        return pid, _series(head + file.read(max(0, used - _HEAD.size)), used)


def _walk(content: bytes | mmap.mmap, used: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields for each series its key, the position of its first cell in bytes, and its number of cells."""
    at = _HEAD.size
    while at < used:
        length, size = _SERIES.unpack_from(content, at)
        at += _SERIES.size
        start = at + -(-length // 8) * 8
        yield content[at : at + length], start, size
        at = start + size * 8


def _series(content: bytes | mmap.mmap, used: int) -> list[Series]:
    out = []
    for key, start, size in _walk(content, used):
        name, *values = orjson.loads(key)
        out.append(Series(name, tuple(values), struct.unpack_from(f"={size}d", content, start)))
    return out


class BoundedNames:
    """Label values that come from outside: the first `most` names are kept, further ones become `OTHER`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: set[str] = set()

    def know(self, name: str) -> None:
        """Reserves a label value for a name that an earlier process counted."""
        if name not in (OTHER, NONE):
            self._known.add(name)

    def of(self, name: str) -> str:
        """Returns the label value for a name: the name itself, or `OTHER`."""
        if name in self._known or name == NONE:
            return name
        if len(self._known) >= self.most:
            return OTHER
        self.know(name)
        return name


class Family:
    """All series of one name. `size` is the number of cells of each. Call `bind` before counting."""

    size = 1

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self._cells: SharedCounters
        self._places: dict[tuple[str, ...], int] = {}

    def bind(self, cells: SharedCounters) -> None:
        """Sets the cells to count in. A family without labels gets its series at once, with zero."""
        self._cells = cells
        self._places.clear()
        if not self.labels:
            self._place(())

    def at(self, *values: str) -> int:
        """Returns the index of the first cell of the series with these label values. It stays valid, so callers may
        store it."""
        place = self._places.get(values)
        return self._place(values) if place is None else place

    def _place(self, values: tuple[str, ...]) -> int:
        """Returns the index for a series that is not cached yet. Raises `ValueError` for a wrong number of labels."""
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(values)} of them")
        full = len(self._places) >= SERIES_PER_FAMILY
        shown = (OTHER,) * len(values) if full else values
        place = self._cells.place(self.name, shown, self.size)
        if not full:
            self._places[values] = place
        return place


class Counter(Family):
    """A number that only grows, for each combination of label values. Its name ends with `_total`."""

    def inc(self, *values: str, by: float = 1) -> None:
        """Adds `by` under these label values."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] += by


class Gauge(Family):
    """A number that goes up and down. Over several workers the values are added up, or with `merge="last"` the latest
    counts."""

    def __init__(self, name: str, documentation: str, *labels: str, merge: Literal["sum", "last"] = "sum") -> None:
        super().__init__(name, documentation, *labels)
        self.merge = merge
        self.size = 1 if merge == "sum" else 2

    def bind(self, cells: SharedCounters) -> None:
        """Sets the cells to count in, and resets the gauge's values of an earlier process to zero."""
        super().bind(cells)
        for series in cells.read():
            if series.name == self.name:
                place = cells.place(series.name, series.values, self.size)
                cells.numbers[place] = 0.0
                if self.merge == "last":
                    cells.numbers[place + 1] = 0.0

    def inc(self, *values: str, by: float = 1) -> None:
        """Adds `by` to the value."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] += by
        if self.size == 2:
            self._cells.numbers[place + 1] = time.monotonic()

    def set(self, number: float, *values: str) -> None:
        """Sets the value."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] = number
        if self.size == 2:
            self._cells.numbers[place + 1] = time.monotonic()  # this clock is shared by all processes of a machine


class Histogram(Family):
    """The number of values up to each of the `bounds`, for each combination of label values. The last two cells: values
    above all bounds, and the sum."""

    def __init__(self, name: str, documentation: str, *labels: str, bounds: Sequence[float]) -> None:
        super().__init__(name, documentation, *labels)
        self.bounds = tuple(float(bound) for bound in bounds)
        self.size = len(self.bounds) + 2

    def observe(self, value: float, *values: str) -> None:
        """Counts one value under these label values."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        numbers = self._cells.numbers
        numbers[place + bisect_left(self.bounds, value)] += 1
        numbers[place + self.size - 1] += value
