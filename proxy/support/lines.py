"""Splits a byte stream into lines, and limits how much of a line is buffered."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 4096
"""Bytes kept of an oversized line: enough to identify its sender or request."""


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
