"""Bounded memory of what was made before: one budget of bytes for all caches of an application.

Rules:

1. A cache that keeps anything made from foreign content (requests, answers, tool lists) takes its room from the
   application's `CacheBudget` (`limits.cache_bytes`). Nothing here is global.
2. An entry is weighed by the bytes that it keeps alive, not by its key or the text that it was made from.
3. Beyond the budget, the entries used longest ago are evicted, whichever cache they are in.

Source: R33.1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from threading import Lock
from typing import Any, Final, Generic, TypeVar

V = TypeVar("V")

DEFAULT_BYTES: Final = 64 * 1024 * 1024
SHARE: Final = 8
"""An entry heavier than this part of the budget is not kept: it would evict too much."""
ENTRY_BYTES: Final = 512
"""Weight of an entry beside its key and value: two slots of dictionaries and the objects that hold it."""


@dataclass(slots=True)
class CacheUse:
    """Sums of the caches of one name: `bytes` and `entries` now, and how many entries were `evicted` by the last change
    (those of others, because there was no room)."""

    bytes: int = 0
    entries: int = 0
    evicted: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    cache: Cache[Any]
    key: Hashable
    value: Any
    weight: int


class CacheBudget:
    """Bytes that the caches of one application keep together. Threads may use its caches at the same time.

    `report` is told the sums of a name whenever they change.
    """

    def __init__(self, most: int = DEFAULT_BYTES, report: Callable[[str, CacheUse], None] | None = None) -> None:
        self.most = most
        self.held = 0
        self.use: dict[str, CacheUse] = {}
        self._report = report
        self._lock = Lock()
        self._order: OrderedDict[_Entry, None] = OrderedDict()  # used longest ago first

    def cache(self, name: str) -> Cache[Any]:
        """A new, empty cache. Caches of one name are counted together; a name is never foreign content."""
        use = self.use.setdefault(name, CacheUse())
        if self._report is not None:
            self._report(name, use)
        return Cache(self, name)

    def close(self) -> None:
        """Drop everything and report no more: another application may count on under the same names."""
        self._report = None
        self._shrink(0)

    def _shrink(self, most: int) -> None:
        """Evict until at most `most` bytes are left."""
        with self._lock:
            gone = self._evicted(most)
        del gone  # outside the lock: destroying them may take long, and may run foreign code

    def _evicted(self, most: int) -> list[_Entry]:
        gone: list[_Entry] = []
        while self.held > most and self._order:
            entry, _ = self._order.popitem(last=False)
            self._removed(entry, evicted=1)
            gone.append(entry)
        return gone

    def _removed(self, entry: _Entry, *, evicted: int = 0) -> None:
        del entry.cache._entries[entry.key]
        self._count(entry.cache.name, -entry.weight, -1, evicted)

    def _count(self, name: str, weight: int, entries: int, evicted: int = 0) -> None:
        self.held += weight
        use = self.use[name]
        use.bytes += weight
        use.entries += entries
        use.evicted = evicted
        if self._report is not None:
            self._report(name, use)


class Cache(Generic[V]):
    """The entries of one owner. Made by `CacheBudget.cache`."""

    def __init__(self, budget: CacheBudget, name: str) -> None:
        self.budget = budget
        self.name = name
        self._entries: dict[Hashable, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> V | None:
        """The value of `key`, which becomes the most recently used one of all caches; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        budget = self.budget
        with budget._lock:
            if entry in budget._order:  # else another thread has evicted it meanwhile
                budget._order.move_to_end(entry)
        value: V = entry.value
        return value

    def put(self, key: Hashable, value: V, weight: int) -> bool:
        """Keep `value`, which keeps `weight` bytes alive, in place of the one that `key` had. Returns False if it is
        too heavy to be kept: then `key` has no value."""
        weight += ENTRY_BYTES + getsizeof(key)
        budget = self.budget
        with budget._lock:
            old = self._entries.get(key)
            if old is not None:
                del budget._order[old]
                budget._removed(old)
            kept = weight <= budget.most // SHARE
            gone: list[_Entry] = []
            if kept:
                entry = self._entries[key] = _Entry(self, key, value, weight)
                budget._order[entry] = None
                budget._count(self.name, weight, 1)
                gone = budget._evicted(budget.most)
        del gone, old
        return kept

    def grow(self, key: Hashable, by: int) -> None:
        """The value of `key` keeps `by` bytes more than before (fewer, if negative). An entry that has become too heavy
        is evicted. Does nothing if `key` has no value."""
        budget = self.budget
        with budget._lock:
            entry = self._entries.get(key)
            if entry is None:
                return
            entry.weight += by
            budget._count(self.name, by, 0)
            gone = [entry]
            if entry.weight > budget.most // SHARE:
                del budget._order[entry]
                budget._removed(entry, evicted=1)
            else:
                gone += budget._evicted(budget.most)
        del gone, entry

    def drop(self, key: Hashable) -> None:
        """Forget `key`."""
        budget = self.budget
        with budget._lock:
            entry = self._entries.get(key)
            if entry is not None:
                del budget._order[entry]
                budget._removed(entry)
        del entry


def chars_of(value: object, most: int) -> int:
    """About the characters of this value as JSON. Counts no further than `most`."""
    total = 0
    todo = [value]
    while todo and total <= most:
        item = todo.pop()
        if isinstance(item, str):
            total += len(item) + 2
        elif isinstance(item, Mapping):
            total += 4 * len(item) + 2
            todo += item.keys()
            todo += item.values()
        elif isinstance(item, _CONTAINERS):
            total += len(item) + 2
            todo += item
        else:
            total += 4
    return total


_CONTAINERS: Final = (list, tuple, set, frozenset)


def weight_of(*values: object) -> int:
    """Bytes that these JSON-like values keep: texts, numbers and containers of them, each object counted once. Of any
    other object only its own size is counted."""
    seen: set[int] = set()
    todo: list[object] = list(values)
    total = 0
    while todo:
        value = todo.pop()
        if value is None or value is True or value is False or id(value) in seen:
            continue
        seen.add(id(value))
        total += getsizeof(value)
        if isinstance(value, Mapping):
            todo += value.keys()
            todo += value.values()
        elif isinstance(value, _CONTAINERS):
            todo += value
    return total
