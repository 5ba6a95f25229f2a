"""The bytes that are being read."""

from __future__ import annotations

from .. import octets


class Buffer:
    """The bytes of the current delta, and the earlier bytes of the open block.

    `data` are the bytes of this delta, `size` is their number; `owner` keeps them alive, and is the delta itself if
    they are read in place. `raw` are the block's bytes from earlier deltas, `before` is their number; the rest of the
    block begins at `start` in `data`. A *position* is an index into `data`, an *offset* counts from the block's first
    byte, a *place* from the first byte of the whole text, of which `fed` bytes have come (`data` is the end of it).
    `steps` is the number of bytes that all readers have examined. `turn` changes with `data`.
    """

    __slots__ = ("before", "data", "fed", "owner", "raw", "size", "start", "steps", "turn")

    def __init__(self) -> None:
        self.raw = bytearray()
        self.before = 0
        self.fed = 0
        self.steps = 0
        self.turn = 0
        self.begin(b"")

    def begin(self, data: bytes) -> None:
        """Starts a new delta. An open block continues with the first byte of `data`."""
        self.owner: str | bytes | None = data
        self.data = data
        self.size = len(data)
        self.start = 0
        self.turn += 1

    def end(self) -> None:
        """Ends the delta."""
        self.owner = None
        self.size = 0

    def keep(self) -> None:
        """Stores the block's bytes of this delta for the next one."""
        octets.append(self.raw, self.data, self.start, self.size)
        self.before = len(self.raw)

    def gather(self) -> int:
        """Moves the block's earlier bytes into `data`. Returns the number of bytes by which positions have shifted."""
        shift = self.before
        if shift:
            octets.append(self.raw, self.data, 0, self.size)
            data = bytes(self.raw)
            self.raw.clear()
            self.before = 0
            self.begin(data)
        return shift

    def offset(self, pos: int) -> int:
        """Returns the offset in the block of a position in `data`."""
        return self.before + pos - self.start

    def place(self, pos: int) -> int:
        """Returns the distance in bytes from the first byte of the whole text to a position in `data`."""
        return self.fed - self.size + pos

    def position(self, offset: int) -> int:
        """Returns the position in `data` of an offset in the block; negative if it is in an earlier delta."""
        return self.start + offset - self.before

    def back_to(self, offset: int) -> int:
        """Returns the position in `data` of an offset in the block. If it is in an earlier delta, the bytes from there
        on are moved into `data`."""
        if offset < self.before:
            again = bytes(self.raw[offset:]) + self.data[0 : self.size]
            del self.raw[offset:]
            self.before = offset
            self.begin(again)
        return self.position(offset)

    def span(self, start: int, stop: int) -> bytes:
        """Returns the bytes between two offsets, which count from the block's first byte."""
        before = self.before
        if stop <= before:
            return bytes(self.raw[start:stop])
        late = self.data[self.start + max(0, start - before) : self.start + stop - before]
        return bytes(self.raw[start:]) + late if start < before else late

    def text(self, buf: bytes, pos: int, end: int) -> str:
        """Returns the bytes of `buf` between two positions as text; the delta itself if they are all of it."""
        if end - pos == self.size and isinstance(self.owner, str) and octets.same(buf, pos, self.data, self.size):
            return self.owner
        return buf[pos:end].decode()
