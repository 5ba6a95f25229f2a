"""A stream of bytes in lines, of which none that is too large is kept."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 4096
"""So much is kept of a line that is too large: enough to see whose it is."""


class TooLarge:
    """In the place of a line, or a frame, that is larger than the limit: how it begins."""

    __slots__ = ("head",)

    def __init__(self, head: bytes) -> None:
        self.head = head


class LineSplitter:
    """Bytes into lines, of which none that is too large is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | TooLarge]:
        """The lines that have ended, without their ends. One of more than `most` bytes comes as its beginning, once
        and at once; what follows of it is dropped."""
        out: list[bytes | TooLarge] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if self._skipping:
                self._skipping = False
            elif len(self._held) + len(piece) > self._most:
                out.append(TooLarge(bytes(self._held[:HEAD_BYTES] or piece[:HEAD_BYTES])))
            else:
                out.append(bytes(self._held) + piece)
            self._held.clear()
        if not self._skipping:
            self._held += rest
            if len(self._held) > self._most:
                out.append(TooLarge(bytes(self._held[:HEAD_BYTES])))
                self._held.clear()
                self._skipping = True
        return out
