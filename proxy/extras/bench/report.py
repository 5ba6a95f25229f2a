"""The results as tables, and as JSON (its schema: `report.schema.json`)."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ..._version import __version__
from ...fastparse import IMPLEMENTATION
from . import libraries
from .parse import ContestantResult, Group, Growth, Report
from .timing import PERCENTILES, Spread

SCHEMA_VERSION: Final = 1
NAMES: Final = tuple(f"p{percent:g}" for percent in PERCENTILES)


def environment() -> dict[str, Any]:
    """Returns the versions and the machine of the measurement."""
    return {
        "toolwire": __version__,
        "implementation": IMPLEMENTATION,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "libraries": dict(_versions()),
    }


def described(where: Mapping[str, Any]) -> str:
    """Returns an environment as one line."""
    return (
        f"toolwire {where['toolwire']} ({where['implementation']}), {where['python']}, {where['system']} {where['machine']},"
        f" {where['processor'] or 'unknown processor'}, {where['cpus']} CPUs, load {where['load']}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _versions() -> Iterator[tuple[str, str]]:
    for name in (*libraries.PARTIAL_JSON, "sglang"):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            pass


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(report: Report) -> dict[str, Any]:
    """Returns all figures. Times are nanoseconds."""
    plan = report.plan
    return {
        "schema": SCHEMA_VERSION,
        "environment": environment(),
        "settings": {
            "formats": list(plan.formats),
            "input": plan.recording is not None,
            "chunks": plan.cut,
            "seed": plan.seed,
            "repeat": plan.repeat,
            "budget_s": plan.budget_s,
            "growth": plan.growth,
        },
        "clock_ns": report.clock,
        "texts": [
            {
                "format": group.format,
                "case": group.case,
                "deltas": group.deltas,
                "bytes": group.octets,
                "calls": group.calls,
                "contestants": [_entry(entry) for entry in group.entries],
            }
            for group in report.groups
        ],
        "growth": [
            {
                "format": growth.format,
                "kind": growth.kind,
                "contestant": growth.contestant,
                "sizes": [{"deltas": deltas, "ns_per_delta": mean} for deltas, mean in growth.sizes],
            }
            for growth in report.growth
        ],
        "left_out": list(report.left_out),
    }


def _entry(entry: ContestantResult) -> dict[str, Any]:
    out: dict[str, Any] = {"name": entry.contestant, "status": entry.status, "note": entry.note}
    if entry.best is not None and entry.raw is not None:
        out |= {
            "repeats": entry.repeats,
            "best_ns": _spread(entry.best),
            "raw_ns": _spread(entry.raw),
            "finish_ns": entry.finish,
            "ns_per_delta": entry.mean,
            "mb_per_s": entry.mb_per_s,
        }
    return out


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        **dict(zip(NAMES, spread.percentiles, strict=True)),
        "max": spread.max,
        "histogram": [{"up_to_ns": bound, "count": count} for bound, count in spread.histogram],
    }


# --- tables -----------------------------------------------------------------------------------------------------------


def as_text(report: Report) -> Iterator[str]:
    """Yields the tables as aligned Markdown."""
    yield described(environment())
    yield (
        f"Nanoseconds per delta. Percentiles: wall time, {report.clock} ns for reading the clock subtracted; of the best of up"
        f" to {report.plan.repeat} repeats for each delta, `raw` of all. `mean`, MB/s and growth: CPU time of whole runs."
    )
    missing = [e.contestant for e in report.groups[0].entries if e.status == "missing"] if report.groups else []
    if missing:
        yield f"Not installed: {', '.join(missing)}."
    for group in report.groups:
        yield ""
        yield from _group(group)
    for title in dict.fromkeys((growth.format, growth.kind) for growth in report.growth):
        yield ""
        yield from _growth(title, [g for g in report.growth if (g.format, g.kind) == title])
    if report.left_out:
        yield ""
        yield from (f"Left out: {reason}." for reason in report.left_out)


def _group(group: Group) -> Iterator[str]:
    calls = f"{group.calls:,} call{'' if group.calls == 1 else 's'}"
    yield f"**{group.format}: {group.case}**, {group.deltas:,} deltas, {group.octets:,} bytes, {calls}"
    yield ""
    head = ["", *NAMES, "max", "raw p99.9", "raw max", "mean", "MB/s", "ratio"]
    first = next((entry.mean for entry in group.entries if entry.mean), 1.0)
    rows = [row for entry in group.entries for row in _row(entry, first)]
    if rows:
        yield from table(head, rows)
    noted = [entry for entry in group.entries if entry.note and entry.status != "missing"]
    if rows and noted:
        yield ""
    for entry in noted:
        yield f"- {entry.contestant}: {entry.note if entry.status == 'measured' else f'{entry.status}: {entry.note}'}"


def _row(entry: ContestantResult, first: float) -> Iterator[list[str]]:
    if entry.best is None or entry.raw is None or entry.mean is None or entry.mb_per_s is None:
        return
    times = [*entry.best.percentiles, entry.best.max, entry.raw.percentiles[-1], entry.raw.max, entry.mean]
    yield [entry.contestant, *(f"{time:,.0f}" for time in times), _short(entry.mb_per_s), _short(entry.mean / first)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _growth(title: tuple[str, str], rows: Sequence[Growth]) -> Iterator[str]:
    yield f"**{title[0]}: growth, {title[1]}**, ns per delta by number of deltas"
    yield ""
    sizes = sorted({deltas for row in rows for deltas, _ in row.sizes})
    cells = []
    for row in rows:
        means = dict(row.sizes)
        done = [mean for mean in means.values() if mean is not None]
        shown = [
            "" if size not in means else "too slow" if means[size] is None else f"{means[size]:,.0f}" for size in sizes
        ]
        cells.append([row.contestant, *shown, _short(done[-1] / done[0]) if len(done) > 1 else ""])
    yield from table(["", *(f"{size:,}" for size in sizes), "last / first"], cells)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a table: names aligned to the left, numbers to the right."""
    widths = [max(3, *(len(row[column]) for row in [head, *rows])) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for first, *rest in [head, rule, *rows]:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        yield f"| {' | '.join(cells)} |"
