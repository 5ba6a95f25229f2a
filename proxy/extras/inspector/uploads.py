"""Captures that are opened: what they may hold is bounded before any value is built."""

from __future__ import annotations

from typing import Any, Final

from toolwire.config import LimitsConfig
from toolwire.extras.capture.files import Captured, read_capture
from toolwire.extras.capture.recorder import MOST_ENTRIES
from toolwire.extras.capture.recording import RecordingError
from toolwire.extras.inspector.bounds import within_bounds
from toolwire.support.bounded_json import BoundExceeded, JsonBounds, count_values, loads

MOST_LINES: Final = 2 * MOST_ENTRIES
"""Of a capture. The recorder keeps `MOST_ENTRIES` with data, and few without."""

VALUES_PER_LINE: Final = 16
"""On average: a line has seven fields."""


def open_capture(content: bytes, limits: LimitsConfig) -> Captured:
    """The capture that a file holds, within the bounds of what is shown. A line may hold as many JSON values as a
    request (`limits.json_values`, `limits.json_depth`), all lines together `MOST_LINES * VALUES_PER_LINE`. For a
    thread: it lets others run between slices.

    Raises `RecordingError`.
    """
    if content.count(b"\n") > MOST_LINES:
        raise RecordingError(f"the capture has more than {MOST_LINES} lines")
    return within_bounds(read_capture(content, _Lines(limits).load), limits)


class _Lines:
    """Parses lines within bounds, each for itself and all together."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._left = MOST_LINES * VALUES_PER_LINE

    def load(self, line: bytes) -> Any:
        """The value of one line. Raises `ValueError`."""
        try:
            value = loads(line, JsonBounds(min(self._limits.json_values, self._left), self._limits.json_depth))
        except BoundExceeded as error:
            raise RecordingError(f"the capture holds too much: a line {error}") from None
        self._left -= count_values(value)
        return value
