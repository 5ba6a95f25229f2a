"""The exchanges that the inspector shows of one worker: those that run and the last ones that ended.

Rules of this module:

1. Memory is bounded (R25.3): what runs by the recorder, what has ended by `most` bytes, the oldest go first. Exchanges
   that hold next to nothing count `LEAST_BYTES`, so that there are never very many.
2. Whoever looks asks what has changed since he asked last. Nothing waits for him and nothing is kept for him: one who
   is slow sees fewer states of the same exchanges, and is told how many he never saw (`Changes.skipped`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..capture.recorder import Capture
from ..record import AccessRecord

LEAST_BYTES: Final = 4096
"""What an exchange counts at least: its head, its row and what Python needs for them."""

MOST_GONE: Final = 10_000
"""So many that went are remembered for those who look. Who is further behind is told when he asks for all again."""

MINUTES: Final = 60
"""Of the overview."""

COUNTED: Final = ("requests", "calls", "repaired", "recognised", "failed")
"""What the overview counts by route and minute."""

Row = dict[str, Any]
"""An exchange in the list: see `row_of`."""

_NUMBERS: Final = ("calls", "repaired", "coerced", "recognised", "near_misses")
_NOTES: Final = ("route", "backend", "format", "key", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Changes:
    """Returns the changes since `version`: rows, exchange ids of rows that are not kept any more, and how many
    came and went in between."""

    version: int
    rows: tuple[Row, ...]
    gone: tuple[str, ...]
    skipped: int


class Ring:
    """A `CaptureStorage` in memory. Stores at most `most` bytes of ended exchanges; `worker` is the number of this
    process among several."""

    def __init__(self, most: int, worker: int = 0) -> None:
        self.worker = worker
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # oldest change first
        self._gone: OrderedDict[str, _Gone] = OrderedDict()  # oldest first
        self._version = 0
        self._changed = asyncio.Event()
        self._counts: dict[tuple[int, str], dict[str, int]] = {}

    def begun(self, capture: Capture) -> None:
        """See `CaptureStorage`."""
        self._put(_Kept(capture, self._version + 1))

    def ended(self, capture: Capture) -> None:
        """See `CaptureStorage`."""
        self._count(capture)
        self._put(self._kept.get(capture.exchange_id) or _Kept(capture, self._version + 1))
        while self._bytes > self._most:
            oldest = next((kept for kept in self._kept.values() if not kept.capture.running), None)
            if oldest is None or oldest.capture is capture:
                break
            self._drop(oldest)

    def find(self, ident: str, owner: str | None) -> Capture | None:
        """The exchange with this exchange id, or the youngest one with this request id, if it is kept and this owner's;
        None as `owner`: anybody's."""
        kept = self._kept.get(ident)
        if kept is not None and _may_see(kept.capture, owner):
            return kept.capture
        same = [one.capture for one in self._kept.values() if one.capture.request_id == ident]
        mine = [capture for capture in same if _may_see(capture, owner)]
        return max(mine, key=lambda capture: capture.began, default=None)

    def changes(self, since: int, owner: str | None) -> Changes:
        """What has changed since version `since`; all for 0."""
        fresh = [kept for kept in self._kept.values() if kept.version > since and _may_see(kept.capture, owner)]
        went = [gone for gone in self._gone.values() if since and gone.version > since]
        mine = [gone for gone in went if owner is None or gone.owner == owner]
        return Changes(
            self._version,
            tuple(row_of(kept.capture, self.worker) for kept in fresh),
            tuple(gone.name for gone in mine if gone.came <= since),
            sum(gone.came > since for gone in mine),
        )

    async def changed(self, since: int, wait_s: float) -> None:
        """Wait until something changes after version `since`, but no longer than `wait_s`. A version that has not come
        yet is another worker's, whose place this one has taken: nobody waits for that."""
        if self._version != since:
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def counts(self) -> Mapping[tuple[int, str], Mapping[str, int]]:
        """What was counted, by minute (Unix time) and route: of the last `MINUTES`."""
        self._forget()
        return self._counts

    def _put(self, kept: _Kept) -> None:
        self._version += 1
        kept.version = self._version
        name = kept.capture.exchange_id
        self._bytes -= kept.bytes
        kept.bytes = 0 if kept.capture.running else max(LEAST_BYTES, kept.capture.size)
        self._bytes += kept.bytes
        self._kept[name] = kept
        self._kept.move_to_end(name)
        self._changed.set()

    def _drop(self, kept: _Kept) -> None:
        self._version += 1
        name = kept.capture.exchange_id
        del self._kept[name]
        self._bytes -= kept.bytes
        self._gone[name] = _Gone(name, kept.capture.owner, kept.came, self._version)
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
class _Gone:
    """An exchange that is not kept any more: whose it was, and the versions in which it came and went."""

    name: str
    owner: str
    came: int
    version: int


class _Kept:
    """An exchange, the version in which it came, that of its last change, and for how much it counts: nothing while it
    runs."""

    __slots__ = ("bytes", "came", "capture", "version")

    def __init__(self, capture: Capture, came: int) -> None:
        self.bytes = 0
        self.capture = capture
        self.came = came
        self.version = came


def _may_see(capture: Capture, owner: str | None) -> bool:
    return owner is None or capture.owner == owner


def row_of(capture: Capture, worker: int = 0) -> Row:
    """How an exchange stands in the list, as far as it is known."""
    record, head = capture.record, capture.head
    row: Row = {
        "id": capture.request_id,
        "exchange_id": capture.exchange_id,
        "at": capture.began,
        "worker": worker,
        "api": head.get("endpoint"),
        "path": head["path"],
        "model": head.get("model"),
        "client": client_of(head["headers"]),
        "running": capture.running,
        "bytes": capture.size,
    }
    if record is not None:
        row |= {name: record.notes.get(name) for name in _NOTES}
        row["tools"] = capture.covered(record.notes.get("tool_names", []))
        row |= {name: record.counts[name] for name in _NUMBERS}
        row |= {"stream": record.stream, "status": record.status, "code": record.code}
        row |= _times(record, capture.seconds)
    return row


def _times(record: AccessRecord, total: float) -> Row:
    first = None if record.first_byte is None else record.first_byte - record.started
    return {
        "total_ms": _ms(total),
        "overhead_ms": _ms(max(0.0, total - record.waited)),
        "first_byte_ms": None if first is None else _ms(first),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def client_of(headers: Mapping[str, str]) -> str:
    """What a client calls itself: the first product of its `User-Agent`."""
    return headers.get("user-agent", "").partition(" ")[0][:60]
