"""Framing of server-sent events: the specification of the `SseFramer` in `_fastparse.pyx`.

Linear even if one line comes in tiny slices: only the new bytes are searched.
"""

from __future__ import annotations

import codecs
from typing import Final

from ._grammar import FRAME_BYTES, too_large

_NEWLINE: Final = ord("\n")


class SseFramer:
    """Splits a byte stream of server-sent events into frames, as the HTML standard defines.

    A frame is (event name or None, data). Lines end with LF, CR or CRLF, also if a CRLF is cut. A leading BOM,
    comments, `id`, `retry` and unknown fields are dropped; several `data` lines are joined with LF; an event without
    `data` is dropped. An object in a field `error`, as older llama.cpp sends it, is the data of an event `error`.
    `frame_bytes` limits one event, including comments and unknown fields, each line end counted as one byte.
    """

    def __init__(self, frame_bytes: int = FRAME_BYTES) -> None:
        self._limit = frame_bytes
        self._failed = False
        self._first = True
        self._cr = False
        self._line = bytearray()
        self._size = 0
        self._name = b""
        self._data = bytearray()  # each line followed by an LF

    def feed(self, data: bytes) -> list[tuple[str | None, bytes]]:
        """Takes the next bytes, cut anywhere, and returns the frames that are complete now.

        Raises `FrameTooLarge` for an event beyond the limit. If frames were completed before it, they are returned
        first, and the next call (and every later one) raises.
        """
        if self._failed:
            raise too_large(self._limit)
        frames: list[tuple[str | None, bytes]] = []
        pos = 0
        if self._cr and data:
            self._cr = False
            pos = int(data[0] == _NEWLINE)
        size = len(data)
        has_cr = b"\r" in data
        fits = True
        lf = data.find(b"\n", pos)
        while fits and pos < size:
            if 0 <= lf < pos:
                lf = data.find(b"\n", pos)
            end = lf
            if has_cr:
                cr = data.find(b"\r", pos, end if end >= 0 else size)
                end = cr if cr >= 0 else end
            if end < 0:
                self._line += data[pos:]
                fits = self._fits(len(self._line))
                break
            whole = not (has_cr or self._size or self._line) and data.startswith(b"data: ", pos)
            if whole and data.startswith(b"\n", end + 1) and end - pos <= self._limit:  # the usual frame
                self._first = False
                frames.append((None, data[pos + 6 : end]))
                pos = end + 2
                continue
            fits = self._take(data[pos:end], frames)
            pos = end + 1
            if data[end] != _NEWLINE:
                if pos == size:
                    self._cr = True
                elif data[pos] == _NEWLINE:
                    pos += 1
        if not (fits or frames):
            raise too_large(self._limit)
        return frames

    def finish(self) -> list[tuple[str | None, bytes]]:
        """Ends the stream. A last event without its blank line is returned too: servers do end with `data: [DONE]`
        only. The reader must check whether its data is complete. Raises `FrameTooLarge`."""
        if self._failed:
            raise too_large(self._limit)
        frames: list[tuple[str | None, bytes]] = []
        if self._line:
            self._take(b"", frames)
        self._dispatch(frames)
        return frames

    def _fits(self, line_size: int) -> bool:
        """Returns True if the event with a line of that size is within the limit."""
        if self._size + line_size <= self._limit:
            return True
        self._failed = True
        self._line.clear()
        self._data.clear()
        return False

    def _take(self, line: bytes, frames: list[tuple[str | None, bytes]]) -> bool:
        """Takes one line without its end, preceded by bytes of earlier calls. Returns False if the event is too
        large."""
        if self._line:
            line = bytes(self._line) + line
            self._line.clear()
        line_size = len(line)
        if self._first:
            self._first = False
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:
            self._dispatch(frames)
            return True
        if not self._fits(line_size):
            return False
        self._size += line_size + 1
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value
        elif field == b"data" or (field == b"error" and value.startswith(b"{")):
            self._data += value + b"\n"
            if field == b"error":
                self._name = field
        return True

    def _dispatch(self, frames: list[tuple[str | None, bytes]]) -> None:
        if self._data:
            frames.append((self._name.decode("utf-8", "replace") if self._name else None, bytes(self._data[:-1])))
            self._data.clear()
        self._name = b""
        self._size = 0


def plain_length(data: bytes, usual: bytes, odd: tuple[bytes, ...]) -> int:
    """Returns the length of the frames at the beginning of `data`, which holds whole frames, that end like a JSON
    object, contain `usual` and none of `odd`. Returns 0 if this cannot be decided quickly, because lines end with
    CR."""
    if b"\r" in data:
        return 0
    length = 0
    for frame in data.split(b"\n\n")[:-1]:
        if not frame.endswith(b"}") or usual not in frame or any(one in frame for one in odd):
            break
        length += len(frame) + 2
    return length
