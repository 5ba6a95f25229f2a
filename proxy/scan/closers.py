"""The search for the end of a broken block. Both scanners use this module: few blocks are broken."""

from __future__ import annotations

from typing import Final

NOTHING_YET: Final = 0
CLOSER: Final = 1
OPENER: Final = 2


class CloserSearch:
    """Looks for the first literal closer after the opener, and for the opener of another block. `found` says which was
    found first; the closer wins if both are present."""

    __slots__ = ("_closer", "_opener", "_overlap", "found")

    def __init__(self) -> None:
        self.begin(b"", b"")

    def begin(self, opener: bytes, closer: bytes) -> None:
        """Starts a search directly after the opener."""
        self._opener = opener
        self._closer = closer
        self._overlap = b""  # the last searched bytes, which may begin a literal
        self.found = NOTHING_YET

    def read(self, more: bytes, since: int | None) -> int:
        """Searches the next bytes up to the end of a literal; returns the number of bytes searched. Openers before
        position `since` of `more` are ignored (None: all openers)."""
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
        """Returns the end of the first `literal` in `more` (up to `end`) that begins at or after `since`, or -1. It may
        begin in earlier bytes."""
        before = len(self._overlap)
        if before:
            seam = self._overlap + more[: min(end, len(literal) - 1)]
            at = seam.find(literal, max(0, since + before))
            if at >= 0:
                return at - before + len(literal)
        at = more.find(literal, max(0, since), end)
        return at + len(literal) if at >= 0 else -1
