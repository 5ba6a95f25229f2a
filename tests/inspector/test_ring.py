"""The exchanges that are kept: how many, which, for whom, and what a viewer is told of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tests.e2e.conftest import read_config
from tests.waiting import GUARD_S
from toolwire.extras.capture import recorder
from toolwire.extras.capture.files import read_capture
from toolwire.extras.capture.recorder import ENTRY_BYTES, Capture, Captures
from toolwire.extras.inspector import ring as ring_module
from toolwire.extras.inspector.ring import COUNTED, LEAST_BYTES, MINUTES, Ring
from toolwire.record import AccessRecord

CONFIG = read_config({"inspect": True, "backends": {"mock": {"kind": "mock"}}})


class Exchanges:
    """Exchanges that a ring keeps."""

    def __init__(self, most: int = 10 * LEAST_BYTES) -> None:
        self.ring = Ring(most, worker=3)
        self._captures = Captures(CONFIG, self.ring)

    def begin(self, ident: str, owner: str = "") -> Capture:
        """One whose request was read."""
        capture = self._captures.begin(make_mocked_request("POST", "/v1/chat/completions"), ident)
        capture.owner, capture.record = owner, AccessRecord()
        self.ring.begun(capture)
        return capture

    def end(self, capture: Capture, size: int = 0, route: str | None = None, code: str | None = None) -> None:
        """It holds so many bytes at its end."""
        record = capture.record or AccessRecord()
        if route is not None:
            record.note("route", route)
        record.code = code
        if size:
            capture.add("received", 1, b"x" * size)
        capture.ended(record)

    def one(self, ident: str, size: int = 0, owner: str = "") -> None:
        self.end(self.begin(ident, owner), size)

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.ring.changes(0, None).rows]


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    many = Exchanges(most=100_000)
    for number in range(5):
        many.one(f"r{number}", 40_000)
    assert many.ids == ["r3", "r4"]
    assert many.ring.find("r2", None) is None
    assert many.ring.find("r4", None) is not None


def test_tiny_exchanges_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "MOST_GONE", 10)
    many = Exchanges(most=10 * LEAST_BYTES)
    for number in range(60):
        many.one(f"r{number}")
    assert many.ids == [f"r{number}" for number in range(50, 60)]
    assert len(many.ring._gone) == 10, "what is known of those that went is bounded as well"


def test_refused_requests_push_out_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "MOST_REFUSED", 3)
    many = Exchanges(most=10 * LEAST_BYTES)
    for number in range(2):
        many.end(many.begin(f"r{number}"), route="m")
    for number in range(20):
        many.one(f"refused{number}")
    assert many.ids == ["r0", "r1", "refused17", "refused18", "refused19"]


def test_what_python_needs_for_entries_counts() -> None:
    many = Exchanges(most=100_000)
    capture = many.begin("many-reads")
    for _ in range(1000):
        capture.add("received", 1, b"x")
    many.end(capture)
    assert capture.size >= 1000 * ENTRY_BYTES
    many.one("next")
    assert many.ids == ["next"]


def test_a_server_that_writes_byte_by_byte_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_ENTRIES", 100)
    many = Exchanges()
    capture = many.begin("bytes")
    for _ in range(1000):
        capture.add("received", 1, b"x")
    many.end(capture)
    captured = read_capture(capture.file())
    assert captured.bytes_of("received") == b"x" * 100
    assert captured.head["left_out_bytes"] == 900
    assert captured.end, "how it ended is said all the same"


def test_an_exchange_larger_than_all_makes_room_for_itself() -> None:
    many = Exchanges(most=10_000)
    many.one("small")
    many.one("large", 50_000)
    assert many.ids == ["large"]
    many.one("next")
    assert many.ids == ["next"]


def test_those_that_run_stay_and_count_when_they_end() -> None:
    many = Exchanges(most=2 * LEAST_BYTES)
    runs = many.begin("runs")
    for number in range(5):
        many.one(f"r{number}")
    assert many.ids == ["runs", "r3", "r4"]
    many.end(runs)
    assert many.ids == ["r4", "runs"]


def test_exchanges_with_one_request_id_are_kept_beside_each_other() -> None:
    many = Exchanges()
    older = many.begin("same", owner="her")
    younger = many.begin("same", owner="him")
    younger.began = older.began + 1
    many.end(older, 10)
    many.end(younger, 20)
    assert many.ids == ["same", "same"]
    assert many.ring.find("same", None) is younger
    assert many.ring.find("same", "her") is older, "the other one's is not hers, and does not hide hers"
    assert many.ring.find(older.exchange_id, None) is older
    assert many.ring.find(older.exchange_id, "him") is None


def test_an_exchange_that_was_refused_before_it_was_read() -> None:
    many = Exchanges()
    capture = many._captures.begin(make_mocked_request("POST", "/v1/chat/completions"), "bad")
    record = AccessRecord()
    record.status, record.code = 400, "invalid_json"
    capture.ended(record)
    (row,) = many.ring.changes(0, None).rows
    assert (row["id"], row["status"], row["code"], row["running"]) == ("bad", 400, "invalid_json", False)
    assert row["worker"] == 3
    assert many.ring.changes(0, "somebody").rows == ()


def test_changes_are_those_since_a_version() -> None:
    many = Exchanges()
    many.one("a")
    first = many.ring.changes(0, None)
    assert many.ring.changes(first.version, None).rows == ()
    runs = many.begin("b")
    second = many.ring.changes(first.version, None)
    assert [(row["id"], row["running"]) for row in second.rows] == [("b", True)]
    many.end(runs)
    third = many.ring.changes(second.version, None)
    assert [(row["id"], row["running"]) for row in third.rows] == [("b", False)]
    assert first.version < second.version < third.version
    assert (third.gone, third.skipped) == ((), 0)


def test_what_went_is_told_once_and_what_was_never_seen_is_counted() -> None:
    many = Exchanges(most=2 * LEAST_BYTES)
    many.one("a")
    runs = many.begin("b")
    seen = many.ring.changes(0, None)  # it has just begun
    many.end(runs)
    for ident in "cdefg":
        many.one(ident)
    news = many.ring.changes(seen.version, None)
    assert [row["id"] for row in news.rows] == ["f", "g"]
    assert sorted(news.gone) == sorted(row["exchange_id"] for row in seen.rows)
    assert news.skipped == 3
    again = many.ring.changes(news.version, None)
    assert (again.rows, again.gone, again.skipped) == ((), (), 0)


def test_who_begins_is_not_told_what_went_before() -> None:
    many = Exchanges(most=LEAST_BYTES)
    for ident in "abc":
        many.one(ident)
    news = many.ring.changes(0, None)
    assert [row["id"] for row in news.rows] == ["c"]
    assert (news.gone, news.skipped) == ((), 0)


def test_a_key_sees_its_own() -> None:
    many = Exchanges(most=2 * LEAST_BYTES)
    many.one("hers", owner="her")
    many.one("his", owner="him")
    assert [row["id"] for row in many.ring.changes(0, "her").rows] == ["hers"]
    assert many.ring.find("his", "her") is None
    assert many.ring.find("hers", "her") is not None
    assert many.ids == ["hers", "his"]
    seen = many.ring.changes(0, "her").version
    (hers,) = many.ring.changes(0, "her").rows
    many.one("secret", owner="him")
    for ident in "xyz":
        many.one(ident, owner="him")
    news = many.ring.changes(seen, "her")
    assert (news.rows, news.gone) == ((), (hers["exchange_id"],)), "nor the ids of those of others, when they go"
    assert news.skipped == 0, "nor how many there were"


async def test_waiting_for_a_change() -> None:
    many = Exchanges()
    version = many.ring.changes(0, None).version
    waiting = [asyncio.create_task(many.ring.changed(version, 3600)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    many.one("a")
    await asyncio.gather(*waiting)
    await many.ring.changed(version, 3600)  # there is something already
    await many.ring.changed(many.ring.changes(0, None).version, 0)  # for no time
    await asyncio.wait_for(many.ring.changed(1000, 3600), GUARD_S)  # of a worker that was here before


class Clock:
    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ring_module, "time", clock)
    return clock


def test_counts_of_the_last_hour(clock: Clock) -> None:
    many = Exchanges()
    capture = many.begin("a")
    assert capture.record is not None
    counted: dict[str, Any] = {"calls": 2, "repaired": 1, "coerced": 3, "recognised": 1}
    for name, number in counted.items():
        capture.record.count(name, number)
    many.end(capture, route="m")
    many.end(many.begin("b"), route="m", code="upstream_error")
    minute = int(clock.now) // 60
    assert many.ring.counts() == {
        (minute, "m"): {"requests": 2, "calls": 2, "repaired": 4, "recognised": 1, "failed": 1}
    }
    assert set(many.ring.counts()[minute, "m"]) == set(COUNTED)
    clock.now += 60
    many.end(many.begin("c"), route="other")
    assert [(place, counts["requests"]) for place, counts in many.ring.counts().items()] == [
        ((minute, "m"), 2),
        ((minute + 1, "other"), 1),
    ]
    clock.now += 60 * (MINUTES - 1)
    assert list(many.ring.counts()) == [(minute + 1, "other")]
    clock.now += 60
    assert not many.ring.counts()


def test_counts_do_not_need_the_exchanges_to_be_kept(clock: Clock) -> None:
    many = Exchanges(most=LEAST_BYTES)
    for number in range(20):
        many.end(many.begin(f"r{number}"), route="m")
    (counts,) = many.ring.counts().values()
    assert counts["requests"] == 20
