"""The file format of a capture: one recorded exchange as lines of JSON (R18.4).

The first line is the head: `toolwire_capture` (the version of the format), time, request, and the part of the
configuration that affects the answer. The other lines are `Entry`s in order. Bytes are stored as they were read and
written, in the same pieces, with the seconds since the start. `toolwire.extras.capture.recorder` writes captures,
`toolwire.extras.replay.reproduction` runs them again.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import orjson

from ...protocols.shared.wire import BOUNDS
from ...support.bounded_json import loads
from .recording import RecordingError

VERSION: Final = 1
MARK: Final = "toolwire_capture"

Kind = Literal["request", "sent", "prompt", "answered", "received", "failed", "decision", "output", "tool", "end"]
"""`request`: the client's body. `sent`, `prompt`, `answered`, `received`, `failed`: parts of a backend call; calls are
numbered from 1. `decision`: a `CallDecision` about the answer of that backend call. `output`: the body sent to the
client. `tool`: an execution of a server-side tool. `end`: the outcome."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `at` is in seconds since the start; `call` is the number of the backend call, or 0."""

    kind: Kind
    at: float
    call: int = 0
    data: bytes = b""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a backend: its number and its entries."""

    number: int
    entries: Sequence[Entry]

    def all(self, kind: Kind) -> list[Entry]:
        """Returns the entries of a kind."""
        return [entry for entry in self.entries if entry.kind == kind]

    def first(self, kind: Kind) -> Mapping[str, Any]:
        """Returns the fields of the first entry of a kind; empty if there is none."""
        return next((entry.fields for entry in self.entries if entry.kind == kind), {})

    def bytes_of(self, kind: Kind) -> bytes:
        """Returns the bytes of all entries of a kind, joined."""
        return b"".join(entry.data for entry in self.all(kind))

    @property
    def status(self) -> int:
        """The status of the response; 0 if none came."""
        status: int = self.first("answered").get("status", 0)
        return status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        headers: Mapping[str, str] = self.first("answered").get("headers", {})
        return headers

    @property
    def streamed(self) -> bool:
        """True if the response is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")


@dataclass(frozen=True, slots=True)
class CapturedExchange:
    """A whole capture: its head and its entries."""

    head: Mapping[str, Any]
    entries: tuple[Entry, ...]

    def bytes_of(self, kind: Kind) -> bytes:
        """Returns the bytes of all entries of one kind, joined."""
        return b"".join(entry.data for entry in self.entries if entry.kind == kind)

    @property
    def complete(self) -> bool:
        """True if nothing was left out because of its size."""
        return not self.head.get("left_out_bytes")

    @property
    def end(self) -> Mapping[str, Any]:
        """The outcome: `status`, `code` if the exchange failed, and the fields of the access line. Empty if the
        exchange has not ended."""
        return next((entry.fields for entry in self.entries if entry.kind == "end"), {})

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls of backends, in order."""
        entries: dict[int, list[Entry]] = {}
        for entry in self.entries:
            if entry.call:
                entries.setdefault(entry.call, []).append(entry)
        return tuple(RecordedCall(number, entries[number]) for number in sorted(entries))


def write_capture(head: Mapping[str, Any], entries: Iterable[Entry]) -> bytes:
    """Returns the content of the file."""
    lines = [orjson.dumps({MARK: VERSION, **head}, default=str)]
    for entry in entries:
        line: dict[str, Any] = {"kind": entry.kind, "at": round(entry.at, 6)}
        if entry.call:
            line["call"] = entry.call
        if entry.data:
            try:
                line["data"] = entry.data.decode()
            except UnicodeDecodeError:  # a read may end inside a character
                line["base64"] = base64.b64encode(entry.data).decode()
        lines.append(orjson.dumps({**line, **entry.fields}, default=str))
    return b"\n".join(lines) + b"\n"


def is_capture(content: bytes) -> bool:
    """Returns True if the content begins like a capture."""
    return content.lstrip()[: len(MARK) + 10].startswith((f'{{"{MARK}"'.encode(), f'{{ "{MARK}"'.encode()))


def split_captures(content: bytes) -> list[bytes]:
    """Returns the captures in a file, which may hold several, one after the other."""
    starts = [0, *(found.start() + 1 for found in _NEXT.finditer(content))]
    return [content[begin:end] for begin, end in zip(starts, [*starts[1:], len(content)], strict=True)]


def read_captures(content: bytes) -> list[tuple[CapturedExchange, bytes]]:
    """Returns the captures in a file, each with its part of the file. Raises `RecordingError`, see `read_capture`; if
    there are several, with the number of the capture."""
    parts, captures = split_captures(content), list[tuple[CapturedExchange, bytes]]()
    for number, part in enumerate(parts, 1):
        try:
            captures.append((read_capture(part), part))
        except RecordingError as error:
            raise error if len(parts) == 1 else RecordingError(f"capture {number} of {len(parts)}: {error}") from error
    return captures


_NEXT: Final = re.compile(rf'\n\{{ ?"{MARK}"'.encode())
"""The beginning of a further capture. Inside of a line, every line end is escaped."""

_HEAD: Final[Mapping[str, type]] = {
    **dict.fromkeys(("toolwire", "scanner", "path", "endpoint", "model", "session", "question"), str),
    **dict.fromkeys(("headers", "config", "backend", "so_far"), dict),
    "left_out_bytes": int,
}
_ENTRY: Final[Mapping[str, type]] = {
    **dict.fromkeys(("kind", "data", "base64"), str),
    "call": int,
}
_OF_KIND: Final[Mapping[str, Mapping[str, type]]] = {
    "answered": {"status": int, "headers": dict},
    "failed": {"code": str, "message": str},
    "decision": {
        **dict.fromkeys(("decided", "why", "name"), str),
        **dict.fromkeys(("choice", "start", "end", "index"), int),
        "notes": list,
    },
    "end": {**dict.fromkeys(("code", "verdict", "why"), str), "called": list},
    "tool": {"name": str, "call_id": str, "arguments": str, "state": str},
}
"""The types of fields; other fields may have any type."""
_WORDS: Final[Mapping[type, str]] = {str: "text", dict: "a mapping", int: "a whole number", list: "a list"}


def read_capture(content: bytes, load: Callable[[bytes], Any] | None = None) -> CapturedExchange:
    """Returns the capture in a file. `load` parses a line and raises `ValueError`; by default a line may hold as many
    values as a response of a model server.

    Raises `RecordingError` with the line number, for another version of the format and for invalid lines.
    """
    head: Mapping[str, Any] = {}
    entries: list[Entry] = []
    number = 0
    try:
        for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
            value = loads(line, BOUNDS) if load is None else load(line)
            if not isinstance(value, dict):
                raise ValueError("expected an object")
            if number == 1:
                head = _head(value)
            else:
                entries.append(_entry(value))
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RecordingError(f"line {number} of the capture cannot be read: {problem}") from error
    except RecursionError as error:
        raise RecordingError(f"line {number} of the capture cannot be read: nested too deeply") from error
    return CapturedExchange(head, tuple(entries))


def _head(line: dict[str, Any]) -> dict[str, Any]:
    if line.get(MARK) != VERSION:
        raise RecordingError(f"the capture has version {line.get(MARK)}; this toolwire reads {VERSION}")
    _check(line, _HEAD)
    return line


def _entry(line: dict[str, Any]) -> Entry:
    if MARK in line:
        raise ValueError("another capture begins here")
    _check(line, _ENTRY)
    coded, plain = line.pop("base64", None), line.pop("data", None)
    data = (plain or "").encode() if coded is None else base64.b64decode(coded)
    kind, at, call = line.pop("kind"), line.pop("at"), line.pop("call", None) or 0
    if not isinstance(at, int | float) or not 0 <= at < math.inf:
        raise ValueError("'at' is not a number of seconds")
    if kind not in get_args(Kind):
        raise ValueError(f"there is no kind {kind!r}")
    _check(line, _OF_KIND.get(kind, {}))
    if kind == "failed":
        line["code"], line["message"]  # raises `KeyError`
    return Entry(kind, at, call, data, line)


def _check(line: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, kind in types.items():
        value = line.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"{name!r} is not {_WORDS[kind]}")
        if name == "headers" and isinstance(value, dict) and not all(isinstance(one, str) for one in value.values()):
            raise ValueError("a value of 'headers' is not text")
