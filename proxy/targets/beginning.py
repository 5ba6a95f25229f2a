"""The beginning of a streamed answer, until something of it has come: so long another server may give it just as well.

Frames that say nothing are comments, a role, empty text, and the events with which a response announces itself. A server sends them before it has
computed anything; whoever passed them on could not ask again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..fastparse import FrameTooLarge, SseFramer
from ..protocols.wire import load

MOST_BYTES: Final = 16 * 1024
"""A beginning of more is one, whatever it says."""

_ANNOUNCED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})


class Beginning:
    """Keeps the bytes of an answer until they say something. `over`: they have."""

    def __init__(self) -> None:
        self.over = False
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
        silent = all(name is None and says_nothing(frame) for name, frame in frames)
        return b"" if silent and len(self._held) <= MOST_BYTES else self._all()

    def _all(self) -> bytes:
        self.over = True
        return self.held


def says_nothing(frame: bytes) -> bool:
    """Whether the data of a frame hold nothing of an answer, and no error."""
    try:
        value = load(frame)
    except ValueError:
        return False
    if not isinstance(value, dict) or value.get("error") or value.get("object") == "error":
        return False
    if value.get("type") in _ANNOUNCED:
        return True
    choices = value.get("choices")
    return isinstance(choices, list) and all(map(_is_silent, choices))


def _is_silent(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("text"):
        return False
    delta = choice.get("delta") or {}
    return isinstance(delta, dict) and not any(value for key, value in delta.items() if key != "role")
