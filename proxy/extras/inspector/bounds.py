"""Limits on the parts of an exchange that the page shows, so that showing one takes bounded work whatever it contains.

A capture is cut before it is read. Data beyond the limits counts as left out, like data that the recorder left out, and
the page reports it. The whole capture can be downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...config import LimitsConfig
from ...support.bounded_json import BoundExceeded, JsonBounds, loads
from ...support.offload import OFFLOAD_BYTES
from ..capture.files import CapturedExchange, Entry, Kind
from ..capture.recording import RecordingError
from .output import frames

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are shown of the request, of each body sent to a server, of each response of a server, and of the client's
response."""

MOST_READS: Final = 16_384
"""Maximum number of reads of one response that are shown."""

MOST_ROUNDS: Final = 64
"""Maximum number of backend calls of an exchange that are shown."""

MOST_RUNS: Final = 1_024
"""Maximum number of executions of server-side tools that are shown."""

READ_CHARS: Final = 128 * 1024
"""The characters of one answer that are searched for calls again; the rest is shown as text."""

FORMATS_CHARS: Final = 16 * 1024
"""The limit in place of `READ_CHARS` if a text is read in all formats."""

SHOWN_CHARS: Final = 1024 * 1024
"""Characters up to which the client's request is indented; a larger one is shown unchanged."""

MOST_MESSAGES: Final = 2_000
"""Maximum number of messages of a prompt that are shown: half of them from its start, half from its end."""

MOST_TOOLS: Final = 512
SCHEMA_CHARS: Final = 256 * 1024
"""Limits for the tools of a request: their number, and the characters of a tool's schema. Calls of other tools are not
looked for in answers."""

COMPARED_STEPS: Final = 100_000_000
"""Maximum number of character comparisons for finding the client's texts in a prompt. Text beyond it counts as
`unread`."""


def within_bounds(captured: CapturedExchange, limits: LimitsConfig) -> CapturedExchange:
    """Returns the capture without the parts beyond the limits. A body with more JSON values than a request may have
    (`limits.json_values`, `limits.json_depth`) is left out completely."""
    groups: dict[tuple[Kind, int], list[Entry]] = {}
    for entry in captured.entries:
        groups.setdefault((entry.kind, entry.call), []).append(entry)
    shown_calls = set(sorted({call for _, call in groups if call})[:MOST_ROUNDS])
    shown: set[int] = set()
    for (kind, call), entries in groups.items():
        if not call or call in shown_calls:
            shown.update(map(id, _within(kind, entries, limits)))
    if len(shown) == len(captured.entries):
        return captured
    cut = sum(len(entry.data) for entry in captured.entries if id(entry) not in shown)
    before = captured.head.get("left_out_bytes") or 0
    head = {**captured.head, "left_out_bytes": max(1, cut) + before}
    return replace(captured, head=head, entries=tuple(entry for entry in captured.entries if id(entry) in shown))


def _within(kind: Kind, entries: Sequence[Entry], limits: LimitsConfig) -> Sequence[Entry]:
    """Returns the first of these entries, as many as are shown."""
    most = MOST_RUNS if kind == "tool" else MOST_READS
    size = 0
    shown: list[Entry] = []
    for entry in entries[:most]:
        size += len(entry.data)
        if size > MOST_BYTES:
            break
        shown.append(entry)
    if size > OFFLOAD_BYTES and not _is_simple(shown, limits):
        return [entry for entry in shown if not entry.data]
    return shown


def _is_simple(entries: Sequence[Entry], limits: LimitsConfig) -> bool:
    """Returns True if parsing these entries builds few values: the limits hold for a whole body, or for each event of a
    stream."""
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
    """Raises `RecordingError` for JSON with more values, or deeper, than `limits` allow. Ignores text that is not JSON.
    Call it in a thread: it yields to other threads between slices."""
    try:
        loads(text, JsonBounds(limits.json_values, limits.json_depth))
    except BoundExceeded as error:
        raise RecordingError(f"the capture holds too much: a text {error}") from None
    except ValueError:
        return
