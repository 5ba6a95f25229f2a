"""The metrics page: what Prometheus' own library reads is what was counted, by all workers, whoever is asked."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from toolwire.call_policy.counted import CALL_FIELDS
from toolwire.errors import BackendFault
from toolwire.observability.exposition import page
from toolwire.observability.metrics import (
    CELLS,
    NONE,
    OTHER,
    SERIES_PER_FAMILY,
    Counter,
    Family,
    Gauge,
    Histogram,
    SharedCounters,
)
from toolwire.observability.telemetry import Metrics
from toolwire.record import AccessRecord

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    """As `samples` has them."""
    return tuple(sorted(values.items()))


def counted(families: tuple[Family, ...], cells: SharedCounters) -> Samples:
    return samples(page(families, cells, "")[0])


def bound(*families: Family) -> tuple[SharedCounters, tuple[Family, ...]]:
    """Cells of their own for these families."""
    cells = SharedCounters()
    for family in families:
        family.bind(cells)
    return cells, families


def test_counters_and_gauges() -> None:
    plain, labelled, gauge = Counter("a_total", "A"), Counter("b_total", "B", "x", "y"), Gauge("c", "C")
    cells, families = bound(plain, labelled, gauge)
    plain.inc()
    labelled.inc("1", 'q"\\\n', by=3)
    labelled.inc("1", 'q"\\\n')
    gauge.inc(by=-2)
    two = ("b_total", labels(x="1", y='q"\\\n'))
    assert counted(families, cells) == {("a_total", ()): 1, two: 4, ("c", ()): -2}


def test_a_histogram_counts_what_is_at_most_a_bound() -> None:
    histogram = Histogram("h", "H", "x", bounds=(0.1, 1))
    cells, families = bound(histogram)
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value, "e")
    assert counted(families, cells) == {
        **{("h_bucket", labels(le=le, x="e")): n for le, n in (("0.1", 2), ("1.0", 3), ("+Inf", 4))},
        ("h_count", labels(x="e")): 4,
        ("h_sum", labels(x="e")): 7.65,
    }


def test_open_metrics_for_whoever_asks() -> None:
    metrics = Metrics()
    text, content_type = metrics.page(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics_parser.text_string_to_metric_families(text.decode())}
    assert {"toolwire_requests", "toolwire_inflight_requests", "toolwire_overhead_seconds"} <= names
    assert metrics.page("")[1].startswith("text/plain")


def test_labels_are_bounded_and_wanted() -> None:
    counter = Counter("a_total", "A", "x")
    cells, families = bound(counter)
    for number in range(SERIES_PER_FAMILY + 5):
        counter.inc(str(number))
    found = counted(families, cells)
    assert len(found) == SERIES_PER_FAMILY + 1
    assert found["a_total", (("x", OTHER),)] == 5
    with pytest.raises(ValueError, match="a_total has the labels"):
        counter.inc()


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40), st.integers(1, 9)), max_size=60))
def test_what_was_counted_is_read_whatever_the_labels_are(counts: list[tuple[str, str, int]]) -> None:
    cells, counter = SharedCounters(), Counter("a_total", "A", "x", "y")
    counter.bind(cells)
    wanted: dict[tuple[str, ...], int] = {}
    for one, two, by in counts:
        counter.inc(one, two, by=by)
        wanted[one, two] = wanted.get((one, two), 0) + by
    assert {series.values: series.cells[0] for series in cells.read()} == wanted
    cells.close()


def test_a_full_file_grows_and_keeps_its_numbers(tmp_path: Path) -> None:
    cells, counter = SharedCounters(tmp_path / f"0{CELLS}"), Counter("a_total", "A", "x")
    counter.bind(cells)
    long = "l" * 400
    for number in range(SERIES_PER_FAMILY):
        counter.inc(f"{long}{number}")
        counter.inc(f"{long}0")
    again = SharedCounters(cells.path)
    assert {series.values[0][400:]: series.cells[0] for series in again.read()} == {
        str(number): 1 + (number == 0) * SERIES_PER_FAMILY for number in range(SERIES_PER_FAMILY)
    }
    cells.close()
    again.close()


def _work(path: Path, amount: int, ready: str) -> None:
    metrics = Metrics(SharedCounters(path))
    metrics.inflight.inc()
    metrics.backend_up.set(0, "b")
    for _ in range(amount):
        metrics.requests.inc("chat", "true", "200", "r", "m")
        metrics.duration.observe(0.5, "chat", "r", "m")
    Path(ready).touch()
    signal.pause()


def _worker(folder: Path, place: int, amount: int) -> BaseProcess:
    ready = folder / f"ready-{place}"
    ready.unlink(missing_ok=True)
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(folder / f"{place}{CELLS}", amount, str(ready))
    )
    process.start()
    while not ready.exists():
        process.join(0.01)
        assert process.exitcode is None
    return process


@pytest.mark.skipif(not hasattr(signal, "pause"), reason="signals")
def test_workers_add_up_and_a_killed_one_keeps_its_counts(tmp_path: Path) -> None:
    whose = {"endpoint": "chat", "model": "m", "route": "r"}
    request = ("toolwire_requests_total", labels(**whose, status="200", stream="true"))
    duration = ("toolwire_request_duration_seconds_sum", labels(**whose))
    inflight = ("toolwire_inflight_requests", ())
    up = ("toolwire_backend_up", labels(backend="b"))
    mine = Metrics(SharedCounters(tmp_path / f"0{CELLS}"))
    mine.requests.inc("chat", "true", "200", "r", "m", by=3)
    other = _worker(tmp_path, 1, 500)
    try:
        found = samples(mine.page()[0])
        assert (found[request], found[duration], found[inflight], found[up]) == (503, 250, 1, 0)
        mine.backend_up.set(1, "b")
        assert samples(mine.page()[0])[up] == 1  # the youngest counts
    finally:
        other.kill()
        other.join()
    found = samples(mine.page()[0])
    assert (found[request], found[duration], found[inflight], found[up]) == (503, 250, 0, 1)
    successor = _worker(tmp_path, 1, 7)
    try:
        found = samples(mine.page()[0])
        assert (found[request], found[inflight]) == (510, 1)
        assert len(list(tmp_path.glob(f"*{CELLS}"))) == 2
    finally:
        successor.kill()
        successor.join()
    mine.cells.close()


def test_a_file_that_has_just_been_made_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / f"1{CELLS}").touch()
    mine = Metrics(SharedCounters(tmp_path / f"0{CELLS}"))
    mine.inflight.inc()
    assert samples(mine.page()[0])["toolwire_inflight_requests", ()] == 1
    mine.cells.close()


def test_a_full_disk_says_so_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space"):
        SharedCounters(tmp_path / f"0{CELLS}")


def test_what_an_exchange_adds() -> None:
    metrics, record = Metrics(), AccessRecord()
    metrics.declare(CALL_FIELDS)
    record.status, record.stream = 200, True
    record.route, record.model = "r*", "r1"
    record.count("calls", 2)
    record.count("repaired")
    record.label("repaired", "commas")
    record.label("repaired", "quotes")
    record.label("strict_failures", "invalid_tool_arguments")
    record.note("output_tokens", 7)
    record.note("nothing", None)
    record.note("backend", "b")
    refused, broken = BackendFault("no"), BackendFault("broke off", code="upstream_disconnected")
    record.backend_failed(refused, "a")
    record.ended_by(broken)
    record.wrote()
    metrics.finish(record, endpoint="chat", request_id="r")
    found = samples(metrics.page()[0])
    whose, chat = {"model": "r1", "route": "r*"}, {"endpoint": "chat"}
    for name, of, number in (
        ("requests_total", {**chat, **whose, "status": "200", "stream": "true"}, 1),
        ("tool_calls_total", {**whose, "outcome": "emitted"}, 2),
        ("tool_call_repairs_total", {"kind": "commas"}, 1),
        ("tool_call_repairs_total", {"kind": "quotes"}, 1),
        ("strict_failures_total", {"code": "invalid_tool_arguments"}, 1),
        ("backend_errors_total", {"backend": "a", "code": "upstream_error"}, 1),
        ("backend_errors_total", {"backend": "b", "code": "upstream_disconnected"}, 1),
        ("tokens_total", {**whose, "direction": "output"}, 7),
        ("overhead_seconds_count", chat, 1),
        ("request_duration_seconds_count", {**chat, **whose}, 1),
        ("time_to_first_token_seconds_count", {**chat, **whose}, 1),
    ):
        assert found[f"toolwire_{name}", labels(**of)] == number, name


def test_an_answer_that_is_no_stream_has_no_first_token() -> None:
    metrics = Metrics()
    record = metrics.begin()
    record.wrote()
    metrics.finish(record, endpoint="chat", request_id="r")
    assert not [name for name, _ in samples(metrics.page()[0]) if name.startswith("toolwire_time_to_first_token")]


def models(found: Samples) -> set[str]:
    """All that stand on a page."""
    return {value for _, labels in found for name, value in labels if name == "model"}


def finish(metrics: Metrics, route: str, model: str) -> None:
    record = metrics.begin()
    record.route, record.model, record.status = route, model, 200
    record.count("calls")
    record.note("input_tokens", 3)
    metrics.finish(record, endpoint="chat", request_id="r")


def test_names_are_bounded_by_the_option_and_nothing_is_lost() -> None:
    metrics = Metrics()
    metrics.declare(CALL_FIELDS)
    metrics.bound(3)
    for number in range(40):
        finish(metrics, f"r{number % 8}", f"m{number % 10}")
    finish(metrics, NONE, NONE)
    found = samples(metrics.page()[0])
    assert models(found) == {"m0", "m1", "m2", OTHER, NONE}
    assert {v for _, labels in found for name, v in labels if name == "route"} == {"r0", "r1", "r2", OTHER, NONE}
    for name, each in (("requests_total", 1), ("tool_calls_total", 1), ("tokens_total", 3)):
        assert sum(n for (family, _), n in found.items() if family == f"toolwire_{name}") == 41 * each
    metrics.bound(4)
    finish(metrics, "r7", "m7")  # counted before, as another one
    found = samples(metrics.page()[0])
    assert models(found) == {"m0", "m1", "m2", "m7", OTHER, NONE}
    for name in ("requests_total", "tool_calls_total", "tokens_total"):
        assert "m7" in models({key: n for key, n in found.items() if key[0] == f"toolwire_{name}"}), name
    metrics.bound(0)
    finish(metrics, "new", "new")
    assert "new" not in models(samples(metrics.page()[0]))


def test_who_takes_the_place_of_a_worker_keeps_to_its_names(tmp_path: Path) -> None:
    path = tmp_path / f"0{CELLS}"
    first = Metrics(SharedCounters(path))
    first.bound(2)
    for model in ("a", "b", "c"):
        finish(first, "*", model)
    first.cells.close()
    second = Metrics(SharedCounters(path))
    second.bound(2)
    for model in ("d", "a"):
        finish(second, "*", model)
    found = samples(second.page()[0])
    assert models(found) == {"a", "b", OTHER}
    second.cells.close()


def test_an_error_that_was_counted_is_not_counted_again() -> None:
    record = AccessRecord()
    refused = BackendFault("no")
    record.backend_failed(refused, "a")
    record.ended_by(refused)
    assert record.counts["backend_errors"] == 1
