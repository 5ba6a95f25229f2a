"""Searching a block that is not what its syntax says for its end. Both scanners use this as it is: few blocks are
broken."""

from __future__ import annotations

from typing import Final

NOTHING_YET: Final = 0
CLOSER: Final = 1
OPENER: Final = 2


class CloserSearch:
    """Looks for the first literal closer, from right behind the opener on, and for the opener of another block.

    `found` is what was found, the closer if both are there.
    """

    __slots__ = ("_closer", "_opener", "_overlap", "found")

    def __init__(self) -> None:
        self.begin(b"", b"")

    def begin(self, opener: bytes, closer: bytes) -> None:
        """What comes next stands right behind the opener."""
        self._opener = opener
        self._closer = closer
        self._overlap = b""  # the end of what was searched, as far as it may begin a literal
        self.found = NOTHING_YET

    def read(self, more: bytes, since: int | None) -> int:
        """Search the next bytes, up to the end of what is `found`; gives how many those are. An opener that begins
        before `since`, counted from the first of them, does not count; with None, none does."""
        opener_end = -1 if since is None else self._end_of(self._opener, more, len(more), since)
        closer_end = self._end_of(self._closer, more, len(more) if opener_end < 0 else opener_end, -len(self._overlap))
        if closer_end >= 0:
            self.found = CLOSER
            return closer_end
        if opener_end >= 0:
            self.found = OPENER
            return opener_end
        longest = max(len(self._opener), len(self._closer))
        seam = self._overlap + more[max(0, len(more) - longest + 1) :]
        self._overlap = seam[len(seam) - min(len(seam), longest - 1) :]
        return len(more)

    def _end_of(self, literal: bytes, more: bytes, end: int, since: int) -> int:
        """The end of the first `literal` in `more`, up to `end`, that does not begin before `since`, or -1. It may
        begin in what came before."""
        before = len(self._overlap)
        if before:
            seam = self._overlap + more[: min(end, len(literal) - 1)]
            at = seam.find(literal, max(0, since + before))
            if at >= 0:
                return at - before + len(literal)
        at = more.find(literal, max(0, since), end)
        return at + len(literal) if at >= 0 else -1
