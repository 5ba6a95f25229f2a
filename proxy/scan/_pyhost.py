"""Where calls go out that are given out while they come, in Python. Part of the Python twin, see `_pyparse.py`.
`_fasthost.pxi` is the same with C types.
"""

from __future__ import annotations

from typing import Literal

from toolwire.events import Close
from toolwire.scan._grammar import Found
from toolwire.scan._pybuffer import Buffer
from toolwire.scan._pyoutput import Output
from toolwire.scan._pyprose import Prose


class LiveHost:
    """See `toolwire.scan.live.Host`."""

    def __init__(self, buffer: Buffer, output: Output, prose: Prose) -> None:
        self._buffer = buffer
        self._output = output
        self._prose = prose

    def span(self, start: int, stop: int) -> bytes:
        """The bytes at these offsets of the block."""
        return self._buffer.span(start, stop)

    def live_open(self, call: Found) -> int:
        """See `toolwire.scan.live.Host`."""
        self._prose.edge()
        return self._output.open_call(call, None)

    def live_say(self, block: int, text: str) -> None:
        """See `toolwire.scan.live.Host`."""
        self._output.say_argument(block, text)

    def live_close(self, block: int, status: Literal["complete", "truncated"]) -> None:
        """See `toolwire.scan.live.Host`."""
        self._output.events.append(Close(block, status))
