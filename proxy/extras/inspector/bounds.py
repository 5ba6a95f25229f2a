"""How much of an exchange the page shows, so that looking at it takes bounded work whatever is in it.

A capture is cut before it is read: what is beyond the bounds counts as left out, as what the recorder left out does,
and the page says so. The capture itself can be downloaded whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from toolwire.config import LimitsConfig
from toolwire.extras.capture.files import Captured, Entry, Kind
from toolwire.extras.capture.recording import RecordingError
from toolwire.extras.inspector.output import frames
from toolwire.support.bounded_json import BoundExceeded, JsonBounds, loads
from toolwire.support.offload import OFFLOAD_BYTES

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of the request, of each body sent to a server, of each answer of a server, and of the answer to the client."""

MOST_READS: Final = 16_384
"""Of each answer: pieces in which it came."""

MOST_ROUNDS: Final = 64
"""Calls of servers."""

MOST_RUNS: Final = 1_024
"""Executions of server-side tools."""

READ_CHARS: Final = 128 * 1024
"""Of one answer that are searched for calls again; the rest is shown as text."""

FORMATS_CHARS: Final = 16 * 1024
"""The same where a text is read in every format there is."""

SHOWN_CHARS: Final = 1024 * 1024
"""Of the client's request. One with more bytes is shown as it is, without indentation."""

MOST_MESSAGES: Final = 2_000
"""Of a prompt: half of them from its beginning, half from its end."""

MOST_TOOLS: Final = 512
SCHEMA_CHARS: Final = 256 * 1024
"""Of a request: further tools, and tools with a larger schema, are not looked for in answers."""

COMPARED_STEPS: Final = 100_000_000
"""Characters that may be looked through to find the client's texts in a prompt. A text beyond that is `unread`."""


def within_bounds(captured: Captured, limits: LimitsConfig) -> Captured:
    """The capture, without what is beyond the bounds of this module. A body with more JSON values than a request may
    have (`limits.json_values`, `limits.json_depth`) is left out as a whole."""
    groups: dict[tuple[Kind, int], list[Entry]] = {}
    for entry in captured.entries:
        groups.setdefault((entry.kind, entry.call), []).append(entry)
    shown_calls = set(sorted({call for _, call in groups if call})[:MOST_ROUNDS])
    kept: set[int] = set()
    for (kind, call), entries in groups.items():
        if not call or call in shown_calls:
            kept.update(map(id, _within(kind, entries, limits)))
    if len(kept) == len(captured.entries):
        return captured
    cut = sum(len(entry.data) for entry in captured.entries if id(entry) not in kept)
    before = captured.head.get("left_out_bytes") or 0
    head = {**captured.head, "left_out_bytes": max(1, cut) + before}
    return replace(captured, head=head, entries=tuple(entry for entry in captured.entries if id(entry) in kept))


def _within(kind: Kind, entries: Sequence[Entry], limits: LimitsConfig) -> Sequence[Entry]:
    """The first of these entries, as many as are shown."""
    most = MOST_RUNS if kind == "tool" else MOST_READS
    size = 0
    kept: list[Entry] = []
    for entry in entries[:most]:
        size += len(entry.data)
        if size > MOST_BYTES:
            break
        kept.append(entry)
    if size > OFFLOAD_BYTES and not _is_simple(kept, limits):
        return [entry for entry in kept if not entry.data]
    return kept


def _is_simple(entries: Sequence[Entry], limits: LimitsConfig) -> bool:
    """Whether what parses this at once has few values to build: a whole body, or each event of a stream."""
    whole = b"".join(entry.data for entry in entries)
    is_json = whole.lstrip()[:1] in (b"{", b"[")
    parsed = [whole] if is_json else (frame for _, frame in frames(entries))
    try:
        for text in parsed:
            if len(text) > OFFLOAD_BYTES:
                check_values(text, limits)
    except RecordingError:
        return False
    return True


def check_values(text: bytes, limits: LimitsConfig) -> None:
    """Raises `RecordingError` for JSON with more values, or deeper, than `limits` allow; what is no JSON is left to
    whoever parses it. For a thread: it lets others run between slices."""
    try:
        loads(text, JsonBounds(limits.json_values, limits.json_depth))
    except BoundExceeded as error:
        raise RecordingError(f"the capture holds too much: a text {error}") from None
    except ValueError:
        return
