"""Buffers the beginning of a streamed answer until it has content. Up to then the request can be retried elsewhere.

Frames without content are comments, and frames that only announce an answer in the server's protocol: a role, empty
text. A server sends them before it has computed anything; after they were forwarded a retry would be impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ...fastparse import FrameTooLarge, SseFramer

MOST_BYTES: Final = 16 * 1024
"""More bytes than this count as content."""


class FirstContentBuffer:
    """Buffers the bytes of an answer until they have content; then `over` is True. `is_empty_frame`: see
    `ServerSide`."""

    def __init__(self, is_empty_frame: Callable[[str | None, bytes], bool]) -> None:
        self.over = False
        self._says_nothing = is_empty_frame
        self._framer = SseFramer(MOST_BYTES)
        self._held = bytearray()

    @property
    def held(self) -> bytes:
        """All bytes so far."""
        return bytes(self._held)

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes, cut anywhere. Returns nothing, or all bytes so far as soon as they have content."""
        self._held += data
        try:
            return self._looked_at(self._framer.feed(data))
        except FrameTooLarge:
            return self._all()

    def finish(self) -> bytes:
        """Ends an answer without content so far. Returns like `feed`, for a last frame without its blank line."""
        return self._looked_at(self._framer.finish())

    def _looked_at(self, frames: Iterable[tuple[str | None, bytes]]) -> bytes:
        silent = all(self._says_nothing(name, frame) for name, frame in frames)
        return b"" if silent and len(self._held) <= MOST_BYTES else self._all()

    def _all(self) -> bytes:
        self.over = True
        return self.held
