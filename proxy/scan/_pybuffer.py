"""The bytes that are being read. Part of the Python twin, see `_pyparse.py`; `_fastbuffer.pxi` is the same with C
types."""

from __future__ import annotations


class Buffer:
    """The bytes of the current delta, and the earlier bytes of the open block.

    `data` are the bytes of this delta. `raw` are the block's bytes from earlier deltas; the rest of the block begins at
    `start` in `data`. A *position* is an index into `data`, an *offset* counts from the block's first byte, a *place*
    from the first byte of the whole text, of which `fed` bytes have come (`data` is the end of it). `steps` is the
    number of bytes that all readers have examined.
    """

    __slots__ = ("_seen", "data", "fed", "raw", "start", "steps")

    def __init__(self) -> None:
        self.raw = bytearray()
        self.fed = 0
        self.steps = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self.begin(b"")

    def begin(self, data: bytes) -> None:
        """Starts a new delta. An open block continues with the first byte of `data`."""
        self.data = data
        self.start = 0
        self._seen.clear()

    def keep(self) -> None:
        """Ends the delta inside a block: stores the block's bytes for the next delta."""
        self.raw += self.data[self.start :]

    def gather(self) -> int:
        """Moves the block's earlier bytes into `data`. Returns the number of bytes by which positions have shifted."""
        shift = len(self.raw)
        if shift:
            self.begin(bytes(self.raw) + self.data)
            self.raw.clear()
        return shift

    def offset(self, pos: int) -> int:
        """Returns the offset in the block of a position in `data`."""
        return len(self.raw) + pos - self.start

    def place(self, pos: int) -> int:
        """Returns the distance in bytes from the first byte of the whole text to a position in `data`."""
        return self.fed - len(self.data) + pos

    def position(self, offset: int) -> int:
        """Returns the position in `data` of an offset in the block; negative if it is in an earlier delta."""
        return self.start + offset - len(self.raw)

    def back_to(self, offset: int) -> int:
        """Returns the position in `data` of an offset in the block. If it is in an earlier delta, the bytes from there
        on are moved into `data`."""
        if offset < len(self.raw):
            again = bytes(self.raw[offset:]) + self.data
            del self.raw[offset:]
            self.begin(again)
        return self.position(offset)

    def span(self, start: int, stop: int) -> bytes:
        """Returns the bytes between two offsets, which count from the block's first byte."""
        size = len(self.raw)
        if stop <= size:
            return bytes(self.raw[start:stop])
        return bytes(self.raw[start:]) + self.data[self.start + max(0, start - size) : self.start + stop - size]

    def next_of(self, firsts: bytes, pos: int) -> int:
        """Returns the position of the next of the bytes in `firsts` from `pos` on, or the end of `data`. Each byte's
        result is remembered with the position where the search began, because reading returns to an earlier position
        after a false block."""
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
