"""Uploaded captures: their size is limited before any value is built."""

from __future__ import annotations

from typing import Any, Final

from ...config import LimitsConfig
from ...support.bounded_json import BoundExceeded, JsonBounds, count_values, loads
from ..capture.files import CapturedExchange, read_capture
from ..capture.recorder import MOST_ENTRIES
from ..capture.recording import RecordingError
from .bounds import within_bounds

MOST_LINES: Final = 2 * MOST_ENTRIES
"""Maximum number of lines of an uploaded capture. The recorder writes at most `MOST_ENTRIES` with data, and few
without."""

VALUES_PER_LINE: Final = 16
"""Average number of JSON values that each line may have; a line has seven fields."""


def open_capture(content: bytes, limits: LimitsConfig) -> CapturedExchange:
    """Returns the capture in a file, within the limits of what is shown. A line may have as many JSON values as a
    request (`limits.json_values`, `limits.json_depth`), all lines together `MOST_LINES * VALUES_PER_LINE`. Call it
    in a thread: it yields to other threads between slices.

    Raises `RecordingError`.
    """
    if content.count(b"\n") > MOST_LINES:
        raise RecordingError(f"the capture has more than {MOST_LINES} lines")
    return within_bounds(read_capture(content, _LineParser(limits).load), limits)


class _LineParser:
    """Parses lines within limits, for each line and for all together."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._left = MOST_LINES * VALUES_PER_LINE

    def load(self, line: bytes) -> Any:
        """Returns the value of one line. Raises `ValueError` or `RecordingError`."""
        try:
            value = loads(line, JsonBounds(min(self._limits.json_values, self._left), self._limits.json_depth))
        except BoundExceeded as error:
            raise RecordingError(f"the capture holds too much: a line {error}") from None
        self._left -= count_values(value)
        return value
