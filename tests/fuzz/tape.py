"""Bytes as a sequence of choices, so that whoever mutates bytes (a fuzzer, a seeded generator) makes structured
input."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

RAW = 240
"""A byte from here on means: the next few bytes as they are."""

MOST_PLACES = 200
"""A value with more is not changed further."""


class Tape:
    """Choices read from `data`, one byte each; after its end every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        """Whether there is more."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte, or 0."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices (at most 256)."""
        return choices[self.byte() % len(choices)]

    def flag(self) -> bool:
        """Yes or no."""
        return self.byte() % 2 == 1

    def raw(self, size: int) -> bytes:
        """The next bytes as they are."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def text(self, pieces: Sequence[str]) -> str:
        """All that is left, as pieces of text, with some characters that nobody thought of."""
        found: list[str] = []
        while self.left:
            number = self.byte()
            found.append(self.raw(1 + number % 4).decode("latin-1") if number >= RAW else pieces[number % len(pieces)])
        return "".join(found)

    def wire(self, pieces: Sequence[bytes]) -> bytes:
        """As `text`, of bytes."""
        found: list[bytes] = []
        while self.left:
            number = self.byte()
            found.append(self.raw(1 + number % 4) if number >= RAW else pieces[number % len(pieces)])
        return b"".join(found)

    def value(self, leaves: Sequence[Any], keys: Sequence[str], depth: int = 4) -> Any:
        """A JSON value."""
        number = self.byte()
        if depth and number % 8 == 0:
            return {self.pick(keys): self.value(leaves, keys, depth - 1) for _ in range(self.byte() % 5)}
        if depth and number % 8 == 1:
            return [self.value(leaves, keys, depth - 1) for _ in range(self.byte() % 5)]
        return copy.deepcopy(leaves[number % len(leaves)])

    def mutated(self, start: Any, leaves: Sequence[Any], keys: Sequence[str], most: int = 6) -> Any:
        """`start` with some places replaced, removed, doubled, swapped or added."""
        holder = [copy.deepcopy(start)]
        for _ in range(self.byte() % (most + 1)):
            places = _places(holder)
            if len(places) > MOST_PLACES:
                break  # copies of copies grow without bound
            container, key = places[(self.byte() * 256 + self.byte()) % len(places)]
            match self.byte() % 5:
                case 0:
                    container[key] = self.value(leaves, keys)
                case 1 if container is not holder:
                    del container[key]
                case 2 if isinstance(container, list) and container is not holder:
                    container.append(copy.deepcopy(container[key]))
                case 3 if isinstance(container, dict):
                    container[self.pick(keys)] = self.value(leaves, keys)
                case _:
                    other, place = places[(self.byte() * 256 + self.byte()) % len(places)]
                    container[key] = copy.deepcopy(other[place])
        return holder[0]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as (container, key)."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        container = stack.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            found.append((container, key))
            if isinstance(container[key], dict | list):
                stack.append(container[key])
    return found


def cut(whole: Any, seed: int) -> list[Any]:
    """Bytes or text in pieces: whole, or of one size, or of sizes that vary."""
    sizes = [1, 2, 3, 5, 8, 13, 64, 0]
    size = sizes[seed % 8]
    if not size:
        return [whole]
    if seed < 128:
        return [whole[at : at + size] for at in range(0, len(whole), size)]
    edges, at, step = [0], 0, seed
    while at < len(whole):
        step = step * 37 % 251 + 1
        at = min(len(whole), at + step % (4 * size))
        edges.append(at)
    return [whole[a:b] for a, b in pairwise(edges)]


def dump(value: Any) -> bytes:
    """JSON, with what JSON cannot say written as Python's does."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
