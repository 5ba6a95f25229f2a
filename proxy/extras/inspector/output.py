"""The answer as the client got it: its events in order, and the calls that each event is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from ...folding import unfold
from ...protocols.base import ServerSide
from ..capture.files import Entry

_FRAME_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
SHOWN_CHARS: Final = 60
BRIEF_CHARS: Final = 200
"""Characters shown of a body that has no summary, such as an error."""


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event of a stream, or a whole body. `brief` is a summary in words, `calls` are the indices of the calls that
    the event is about."""

    at: float
    name: str
    data: str
    brief: str
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SentCall:
    """A tool call as the client got it."""

    name: str
    arguments: str


def read_output(
    entries: Sequence[Entry], server: ServerSide | None, *, streamed: bool
) -> tuple[list[SentEvent], list[SentCall]]:
    """Returns the events that went to the client, and the calls in them. `server` reads the client's protocol; without
    it the events have no summaries."""
    if not entries:
        return [], []
    calls = _Calls()
    if not streamed:
        body = b"".join(entry.data for entry in entries)
        brief, about = calls.summarised(() if server is None else _whole(body, server))
        data = body.decode(errors="replace")
        return [SentEvent(entries[-1].at, "", data, brief or data[:BRIEF_CHARS], about)], calls.made
    out: list[SentEvent] = []
    reader = None if server is None else server.reader(frame_bytes=1 << 30)
    for at, frame in frames(entries):
        name, data = _fields(frame)
        brief, about = calls.summarised(() if reader is None else reader.feed(frame))
        out.append(SentEvent(at, name, data, brief or _without_words(name, data), about))
    return out, calls.made


def _whole(body: bytes, server: ServerSide) -> list[Event]:
    try:
        return unfold(server.read_reply(body))
    except Exception:  # an error, or not all of it
        return []


def frames(entries: Sequence[Entry]) -> Iterator[tuple[float, bytes]]:
    """Yields the server-sent events in these entries, each with the time of its last byte."""
    rest = bytearray()
    for entry in entries:
        looked_at = max(0, len(rest) - 3)  # an end has four bytes, and may be cut
        rest += entry.data
        begin = 0
        ends = [found.end() for found in _FRAME_END.finditer(rest, looked_at)]
        for end in ends:
            yield entry.at, bytes(rest[begin:end])
            begin = end
        del rest[:begin]
    if rest:
        yield entries[-1].at, bytes(rest)


def _fields(frame: bytes) -> tuple[str, str]:
    """Returns the name and the data of an event. A comment is returned as data."""
    name, data = "", []
    for line in frame.decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "event":
            name = value.strip()
        elif key == "data":
            data.append(value.removeprefix(" "))
        elif line and not key:
            data.append(line)
    return name, "\n".join(data)


def _without_words(name: str, data: str) -> str:
    """Returns the summary of an event of which the reader tells nothing before the next one."""
    return "end" if data == "[DONE]" else "sign of life" if data.startswith(":") else name or "see the next event"


class _Calls:
    """Summarises events and collects the calls in them."""

    def __init__(self) -> None:
        self._made: list[tuple[str, list[str]]] = []
        self._calls: dict[int, int] = {}
        self._kinds: dict[int, BlockKind] = {}

    @property
    def made(self) -> list[SentCall]:
        """The calls, as far as they have come."""
        return [SentCall(name, "".join(pieces)) for name, pieces in self._made]

    def summarised(self, events: Iterable[Event]) -> tuple[str, tuple[int, ...]]:
        """Returns a summary of these events, and the indices of the calls in them."""
        words: list[str] = []
        calls: dict[int, None] = {}
        for event in events:
            if isinstance(event, Open | Delta | Close):
                word = self._of_block(event)
                if event.block in self._calls:
                    calls[self._calls[event.block]] = None
            else:
                word = _of_edge(event)
            if word:
                words.append(word)
        return ", ".join(words), tuple(calls)

    def _of_block(self, event: Open | Delta | Close) -> str:
        match event:
            case Open():
                self._kinds[event.block] = event.kind
                if event.kind is not BlockKind.TOOL_CALL:
                    return ""
                self._calls[event.block] = len(self._made)
                self._made.append((event.name or "", []))
                return f"call {event.name}"
            case Delta():
                kind = self._kinds.get(event.block, BlockKind.TEXT)
                if event.block in self._calls:
                    self._made[self._calls[event.block]][1].append(event.text)
                what = {BlockKind.TOOL_CALL: "arguments", BlockKind.REASONING: "reasoning"}.get(kind, "text")
                return f"{what} {_short(event.text)}"
            case _:
                return "end of the call" if event.block in self._calls else ""


def _of_edge(event: Event) -> str:
    match event:
        case Start():
            return "start"
        case Finish():
            return f"finish: {event.reason}"
        case Fault():
            return f"error: {event.error}"
        case _:
            return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…")
