"""What the gateway says about itself: one access record per request, and counters for Prometheus.

Rules: label sets are bounded (no tool names, no keys, no bodies); one `Metrics` per application; nothing is written at import. Source of the fields: R18.1, of the metrics: R18.2.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from ..record import AccessRecord
from .logs import log_fields
from .metrics import Counter, Family, Gauge, Histogram, SharedCounters

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

REFUSED: Final = ("connections", "head_timeout", "head_too_large", "malformed", "write_stall")
"""Values of the label `cause` of `clients_refused_total`."""

FIELDS: Final = {
    "request_id": "The `X-Request-Id` of the answer; the model server got it too.",
    "endpoint": "The wire format of the client: `chat` or `responses`.",
    "stream": "The client reads a stream.",
    "status": "HTTP status; that of a stream that failed later stays 200. 499: the client went away.",
    "code": "The error, as in the answer.",
    "client_disconnected": "`true` if the client went away before the end.",
    "total_ms": "From the request's head to the last byte of the answer.",
    "backend_ms": "Of that, time spent waiting for backends.",
    "overhead_ms": "All other time.",
    "queue_ms": "Of `backend_ms`, time spent waiting for a free connection (`pool.connections`); not measured under `trust_env`.",
    "prepare_ms": "Until the first backend was asked: reading the body, validation, the prompt.",
    "first_byte_ms": "Until the first byte of the answer.",
    "key": "The name of the client's key, if it has one (`auth.keys[].name`).",
    "route": "The route's `model`.",
    "trace_id": "Of OpenTelemetry, if that is on.",
    "backend": "The target: the name of the backend that was asked last.",
    "format": "The format in which calls were looked for in the answer's text.",
    "form": "The forms in which calls were read although they were not taught (`recognise`): families of formats; `bare`, `fence`: JSON or Python.",
    "tools": "Number of tools on offer.",
    "tool_names": "Their names, at most 32.",
    "input_tokens": "Absent when an answer went through unread.",
    "output_tokens": "The same.",
    "usage_source": "`backend` or `estimate`.",
    "calls": "Calls that were found; all but those of server-side tools reached the client.",
    "recognised": "Of those: in a form that was not taught (`recognise`).",
    "repaired": "Of those: mended.",
    "coerced": "Of those: arguments of a wrong type were mended (`coerce`).",
    "unclosed_repaired": "Of those: the closing tag was missing.",
    "object_arguments": "Of those: an object stood where a string is taught.",
    "parse_failures": "Blocks that were no calls.",
    "unrecognised": "Texts that named a tool on offer in a form that was not taught, and were no calls.",
    "excess_calls": "Blocks beyond `limits.calls_per_response`.",
    "unknown_names": "Calls of tools that were not on offer.",
    "schema_warnings": "Calls of tools that are not strict whose arguments do not fit.",
    "strict_failures": "Calls that a strict tool made an error.",
    "dropped_parallel": "Calls that vanished because `parallel_tool_calls` was off.",
    "deduped": "Calls that vanished because they repeated another one (`dedupe_calls`).",
    "truncated_calls": "Calls that were cut off; under `argument_streaming: incremental` they were begun and not ended.",
    "withdrawn_calls": "Calls that were begun and turned out malformed, so that the answer failed.",
    "choice_missed": "A demanded call was not made.",
    "echoed_calls": "Earlier calls in the request: `tool_calls` of assistant messages, `function_call` items.",
    "moved_results": "Results that did not stand after their call.",
    "format_misses": "The final text did not have the form that was asked for.",
    "ignored_items": "Items and parts that the model server has no form for.",
    "scanned_bytes": "Text that was searched for calls.",
    "loops": "The client's model makes the same call turn after turn (`loop_detect`).",
    "executions": "Calls of server-side tools that were run.",
    "failed_executions": "Of those: they gave no result.",
    "tool_loop": "`limit` if a limit of `tool_loop` ended the answer.",
    "cache": "What the middleware `cache` had: `hit` or `miss`.",
    "redacted": "Places that the middleware `redact` covered.",
    "tools_denied": "Tools that the middleware `tool_filter` took away.",
    "calls_denied": "Calls of such tools.",
    "store_failures": "A response could not be kept.",
    "attempts": "How many times a backend was asked, if more than once.",
    "retries": "Of those, how many followed a failure.",
    "retry_wait_ms": "Time spent waiting between them.",
    "backend_errors": "Calls of backends that failed, those that were repeated among them.",
    "unconstrained": "Tries without the constraint on calls, which the backend refuses.",
    "unopened_reasoning": "Answers that began inside of thinking which nothing opened, or were taken for such (`reasoning.preopened`).",
    "near_misses": "Blocks and calls that the model meant as calls, and that were none.",
    "reasks": "Answers that the client did not get because the model was asked again (`reask`).",
}
"""The access line, and what its fields mean (R18.1). What has no value, and a count of zero, is left out."""

_TOKENS: Final = (("input", "input_tokens"), ("output", "output_tokens"))


class Metrics:
    """What a gateway counts (R18.2), as part of `cells`; default: in the memory of this process.

    One object lasts as long as the process: `create_app` takes it, so that a new configuration goes on counting where the
    old one stopped. Labels have few values: never a tool, a model or a key.
    """

    def __init__(self, cells: SharedCounters | None = None) -> None:
        self.requests = Counter("toolwire_requests_total", "Requests", "endpoint", "stream", "status")
        self.duration = Histogram("toolwire_request_duration_seconds", "Whole request", "endpoint", _SECONDS)
        self.overhead = Histogram(
            "toolwire_overhead_seconds", "Time not spent waiting for the backend", "endpoint", _OVERHEAD
        )
        self.first_token = Histogram(
            "toolwire_time_to_first_token_seconds", "To the first byte of a stream", "endpoint", _SECONDS
        )
        self.inflight = Gauge("toolwire_inflight_requests", "Requests being served")
        self.connections = Gauge("toolwire_client_connections", "Open connections of clients")
        self.refused = Counter("toolwire_clients_refused_total", "Connections that overstepped a limit", "cause")
        self.calls = Counter("toolwire_tool_calls_total", "Tool calls by outcome", "outcome")
        self.echoed_calls = Counter("toolwire_echoed_calls_total", "Earlier calls in requests")
        self.parse_failures = Counter("toolwire_tool_call_parse_failures_total", "Blocks that were no calls", "reason")
        self.recognised = Counter("toolwire_tool_calls_recognised_total", "Calls in a form that was not taught", "form")
        self.unrecognised = Counter(
            "toolwire_tool_calls_unrecognised_total", "What named a tool in such a form, and was no call", "reason"
        )
        self.repairs = Counter("toolwire_tool_call_repairs_total", "Repaired calls", "kind")
        self.coercions = Counter("toolwire_tool_call_coercions_total", "Calls with mended arguments", "kind")
        self.near_misses = Counter("toolwire_near_misses_total", "What was meant as a call and was none")
        self.reasks = Counter("toolwire_reasks_total", "Answers that were thrown away and asked for again")
        self.strict_failures = Counter("toolwire_strict_failures_total", "Strict failures", "code")
        self.scanner_bytes = Counter("toolwire_scanner_bytes_total", "Text that was searched for calls")
        self.backend_errors = Counter("toolwire_backend_errors_total", "Failed backend calls", "backend", "code")
        self.backend_up = Gauge(
            "toolwire_backend_up",
            "1 if it answers, as far as is known: health checks, `/ready`, breakers",
            "backend",
            merge="last",
        )
        self.retries = Counter("toolwire_retries_total", "Further tries, by what the one before failed with", "code")
        self.unconstrained = Counter(
            "toolwire_unconstrained_total", "Tries without the constraint on calls, which the server refuses", "backend"
        )
        self.unopened_reasoning = Counter(
            "toolwire_unopened_reasoning_total", "Answers that began inside of thinking which nothing opened", "kind"
        )
        self.tokens = Counter("toolwire_tokens_total", "Tokens", "direction")
        self.tool_executions = Counter(
            "toolwire_tool_executions_total", "States that server-side executions entered", "state"
        )
        self.middleware_errors = Counter(
            "toolwire_middleware_errors_total", "Unexpected exceptions in middlewares", "middleware"
        )
        self.rate_limited = Counter("toolwire_rate_limited_total", "Requests refused by a limit", "limit")
        self.limit_store_up = Gauge(
            "toolwire_limit_store_up", "1 if the shared counts of the limits can be reached", merge="last"
        )
        self.by_label: Final = {
            "parse_failures": self.parse_failures,
            "recognised": self.recognised,
            "unrecognised": self.unrecognised,
            "repaired": self.repairs,
            "coerced": self.coercions,
            "strict_failures": self.strict_failures,
            "executions": self.tool_executions,
            "retries": self.retries,
            "unconstrained": self.unconstrained,
            "unopened_reasoning": self.unopened_reasoning,
        }
        """Counter of the record -> the family that counts its labels."""
        self.cells = cells or SharedCounters()
        self.families: tuple[Family, ...] = tuple(f for f in vars(self).values() if isinstance(f, Family))
        for family in self.families:
            family.bind(self.cells)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics page of all workers, and its content type, for this `Accept` header."""
        from .exposition import page  # not before the first scrape: it takes 50 ms

        return page(self.families, self.cells, accept)

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
            self._count_calls(record)
        for error, backend in record.failures:
            self.backend_errors.inc(backend, error.code)
        notes = record.notes
        for direction, key in _TOKENS:
            if tokens := notes.get(key):
                self.tokens.inc(direction, by=tokens)
        self.scanner_bytes.inc(by=record.counts.get("scanned_bytes", 0))
        fields: dict[str, Any] = {
            "request_id": request_id,
            "endpoint": endpoint,
            "stream": record.stream,
            "status": record.status,
        }
        if record.code is not None:
            fields["code"] = record.code
            if record.code == "client_closed_request":
                fields["client_disconnected"] = True
        fields["total_ms"] = _ms(total)
        fields["backend_ms"] = _ms(record.waited)
        fields["overhead_ms"] = _ms(overhead)
        if record.queued:
            fields["queue_ms"] = _ms(record.queued)
        if record.prepared is not None:
            fields["prepare_ms"] = _ms(record.prepared - record.started)
        if first_byte is not None:
            fields["first_byte_ms"] = _ms(first_byte)
        fields.update(record.fields)
        log_fields(ACCESS, "exchange", fields)

    def _count_calls(self, record: AccessRecord) -> None:
        counts = record.counts
        for name, outcome in OUTCOMES.items():
            if number := counts.get(name):
                self.calls.inc(outcome, by=number)
        for name, total in (
            ("echoed_calls", self.echoed_calls),
            ("near_misses", self.near_misses),
            ("reasks", self.reasks),
        ):
            if number := counts.get(name):
                total.inc(by=number)
        for (name, label), number in record.labelled.items():
            family = self.by_label.get(name)
            if family is not None:
                family.inc(label, by=number)


def _ms(seconds: float) -> float:
    return int(seconds * 100_000 + 0.5) / 100  # a third of what `round` takes
