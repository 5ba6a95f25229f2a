"""Writes the output of handlers to the log, line by line, under the tool's name.

Rules:

1. A call has a limit of lines and characters. The bytes beyond it are counted and reported.
2. A line has at most `MAX_LINE` characters. Control characters are escaped, so output cannot move the cursor or begin a
   new line.
3. Endless output costs the gateway almost nothing: beyond the limit the pipe is read slowly.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from ..support.legible import visible

LOG: Final = logging.getLogger("toolwire.tools")

MAX_LINES: Final = 100
MAX_LINE: Final = 1000
MAX_CHARS: Final = 20_000
"""Characters of one call's output that are logged; the others are counted."""

CHUNK: Final = 64 * 1024
REST_S: Final = 0.005
"""Pause between two reads of the pipe of a handler whose output has reached the limit."""


class OutputLog:
    """Splits bytes into log lines, for one call after the other. `begin` names the next call."""

    def __init__(self, who: str, fields: Mapping[str, Any]) -> None:
        self._who = who
        self._fields = fields
        self._rest = bytearray()
        self._begin()

    def _begin(self) -> None:
        self._lines = MAX_LINES
        self._chars = MAX_CHARS
        self._left_out = 0

    @property
    def spent(self) -> bool:
        """True if the limit of this call is reached."""
        return self._lines <= 0 or self._chars <= 0

    def begin(self, who: str, fields: Mapping[str, Any]) -> None:
        """Ends the current call; the following bytes belong to `who`."""
        self.end()
        self._who, self._fields = who, fields
        self._begin()

    def feed(self, data: bytes) -> None:
        """Adds bytes. The work is limited by the lines that are written, however many bytes there are."""
        start = 0
        while not self.spent and (end := data.find(b"\n", start)) >= 0:
            self._add(data[start:end])
            self._write_line()
            start = end + 1
        self._add(data[start:])

    def end(self) -> None:
        """Writes an unfinished last line, and the number of bytes that were left out."""
        if self._rest:
            self._write_line()
        if self._left_out:
            LOG.warning(
                "%s: %d bytes more were printed and are left out", self._who, self._left_out, extra=self._extra()
            )
            self._left_out = 0

    def _add(self, part: bytes) -> None:
        # At most 4 bytes for each character of the longest line; further ones would not be shown.
        room = 0 if self.spent else max(0, 4 * MAX_LINE - len(self._rest))
        self._rest += part[:room]
        self._left_out += max(0, len(part) - room)

    def _write_line(self) -> None:
        text = self._rest.decode("utf-8", "backslashreplace").rstrip("\r")
        self._left_out += max(0, len(text) - MAX_LINE)
        text = text[:MAX_LINE]
        self._lines -= 1
        self._chars -= len(text)
        LOG.info("%s: %s", self._who, visible(text), extra=self._extra())
        self._rest.clear()

    def _extra(self) -> dict[str, Any]:
        return {"fields": self._fields}


class OutputPipe:
    """Reads a pipe in the running loop and feeds `output_log`. Owns the descriptor."""

    def __init__(self, descriptor: int, output_log: OutputLog) -> None:
        self._descriptor = descriptor
        self._output_log = output_log
        self._loop = asyncio.get_running_loop()
        self._resting: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        if self._read() and self._output_log.spent:
            self._loop.remove_reader(self._descriptor)
            self._resting = self._loop.call_later(REST_S, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        self._loop.add_reader(self._descriptor, self._readable)

    def _read(self) -> int:
        """Reads once. Returns the number of bytes read; 0 if there are none. At the end of the pipe it stops watching
        it."""
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._output_log.feed(data)
        else:
            self._loop.remove_reader(self._descriptor)
        return len(data)

    def drain(self) -> None:
        """Reads what has been written so far, up to the limit of the call."""
        while self._read() == CHUNK and not self._output_log.spent:
            pass

    def close(self) -> None:
        """Reads the rest and closes the pipe."""
        if self._descriptor < 0:
            return
        if self._resting is not None:
            self._resting.cancel()
        self.drain()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._output_log.end()
