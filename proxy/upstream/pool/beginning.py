"""The beginning of a streamed answer, until something of it has come: so long another server may give it just as well.

Frames that say nothing are comments, and what the server's protocol has for announcing itself: a role, empty text. A
server sends them before it has computed anything; whoever passed them on could not ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from toolwire.fastparse import FrameTooLarge, SseFramer

MOST_BYTES: Final = 16 * 1024
"""A beginning of more is one, whatever it says."""


class Beginning:
    """Keeps the bytes of an answer until they say something. `over`: they have. `is_empty_frame`: see `ServerSide`."""

    def __init__(self, is_empty_frame: Callable[[str | None, bytes], bool]) -> None:
        self.over = False
        self._says_nothing = is_empty_frame
        self._framer = SseFramer(MOST_BYTES)
        self._held = bytearray()

    @property
    def held(self) -> bytes:
        """All so far."""
        return bytes(self._held)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, cut anywhere. Gives nothing, or all so far as soon as it says something."""
        self._held += data
        try:
            return self._looked_at(self._framer.feed(data))
        except FrameTooLarge:
            return self._all()

    def finish(self) -> bytes:
        """The bytes are over, and it has said nothing yet: as `feed`, for a last frame without its blank line."""
        return self._looked_at(self._framer.finish())

    def _looked_at(self, frames: Iterable[tuple[str | None, bytes]]) -> bytes:
        silent = all(self._says_nothing(name, frame) for name, frame in frames)
        return b"" if silent and len(self._held) <= MOST_BYTES else self._all()

    def _all(self) -> bytes:
        self.over = True
        return self.held
