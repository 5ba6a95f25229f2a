"""Captures that are opened: what they may hold is bounded before any value is built."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..capture.files import Captured, read_capture
from ..capture.recorder import MOST_ENTRIES
from ..capture.recording import RecordingError
from ..config import LimitsConfig
from ..support.offload import OFFLOAD_BYTES
from .bounds import check_values, within_bounds

MOST_LINES: Final = 2 * MOST_ENTRIES
"""Of a capture. The recorder keeps `MOST_ENTRIES` with data, and few without."""

VALUES_PER_LINE: Final = 16
"""On average: a line has seven fields."""


def open_capture(content: bytes, limits: LimitsConfig) -> Captured:
    """The capture that a file holds, within the bounds of what is shown. A long line may hold as many JSON values as a
    request (`limits.json_values`, `limits.json_depth`), all lines together `MOST_LINES * VALUES_PER_LINE`. For a
    thread: it lets others run between slices.

    Raises `RecordingError`.
    """
    if content.count(b"\n") > MOST_LINES:
        raise RecordingError(f"the capture has more than {MOST_LINES} lines")
    check_values(content, replace(limits, json_values=MOST_LINES * VALUES_PER_LINE))
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin)
        end = len(content) if end < 0 else end
        if end - begin > OFFLOAD_BYTES:
            check_values(content[begin:end], limits)
        begin = end + 1
    return within_bounds(read_capture(content), limits)
