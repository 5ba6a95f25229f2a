"""The bytes that are being read. Part of the Python twin, see `_pyparse.py`; `_fastbuffer.pxi` is the same with C
types."""

from __future__ import annotations


class Buffer:
    """The bytes of the current delta, and the earlier bytes of the open block.

    `data` are the bytes of this delta. `raw` is what earlier deltas brought of a block; the rest of it begins at
    `start` in `data`. Positions are in `data`, offsets count from the block's first byte, places from the first byte of
    the whole text, of which `fed` bytes have come; `data` is always its end. `steps`: so many bytes were looked at, by
    all who read here.
    """

    __slots__ = ("_seen", "data", "fed", "raw", "start", "steps")

    def __init__(self) -> None:
        self.raw = bytearray()
        self.fed = 0
        self.steps = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self.begin(b"")

    def begin(self, data: bytes) -> None:
        """Starts a new delta. An open block continues with its first byte."""
        self.data = data
        self.start = 0
        self._seen.clear()

    def keep(self) -> None:
        """Ends the delta inside a block."""
        self.raw += self.data[self.start :]

    def gather(self) -> int:
        """Moves the block's earlier bytes into `data`. Returns by how much positions have shifted."""
        shift = len(self.raw)
        if shift:
            self.begin(bytes(self.raw) + self.data)
            self.raw.clear()
        return shift

    def offset(self, pos: int) -> int:
        """Returns the offset of a position."""
        return len(self.raw) + pos - self.start

    def place(self, pos: int) -> int:
        """How far from the first byte of the text a position is."""
        return self.fed - len(self.data) + pos

    def position(self, offset: int) -> int:
        """Returns the position of an offset; negative if it is in an earlier delta."""
        return self.start + offset - len(self.raw)

    def back_to(self, offset: int) -> int:
        """Returns the position of an offset. If it is in an earlier delta, the bytes from there on are moved into
        `data`."""
        if offset < len(self.raw):
            again = bytes(self.raw[offset:]) + self.data
            del self.raw[offset:]
            self.begin(again)
        return self.position(offset)

    def span(self, start: int, stop: int) -> bytes:
        """Returns the bytes at these offsets of the block."""
        size = len(self.raw)
        if stop <= size:
            return bytes(self.raw[start:stop])
        return bytes(self.raw[start:]) + self.data[self.start + max(0, start - size) : self.start + stop - size]

    def next_of(self, firsts: bytes, pos: int) -> int:
        """Returns the position of the next of these bytes, or the end of `data`. Results are remembered per byte,
        together with the position from which the search began, because a false block leads back before it."""
        size = len(self.data)
        nearest = size
        for first in firsts:
            since, found = self._seen.get(first, (size, size))
            if pos < since or found < pos:
                again = self.data.find(first, pos, since if pos < since else size)
                found = again if again >= 0 else found if pos < since else size
                self._seen[first] = (pos, found)
            nearest = min(nearest, found)
        return nearest
