"""Feeds a recorded answer (see `toolwire.extras.capture.recording`) through the reader and the scanner, and shows every
step.

Nothing is sent to any server, and no tools need to be known: every well-formed call counts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start, StreamGrammarError
from ...fastparse import CallScanner
from ...scanner import open_scanner
from ...stream_grammar import StreamGrammar, normalise
from ..capture.recording import Chunks, is_sse, pieces_of, reader_of

CUTS: Final[tuple[Chunks, ...]] = ("recorded", "whole", "tokens", "bytes", 3, 7)
"""The ways to split a recording that must all give the same result (rule 2 of `toolwire.events`)."""

Recording = bytes | Sequence[bytes]
"""A whole recording, or the pieces in which it was read."""

_READ: Final = 1 << 16
"""Blocks of the reader are numbered from here, to avoid the numbers of blocks that the scanner finds."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One step of a replay: the input, then the scanner's state and the text that it holds back, and the events.

    `given` is None at the end of the recording. `state` is one of `toolwire.scan._grammar.STATES`.
    """

    given: bytes | None
    state: str
    held: str
    events: tuple[Event, ...]


@dataclass(slots=True)
class Summary:
    """The result of all steps. Fill it by `feed`."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each call."""
    broken: str | None = None
    """How the events break the grammar of streams; None if they are valid."""
    different: list[Chunks] = field(default_factory=list)
    """The entries of `CUTS` with a different result, filled by `compare`. Any entry is a bug."""
    _events: list[Event] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)

    def feed(self, step: ReplayStep) -> None:
        """Adds the next step."""
        self._events += step.events
        for event in step.events:
            match event:
                case Open(kind=BlockKind.TOOL_CALL):
                    self._names[event.block] = event.name or ""
                    self._arguments[event.block] = []
                case Delta() if event.block in self._names:
                    self._arguments[event.block].append(event.text)
                case Close() if event.block in self._names:
                    self.calls.append((self._names[event.block], "".join(self._arguments[event.block])))
                case _:
                    pass
        if step.given is None:
            self.broken = _out_of_order(self._events)

    def outcome(self) -> list[Event]:
        """Returns the events without what may differ from run to run: the pieces of texts and the ids of calls."""
        out = normalise(self._events)
        for event in out:
            if isinstance(event, Open):
                event.call_id = None
        return out

    def compare(self, recording: Recording, format: str, kind: str | None = None) -> None:
        """Replays the recording with all other entries of `CUTS` and fills `different`."""
        mine = self.outcome()
        self.different = [c for c in CUTS if summary(recording, format=format, chunks=c, kind=kind).outcome() != mine]


def _out_of_order(events: Sequence[Event]) -> str | None:
    """Returns how a stream breaks its grammar; None if it is valid. Plain text has no stream events to check."""
    if not any(isinstance(event, Start) for event in events):
        return None
    grammar = StreamGrammar()
    try:
        for event in events:
            grammar.feed(event)
        grammar.finish()
    except StreamGrammarError as error:
        return str(error)
    return None


def replay(
    recording: Recording, *, format: str = "sentinel", chunks: Chunks = "recorded", kind: str | None = None
) -> Iterator[ReplayStep]:
    """Yields the steps, one for each piece and one for the end. `kind` is the kind of the backend that sent a stream;
    None means the default kind. Raises `ConfigError` for an unknown format."""
    scanner = open_scanner(format)
    begin = recording if isinstance(recording, bytes) else b"".join(recording)
    source = FrameScanner(scanner, kind) if is_sse(begin) else scanner
    for piece in pieces_of(recording, chunks):
        events = tuple(source.feed(piece))
        yield ReplayStep(piece, scanner.state, scanner.held, events)
    events = tuple(source.finish())
    yield ReplayStep(None, scanner.state, scanner.held, events)


def summary(
    recording: Recording, *, format: str = "sentinel", chunks: Chunks = "recorded", kind: str | None = None
) -> Summary:
    """Returns the result of a replay. Raises `ConfigError` for an unknown format."""
    result = Summary()
    for step in replay(recording, format=format, chunks=chunks, kind=kind):
        result.feed(step)
    return result


class FrameScanner:
    """Reads frames, and replaces the text of the first choice by the scanner's events."""

    def __init__(self, scanner: CallScanner, kind: str | None = None) -> None:
        self._scanner = scanner
        self._reader = reader_of(kind)
        self._texts: set[int] = set()

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events in these bytes."""
        return self._scan(self._reader.feed(data))

    def finish(self) -> list[Event]:
        """Returns the events at the end of the bytes: those for held-back text, and the end of the stream."""
        return self._scan(self._reader.finish())

    def _scan(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Open(kind=BlockKind.TEXT, choice=0):
                    self._texts.add(event.block)
                case Delta() if event.block in self._texts:
                    out += self._scanner.feed(event.text)
                case Close() if event.block in self._texts:
                    pass
                case Finish() | Fault():
                    cut_off = isinstance(event, Fault) or event.reason == "length"
                    out += self._scanner.finish(truncated=cut_off)
                    out.append(event)
                case _:
                    out.append(_renumbered(event))
        return out


def _renumbered(event: Event) -> Event:
    if isinstance(event, Open | Delta | Close):
        event = copy(event)
        event.block += _READ
    return event


# --- output ----------------------------------------------------------------------------------------------------------


WIDTH: Final = 100
"""The characters of a line that are for bytes, events or arguments."""


def show(
    recording: Recording, *, format: str, chunks: Chunks, found: Summary, kind: str | None = None
) -> Iterator[str]:
    """Yields the steps as lines of text, then the calls, and whether other splits give the same result. Fills
    `found`."""
    yield f"{'step':>5}  {'state':<9} {'held':>6}  bytes in"
    for number, step in enumerate(replay(recording, format=format, chunks=chunks, kind=kind), 1):
        found.feed(step)
        yield f"{number:>5}  {step.state:<9} {len(step.held.encode()):>6}  {_given(step.given)}"
        for event in step.events:
            yield f"{'':>26}→ {_abbreviated(_brief(event))}"
    for name, arguments in found.calls:
        yield f"call {name} {_abbreviated(arguments)}"
    yield f"{len(found.calls)} call{'' if len(found.calls) == 1 else 's'}"
    if found.broken:
        yield f"the events are out of order: {found.broken}"
    found.compare(recording, format, kind)
    same = [str(chunks) for chunks in CUTS if chunks not in found.different]
    yield f"same result when split as: {', '.join(same)}"
    if found.different:
        yield f"DIFFERENT result when split as: {', '.join(map(str, found.different))}"


def show_json(
    recording: Recording, *, format: str, chunks: Chunks, found: Summary, kind: str | None = None
) -> Iterator[str]:
    """Yields lines of JSON: one for each step, and one with the calls. Fills `found`."""
    for number, step in enumerate(replay(recording, format=format, chunks=chunks, kind=kind), 1):
        found.feed(step)
        yield _json(
            {
                "step": number,
                "in": None if step.given is None else step.given.decode(errors="backslashreplace"),
                "state": step.state,
                "held": step.held,
                "events": [_plain(event) for event in step.events],
            }
        )
    found.compare(recording, format, kind)
    calls = [{"name": name, "arguments": arguments} for name, arguments in found.calls]
    yield _json({"calls": calls, "out_of_order": found.broken, "cut": CUTS, "different_when_cut": found.different})


def _given(given: bytes | None) -> str:
    """Returns bytes for display: escaped; of a long frame, the part that differs from other frames."""
    if given is None:
        return "(end)"
    text = repr(given)[2:-1]
    if len(text) > WIDTH and text.startswith("data: ") and (place := text.find('"choices":')) > 0:
        text = f"data: …{text[place:]}"
    return _abbreviated(text)


def _abbreviated(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _fields(event: Event) -> dict[str, Any]:
    """Returns the event's fields that have a value."""
    silent = {"call_kind", "extra", "choice"}
    shown = {name: getattr(event, name) for name in event.__slots__ if name not in silent}
    return {
        name: value.value if isinstance(value, BlockKind) else value
        for name, value in shown.items()
        if value is not None
    }


def _brief(event: Event) -> str:
    inner = ", ".join(f"{k}={v if k == 'kind' else repr(v)}" for k, v in _fields(event).items())
    return f"{type(event).__name__}({inner})"


def _plain(event: Event) -> dict[str, Any]:
    return {"event": type(event).__name__.lower(), **_fields(event)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_dumped)


def _dumped(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)
