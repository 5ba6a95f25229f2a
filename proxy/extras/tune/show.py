"""Progress output of a tuning: on a terminal a table that changes in place and a progress bar, if `rich` is installed
(the extra `tune`); else single lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Final

from ...support.legible import visible
from .report import COLUMNS, row
from .tuner import Progress

ROWS: Final = 12
"""The number of candidates shown: the remaining ones, then the last dropped ones."""

EVERY: Final = 25
"""The number of answers between two plain lines."""


class PlainProgress:
    """Prints lines, for logs and pipes."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._asked = 0
        self._stage = ""
        self._out = 0

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Does nothing: lines stay."""
        yield

    def update(self, progress: Progress) -> None:
        """Prints a line for a new stage, for each dropped candidate, and after every `EVERY` answers."""
        names = {candidate.number: visible(candidate.name) for candidate in progress.candidates}
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._say(f"{progress.stage}; cases: {len(progress.cases)}; at most {progress.to_come} answers")
        for number, why in list(progress.out.items())[self._out :]:
            self._say(f"  out ({why}): {names[number]}")
        self._out = len(progress.out)
        if progress.asked >= self._asked + EVERY:
            self._asked = progress.asked
            best = progress.winner
            leads = (
                ""
                if best is None
                else f"; {best.name} leads with {100 * (progress.figures(best.number).score or 0):.0f}"
            )
            self._say(f"{progress.asked} answers, at most {progress.to_come} to come, {progress.seconds:.0f} s{leads}")


class LiveProgress:
    """Updates a table on a terminal. Needs the extra `tune`."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)
        self._live = RichLive(self._bar, console=console, refresh_per_second=4, transient=True)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the table while the context lasts; afterwards the final table is printed in its place."""
        with self._live:
            yield

    def update(self, progress: Progress) -> None:
        """Updates the table and the bar."""
        from rich.console import Group
        from rich.table import Table

        names = {candidate.number: visible(candidate.name) for candidate in progress.candidates}
        table = Table(box=None, pad_edge=False)
        table.add_column("candidate", no_wrap=True)
        for column in COLUMNS:
            table.add_column(column, justify="right")
        measured = [number for number in progress.best if number in progress.results]
        for number in measured[:ROWS]:
            style = "dim" if number in progress.out else "bold" if number == measured[0] else ""
            table.add_row(names[number], *row(progress.figures(number)), style=style)
        more = len(measured) - ROWS
        if more > 0:
            table.add_row(f"and {more} more", style="dim")
        self._bar.update(
            self._task,
            description=visible(progress.stage),
            completed=progress.asked,
            total=progress.asked + progress.to_come,
        )
        self._live.update(Group(table, self._bar))


def view(say: Callable[[str], object], *, terminal: bool) -> PlainProgress | LiveProgress:
    """Returns the output to use: the table if standard error is a `terminal` and `rich` is installed, else lines."""
    return LiveProgress() if terminal and find_spec("rich") is not None else PlainProgress(say)
