"""Passes the prose of Chat chunks from a server's frames into a client's: the specification of the `ChunkGate` in
`_fastchunk.pxi`.

Rules of this module:

1. A frame passes only if the result of reading and writing it is known: it adds text, or reasoning, to answer 0 and has
   no other content. In doubt a frame is declined and takes the slow path. Declining costs time but is never wrong.
2. The text is unescaped and given to the scanner. Text that the scanner passes is escaped as orjson does it, like
   everywhere in the gateway. Other results, such as a call, are events, which the `found` callback writes. Frames with
   half a character are declined.
3. Each frame is read by a real tokenizer (depth, strings), or equals the last frame byte for byte except for its text.
4. After a declined frame the following ones take the slow path in groups, first singly, then in groups that double,
   until one passes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from ..events import Event
from ._grammar import FRAME_BYTES
from ._pyframe import find_text, is_text
from ._pyguard import SecretGuard
from ._pyparse import CallScanner

_GROUP: Final = 32
"""Maximum number of frames that take the slow path together after a declined one."""
_KEPT_BYTES: Final = 8 * 1024
"""After this much text a frame is declined, so that `take` is called."""


class ChunkGate:
    """Passes the prose of streamed Chat chunks, and gives everything else to `slow`, in order.

    `slow` takes the next bytes of the stream (whole frames, or parts of one) and returns the client's bytes for them.
    `found` takes the events (at least one) that the scanner made of a frame's text, and returns the client's bytes for
    them. Both may call `open`, `shut` and `take`. The gate is shut at first. A frame of more than `frame_bytes` never
    passes.
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
        self._cut = self._newline = False  # inside a frame; directly after a line end in it
        self._group = 1  # number of frames that take the slow path next
        self._before = self._after = b""  # the last frame read, before and after its text
        self._thought = False  # whether that text is reasoning
        self._passed = self._frames = self._kept = 0
        self._fed: list[str] = []
        self._given: list[str] = []

    @property
    def passed(self) -> int:
        """The number of the server's frames that have passed since the last `take`."""
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
        """Lets text (or `reasoning`) pass. Text that `scanner` passes at once (None: all text) is written as `head`,
        the escaped text and `tail`; for other text `found` is called. If `number` is not negative, it counts the frames
        and is written between `head` and `middle`. With `head` None, `found` is called for all text."""
        self._open = True
        self._reasoning = reasoning
        self._scanner = scanner
        self._head = head
        self._tail = tail
        self._number = number
        self._middle = middle

    def watch(self, guard: SecretGuard) -> None:
        """Lets frames pass only if `guard` finds nothing in their text."""
        self._guard = guard

    def shut(self) -> None:
        """Lets nothing pass."""
        self._open = False
        self._scanner = None

    def take(self) -> tuple[int, str, str]:
        """Returns, since the last call: the number of frames sent, the text received, and the text sent. These may
        differ, because the scanner may hold text back."""
        taken = self._frames, "".join(self._fed), "".join(self._given)
        self._passed = self._frames = self._kept = 0
        self._fed.clear()
        self._given.clear()
        return taken

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes, cut anywhere. Returns the client's bytes for them."""
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
        """Returns the position after the group of whole frames that take the slow path with the one that ends at
        `pos`."""
        for _ in range(self._group - 1):
            end = data.find(b"\n\n", pos)
            if end < 0:
                break
            pos = end + 2
        self._group = min(2 * self._group, _GROUP)
        return pos

    def _border(self, data: bytes) -> int:
        """Returns the position after the blank line that ends the frame that was cut, or -1."""
        if self._newline and data.startswith(b"\n"):
            return 1
        at = data.find(b"\n\n")
        return at + 2 if at >= 0 else -1

    def _pass(self, frame: bytes) -> bytes | None:
        """Returns the output for a frame (given without its blank line), or None if it is declined."""
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
        """Returns the text of a frame that equals the last one read except for its text, else None."""
        start, end = len(self._before), len(frame) - len(self._after)
        if not start or start > end or self._thought is not self._reasoning:
            return None
        if not (frame.startswith(self._before) and frame.endswith(self._after)):
            return None
        return frame[start:end] if is_text(frame, start, end) else None

    def _read(self, frame: bytes) -> bytes | None:
        """Returns the text of a frame without other content, else None."""
        found = find_text(frame)
        if found is None or found[2] is not self._reasoning:
            return None
        start, end, self._thought = found
        self._before, self._after = frame[:start], frame[end:]
        return frame[start:end]
