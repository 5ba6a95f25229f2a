"""A stream that is sent unread: cut at the ends of its frames, and searched for errors, secrets and the end.

Rules:

1. The output is the input, byte for byte, except for the name of a renamed model and rule 3. Only whole frames are
   sent, so that an error of the gateway never lands inside an incomplete frame.
2. A frame is parsed only if it may be an error or is unusual: it lacks what nearly all frames have
   (`ServerSide.usual`), or does not end like an object. An error ends the stream here and is sent in the gateway's own
   form, without the server's addresses and secrets (R10.8). A frame with a secret also ends the stream, and one that is
   no JSON, because clients fail on it.
3. Frames that are neither answer nor error are left out. Chunks that strict clients reject are repaired (R29.1).
4. The end is recognised in the last frames, as the protocol defines it. Nothing is sent after it.
5. The first and the last frames with token counts are buffered and read at the end of the stream (R29.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ...errors import BackendFault, GatewayError
from ...events import Fault
from ...fastparse import SseFramer, plain_length
from ...model import Usage
from ...protocols.base import ServerSide
from ...protocols.shared.noise import LEFT_OUT, Note, ignore_note
from ...protocols.shared.wire import empty_answer_fault, load
from ...support.offload import OFFLOAD_BYTES, offload
from ...upstream.pool.first_content import FirstContentBuffer
from ...upstream.servers.leak_detection import LeakDetector, leak_detector
from ...upstream.servers.private_data import NOTHING, PrivateData, secret_fault
from ...upstream.servers.upstream_errors import clean_error
from ..answers.renaming import Renaming

_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
_END: Final = re.compile(rb"\n\n|\n\r\n|\r\r")
_ERROR: Final = re.compile(rb'"error"|event: ?error')
_DETAIL: Final = b'"detail"'
"""The key of an error in FastAPI's form."""
_ENDED: Final = (b'_reason":"', b'_reason": "')
_GOOD_END: Final = re.compile(
    rb'_reason": ?"(?:stop|length|tool_calls|function_call|content_filter|end_turn|tool_use|max_tokens|stop_sequence)"'
)
_DATA: Final = re.compile(rb"(?:^|[\r\n])data:")
_COUNTS: Final = re.compile(rb'"usage" ?: ?\{')
_TAIL_BYTES: Final = 1024


class Relay:
    """One stream of a server that speaks `protocol`.

    `has_sent`: a frame with data was sent. `ended`: the end marker was sent. `fault`: the reason why nothing more is
    sent. A frame of more than `frame_bytes` is a fault. `renaming` replaces the model's name for the client.
    """

    def __init__(
        self,
        protocol: ServerSide,
        frame_bytes: int,
        private: PrivateData = NOTHING,
        renaming: Renaming | None = None,
        note: Note = ignore_note,
    ) -> None:
        self.has_sent = False
        self.ended = False
        self.large = False
        """True if a large part of an incomplete frame is buffered."""
        self.fault: GatewayError | None = None
        self.counts: tuple[bytes, ...] = ()
        """Frames with the server's token counts: the first and the last ones."""
        self._protocol = protocol
        self._marks = protocol.end_marks
        self._usual = protocol.usual
        self._odd = (b"error", _DETAIL, b'"usage"', *_ENDED, *self._marks)
        self._spaced = protocol.usual.replace(b":", b": ")
        self._note = note
        self._private = private
        self._renaming = renaming
        self._leaks = leak_detector(private)
        self._limit = frame_bytes
        self._rest = bytearray()
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes, cut anywhere, and returns the complete frames that can be sent, up to an error or the
        end."""
        if self.fault is not None or self.ended:
            return b""
        if self._rest or not data.endswith(_ENDS):
            data = self._cut(data)
        plain = plain_length(data, self._usual, self._odd)
        if plain < len(data):
            data = data[:plain] + self._unusual(data[plain:], self.has_sent or plain > 0)
        if self._leaks is not None and data:
            data = self._up_to_secret(self._leaks, data)
        if not self.has_sent and self._is_error_alone(data):
            return b""
        if data:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self.has_sent = self.has_sent or _DATA.search(data) is not None
            if self._renaming is not None:
                data = self._renaming.frames(data)
        return data

    def finish(self) -> bytes:
        """Ends the input. Returns what is still to be sent, with the end marker. Sets `fault` if the stream broke
        off."""
        out = self.feed(b"\n\n") if self._rest and self._is_whole() else b""
        if self.ended or self.fault is not None:
            return out
        if (end := self._protocol.missing_end(self._tail)) is not None:
            return out + end
        self.fault = BackendFault("The model server broke off its stream.", code="upstream_disconnected")
        return out

    async def usage(self) -> Usage | None:
        """Returns the server's token counts, after the end of its stream; None if there are none."""
        frames, self.counts = b"".join(self.counts), ()
        return await offload(len(frames) > OFFLOAD_BYTES, counted, self._protocol, frames)

    def _cut(self, data: bytes) -> bytes:
        """Returns the complete frames in the buffer and `data`; the rest is buffered."""
        rest = self._rest
        searched = max(0, len(rest) - 2)
        rest += data
        marks = _ENDS if rest.find(b"\r", searched) >= 0 else _ENDS[:1]  # a search without a match takes longest
        end = max(at + len(mark) if (at := rest.rfind(mark, searched)) >= 0 else 0 for mark in marks)
        whole = bytes(rest[:end])
        del rest[:end]
        self.large = len(rest) > OFFLOAD_BYTES
        if len(rest) > self._limit:
            rest.clear()
            self.fault = BackendFault(
                f"The model server sent a frame of more than {self._limit} bytes.", code="upstream_invalid_response"
            )
        return whole

    def _unusual(self, data: bytes, has_sent: bool) -> bytes:
        """Returns the part of complete frames that can be sent, up to an error or the end. `has_sent`: a frame with
        data came before these."""
        data = self._without_noise(data)
        # `find`, because `in` first tries bytes as a number, which raises an exception each time.
        if data.find(b"error") >= 0 and _ERROR.search(data) is not None:
            data = self._up_to_error(data, b"error")
        if data.find(_DETAIL) >= 0:
            data = self._up_to_error(data, _DETAIL)
        for mark in _ENDED:
            if data.find(mark) >= 0 and _GOOD_END.search(data) is None:
                data = self._up_to_error(data, mark)
        for mark in self._marks:
            if data.find(mark) >= 0:
                data = self._up_to_end(data, mark, has_sent)
        if data.find(b'"usage"') >= 0 and _COUNTS.search(data) is not None:
            self.counts = (*self.counts[:1], data)
        return data

    def _without_noise(self, data: bytes) -> bytes:
        """Returns complete frames without those that are neither answer nor error, up to one that is no JSON."""
        begin = copied = 0
        shown: list[bytes] = []  # the output for `data[:copied]`
        lines = data.find(b"\r") < 0
        while begin < len(data):
            if lines:  # `find` is several times faster
                end = at + 2 if (at := data.find(b"\n\n", begin)) >= 0 else len(data)
            else:
                end = found.end() if (found := _END.search(data, begin)) is not None else len(data)
            frame = data[begin:end]
            if (frame.find(self._usual) < 0 and frame.find(self._spaced) < 0) or not frame.rstrip().endswith(b"}"):
                as_shown = self._as_shown(frame)
                if as_shown is None:
                    self.fault = self._error(frame) or BackendFault(
                        "The model server's stream has a frame that is no JSON.", code="upstream_invalid_response"
                    )
                    return b"".join((*shown, data[copied:begin]))
                if as_shown is not frame:
                    shown += data[copied:begin], as_shown
                    copied = end
            begin = end
        return b"".join((*shown, data[copied:])) if copied else data

    def _as_shown(self, frame: bytes) -> bytes | None:
        """Returns a frame as strict clients accept it: the same object if it is fine, nothing if it is left out, None
        if it is no JSON."""
        for name, data in SseFramer(len(frame)).feed(frame):
            if self._protocol.is_end(name, data):
                continue
            kind = self._protocol.left_out(name, data)
            if kind is not None:
                self._note(LEFT_OUT, kind)
                return b""
            try:
                shown = self._protocol.shown(data)
            except ValueError:
                return None
            if shown is not data:
                event = b"" if name is None else b"event: %b\n" % name.encode()
                return event + b"data: %b\n\n" % shown
        return frame

    def _is_error_alone(self, data: bytes) -> bool:
        """Returns True if an error came before any part of an answer, so that it can still become an HTTP status."""
        return self.fault is not None and not FirstContentBuffer(self._protocol.is_empty_frame).feed(data)

    def _up_to_secret(self, leaks: LeakDetector, data: bytes) -> bytes:
        shown = leaks.frames(data)
        if len(shown) < len(data):
            self.ended = False
            self.fault = secret_fault()
        return shown

    def _up_to_end(self, data: bytes, mark: bytes, has_sent: bool) -> bytes:
        for begin, end in _frames_with(mark, data):
            last = self._last(data[begin:end])
            if last is not None:
                self.ended = True
                self.fault = None  # an error after the end does not count
                if not (has_sent or last.startswith(b"{") or _DATA.search(data, 0, begin)):
                    self.fault = empty_answer_fault()
                    return b""
                return data[:end]
        return data

    def _last(self, frame: bytes) -> bytes | None:
        """Returns the data of a frame if it is the end of a stream, else None."""
        frames = SseFramer(len(frame)).feed(frame)
        return next((data for name, data in frames if self._protocol.is_end(name, data)), None)

    def _up_to_error(self, data: bytes, mark: bytes) -> bytes:
        for begin, end in _frames_with(mark, data):
            error = self._error(data[begin:end])
            if error is not None:
                self.fault = error
                return data[:begin]
        return data

    def _error(self, frame: bytes) -> GatewayError | None:
        """Returns the error in a frame; None if it holds none."""
        events = self._protocol.reader(frame_bytes=len(frame), note=self._note).feed(frame)
        return next(
            (clean_error(event.error, private=self._private) for event in events if isinstance(event, Fault)), None
        )

    def _is_whole(self) -> bool:
        """Returns True if the buffer holds a frame that lacks only its blank line."""
        framer = SseFramer(self._limit)
        frames = [*framer.feed(bytes(self._rest)), *framer.finish()]
        return bool(frames) and all(self._protocol.is_end(name, data) or _is_json(data) for name, data in frames)


def _is_json(data: bytes) -> bool:
    try:
        load(data)
    except ValueError:
        return False
    return True


def counted(protocol: ServerSide, frames: bytes) -> Usage | None:
    """Returns the token counts in complete frames, the last value of each; None if there are none. Never raises: such
    frames may be sent even if they are odd."""
    counts: dict[str, Any] = {}
    for _, frame in SseFramer(len(frames)).feed(frames):
        try:
            said = load(frame) if _COUNTS.search(frame) else None
        except ValueError:
            continue
        places = (said, said.get("message"), said.get("response")) if isinstance(said, dict) else ()
        for place in places:
            if isinstance(place, dict) and isinstance(usage := place.get("usage"), dict):
                counts |= {name: number for name, number in usage.items() if number is not None}
    return protocol.read_usage(counts) if counts else None


def _frames_with(mark: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each complete frame in `data` that holds `mark`."""
    behind = 0
    while (at := data.find(mark, behind)) >= 0 and (end := _END.search(data, at)) is not None:
        begin = max(last + len(blank) if (last := data.rfind(blank, behind, at)) >= 0 else behind for blank in _ENDS)
        behind = end.end()
        yield begin, behind
