"""A stream that is sent unread: cut at the ends of its frames, and searched for errors, secrets and the end.

Rules:

1. The output is the input, byte for byte, except for the name of a renamed model and rule 3. Only whole frames are
   sent, so that an error of the gateway never lands inside an incomplete frame.
2. A frame is parsed only if it is suspicious: it lacks what nearly all frames have (`ServerSide.usual`), does not end
   like an object, or has bytes of an error, of an end, or of two frames without a blank line between them. A parsed
   frame is judged like a frame of an answer that is converted. An error ends the stream here and is sent in the
   gateway's own form, without the server's addresses and secrets (R10.8). A frame with a secret also ends the stream,
   and one that is no JSON object, because clients fail on it. So does a last frame with nothing but calls without a
   name (R29.2); other calls are not read, because no tool is on offer.
3. Frames that are neither answer nor error are left out. Frames that strict clients reject are repaired (R29.1): chunks
   without a `delta`, missing blank lines or names of events, other spellings of `[DONE]`.
4. Nothing is sent after the end.
5. The first and the last frames with token counts are buffered and read at the end of the stream (R29.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ...errors import BackendFault, GatewayError
from ...events import Fault
from ...fastparse import SseFramer, plain_length
from ...model import Usage
from ...protocols.base import ServerSide
from ...protocols.shared.ends import UNUSUAL_END
from ...protocols.shared.noise import LEFT_OUT, Note, ignore_note, of_text
from ...protocols.shared.numbers import add_counts
from ...protocols.shared.server_errors import error_in
from ...protocols.shared.sse_reader import FRAME_END, is_done, is_whole, lacks_blank_lines
from ...protocols.shared.wire import dump, empty_answer_fault, load
from ...support.offload import OFFLOAD_BYTES, offload
from ...upstream.pool.first_content import FirstContentBuffer
from ...upstream.servers.leak_detection import LeakDetector, leak_detector
from ...upstream.servers.private_data import NOTHING, PrivateData, secret_fault
from ...upstream.servers.upstream_errors import clean_error
from ..answers.renaming import Renaming

_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")


class _Sign(NamedTuple):
    """A reason to parse a frame: `pattern` matches it. Such a frame has at least one of `texts`, which are faster to
    search for."""

    texts: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


_ERROR: Final = _Sign(
    (b'"error"', b"event: error", b"event:error", b'"detail"', b'_reason":"', b'_reason": "'),
    re.compile(rb'"(?:error|detail)"(?! ?: ?(?:null|false|""|\[\]|\{\}))|event: ?error|' + UNUSUAL_END),
)
"""The frame may hold an error, or a finish reason that means one."""
_JOINED: Final = _Sign((b"}\ndata", b"}\nevent"), re.compile(rb"\}(?:\r\n?|\n)(?:data|event)"))
"""The frame lacks a blank line."""
_SIGNS: Final = (_ERROR, _JOINED)
_SUSPICIOUS: Final = tuple(text for sign in _SIGNS for text in sign.texts)
_HARMLESS: Final = ((b"\r\n", b"\n"), (b'"error":null', b""), (b'"error": null', b""))
"""Texts that some servers have in every frame, and what stands in their place when a quick look judges the frame."""
_DATA_LINE: Final = re.compile(rb"((?:^(?:\xef\xbb\xbf)?|(?<=[\r\n]))data[^\r\n]*)(\r\n|\r|\n)(?=[^\r\n])")
_DATA: Final = re.compile(rb"(?:^|[\r\n])data:")
_COUNTS: Final = re.compile(rb'"usage" ?: ?\{')
_TAIL_BYTES: Final = 1024
_NEVER: Final = b"\0"
"""Bytes that no frame contains."""


class Relay:
    """One stream of a server that speaks `protocol`.

    `has_sent`: a frame with data was sent. `ended`: the end marker was sent. `fault`: the reason why nothing more is
    sent. A frame of more than `frame_bytes` is a fault. `renaming` replaces the model's name for the client. `choices`:
    the number of answers that were requested.
    """

    def __init__(
        self,
        protocol: ServerSide,
        frame_bytes: int,
        private: PrivateData = NOTHING,
        renaming: Renaming | None = None,
        note: Note = ignore_note,
        choices: int = 1,
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
        self._suspicious = (*_SUSPICIOUS, *self._marks)
        self._odd = (*self._suspicious, b'"usage"')
        self._spaced = protocol.usual.replace(b":", b": ")
        self._note = note
        self._private = private
        self._renaming = renaming
        self._leaks = leak_detector(private)
        self._limit = frame_bytes
        self._rest = bytearray()
        self._tail = b""
        self._choices = choices
        self._finished: tuple[bytes, ...] = ()  # frames that showed the end of an answer

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes, cut anywhere, and returns the complete frames that can be sent, up to an error or the
        end."""
        if self.fault is not None or self.ended:
            return b""
        if self._rest or not data.endswith(_ENDS):
            data = self._cut(data)
        plain = plain_length(data, self._usual, self._odd)
        if plain < len(data):
            out = [data[:plain]]
            self._judge(data[plain:], out)
            data = b"".join(out)
        if self._leaks is not None and data:
            data = self._up_to_secret(self._leaks, data)
        if not self.has_sent and self._is_error_alone(data):
            return b""
        if data:
            # a long read is kept whole: its last frame may be longer than a tail
            self._tail = data if len(data) > _TAIL_BYTES else (self._tail + data)[-_TAIL_BYTES:]
            self.has_sent = self.has_sent or _DATA.search(data) is not None
            if self._renaming is not None:
                data = self._renaming.frames(data)
        return data

    def finish(self) -> bytes:
        """Ends the input. Returns what is still to be sent, with the end marker. Sets `fault` if the stream broke
        off."""
        out = self.feed(b"\n\n") if self._rest and self._is_whole() else b""
        return out if self.ended or self.fault is not None else out + self._end_after(self._tail)

    async def usage(self) -> Usage | None:
        """Returns the server's token counts, after the end of its stream; None if there are none."""
        frames, self.counts = b"".join(self.counts), ()
        return await offload(len(frames) > OFFLOAD_BYTES, counted, self._protocol, frames)

    def _cut(self, data: bytes) -> bytes:
        """Returns the complete frames in the buffer and `data`; the rest is buffered."""
        rest = self._rest
        searched = max(0, len(rest) - 2)
        rest += data
        end = _last_end(rest, searched)
        whole = bytes(rest[:end])
        del rest[:end]
        self.large = len(rest) > OFFLOAD_BYTES
        if len(rest) > self._limit:
            rest.clear()
            self.fault = BackendFault(
                f"The model server sent a frame of more than {self._limit} bytes.", code="upstream_invalid_response"
            )
        return whole

    def _judge(self, data: bytes, out: list[bytes]) -> None:
        """Appends those of some complete frames to `out` that can be sent, up to an error or the end."""
        before = self.fault
        for frame in _frames(data):
            shown = self._shown(frame, out) if self._is_suspicious(frame) else frame
            if shown:
                out.append(shown)
                if len(self._finished) < self._choices and self._protocol.missing_end(shown) is not None:
                    self._finished = (*self._finished, shown)
                if shown.find(b'"usage"') >= 0 and _COUNTS.search(shown) is not None:
                    self.counts = (*self.counts[:1], shown)
            if self.ended or self.fault is not before:
                break

    def _is_suspicious(self, frame: bytes) -> bool:
        bare, suspicious = frame, self._suspicious
        for text, plain in _HARMLESS:
            bare = bare.replace(text, plain)
        if plain_length(bare, self._usual, suspicious) or plain_length(bare, self._spaced, suspicious):
            return False
        # `find`, because `in` first tries bytes as a number, which raises an exception each time.
        if (frame.find(self._usual) < 0 and frame.find(self._spaced) < 0) or not frame.rstrip().endswith(b"}"):
            return True
        return any(sign.pattern.search(frame) is not None for sign in _SIGNS) or any(
            frame.find(mark) >= 0 for mark in self._marks
        )

    def _shown(self, frame: bytes, out: list[bytes]) -> bytes:
        """Returns a suspicious frame as strict clients accept it: unchanged if it is fine, nothing if it is left out.
        Notes its error or the end. `out` are the frames of this read before it."""
        for name, data in SseFramer(len(frame)).feed(frame):
            if data in self._marks:  # before it is read as JSON, because its error costs most of a short stream
                return self._shown_done(frame, data, out)
            passes = self._protocol.any_frames
            try:
                value = load(data)
            except ValueError:
                value, passes = None, False
            if isinstance(value, dict):
                return self._shown_object(frame, name, data, value)
            if is_done(data) and not passes:
                return self._shown_done(frame, data, out)
            if lacks_blank_lines(data):
                self._judge(_DATA_LINE.sub(rb"\1\2\2", frame), out)
            elif not data.startswith(b"{") and (kind := of_text(data, name)) is not None:
                self._note(LEFT_OUT, kind)
            elif passes:
                return frame
            else:
                self.fault = self._error(frame) or BackendFault(
                    "The model server's stream has a frame that is no JSON.", code="upstream_invalid_response"
                )
            return b""
        return frame

    def _shown_object(self, frame: bytes, name: str | None, data: bytes, value: dict[str, Any]) -> bytes:
        kind = self._protocol.noise_of(name, value)
        if kind is not None:
            self._note(LEFT_OUT, kind)
            return b""
        ends = self._protocol.is_end(name, data)
        if ends or name == "error" or _ERROR.pattern.search(frame) is not None or error_in(value) is not None:
            error = self._error(frame)
            if error is not None:
                self.fault = error
                return b""
        if name is None and self._protocol.named_frames and (event := str(value.get("type"))).isidentifier():
            frame = b"event: %b\n%b" % (event.encode(), frame.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"))
            self._usual = self._spaced = _NEVER  # the other frames will lack their names too
        if ends:
            self.ended, self.fault = True, None  # an error after the end does not count
            return frame
        shown = self._protocol.shown(value)
        if shown is value:
            return frame
        head = b"" if name is None else b"event: %b\n" % name.encode()
        return head + b"data: %b\n\n" % dump(shown)

    def _shown_done(self, frame: bytes, data: bytes, out: list[bytes]) -> bytes:
        """Returns `[DONE]` in the protocol's spelling, or the protocol's own end."""
        if not self._protocol.is_end(None, data):
            return self._end_after(b"".join((self._tail, *out)))
        if not self.has_sent and not any(map(_DATA.search, out)):
            self.fault = empty_answer_fault()
            return b""
        if len(self._finished) < self._choices:
            out.append(self._protocol.missing_finish(b"".join((self._tail, *out)), b"".join(self._finished)))
        self.ended, self.fault = True, None
        return frame if data.strip() in self._marks else b"data: %b\n\n" % self._marks[0]

    def _end_after(self, tail: bytes) -> bytes:
        """Returns the end that the server left out after `tail`, the last bytes. Sets `fault` if the stream broke
        off."""
        end = self._protocol.missing_end(tail[-_TAIL_BYTES:])
        more = len(self._finished) < self._choices and self._protocol.missing_finish(tail, b"".join(self._finished))
        if end is None or more:
            self.fault = BackendFault("The model server broke off its stream.", code="upstream_disconnected")
            return b""
        self.ended = True
        return end

    def _is_error_alone(self, data: bytes) -> bool:
        """Returns True if an error came before any part of an answer, so that it can still become an HTTP status."""
        return self.fault is not None and not FirstContentBuffer(self._protocol.is_empty_frame).feed(data)

    def _up_to_secret(self, leaks: LeakDetector, data: bytes) -> bytes:
        shown = leaks.frames(data)
        if len(shown) < len(data):
            self.ended = False
            self.fault = secret_fault()
        return shown

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
        return bool(frames) and all(is_whole(data) for _, data in frames)


def counted(protocol: ServerSide, frames: bytes) -> Usage | None:
    """Returns the token counts in complete frames, the last value of each that is not 0; None if there are none. Never
    raises: such frames may be sent even if they are odd."""
    counts: dict[str, Any] = {}
    for _, frame in SseFramer(len(frames)).feed(frames):
        try:
            said = load(frame) if _COUNTS.search(frame) else None
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        choices = said.get("choices")
        inside = choices if isinstance(choices, list) else ()
        for place in (*inside, *said.values(), said):  # `message`, `response`, Moonshot's choices, Groq's `x_groq`
            if isinstance(place, dict) and isinstance(usage := place.get("usage"), dict):
                add_counts(counts, usage)
    return protocol.read_usage(counts) if counts else None


def _last_end(data: bytearray, begin: int) -> int:
    """Returns the end of the last complete frame in `data`, searched from `begin`; 0 if there is none."""
    if data.find(b"\r", begin) < 0:  # a search without a match takes longest
        return at + 2 if (at := data.rfind(b"\n\n", begin)) >= 0 else 0
    ends = [at + len(mark) for mark in _ENDS if (at := data.rfind(mark, begin)) >= 0]
    if (at := data.rfind(b"\n\r", begin, -1)) >= 0:  # at the very end it may become LF and CRLF
        ends.append(at + 2)
    return max(ends, default=0)


def _frames(data: bytes) -> Iterator[bytes]:
    """Yields the complete frames in `data`."""
    begin = 0
    lines = data.find(b"\r") < 0
    while begin < len(data):
        if lines:  # `find` is several times faster
            end = at + 2 if (at := data.find(b"\n\n", begin)) >= 0 else len(data)
        else:
            end = found.end() if (found := FRAME_END.search(data, begin)) is not None else len(data)
        yield data[begin:end]
        begin = end
