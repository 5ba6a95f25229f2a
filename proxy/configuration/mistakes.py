"""All mistakes of a configuration, found in several steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..support.conversion import ConfigError


class Mistakes:
    """What is wrong. Each step goes on with stand-ins for what the steps before could not use. `lines` is what people
    get to see; each begins with a key path. `warnings` is all that is no mistake and should be known."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self._places: set[str] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Add what one step has found, but for what it says of stand-ins."""
        new = [line for line in lines if not any(_within(_place(line), known) for known in self._places)]
        self.lines += new
        self._places |= set(map(_place, new))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Take what is raised inside, and go on behind it."""
        try:
            yield
        except ConfigError as error:
            self.add(error.problems)

    def at(self, path: str) -> bool:
        """Whether the value at this path is a stand-in."""
        return path in self._places

    def below(self, *paths: str) -> bool:
        """Whether anything at or below one of these paths is a stand-in."""
        return any(_within(place, path) for place in self._places for path in paths)

    def check(self) -> None:
        """Raise `ConfigError` if there are any."""
        if self.lines:
            raise ConfigError(*self.lines)


def _place(line: str) -> str:
    return line.partition(": ")[0]


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))
