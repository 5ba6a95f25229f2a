"""Secrets in the text of a stream, in Python: the specification of the `SecretGuard` in `_fastguard.pxi`.

Rules of this module:

1. Found is what the pieces of one kind of text hold together, cut anywhere. What was found stays found.
2. Nothing is held back: with the piece that completes a part of a secret everything ends. What of it went out before is
   too little to be worth anything (`toolwire.upstream.servers.private_data`).
3. Frames are read as the `ChunkGate` reads them: one that holds nothing but more text costs a comparison with the one
   before. Whoever asked reads the others, and gives their text to `text`.
"""

from __future__ import annotations

import orjson

from toolwire.scan._pyframe import find_text, is_text


class SecretGuard:
    """Looks for any of `parts`, none of which is empty, in the visible text and in the reasoning of one answer."""

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self._parts = parts
        self._most = max(map(len, parts)) - 1
        self._text = self._thoughts = b""  # the ends of what came
        self._before = self._after = b""  # a frame that was read, around its text
        self._thought = False  # and that its text is reasoning
        self.found = False

    def text(self, data: bytes, reasoning: bool = False) -> bool:  # as the compiled one
        """Take more text; whether a part was found, in this or before."""
        kept = (self._thoughts if reasoning else self._text) + data
        if not self.found:
            self.found = any(part in kept for part in self._parts)
        if reasoning:
            self._thoughts = kept[-self._most :]
        else:
            self._text = kept[-self._most :]
        return self.found

    def frames(self, data: bytes, pos: int) -> int:
        """Take the whole frames from `pos` on that hold nothing but more text. Gives the place of the first one that is
        something else or in which a part was found, else the end of `data`."""
        while pos < len(data):
            end = data.find(b"\n\n", pos)
            if end < 0 or not self._take(data[pos:end]):
                return pos
            pos = end + 2
        return pos

    def _take(self, frame: bytes) -> bool:
        """Whether a frame (without its blank line) is one that holds nothing but more text, and no secret."""
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
