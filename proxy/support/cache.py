"""Bounded memory of what was made before. Each owner has its own; nothing here is global."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """Least recently used values by content: at most `entries` of them, standing for at most `weight` bytes of JSON."""

    def __init__(self, entries: int, weight: int = 4 * 1024 * 1024) -> None:
        self.entries = entries
        self.weight = weight
        self.held = 0
        self._values: OrderedDict[bytes, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> V | None:
        """The value of `key`, which now is the most recently used one."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: bytes, value: V, weight: int) -> None:
        """Keep `value`, unless it alone is heavier than the whole cache may be."""
        if weight > self.weight:
            return
        old = self._values.pop(key, None)
        self.held += weight - (old[1] if old else 0)
        self._values[key] = (value, weight)
        while self._values and (len(self._values) > self.entries or self.held > self.weight):
            _, (_, dropped) = self._values.popitem(last=False)
            self.held -= dropped
