"""What the gateway says about itself: one access record per request, and counters for Prometheus.

Rules: label sets are bounded (no tool names, no keys, no bodies); one `Metrics` per application; nothing is written at import. Source of the fields: R18.1, of the metrics: R18.2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from .logs import log_fields
from .metrics import Counter, Family, Gauge, Histogram, render

ACCESS: Final = logging.getLogger("toolwire.access")

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5)

OUTCOMES: Final = {
    "calls": "emitted",
    "dropped_parallel": "dropped_parallel",
    "deduped": "deduped",
    "truncated_calls": "truncated",
    "unknown_names": "unknown_name",
    "schema_warnings": "schema_warning",
}
"""Counter of the record -> `outcome` label of `tool_calls_total`."""

_TOKENS: Final = (("input", "input_tokens"), ("output", "output_tokens"))


class Counts(dict[str, int]):
    """Numbers by name; 0 for what was not counted."""

    def __missing__(self, name: str) -> int:
        return 0


class AccessRecord:
    """What happened in one exchange. Counted and noted along the way, logged once at the end.

    Times are seconds on the monotonic clock. `waited` is the time spent waiting for the backend; the rest of the total is
    the gateway's own overhead.
    """

    __slots__ = ("code", "counts", "error", "first_byte", "notes", "started", "status", "stream", "waited")

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.first_byte: float | None = None
        self.waited = 0.0
        self.status = 0
        self.stream = False
        self.error: str | None = None
        self.code: str | None = None
        self.counts = Counts()
        self.notes: dict[str, Any] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter, such as `calls` or `repaired`."""
        self.counts[name] += by

    def note(self, key: str, value: Any) -> None:
        """Remember a value for the log line; None says nothing. Never a prompt, an argument or a key."""
        if value is not None:
            self.notes[key] = value

    def wrote(self) -> None:
        """The first byte of the answer is out."""
        if self.first_byte is None:
            self.first_byte = time.monotonic()


class Metrics:
    """The counters of one application (R18.2)."""

    def __init__(self) -> None:
        self.requests = Counter("toolwire_requests_total", "Requests", "endpoint", "stream", "status")
        self.duration = Histogram("toolwire_request_duration_seconds", "Whole request", "endpoint", _SECONDS)
        self.overhead = Histogram(
            "toolwire_overhead_seconds", "Time not spent waiting for the backend", "endpoint", _OVERHEAD
        )
        self.first_token = Histogram(
            "toolwire_time_to_first_token_seconds", "To the first byte of a stream", "endpoint", _SECONDS
        )
        self.inflight = Gauge("toolwire_inflight_requests", "Requests being served")
        self.calls = Counter("toolwire_tool_calls_total", "Tool calls by outcome", "outcome")
        self.parse_failures = Counter("toolwire_tool_call_parse_failures_total", "Unreadable calls")
        self.repairs = Counter("toolwire_tool_call_repairs_total", "Repaired calls")
        self.strict_failures = Counter("toolwire_strict_failures_total", "Strict failures", "code")
        self.backend_errors = Counter("toolwire_backend_errors_total", "Backend failures", "code")
        self.tokens = Counter("toolwire_tokens_total", "Tokens", "direction")
        self.middleware_errors = Counter(
            "toolwire_middleware_errors_total", "Unexpected exceptions in middlewares", "middleware"
        )
        self.families: tuple[Family, ...] = tuple(f for f in vars(self).values() if isinstance(f, Family))

    def render(self) -> bytes:
        """Prometheus' text form."""
        return render(self.families)

    def finish(self, record: AccessRecord, *, endpoint: str, request_id: str) -> None:
        """Count a finished exchange and write its access line."""
        total = time.monotonic() - record.started
        overhead = max(0.0, total - record.waited)
        first_byte = None if record.first_byte is None else record.first_byte - record.started
        self.requests.inc(endpoint, "true" if record.stream else "false", str(record.status))
        self.duration.observe(endpoint, total)
        self.overhead.observe(endpoint, overhead)
        if record.stream and first_byte is not None:
            self.first_token.observe(endpoint, first_byte)
        if record.counts:
            self._count_calls(record.counts)
        if record.code is not None and record.error == "model_error":
            self.strict_failures.inc(record.code)
        if record.code is not None and record.error == "upstream_error":
            self.backend_errors.inc(record.code)
        notes = record.notes
        for direction, key in _TOKENS:
            if tokens := notes.get(key):
                self.tokens.inc(direction, by=tokens)
        fields: dict[str, Any] = {
            "request_id": request_id,
            "endpoint": endpoint,
            "stream": record.stream,
            "status": record.status,
        }
        if record.code is not None:
            fields["code"] = record.code
        fields["total_ms"] = round(total * 1000, 2)
        fields["backend_ms"] = round(record.waited * 1000, 2)
        fields["overhead_ms"] = round(overhead * 1000, 2)
        if first_byte is not None:
            fields["first_byte_ms"] = round(first_byte * 1000, 2)
        fields.update(notes)
        fields.update(record.counts)
        log_fields(ACCESS, "exchange", fields)

    def _count_calls(self, counts: Mapping[str, int]) -> None:
        for name, outcome in OUTCOMES.items():
            if number := counts.get(name):
                self.calls.inc(outcome, by=number)
        self.parse_failures.inc(by=counts.get("parse_failures", 0))
        self.repairs.inc(by=counts.get("repaired", 0))
