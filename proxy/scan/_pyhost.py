"""Sends calls that are streamed early. Part of the Python twin, see `_pyparse.py`; `_fasthost.pxi` is the same with C
types."""

from __future__ import annotations

from typing import Literal

from ..events import Close
from ._grammar import FoundCall
from ._pyoutput import Output
from ._pyprose import Prose
from ._pystring import NO_STRING, certain
from .live import LiveCalls
from .parts.buffer import Buffer
from .parts.sending import StringSender


class LiveHost(StringSender):
    """Sends streamed calls, which `LiveCalls` decides, to the output; implements `toolwire.scan._grammar.CallSink`."""

    def __init__(self, buffer: Buffer, output: Output, prose: Prose) -> None:
        self._buffer = buffer
        self._output = output
        self._prose = prose

        # `_string`: kind of the string whose text is sent without asking `LiveCalls`, in its call `_block`. `_stops`,
        # `_sent`: its own. `_waiting`: the last bytes, which only the next delta can decide.
        self._string = NO_STRING
        self._stops = b""
        self._sent = bytearray()
        self._block = 0
        self._waiting = b""

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

    # --- strings ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._string = NO_STRING
        self._waiting = b""

    def read_string(self, live: LiveCalls) -> None:
        self._string = live.string
        if self._string != NO_STRING:
            self._stops = live.stops
            self._sent = live.sent
            self._block = live.block

    def send(self, buf: bytes, pos: int, end: int) -> bytes:
        if self._string == NO_STRING:
            return buf[pos:end]
        more = self._waiting + buf[pos:end]
        used, said, waits = certain(self._string, self._stops, more)
        if said:
            self._sent += said
            self._output.say_argument(self._block, said.decode())
        self._waiting = more[used:] if waits else b""
        return b"" if waits else more[used:]

    def rest(self) -> bytes:
        rest, self._waiting = self._waiting, b""
        return rest
