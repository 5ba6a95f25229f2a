"""The metrics page: what Prometheus' own library reads is what was counted."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import Counter, Gauge, Histogram, render
from proxy.telemetry import AccessRecord, Metrics


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counters_and_gauges() -> None:
    plain, labelled, gauge = Counter("a_total", "A"), Counter("b_total", "B", "x", "y"), Gauge("c", "C")
    plain.inc()
    labelled.inc("1", 'q"\\\n', by=3)
    labelled.inc("1", 'q"\\\n')
    gauge.value -= 2
    assert samples(render((plain, labelled, gauge))) == {
        ("a_total", ()): 1,
        ("b_total", (("x", "1"), ("y", 'q"\\\n'))): 4,
        ("c", ()): -2,
    }


def test_a_histogram_counts_what_is_at_most_a_bound() -> None:
    histogram = Histogram("h", "H", "x", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe("e", value)
    assert samples(render((histogram,))) == {
        ("h_bucket", (("x", "e"), ("le", "0.1"))): 2,
        ("h_bucket", (("x", "e"), ("le", "1.0"))): 3,
        ("h_bucket", (("x", "e"), ("le", "+Inf"))): 4,
        ("h_count", (("x", "e"),)): 4,
        ("h_sum", (("x", "e"),)): 7.65,
    }


def test_what_an_exchange_adds() -> None:
    metrics, record = Metrics(), AccessRecord()
    record.status, record.stream, record.error, record.code = 200, True, "model_error", "invalid_tool_arguments"
    record.count("calls", 2)
    record.count("repaired")
    record.note("output_tokens", 7)
    record.note("nothing", None)
    record.wrote()
    metrics.finish(record, endpoint="chat", request_id="r")
    found = samples(metrics.render())
    assert found["toolwire_requests_total", (("endpoint", "chat"), ("stream", "true"), ("status", "200"))] == 1
    assert found["toolwire_tool_calls_total", (("outcome", "emitted"),)] == 2
    assert found["toolwire_tool_call_repairs_total", ()] == 1
    assert found["toolwire_tool_call_parse_failures_total", ()] == 0
    assert found["toolwire_strict_failures_total", (("code", "invalid_tool_arguments"),)] == 1
    assert found["toolwire_tokens_total", (("direction", "output"),)] == 7
    for name in ("request_duration", "overhead", "time_to_first_token"):
        assert found[f"toolwire_{name}_seconds_count", (("endpoint", "chat"),)] == 1
