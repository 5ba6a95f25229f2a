"""Base of the readers of streamed answers: frames of server-sent events in, events of an answer out."""

from __future__ import annotations

import re
from typing import Any, Final

from ...errors import BackendFault, GatewayError
from ...events import Event, Fault
from ...fastparse import SseFramer
from ...scan._grammar import FrameTooLarge
from .noise import LEFT_OUT, Note, ignore_note, of_text
from .numbers import MAX_CHOICES
from .wire import load, read_frame

FRAME_END: Final = re.compile(rb"\n\n|\n\r\n?|\r\r")
"""Matches the end of a frame: two line ends, each LF, CR or CRLF."""


class SseReader:
    """A `StreamReader` whose subclass reads one frame (`_frame`, which may raise `BackendFault`), and ends a stream at
    `[DONE]` (`_at_done`) or without a last frame (`_at_end`). All append to `out`. See `ServerSide.reader` for the
    parameters."""

    frame_word = "a frame"
    """The protocol's word for a frame, in error messages."""

    def __init__(self, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> None:
        self.note = note
        self.choices = choices
        self.out: list[Event] = []
        self._framer = SseFramer(frame_bytes)
        self._ended = False

    def feed(self, data: bytes | None) -> list[Event]:
        """Returns the events in these bytes; None: those of the last frame, after which some servers leave out the
        blank line. Everything after the end or a `Fault` is ignored."""
        try:
            for name, frame in self._framer.finish() if data is None else self._framer.feed(data):
                if self._ended:
                    break
                if frame and (data is not None or is_whole(frame)):
                    try:
                        self._read(name, frame)
                    except BackendFault:
                        if not lacks_blank_lines(frame):
                            raise
                        for line in frame.split(b"\n"):
                            if not self._ended:
                                self._read(name, line)
        except FrameTooLarge as error:
            self._fault(BackendFault(f"The model server's answer: {error}.", code="upstream_invalid_response"))
        except BackendFault as error:
            self._fault(error)
        out, self.out = self.out, []
        return out

    def finish(self) -> list[Event]:
        """Returns the events at the end of the bytes: the end of a complete stream, or a `Fault`
        `upstream_disconnected` (R10.8)."""
        out = self.feed(None)
        if not self._ended:
            self._at_end()
        out += self.out
        self.out = []
        return out

    def _read(self, name: str | None, frame: bytes) -> None:
        """Reads a frame that is not empty: the end, noise, or an object."""
        if not frame.startswith(b"{"):
            if is_done(frame):
                self._at_done()
                return
            if (kind := of_text(frame, name)) is not None:
                self.note(LEFT_OUT, kind)
                return
        self._frame(name, read_frame(frame, self.frame_word))

    def _frame(self, name: str | None, value: dict[str, Any]) -> None:
        """Reads the object in a frame."""
        raise NotImplementedError  # each protocol has its own frames

    def _at_done(self) -> None:
        """Ends a stream at `[DONE]`, which by default is no more than the end of the bytes."""
        self._at_end()

    def _at_end(self) -> None:
        """Ends a stream whose last frame is missing. By default it broke off."""
        message = "The model server broke off before the answer was finished."
        self._fault(BackendFault(message, code="upstream_disconnected", transient=True))

    def _fault(self, error: GatewayError) -> None:
        if not self._ended:
            self._ended = True
            self.out.append(Fault(error))


def is_done(frame: bytes) -> bool:
    """True for `[DONE]`, also in quotes or in small letters, as some servers write it."""
    return frame.strip(b' "[]').upper() == b"DONE"


def is_whole(frame: bytes) -> bool:
    """True if a last frame without a blank line after it was not cut."""
    try:
        load(frame)
    except ValueError:
        return is_done(frame) or lacks_blank_lines(frame)
    return True


def lacks_blank_lines(frame: bytes) -> bool:
    """True if the data consists of several frames, one a line. Some servers leave out the blank lines between them."""
    lines = frame.split(b"\n")
    return len(lines) > 1 and all(map(is_whole, lines))
