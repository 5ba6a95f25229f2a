"""What a handler prints, as lines of the log under its tool's name.

Rules:

1. A call has a budget of lines and characters. What is beyond is counted, and the log says how much it was.
2. No line is longer than `MAX_LINE`, and nothing in it moves a cursor or begins another line: control characters are
   written as escapes.
3. An endless flood costs the gateway next to nothing: beyond the budget a pipe is read slowly.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from toolwire.support.legible import visible

LOG: Final = logging.getLogger("toolwire.tools")

MAX_LINES: Final = 100
MAX_LINE: Final = 1000
MAX_CHARS: Final = 20_000
"""Of a call."""

CHUNK: Final = 64 * 1024
REST_S: Final = 0.005
"""Between two looks at a pipe whose writer has used up the budget."""


class Printed:
    """Bytes into lines, for one call after the other. `begin` says whose they are from now on."""

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
        """Nothing more of this call is written."""
        return self._lines <= 0 or self._chars <= 0

    def begin(self, who: str, fields: Mapping[str, Any]) -> None:
        """What follows is somebody else's."""
        self.end()
        self._who, self._fields = who, fields
        self._begin()

    def feed(self, data: bytes) -> None:
        """Bytes as they come. A flood of lines takes no longer than those that are written."""
        start = 0
        while not self.spent and (end := data.find(b"\n", start)) >= 0:
            self._add(data[start:end])
            self._say()
            start = end + 1
        self._add(data[start:])

    def end(self) -> None:
        """Nothing more comes: the last line may have no end."""
        if self._rest:
            self._say()
        if self._left_out:
            LOG.warning(
                "%s: %d bytes more were printed and are left out", self._who, self._left_out, extra=self._extra()
            )
            self._left_out = 0

    def _add(self, part: bytes) -> None:
        # As many bytes as the longest line may have; what comes behind is not shown anyway.
        room = 0 if self.spent else max(0, 4 * MAX_LINE - len(self._rest))
        self._rest += part[:room]
        self._left_out += max(0, len(part) - room)

    def _say(self) -> None:
        text = self._rest.decode("utf-8", "backslashreplace").rstrip("\r")
        self._left_out += max(0, len(text) - MAX_LINE)
        text = text[:MAX_LINE]
        self._lines -= 1
        self._chars -= len(text)
        LOG.info("%s: %s", self._who, visible(text), extra=self._extra())
        self._rest.clear()

    def _extra(self) -> dict[str, Any]:
        return {"fields": self._fields}


class PrintedPipe:
    """Reads a pipe into `printed`, in the running loop. Owns the descriptor."""

    def __init__(self, descriptor: int, printed: Printed) -> None:
        self._descriptor = descriptor
        self._printed = printed
        self._loop = asyncio.get_running_loop()
        self._resting: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        if self._read() and self._printed.spent:
            self._loop.remove_reader(self._descriptor)
            self._resting = self._loop.call_later(REST_S, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        self._loop.add_reader(self._descriptor, self._readable)

    def _read(self) -> int:
        """So many bytes were there; at the end of the pipe nothing more is looked for."""
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._printed.feed(data)
        else:
            self._loop.remove_reader(self._descriptor)
        return len(data)

    def drain(self) -> None:
        """Read what was written before this moment, as much as a pipe holds."""
        while self._read() == CHUNK and not self._printed.spent:
            pass

    def close(self) -> None:
        """Read the rest, and close the pipe."""
        if self._descriptor < 0:
            return
        if self._resting is not None:
            self._resting.cancel()
        self.drain()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._printed.end()
