"""Colours, fonts and the frame that the SVG charts share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

PALETTE: Final = ("#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#5f4690")
"""Colours that people with colour-blindness can distinguish (Okabe and Ito), and two more."""

TEXT_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:18px;font-weight:600;fill:#111}.head{font-weight:600}"
    ".small{font-size:10px;fill:#666}.grid{stroke:#e4e4e4}.frame{fill:#fff;stroke:#bbb}"
)
"""The CSS classes of texts and lines."""


def picture(title: str, width: float, height: float, style: str, lines: Iterable[str]) -> str:
    """Returns an SVG with these elements on a light background."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" fill="#fafafa"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Returns a text element; `kind` is a class of `TEXT_STYLE`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'
