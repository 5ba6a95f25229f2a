"""Splits a byte stream into lines, and limits how much of a line is buffered, and how many lines are logged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 4096
"""Bytes kept of an oversized line: enough to identify its sender or request."""


READ_BYTES: Final = 64 * 1024
LOGGED_LINES: Final = 100
LOGGED_PER_S: Final = 60.0
"""At most `LOGGED_LINES` lines of a stream are logged per `LOGGED_PER_S` seconds; further ones are counted."""


class OversizedLine:
    """Stands for a line or frame that exceeds the size limit. `head` is its beginning."""

    __slots__ = ("head",)

    def __init__(self, head: bytes) -> None:
        self.head = head


class LineSplitter:
    """Splits bytes into lines. A line of more than `most` bytes is not buffered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """Returns the lines that `data` completes, without line ends. A line of more than `most` bytes is reported as
        `OversizedLine` as soon as it exceeds the limit; the rest of it is dropped."""
        out: list[bytes | OversizedLine] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if self._skipping:
                self._skipping = False
            elif len(self._held) + len(piece) > self._most:
                out.append(OversizedLine(bytes(self._held[:HEAD_BYTES] or piece[:HEAD_BYTES])))
            else:
                out.append(bytes(self._held) + piece)
            self._held.clear()
        if not self._skipping:
            self._held += rest
            if len(self._held) > self._most:
                out.append(OversizedLine(bytes(self._held[:HEAD_BYTES])))
                self._held.clear()
                self._skipping = True
        return out


async def log_lines(
    stream: asyncio.StreamReader, most: int, log: Callable[[bytes], object], log_left_out: Callable[[int], object]
) -> None:
    """Logs the lines of a stream until its end, but no blank ones; of those with more than `most` bytes the heads.
    `log_left_out` is called with the number of lines beyond `LOGGED_LINES`."""
    splitter = LineSplitter(most)
    began, logged, left_out = time.monotonic(), 0, 0
    try:
        while data := await stream.read(READ_BYTES):
            for line in splitter.feed(data):
                text = line if isinstance(line, bytes) else line.head
                if not text.strip():
                    continue
                if time.monotonic() - began > LOGGED_PER_S:
                    if left_out:
                        log_left_out(left_out)
                    began, logged, left_out = time.monotonic(), 0, 0
                if logged < LOGGED_LINES:
                    logged += 1
                    log(text)
                else:
                    left_out += 1
            await asyncio.sleep(0)
    finally:
        if left_out:
            log_left_out(left_out)
