"""Counters, gauges and histograms whose numbers outlive the worker that counted.

Rules of this module:

1. Counting is one look-up and one addition in a memory-mapped array of doubles (docs/adr/0015). With several workers
   the array is a file of a folder that they share: the system keeps what was written, also if the worker is killed.
2. A file belongs to a place among the workers, not to a process: whoever takes the place of a dead worker goes on with
   its counters and histograms, and sets its gauges to zero. So there are never more files than workers.
3. One process writes a file, any may read it. A series is written before the header says that it is there.
4. Not for threads: one event loop counts.

What is read from here becomes a page in `toolwire.observability.exposition`.
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
"""Further combinations of label values are counted together, every label being `OTHER`."""

OTHER: Final = "other"

NONE: Final = "none"
"""The label value of what there is none of."""

CELLS: Final = ".cells"
"""How the name of a file of cells ends."""

_HEAD: Final = struct.Struct("=QQ")
"""Bytes that are in use, and the process that writes."""
_SERIES: Final = struct.Struct("=II")
"""Length of the key and number of cells. The key follows, filled up to a multiple of 8, then the cells: doubles."""
_FIRST_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Series:
    """The cells of one combination of label values, as they were when they were read."""

    name: str
    values: tuple[str, ...]
    cells: tuple[float, ...]


class SharedCounters:
    """The numbers of one process: in the file at `path`, with what was counted there before, or in memory.

    `numbers` is indexed by the places that `place` gives. It is another object after each call of `place`.
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
        """The index of the first of the `size` cells of a series; they are zero if it is new."""
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
        """All series."""
        return _series(self._map, self._used)

    def close(self) -> None:
        """Give the memory back. What is in a file stays there."""
        self.numbers.release()
        self._map.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _mapped(self, size: int) -> mmap.mmap:
        if self._file < 0:
            return mmap.mmap(-1, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, 0, size)  # of a sparse file on a full disk a mere addition would be a SIGBUS
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
    """What another process has written so far: its id and all its series."""
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return 0, []  # it has just been made
        used, pid = _HEAD.unpack(head)
        return pid, _series(head + file.read(max(0, used - _HEAD.size)), used)


def _walk(content: bytes | mmap.mmap, used: int) -> Iterator[tuple[bytes, int, int]]:
    """Key, place of the first cell in bytes, and number of cells of each series."""
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
    """Values of a label that others than we make up: the first `most` that came, and `OTHER` for the rest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: set[str] = set()

    def know(self, name: str) -> None:
        """It has been counted under this name before."""
        if name not in (OTHER, NONE):
            self._known.add(name)

    def of(self, name: str) -> str:
        """Under what it is counted."""
        if name in self._known or name == NONE:
            return name
        if len(self._known) >= self.most:
            return OTHER
        self.know(name)
        return name


class Family:
    """All series of one name. `size` is the number of cells of each. Counts nothing before `bind`."""

    size = 1

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self._cells: SharedCounters
        self._places: dict[tuple[str, ...], int] = {}

    def bind(self, cells: SharedCounters) -> None:
        """Count in these cells. A family without labels has its series from now on, at zero."""
        self._cells = cells
        self._places.clear()
        if not self.labels:
            self._place(())

    def at(self, *values: str) -> int:
        """The index of the first cell of the series with these label values, for who counts often: it stays."""
        place = self._places.get(values)
        return self._place(values) if place is None else place

    def _place(self, values: tuple[str, ...]) -> int:
        """The place of a series that is not known yet."""
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(values)} of them")
        full = len(self._places) >= SERIES_PER_FAMILY
        shown = (OTHER,) * len(values) if full else values
        place = self._cells.place(self.name, shown, self.size)
        if not full:
            self._places[values] = place
        return place


class Counter(Family):
    """A number that only grows, for each combination of label values that occurred. Its name ends with `_total`."""

    def inc(self, *values: str, by: float = 1) -> None:
        """Count, under these label values."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] += by


class Gauge(Family):
    """A number that goes up and down. What several workers say is added up, or (`merge="last"`) the youngest counts."""

    def __init__(self, name: str, documentation: str, *labels: str, merge: Literal["sum", "last"] = "sum") -> None:
        super().__init__(name, documentation, *labels)
        self.merge = merge
        self.size = 1 if merge == "sum" else 2

    def bind(self, cells: SharedCounters) -> None:
        """See `Family`. What a process that is gone said is forgotten."""
        super().bind(cells)
        for series in cells.read():
            if series.name == self.name:
                place = cells.place(series.name, series.values, self.size)
                cells.numbers[place] = 0.0
                if self.merge == "last":
                    cells.numbers[place + 1] = 0.0

    def inc(self, *values: str, by: float = 1) -> None:
        """Add to it."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] += by
        if self.size == 2:
            self._cells.numbers[place + 1] = time.monotonic()

    def set(self, number: float, *values: str) -> None:
        """Say what it is now."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        self._cells.numbers[place] = number
        if self.size == 2:
            self._cells.numbers[place + 1] = time.monotonic()  # the same clock in all processes of a machine


class Histogram(Family):
    """How many values were at most as large as each of the `bounds`, for each combination of label values. The last two
    cells: above all bounds, sum."""

    def __init__(self, name: str, documentation: str, *labels: str, bounds: Sequence[float]) -> None:
        super().__init__(name, documentation, *labels)
        self.bounds = tuple(float(bound) for bound in bounds)
        self.size = len(self.bounds) + 2

    def observe(self, value: float, *values: str) -> None:
        """Count one value under these label values."""
        place = self._places.get(values)
        if place is None:
            place = self._place(values)
        numbers = self._cells.numbers
        numbers[place + bisect_left(self.bounds, value)] += 1
        numbers[place + self.size - 1] += value
