"""Prose of Chat chunks, passed from a server's frames into a client's, in Python: the specification of the `ChunkGate`
in `_fastchunk.pxi`.

Rules of this module:

1. A frame passes only if it is known what reading and writing it would come to: it holds more text, or more reasoning,
   of answer 0 and says nothing else. Whoever is in doubt declines; a declined frame goes the long way, so declining
   costs time and is never wrong.
2. The text is unescaped and shown to the scanner. What the scanner lets pass is escaped as every writer here escapes
   text (orjson); what it makes of the rest, a call for instance, are events, and somebody else writes those. Half a
   character is not for this module.
3. Each frame is read by a real tokenizer (depth, strings), or it is byte for byte the last frame that was, but for its
   text.
4. Frames that are declined go on alone first, then in larger and larger groups, until one passes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from toolwire.events import Event
from toolwire.scan._grammar import FRAME_BYTES
from toolwire.scan._pyframe import find_text, is_text
from toolwire.scan._pyguard import SecretGuard
from toolwire.scan._pyparse import CallScanner

_GROUP: Final = 32
"""So many frames, at most, go the long way together."""
_KEPT_BYTES: Final = 8 * 1024
"""After so much text has passed a frame is declined, so that what passed is asked for (`take`)."""


class ChunkGate:
    """Lets prose of streamed Chat chunks pass, and gives everything else to `slow`, in order.

    `slow` takes the next bytes of the stream, whole frames or the pieces of one, and gives what the client gets for
    them. `found` takes the events, at least one, that the scanner made of a frame's text, and gives what the client
    gets for those. Both may call `open`, `shut` and `take`. The gate is shut at first. A frame of more than
    `frame_bytes` never passes.
    """

    def __init__(
        self, slow: Callable[[bytes], bytes], found: Callable[[list[Event]], bytes], frame_bytes: int = FRAME_BYTES
    ) -> None:
        self._slow = slow
        self._found = found
        self._limit = frame_bytes
        self._open = self._reasoning = False
        self._guard: SecretGuard | None = None
        self._scanner: CallScanner | None = None
        self._head: bytes | None = None
        self._middle = self._tail = b""
        self._number = -1
        self._cut = self._newline = False  # within a frame, and right after a line's end there
        self._group = 1  # frames that go the long way next
        self._before = self._after = b""  # a frame that was read, around its text
        self._thought = False  # and that its text is reasoning
        self._passed = self._frames = self._kept = 0
        self._fed: list[str] = []
        self._given: list[str] = []

    @property
    def passed(self) -> int:
        """Frames of the server that have passed since the last `take`."""
        return self._passed

    def open(
        self,
        scanner: CallScanner | None,
        head: bytes | None,
        tail: bytes,
        number: int = -1,
        middle: bytes = b"",
        *,
        reasoning: bool = False,
    ) -> None:
        """From now on text passes, or `reasoning`: what `scanner` lets pass at once (None: any) as `head`, the escaped
        text and `tail`, and else as what `found` says. If `number` is not negative it counts the frames and is written
        between `head` and `middle`. No `head`: nothing passes at once."""
        self._open = True
        self._reasoning = reasoning
        self._scanner = scanner
        self._head = head
        self._tail = tail
        self._number = number
        self._middle = middle

    def watch(self, guard: SecretGuard) -> None:
        """From now on a frame passes only if `guard` finds nothing in its text."""
        self._guard = guard

    def shut(self) -> None:
        """From now on nothing passes."""
        self._open = False
        self._scanner = None

    def take(self) -> tuple[int, str, str]:
        """Since the last call: the frames that went out, the text that came in, and the text that went out. The scanner
        may keep text between the two."""
        taken = self._frames, "".join(self._fed), "".join(self._given)
        self._passed = self._frames = self._kept = 0
        self._fed.clear()
        self._given.clear()
        return taken

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, cut anywhere, and give what the client gets for them."""
        out: list[bytes] = []
        size = len(data)
        pos = 0
        if self._cut and size:
            border = self._border(data)
            self._cut = border < 0
            self._newline = data.endswith(b"\n")
            pos = size if self._cut else border
            out.append(self._slow(data[:pos]))
        while pos < size:
            end = data.find(b"\n\n", pos)
            if end < 0:
                self._cut = True
                self._newline = data.endswith(b"\n")
                out.append(self._slow(data[pos:]))
                break
            passed = self._pass(data[pos:end]) if self._open and end - pos <= self._limit else None
            end += 2
            if passed is None:
                end = self._group_end(data, end)
                passed = self._slow(data[pos:end])
            else:
                self._group = 1
            out.append(passed)
            pos = end
        return b"".join(out)

    def _group_end(self, data: bytes, pos: int) -> int:
        """The place behind the whole frames that go the long way with the one that ends at `pos`."""
        for _ in range(self._group - 1):
            end = data.find(b"\n\n", pos)
            if end < 0:
                break
            pos = end + 2
        self._group = min(2 * self._group, _GROUP)
        return pos

    def _border(self, data: bytes) -> int:
        """The place behind the blank line that ends the frame that was cut, or -1."""
        if self._newline and data.startswith(b"\n"):
            return 1
        at = data.find(b"\n\n")
        return at + 2 if at >= 0 else -1

    def _pass(self, frame: bytes) -> bytes | None:
        """What goes out for a frame (without its blank line), or None if it is declined."""
        if self._kept > _KEPT_BYTES:
            return None
        raw = self._same(frame)
        if raw is None:
            raw = self._read(frame)
        if not raw:
            return None
        try:
            text: str = orjson.loads(b'"%b"' % raw)
        except orjson.JSONDecodeError:  # not UTF-8, or half a character
            return None
        if self._guard is not None and self._guard.text(text.encode(), self._reasoning):
            return None
        given = text if self._scanner is None else None if self._head is None else self._scanner.pass_on(text)
        self._passed += 1
        self._fed.append(text)
        self._kept += len(text.encode())
        if given is None:
            assert self._scanner is not None
            found = self._scanner.feed(text)
            return self._found(found) if found else b""
        return self._written(given) if given else b""

    def _written(self, text: str) -> bytes:
        assert self._head is not None
        self._given.append(text)
        self._frames += 1
        escaped = orjson.dumps(text)[1:-1]
        if self._number < 0:
            return b"%b%b%b" % (self._head, escaped, self._tail)
        self._number += 1
        return b"%b%d%b%b%b" % (self._head, self._number - 1, self._middle, escaped, self._tail)

    def _same(self, frame: bytes) -> bytes | None:
        """The text of a frame that is the last one that was read, but for its text."""
        start, end = len(self._before), len(frame) - len(self._after)
        if not start or start > end or self._thought is not self._reasoning:
            return None
        if not (frame.startswith(self._before) and frame.endswith(self._after)):
            return None
        return frame[start:end] if is_text(frame, start, end) else None

    def _read(self, frame: bytes) -> bytes | None:
        """The text of a frame that holds nothing else."""
        found = find_text(frame)
        if found is None or found[2] is not self._reasoning:
            return None
        start, end, self._thought = found
        self._before, self._after = frame[:start], frame[end:]
        return frame[start:end]
