"""Recorded model answers: their type, their pieces, and the texts in them.

A recording is a stream of server-sent events with Chat chunks, as a model server sends it, or plain text as a model
wrote it; for `deltas` also a whole Chat answer. `toolwire replay` and `toolwire bench parse` read recordings here.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from ...config import LimitsConfig
from ...events import BlockKind, Delta, Event, Fault, Open
from ...protocols.base import ServerSide
from ...protocols.streams import StreamReader
from ...registry import Registries, registries, usual_server

Chunks = Literal["recorded", "tokens", "bytes", "whole"] | int
"""How a recording is split: as recorded (by frame, text by line), into pieces like tokens, by byte, not at all, or into
pieces of this number of bytes."""

SEED: Final = 20
TOKEN_CHARS: Final = (3, 6)
"""The length of a piece like a token: 4.5 characters on average, as with common tokenizers in English. Pieces ignore
the borders of words and tags, so nearly every tag is split."""

_SSE: Final = re.compile(rb"\s*(data|event|id|retry)?:")
_FRAME_END: Final = re.compile(rb"(?<=\n\n)|(?<=\r\r)|(?<=\n\r\n)")


class RecordingError(Exception):
    """A recording that cannot be used. The message says why."""


def pieces_of(recording: bytes | Sequence[bytes], chunks: Chunks) -> list[bytes]:
    """Returns the pieces of a recording. If it is given in pieces, these are the pieces as `recorded`."""
    if isinstance(recording, bytes):
        return cut(recording, chunks)
    return [piece for piece in recording if piece] if chunks == "recorded" else cut(b"".join(recording), chunks)


def is_sse(recording: bytes) -> bool:
    """Returns True for a stream of server-sent events, False for text."""
    return _SSE.match(recording) is not None


def cut(recording: bytes, chunks: Chunks, seed: int = SEED) -> list[bytes]:
    """Returns the pieces of a recording; joined they give the recording."""
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
    """Returns the pieces of a text (its lines for `recorded`): `str`, or `bytes` if it is split by bytes."""
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


def recorded_protocol(kind: str | None, plugins: Registries) -> ServerSide:
    """Returns the protocol in which answers of this kind of backend are recorded: its own, or the default one for kinds
    without HTTP bodies, such as the mock, and for unknown kinds."""
    return plugins.servers.get(kind)() if kind in plugins.servers.names() else usual_server()


def reader_of(kind: str | None = None) -> StreamReader:
    """Returns a reader with the default limits for recorded answers of this kind of backend; None means the default
    kind."""
    return recorded_protocol(kind, registries()).reader(frame_bytes=LimitsConfig().frame_bytes)


def deltas(recording: bytes) -> list[str]:
    """Returns the texts that a model wrote for the first choice, in the recorded pieces (a whole answer and plain text:
    by line).

    From an incomplete stream it returns the texts that arrived. Raises `RecordingError` if there are none.
    """
    if not is_sse(recording):
        try:
            text = recording.decode()
            texts = (text if (content := _content(text)) is None else content).splitlines(keepends=True)
        except UnicodeDecodeError as error:
            raise RecordingError(
                f"the recording is not UTF-8: byte {error.start} is {recording[error.start]:#04x}"
            ) from error
        if not texts:
            raise RecordingError("the recording is empty")
        return texts
    reader = reader_of()
    events: list[Event] = []
    for piece in cut(recording, "recorded"):
        events += reader.feed(piece)
    events += reader.finish()
    blocks = {e.block for e in events if isinstance(e, Open) and e.kind is BlockKind.TEXT and e.choice == 0}
    texts = [event.text for event in events if isinstance(event, Delta) and event.block in blocks]
    if not texts:
        fault = next((f": {event.error}" for event in events if isinstance(event, Fault)), "")
        raise RecordingError(f"the recording holds no text in Chat chunks, so there is nothing to find calls in{fault}")
    return texts


def _content(text: str) -> str | None:
    """Returns the text of the first choice of a whole Chat answer; None for any other text."""
    try:
        message = json.loads(text)["choices"][0]["message"]
        return message["content"] or ""
    except (ValueError, LookupError, TypeError):
        return None
