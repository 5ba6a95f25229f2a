"""A report as an SVG chart: a row of panels for each format, and a legend.

There is one panel for each text (latency by percentile) and for each kind of growth (latency by number of deltas). The
height is the latency, on the same logarithmic scale in all panels: a line at half the height is many times as fast, not
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from .contestants import CONTESTANTS
from .parse import Report
from .report import NAMES, environment
from .svg import PALETTE, TEXT_STYLE, picture
from .svg import text as _text

WIDTH: Final = 300
HEIGHT: Final = 230
COLUMNS: Final = 4
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 30, 40
HEADER: Final = 86
STYLE: Final = f"{TEXT_STYLE}.series polyline{{fill:none;stroke-width:2;stroke-linejoin:round}}"


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """A line: its contestant, and nanoseconds at positions on the horizontal axis."""

    contestant: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A small diagram. `ticks` are the labels of the positions 0, 1, 2, ..."""

    title: str
    ticks: tuple[str, ...]
    axis: str
    series: tuple[PlotSeries, ...]


def panels(report: Report, format: str) -> list[Panel]:
    """Returns the diagrams of a format."""
    out: list[Panel] = []
    for group in report.groups:
        if group.format == format:
            lines = [
                PlotSeries(entry.contestant, tuple(enumerate([*entry.best.percentiles, entry.best.max])))
                for entry in group.entries
                if entry.best is not None
            ]
            out.append(Panel(group.case, (*NAMES, "max"), "percentile of deltas", tuple(lines)))
    rows = [growth for growth in report.growth if growth.format == format]
    for kind in dict.fromkeys(growth.kind for growth in rows):
        mine = [growth for growth in rows if growth.kind == kind]
        powers = sorted({floor(log10(deltas)) for growth in mine for deltas, _ in growth.sizes})
        lines = [
            PlotSeries(
                growth.contestant,
                tuple((powers.index(floor(log10(n))), mean) for n, mean in growth.sizes if mean is not None),
            )
            for growth in mine
            if growth.sizes[0][1] is not None
        ]
        ticks = tuple(f"{10**power:,}" for power in powers)
        out.append(Panel(f"growth: {kind}", ticks, "deltas", tuple(lines)))
    return out


def svg(report: Report) -> str:
    """Returns the chart as SVG text."""
    rows = [(format, panels(report, format)) for format in report.plan.formats]
    shown = [series for _, row in rows for panel in row for series in panel.series]
    values = [max(value, 1.0) for series in shown for _, value in series.points]
    low, high = (floor(log10(min(values))), ceil(log10(max(values) * 1.01))) if values else (0, 1)
    colours = {name: PALETTE[n % len(PALETTE)] for n, name in enumerate(CONTESTANTS)}
    columns = max([1, *(min(len(row), COLUMNS) for _, row in rows)])
    lines: list[str] = []
    top = HEADER
    for format, row in rows:
        lines.append(_text(16, top + 16, format, "title"))
        top += 28
        for number, panel in enumerate(row):
            x, y = 8 + WIDTH * (number % columns), top + HEIGHT * (number // columns)
            lines += _panel(panel, x, y, low, high, colours)
        top += HEIGHT * ceil(len(row) / columns) + 8
    width = max(16 + WIDTH * columns, 640)
    where = environment()
    about = f"toolwire {where['toolwire']}, {where['python']}, {where['processor'] or where['machine']}, deltas: {report.plan.cut}"
    names = [name for name in colours if any(series.contestant == name for series in shown)]
    head = [_text(16, 28, "Parse latency per delta", "title"), _text(16, 46, about, "small"), *_legend(names, colours)]
    return picture("Parse latency per delta", width, top, STYLE, [*head, *lines])


def _legend(names: Sequence[str], colours: dict[str, str]) -> Iterator[str]:
    x = 16
    for name in names:
        yield f'<g class="legend"><rect x="{x}" y="60" width="18" height="4" rx="2" fill="{colours[name]}"/>'
        yield f"{_text(x + 24, 66, name)}</g>"
        x += 40 + 7 * len(name)


def _panel(panel: Panel, x: int, y: int, low: int, high: int, colours: dict[str, str]) -> Iterator[str]:
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(position: int) -> float:
        return LEFT + wide * (position + 0.5) / len(panel.ticks)

    def down(value: float) -> float:
        return TOP + tall * (high - log10(max(value, 1.0))) / (high - low)

    yield f'<g class="panel" transform="translate({x},{y})">'
    yield _text(LEFT, TOP - 9, panel.title, "head")
    yield f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{wide}" height="{tall}"/>'
    for power in range(low, high + 1):
        at = down(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + wide}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield _text(LEFT - 6, at + 4, _unit(power), "small", "end")
    for position, tick in enumerate(panel.ticks):
        yield _text(across(position), TOP + tall + 15, tick, "small", "middle")
    yield _text(LEFT + wide / 2, TOP + tall + 30, panel.axis, "small", "middle")
    for series in reversed(panel.series):  # the first contestant is drawn last, on top
        points = [(across(position), down(value)) for position, value in series.points]
        yield f'<g class="series" data-contestant={quoteattr(series.contestant)} stroke="{colours[series.contestant]}">'
        yield f"<title>{escape(series.contestant)}</title>"
        yield f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
        yield from (
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colours[series.contestant]}"/>' for a, b in points
        )
        yield "</g>"
    yield "</g>"


def _unit(power: int) -> str:
    """Returns a power of ten nanoseconds as text with its unit."""
    unit = ("ns", "µs", "ms", "s")[min(power // 3, 3)]
    return f"{10 ** (power - 3 * min(power // 3, 3))} {unit}"
