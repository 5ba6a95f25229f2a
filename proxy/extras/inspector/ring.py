"""The exchanges of one worker that the inspector shows: the running ones and the latest ended ones.

Rules:

1. Memory is limited (R25.3): for running exchanges by the recorder, for ended ones by `most` bytes; the oldest are
   deleted first. Small exchanges count as `LEAST_BYTES`, so that their number is limited too.
2. A viewer asks for the changes since its last request. No request waits for a viewer and nothing is stored for it: a
   slow viewer sees fewer states of the same exchanges, and is told how many it missed (`Changes.skipped`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...formats.recognised.auto import FORMAT as AUTO
from ...formats.recognised.auto import TAUGHT as AUTO_TAUGHT
from ..capture.recorder import Capture

LEAST_BYTES: Final = 4096
"""Minimum size that is counted for an exchange: its head, its row and their Python objects."""

MOST_GONE: Final = 10_000
"""The number of deleted exchanges that are remembered for viewers. A slower viewer learns about them when it asks for
all again."""

MOST_REFUSED: Final = 200
"""The number of requests that are stored though they were refused before they had a route. Anybody can send these, and
they must not push out exchanges."""

OWN_DATA: Final = "/inspect/api/"
"""Path of the page's own data. Refused requests for it are not listed."""

MINUTES: Final = 60
"""Number of minutes that the overview shows."""

COUNTED: Final = ("requests", "calls", "repaired", "recognised", "failed")
"""The numbers that the overview counts by route and minute."""

Row = dict[str, Any]
"""An exchange in the list: see `row_of`."""

_NUMBERS: Final = ("calls", "repaired", "coerced", "recognised", "near_misses", "schema_warnings", "reasks")
_NOTES: Final = (
    *("route", "backend", "format", "tool_mode", "key", "input_tokens", "output_tokens", "status", "code", "stream"),
    *("verdict", "why", "called", "total_ms", "first_byte_ms"),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since a version. `version`: the current one; `rows`: new and changed rows; `gone`: exchange ids of
    deleted rows; `skipped`: how many were created and deleted in between."""

    version: int
    rows: Sequence[Row]
    gone: Sequence[str]
    skipped: int


class Ring:
    """A `CaptureStorage` in memory. Stores at most `most` bytes of ended exchanges; `worker` is the number of this
    process among several."""

    def __init__(self, most: int, worker: int = 0) -> None:
        self.worker = worker
        self._most = most
        self._bytes = 0
        self._exchanges: OrderedDict[str, _Stored] = OrderedDict()  # oldest change first
        self._gone: OrderedDict[str, _Deleted] = OrderedDict()  # oldest first
        self._version = 0
        self._changed = asyncio.Event()
        self._refused: deque[_Stored] = deque()  # oldest first
        self._counts: dict[tuple[int, str], dict[str, int]] = {}

    def begun(self, capture: Capture) -> None:
        """Adds a running exchange."""
        self._put(_Stored(capture, self._version + 1))

    def ended(self, capture: Capture) -> None:
        """Counts an ended exchange, and deletes the oldest ones beyond the limits."""
        if "route" not in capture.fields and capture.head["path"].startswith(OWN_DATA):
            return
        self._count(capture)
        stored = self._exchanges.get(capture.exchange_id) or _Stored(capture, self._version + 1)
        self._put(stored)
        if "route" not in capture.fields:
            self._refused.append(stored)
            if len(self._refused) > MOST_REFUSED:
                self._drop(self._refused.popleft())
        while self._bytes > self._most:
            oldest = next((stored for stored in self._exchanges.values() if not stored.capture.running), None)
            if oldest is None or oldest.capture is capture:
                break
            self._drop(oldest)

    def find(self, ident: str, owner: str | None) -> Capture | None:
        """Returns the exchange with this exchange id, or the latest with this request id, if it is stored and belongs
        to this owner (None: any owner); else None."""
        stored = self._exchanges.get(ident)
        if stored is not None and _may_see(stored.capture, owner):
            return stored.capture
        same = [one.capture for one in self._exchanges.values() if one.capture.request_id == ident]
        mine = [capture for capture in same if _may_see(capture, owner)]
        return max(mine, key=lambda capture: capture.began, default=None)

    def changes(self, since: int, owner: str | None) -> Changes:
        """Returns the changes since version `since`; everything for 0."""
        fresh = [
            stored for stored in self._exchanges.values() if stored.version > since and _may_see(stored.capture, owner)
        ]
        went = [gone for gone in self._gone.values() if since and gone.version > since]
        mine = [gone for gone in went if owner is None or gone.owner == owner]
        return Changes(
            self._version,
            tuple(row_of(stored.capture, self.worker) for stored in fresh),
            tuple(gone.name for gone in mine if gone.came <= since),
            sum(gone.came > since for gone in mine),
        )

    async def changed(self, since: int, wait_s: float) -> None:
        """Waits until something changes after version `since`, at most `wait_s`. Returns at once for a future version:
        it is of the worker that this one has replaced."""
        if self._version != since:
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def counts(self) -> Mapping[tuple[int, str], Mapping[str, int]]:
        """Returns the counts by minute (Unix time) and route, for the last `MINUTES`."""
        self._forget()
        return self._counts

    def _put(self, stored: _Stored) -> None:
        self._version += 1
        stored.version = self._version
        name = stored.capture.exchange_id
        self._bytes -= stored.bytes
        stored.bytes = 0 if stored.capture.running else max(LEAST_BYTES, stored.capture.size)
        self._bytes += stored.bytes
        self._exchanges[name] = stored
        self._exchanges.move_to_end(name)
        self._changed.set()

    def _drop(self, stored: _Stored) -> None:
        self._version += 1
        name = stored.capture.exchange_id
        if self._exchanges.pop(name, None) is None:
            return  # it was deleted before
        self._bytes -= stored.bytes
        self._gone[name] = _Deleted(name, stored.capture.owner, stored.came, self._version)
        while len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)

    def _count(self, capture: Capture) -> None:
        record = capture.record
        if record is None or "route" not in record.notes:
            return
        self._forget()
        place = int(time.time()) // 60, record.notes["route"]
        numbers = self._counts.setdefault(place, dict.fromkeys(COUNTED, 0))
        numbers["requests"] += 1
        numbers["calls"] += record.counts["calls"]
        numbers["repaired"] += record.counts["repaired"] + record.counts["coerced"]
        numbers["recognised"] += record.counts["recognised"]
        numbers["failed"] += record.code is not None

    def _forget(self) -> None:
        oldest = int(time.time()) // 60 - MINUTES
        for place in [place for place in self._counts if place[0] <= oldest]:
            del self._counts[place]


@dataclass(frozen=True, slots=True)
class _Deleted:
    """A deleted exchange: its owner, and the versions in which it was created and deleted."""

    name: str
    owner: str
    came: int
    version: int


class _Stored:
    """A stored exchange, the versions of its creation and its last change, and its counted size: 0 while it runs."""

    __slots__ = ("bytes", "came", "capture", "version")

    def __init__(self, capture: Capture, came: int) -> None:
        self.bytes = 0
        self.capture = capture
        self.came = came
        self.version = came


def _may_see(capture: Capture, owner: str | None) -> bool:
    return owner is None or capture.owner == owner


def row_of(capture: Capture, worker: int) -> Row:
    """Returns the row of an exchange for the list, as far as it is known."""
    row = make_row(capture.head, capture.fields, capture.began)
    row |= {name: capture.covered(row[name]) for name in ("model", "tools")}
    return row | {"worker": worker, "running": capture.running, "bytes": capture.size}


def make_row(head: Mapping[str, Any], fields: Mapping[str, Any], at: float) -> Row:
    """Returns the row of an exchange with this head and this outcome (`Capture.fields`), which began at `at`."""
    total, waited = fields.get("total_ms"), fields.get("backend_ms")
    overhead = None
    if isinstance(total, int | float) and isinstance(waited, int | float):
        overhead = round(max(0.0, total - waited), 2)
    return {
        "id": head.get("request_id"),
        "exchange_id": head.get("exchange_id"),
        "at": at,
        "worker": 0,
        "api": head.get("endpoint"),
        "path": head.get("path"),
        "model": head.get("model") or fields.get("model"),
        "client": client_of(head.get("headers", {})),
        "session": head.get("session", ""),
        "question": head.get("question", ""),
        "running": False,
        "bytes": 0,
        "read_as": read_as(fields),
        "tools": fields.get("tool_names", []),
        **{name: fields.get(name) for name in _NOTES},
        **{name: fields.get(name, 0) for name in _NUMBERS},
        "overhead_ms": overhead,
    }


def read_as(fields: Mapping[str, Any]) -> str:
    """Returns the format in which an answer was read: the untaught form of its calls, else the format that the route
    taught, else `native` for calls of the server itself. Empty if no tools were read."""
    form, taught = fields.get("form"), fields.get("format")
    if isinstance(form, str) and form:
        return form
    if isinstance(taught, str) and taught:
        return AUTO_TAUGHT if taught == AUTO.name and fields.get("calls") else taught
    return "native" if fields.get("calls") or fields.get("tool_mode") == "native" else ""


def client_of(headers: Mapping[str, str]) -> str:
    """Returns the name of a client: the first product of its `User-Agent`."""
    return headers.get("user-agent", "").partition(" ")[0][:60]
