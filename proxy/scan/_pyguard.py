"""Finds secrets in the text of a stream: the specification of the `SecretGuard` in `_fastguard.pxi`.

Rules of this module:

1. The pieces of one kind of text are searched as one text, however it is cut. A finding is permanent.
2. Nothing is held back: the answer ends with the piece that completes a part of a secret. The parts sent before are too
   short to be of use (`toolwire.upstream.servers.private_data`).
3. Frames are read as in `ChunkGate`: a frame with only text is compared with the previous one. The caller reads other
   frames, and gives their text to `text`.
"""

from __future__ import annotations

import orjson

from ._pyframe import find_text, is_text


class SecretGuard:
    """Looks for any of `parts` (none is empty) in the visible text and the reasoning of one answer."""

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self._parts = parts
        self._most = max(map(len, parts)) - 1
        self._text = self._thoughts = b""  # the last bytes received
        self._before = self._after = b""  # the last frame read, before and after its text
        self._thought = False  # whether that text is reasoning
        self.found = False

    def text(self, data: bytes, reasoning: bool = False) -> bool:  # as the compiled one
        """Takes more text. Returns True if a part was found in it or before."""
        kept = (self._thoughts if reasoning else self._text) + data
        if not self.found:
            self.found = any(part in kept for part in self._parts)
        if reasoning:
            self._thoughts = kept[-self._most :]
        else:
            self._text = kept[-self._most :]
        return self.found

    def frames(self, data: bytes, pos: int) -> int:
        """Takes the whole frames from `pos` that only contain text. Returns the position of the first frame with other
        content or with a finding, else the end of `data`."""
        while pos < len(data):
            end = data.find(b"\n\n", pos)
            if end < 0 or not self._take(data[pos:end]):
                return pos
            pos = end + 2
        return pos

    def _take(self, frame: bytes) -> bool:
        """Returns True if a frame (without its blank line) contains only text, and no secret."""
        start, stop, thought = len(self._before), len(frame) - len(self._after), self._thought
        same = 0 < start <= stop and frame.startswith(self._before) and frame.endswith(self._after)
        same = same and is_text(frame, start, stop)
        if not same:
            found = find_text(frame)
            if found is None:
                return False
            start, stop, thought = found
        try:
            text: str = orjson.loads(b'"%b"' % frame[start:stop])
        except orjson.JSONDecodeError:  # not UTF-8, or half a character
            return False
        if not same:
            self._before, self._after, self._thought = frame[:start], frame[stop:], thought
            self.found = self.found or any(part in frame for part in self._parts)
        return not self.text(text.encode(), thought)
