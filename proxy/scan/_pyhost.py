"""Sends calls that are streamed early. Part of the Python twin, see `_pyparse.py`; `_fasthost.pxi` is the same with C
types."""

from __future__ import annotations

from typing import Literal

from ..events import Close
from ._grammar import FoundCall
from ._pybuffer import Buffer
from ._pyoutput import Output
from ._pyprose import Prose


class LiveHost:
    """Sends streamed calls to the output; implements `toolwire.scan._grammar.CallSink`."""

    def __init__(self, buffer: Buffer, output: Output, prose: Prose) -> None:
        self._buffer = buffer
        self._output = output
        self._prose = prose

    def span(self, start: int, stop: int) -> bytes:
        """Returns the bytes between two offsets, which count from the block's first byte."""
        return self._buffer.span(start, stop)

    def live_open(self, call: FoundCall) -> int:
        """Opens a call. Returns its block number."""
        self._prose.edge()
        return self._output.open_call(call, None)

    def live_say(self, block: int, text: str) -> None:
        """Sends more arguments of an open call."""
        self._output.say_argument(block, text)

    def live_close(self, block: int, status: Literal["complete", "truncated"]) -> None:
        """Ends an open call."""
        self._output.events.append(Close(block, status))
