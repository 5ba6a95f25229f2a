"""Measurements of the micro-benchmarks, and their published tables.

They measure CPU time of this process, because other processes may be busy. All cells of a row do the same work in the
same run; ratios refer to the first column.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

SECONDS: Final = 0.3
ROUNDS: Final = (3, 200)


@dataclass(slots=True)
class Table:
    """A table of results. Cells are text, or nanoseconds, which are shown with the ratio to the first cell of their
    row. `corner` is the title of the row names."""

    title: str
    corner: str = ""
    rows: dict[str, dict[str, float | str]] = field(default_factory=dict)

    def put(self, row: str, column: str, cell: float | str) -> None:
        """Fills a cell. Rows and columns have the order in which they are first used."""
        self.rows.setdefault(row, {})[column] = cell

    def text(self) -> str:
        """Returns the table as Markdown, names aligned left and numbers right."""
        columns = list(dict.fromkeys(column for cells in self.rows.values() for column in cells))
        lines = [[self.corner, *columns], ["---", *["---:"] * len(columns)]]
        lines += [[name, *(_shown(cells, column) for column in columns)] for name, cells in self.rows.items()]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shown(cells: dict[str, float | str], column: str) -> str:
    cell = cells.get(column, "")
    if isinstance(cell, str):
        return cell
    time_ns = f"{cell:,.0f}" if cell >= 10 else f"{cell:.1f}"
    first = next(iter(cells.values()))
    return f"{time_ns} ({cell / first:.3g})" if len(cells) > 1 and isinstance(first, float) else time_ns


def published(page: str, tables: Iterable[Table]) -> str:
    """Returns `page` with its tables filled in, between `<!-- table: TITLE -->` and `<!-- end -->`. Tables that have no
    such place are left out."""
    for table in tables:
        before, begin, after = page.partition(f"<!-- table: {table.title} -->\n")
        if begin:
            page = f"{before}{begin}\n{table.text()}\n\n{after[after.index('<!-- end -->') :]}"
    return page


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures one contestant with pytest-benchmark and fills in a table."""

    benchmark: Any
    tables: dict[str, Table]

    def table(self, title: str, corner: str = "") -> Table:
        """Returns the table of that title, and creates it at its first use."""
        return self.tables.setdefault(title, Table(title, corner))

    def __call__(
        self, run: Callable[[], object], *, table: str, row: str, column: str, units: int, unit: str, bytes: int = 0
    ) -> None:
        """Measures `run`, which does `units` pieces of work. A first run warms up and determines the number of rounds.
        With `bytes`, the total size, the table shows GB/s instead of nanoseconds."""
        before = time.process_time()
        run()
        spent = max(time.process_time() - before, 1e-9)
        rounds = min(max(int(SECONDS / spent), ROUNDS[0]), ROUNDS[1])
        self.benchmark.group = f"{table}: {row}"
        self.benchmark.pedantic(run, rounds=rounds, iterations=1)
        stats = self.benchmark.stats.stats
        each = stats.median / units * 1e9
        self.benchmark.extra_info.update(contestant=column, unit=unit, units=units, ns_per_unit=round(each, 1))
        if bytes:
            self.table(table, "GB/s").put(row, column, f"{bytes / stats.median / 1e9:.3g}")
        else:
            self.table(table, f"ns per {unit}").put(row, column, each)
