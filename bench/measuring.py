"""How the micro-benchmarks measure, and the tables in which everything is published.

CPU time of this process, not wall time: other processes may be busy. All that stands in one row does the same work in
the same run, and the first column is what ratios are made to.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

SECONDS: Final = 0.3
ROUNDS: Final = (3, 200)


@dataclass(slots=True)
class Table:
    """A table of README.md. Cells are nanoseconds, shown with the ratio to the first one of their row, or text.
    `corner` is what stands over the names of the rows."""

    title: str
    corner: str = ""
    rows: dict[str, dict[str, float | str]] = field(default_factory=dict)

    def put(self, row: str, column: str, cell: float | str) -> None:
        """Fill a cell. Rows and columns come in the order in which they are first named."""
        self.rows.setdefault(row, {})[column] = cell

    def text(self) -> str:
        """As Markdown: names to the left, numbers to the right."""
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
    """`page` with the tables in their places: between `<!-- table: TITLE -->` and `<!-- end -->`. Raises `ValueError`
    for a table without a place."""
    for table in tables:
        begin = f"<!-- table: {table.title} -->\n"
        place = re.compile(re.escape(begin) + ".*?(?=<!-- end -->)", re.DOTALL)
        found = place.search(page)
        if found is None:
            raise ValueError(f"there is no place for the table {table.title!r}")
        page = f"{page[: found.start()]}{begin}\n{table.text()}\n\n{page[found.end() :]}"
    return page


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures one contestant with pytest-benchmark and puts the result into a table."""

    benchmark: Any
    tables: dict[str, Table]

    def table(self, title: str, corner: str = "") -> Table:
        """The table of that title, made where it is asked for first."""
        return self.tables.setdefault(title, Table(title, corner))

    def __call__(
        self, run: Callable[[], object], *, table: str, row: str, column: str, units: int, unit: str, bytes: int = 0
    ) -> None:
        """Time `run`, which does `units` pieces of work. A first run warms up and settles the number of rounds. With
        `bytes`, the size of all of them, the table gets GB/s in place of nanoseconds for one."""
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
