"""The results as an SVG chart: a row for each candidate, the best on top, with a dot for each share of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from ..bench.svg import PALETTE, TEXT_STYLE, picture, text
from .report import ReportHeader
from .scoring import Figures, share
from .space import TuningCandidate
from .tuner import Progress

LEFT: Final = 250
SCALE: Final = 440
RIGHT: Final = 170
TOP: Final = 96
LINE: Final = 24
STYLE: Final = f"{TEXT_STYLE}.guide{{stroke:#ccc;stroke-width:1}}.score{{fill:#dcdcdc}}"

DOTS: Final = ("called", "right tool", "fits", "right values", "false calls")


def svg(progress: Progress, about: ReportHeader) -> str:
    """Returns the chart as SVG text."""
    by_number = {candidate.number: candidate for candidate in progress.candidates}
    shown = [number for number in progress.best if number in progress.results]
    height = TOP + LINE * max(1, len(shown)) + 36
    lines = [
        text(16, 28, f"{about.model}: settings for tool calls", "title"),
        text(16, 46, f"{progress.asked} answers, tool_choice {about.ask.choice}, {about.server}", "small"),
        *_legend(),
        *_grid(height),
    ]
    for place, number in enumerate(shown):
        lines += _candidate(by_number[number], progress.figures(number), TOP + LINE * place)
    return picture(f"Settings for tool calls of {about.model}", LEFT + SCALE + RIGHT, height, STYLE, lines)


def _legend() -> Iterator[str]:
    x = 16
    for name, colour in zip(DOTS, PALETTE, strict=False):
        yield f'<g class="legend"><circle cx="{x + 6}" cy="66" r="5" fill="{colour}"/>{text(x + 16, 70, name)}</g>'
        x += 34 + 7 * len(name)
    yield f'<g class="legend"><rect class="score" x="{x}" y="60" width="18" height="12"/>{text(x + 24, 70, "score")}</g>'


def _grid(height: float) -> Iterator[str]:
    for percent in range(0, 101, 20):
        x = LEFT + SCALE * percent / 100
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - 28}"/>'
        yield text(x, height - 14, f"{percent} %", "small", "middle")
    for x, name in ((LEFT + SCALE + 70, "tokens"), (LEFT + SCALE + 120, "s"), (LEFT + SCALE + 160, "cases")):
        yield text(x, TOP - 12, name, "small", "end")


def _candidate(candidate: TuningCandidate, figures: Figures, top: float) -> Iterator[str]:
    middle = top + LINE / 2
    yield f'<g class="candidate" data-candidate={quoteattr(candidate.name)}>'
    yield text(LEFT - 12, middle + 4, candidate.name, anchor="end")
    if figures.score is not None:
        yield f'<rect class="score" x="{LEFT}" y="{top + 4}" width="{SCALE * figures.score:.1f}" height="{LINE - 8}"/>'
    yield f'<line class="guide" x1="{LEFT}" x2="{LEFT + SCALE}" y1="{middle}" y2="{middle}"/>'
    for name, value, colour in zip(DOTS, _shares(figures), PALETTE, strict=False):
        if value is not None:
            about = escape(f"{name}: {100 * value:.0f} %")
            yield f'<circle cx="{LEFT + SCALE * value:.1f}" cy="{middle}" r="5" fill="{colour}"><title>{about}</title></circle>'
    cells = (
        (70, share(figures.output_tokens, figures.answered), 0),
        (120, share(figures.seconds, figures.answered), 1),
        (160, figures.answered, 0),
    )
    for x, number, digits in cells:
        if number is not None:
            yield text(LEFT + SCALE + x, middle + 4, f"{number:.{digits}f}", anchor="end")
    yield "</g>"


def _shares(figures: Figures) -> tuple[float | None, ...]:
    """Returns the values of `DOTS`."""
    parts = (figures.called, figures.right_tool, figures.fits, figures.right)
    return (*(share(part, figures.wanted) for part in parts), share(figures.false_calls, figures.unwanted))
