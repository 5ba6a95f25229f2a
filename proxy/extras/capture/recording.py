"""Recorded answers of models: which kind one is, how it is cut, and the texts in it.

A recording is either a stream of server-sent events with Chat chunks, as a backend sends it, or plain text as a model
wrote it. `toolwire replay` and `toolwire bench parse` read them here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from toolwire.config import LimitsConfig
from toolwire.events import BlockKind, Delta, Event, Fault, Open
from toolwire.protocols.streams import StreamReader
from toolwire.registry import usual_server

Chunks = Literal["recorded", "tokens", "bytes", "whole"] | int
"""How something is cut: as it was recorded (frame by frame; text: line by line), into pieces like tokens, byte by byte,
not at all, or into pieces of so many bytes."""

SEED: Final = 20
TOKEN_CHARS: Final = (3, 6)
"""A piece like a token: 4.5 characters on average, which is what common tokenizers make of English. Cuts ignore words
and tags, so that a tag is nearly always cut."""

_SSE: Final = re.compile(rb"\s*(data|event|id|retry)?:")
_FRAME_END: Final = re.compile(rb"(?<=\n\n)|(?<=\r\r)|(?<=\n\r\n)")


class RecordingError(Exception):
    """A recording cannot be used. The message says why."""


def pieces_of(recording: bytes | Sequence[bytes], chunks: Chunks) -> list[bytes]:
    """The pieces of a recording. One that is given in pieces was read so: that is how it was `recorded`."""
    if isinstance(recording, bytes):
        return cut(recording, chunks)
    return [piece for piece in recording if piece] if chunks == "recorded" else cut(b"".join(recording), chunks)


def is_sse(recording: bytes) -> bool:
    """Whether a recording is a stream of server-sent events; else it is text."""
    return _SSE.match(recording) is not None


def cut(recording: bytes, chunks: Chunks, seed: int = SEED) -> list[bytes]:
    """The pieces of a recording; joined they are the recording."""
    match chunks:
        case "recorded":
            pieces = _FRAME_END.split(recording) if is_sse(recording) else recording.splitlines(keepends=True)
            return [piece for piece in pieces if piece]
        case "tokens":
            text = recording.decode(errors="surrogateescape")
            return [piece.encode(errors="surrogateescape") for piece in _tokens(text, seed)]
        case "whole":
            return [recording] if recording else []
        case _:
            size = 1 if chunks == "bytes" else chunks
            return [recording[at : at + size] for at in range(0, len(recording), size)]


def cut_text(text: str, chunks: Chunks, seed: int = SEED) -> list[str] | list[bytes]:
    """The pieces of a text (its lines for `recorded`): text, or bytes if it is cut by bytes."""
    match chunks:
        case "recorded":
            return text.splitlines(keepends=True)
        case "tokens":
            return list(_tokens(text, seed))
        case "whole":
            return [text] if text else []
        case _:
            return cut(text.encode(), chunks)


def _tokens(text: str, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    place = 0
    while place < len(text):
        end = place + rng.randint(*TOKEN_CHARS)
        yield text[place:end]
        place = end


def reader_of(kind: str | None = None) -> StreamReader:
    """A reader, with the usual limits, of what backends of this kind send; None: of the usual kind."""
    return usual_server(kind).reader(frame_bytes=LimitsConfig().frame_bytes)


def deltas(recording: bytes) -> list[str]:
    """The texts that a model wrote for the first choice, piece by piece as they were recorded (plain text: line by
    line).

    Of a stream that broke off, those that came. Raises `RecordingError` if there are none.
    """
    if not is_sse(recording):
        try:
            found = recording.decode().splitlines(keepends=True)
        except UnicodeDecodeError as error:
            raise RecordingError(
                f"the recording is no UTF-8: byte {error.start} is {recording[error.start]:#04x}"
            ) from error
        if not found:
            raise RecordingError("the recording is empty")
        return found
    reader = reader_of()
    events: list[Event] = []
    for piece in cut(recording, "recorded"):
        events += reader.feed(piece)
    events += reader.finish()
    texts = {e.block for e in events if isinstance(e, Open) and e.kind is BlockKind.TEXT and e.choice == 0}
    found = [event.text for event in events if isinstance(event, Delta) and event.block in texts]
    if not found:
        fault = next((f": {event.error}" for event in events if isinstance(event, Fault)), "")
        raise RecordingError(f"the recording holds no text in Chat chunks, so there is nothing to find calls in{fault}")
    return found
