"""Memory-bounded caches: one budget of bytes for all caches of an application.

Rules:

1. Every cache of data derived from requests, answers or tool lists uses the application's `CacheBudget`
   (`limits.cache_bytes`). Nothing here is global.
2. The weight of an entry is the number of bytes that it keeps alive, not the size of its key or source text.
3. Beyond the budget the least recently used entries are evicted, from whichever cache.

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
SHARE: Final = 4
"""An entry heavier than the budget divided by this number is not stored, because it would evict too many others."""
ENTRY_BYTES: Final = 512
"""Weight of an entry in addition to its key and value: two dictionary slots and the entry's own objects."""


@dataclass(slots=True)
class CacheUse:
    """Totals of all caches with one name: `bytes` and `entries` now, and the number of entries that the last change
    `evicted`."""

    bytes: int = 0
    entries: int = 0
    evicted: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    cache: BudgetedCache[Any]
    key: Hashable
    value: Any
    weight: int


class CacheBudget:
    """The memory budget shared by the caches of one application. Thread-safe.

    `report` is called with a name and its totals whenever they change.
    """

    def __init__(self, most: int = DEFAULT_BYTES, report: Callable[[str, CacheUse], None] | None = None) -> None:
        self.most = most
        self.held = 0
        self.use: dict[str, CacheUse] = {}
        self._report = report
        self._lock = Lock()
        self._order: OrderedDict[_Entry, None] = OrderedDict()  # used longest ago first

    def cache(self, name: str) -> BudgetedCache[Any]:
        """Returns a new, empty cache. Caches with the same name are counted together. The name must not come from a
        request."""
        use = self.use.setdefault(name, CacheUse())
        if self._report is not None:
            self._report(name, use)
        return BudgetedCache(self, name)

    def close(self) -> None:
        """Evicts everything and stops reporting: another application may already report under the same names."""
        self._report = None
        self._shrink(0)

    def _shrink(self, most: int) -> None:
        """Evicts entries until at most `most` bytes are left."""
        with self._lock:
            evicted = self._evicted(most)
        del evicted  # outside the lock: destructors may be slow or run other code

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


class BudgetedCache(Generic[V]):
    """The entries of one owner. Created by `CacheBudget.cache`."""

    def __init__(self, budget: CacheBudget, name: str) -> None:
        self.budget = budget
        self.name = name
        self._entries: dict[Hashable, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def most(self) -> int:
        """The weight of the heaviest entry that is stored."""
        return self.budget.most // SHARE

    def get(self, key: Hashable) -> V | None:
        """Returns the value of `key` and marks it as the most recently used, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        budget = self.budget
        with budget._lock:
            if entry in budget._order:  # another thread may have evicted it
                budget._order.move_to_end(entry)
        value: V = entry.value
        return value

    def put(self, key: Hashable, value: V, weight: int) -> bool:
        """Stores `value`, which keeps `weight` bytes alive, in place of the key's old value. Returns False if it is too
        heavy to be stored; then the key has no value."""
        weight += ENTRY_BYTES + getsizeof(key)
        budget = self.budget
        with budget._lock:
            old = self._entries.get(key)
            if old is not None:
                del budget._order[old]
                budget._removed(old)
            stored = weight <= self.most
            evicted: list[_Entry] = []
            if stored:
                entry = self._entries[key] = _Entry(self, key, value, weight)
                budget._order[entry] = None
                budget._count(self.name, weight, 1)
                evicted = budget._evicted(budget.most)
        del evicted, old
        return stored

    def grow(self, key: Hashable, by: int) -> None:
        """Adds `by` bytes (possibly negative) to the weight of the entry of `key`. Evicts an entry that has become too
        heavy. Does nothing if `key` has no value."""
        budget = self.budget
        with budget._lock:
            entry = self._entries.get(key)
            if entry is None:
                return
            entry.weight += by
            budget._count(self.name, by, 0)
            evicted = [entry]
            if entry.weight > self.most:
                del budget._order[entry]
                budget._removed(entry, evicted=1)
            else:
                evicted += budget._evicted(budget.most)
        del evicted, entry

    def drop(self, key: Hashable) -> None:
        """Removes the entry of `key`, if any."""
        budget = self.budget
        with budget._lock:
            entry = self._entries.get(key)
            if entry is not None:
                del budget._order[entry]
                budget._removed(entry)
        del entry


def chars_of(value: object, most: int) -> int:
    """Returns the approximate number of characters of `value` as JSON. Stops counting beyond `most`."""
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
    """Returns the bytes that these JSON-like values keep alive: texts, numbers and their containers, each object
    counted once. Of any other object only its own size is counted."""
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
