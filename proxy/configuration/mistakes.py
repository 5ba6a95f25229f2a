"""Collects all mistakes of a configuration, over several steps of loading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..support.conversion import ConfigError


class Mistakes:
    """The mistakes of a configuration. Each step continues with default values in place of invalid ones. `lines` are
    messages for people, each beginning with a key path. `warnings` are messages about things that are not mistakes.
    `origins` maps key paths to the environment variables that set them, or that created the section there."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.origins: dict[str, str] = {}
        self._places: set[str] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Adds the mistakes that a step has found, except those about values already known to be invalid."""
        new = [line for line in lines if not any(_within(_place(line), known) for known in self._places)]
        self.lines += map(self._with_origin, new)
        self._places |= set(map(_place, new))

    def _with_origin(self, line: str) -> str:
        path = _place(line)
        while path and path not in self.origins:
            path = above(path)
        return f"{line} (from {self.origins[path]})" if path and "(from " not in line else line

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Records a `ConfigError` raised in the block, and continues after the block."""
        try:
            yield
        except ConfigError as error:
            self.add(error.problems)

    def at(self, path: str) -> bool:
        """Returns True if the value at this path is invalid."""
        return path in self._places

    def below(self, *paths: str) -> bool:
        """Returns True if a value at or below one of these paths is invalid."""
        return any(_within(place, path) for place in self._places for path in paths)

    def check(self) -> None:
        """Raises `ConfigError` if there are mistakes."""
        if self.lines:
            raise ConfigError(*self.lines)


def above(path: str) -> str:
    """Returns the path of the section or list that contains this path; empty at the top."""
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _place(line: str) -> str:
    return line.partition(": ")[0]


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))
