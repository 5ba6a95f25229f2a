"""The access line of each request, and the gateway's metrics for Prometheus.

This module counts what the gateway itself does; a middleware declares its own fields (`Middleware.access_fields`).

Rules: labels have few values (no tool names, no keys, no bodies, no names chosen by clients); one `Metrics` per
application; nothing is registered at import. Source of the fields: R18.1, of the metrics: R18.2.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from ..config import LimitsConfig
from ..record import AccessField, AccessRecord, CounterSpec
from ..support.cache import CacheUse
from ..support.conversion import ConfigError
from . import terminal
from .logs import log_fields
from .metrics import (
    SERIES_PER_FAMILY,
    BoundedNames,
    Counter,
    Family,
    Gauge,
    Histogram,
    SharedCounters,
)

ACCESS: Final = logging.getLogger(terminal.ACCESS)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5)

BY_MODEL: Final = ("route", "model")
"""Labels of metrics per model: the route's pattern, and the requested name if the configuration or a server knows it
(`AccessRecord.model`). Each has at most `limits.metric_labels` values."""

_Kind = tuple[str, bool, int, bool, str, str]
"""The kind of an exchange: endpoint, streamed, status, whether a stream began, route, model."""

REFUSED: Final = ("connections", "head_timeout", "head_too_large", "malformed", "write_stall")
"""Values of the label `cause` of `clients_refused_total`."""

FIELDS: Final = {
    "request_id": "The response's `X-Request-Id`, also sent to the model server.",
    "client_request_id": "The client's `x-client-request-id`, also sent to the model server.",
    "endpoint": "`chat`, `responses`, `messages`, a plug-in's protocol, or the path of a request that is forwarded unchanged.",
    "stream": "`true` if the client requested a stream.",
    "status": "HTTP status; a stream that fails keeps 200. 499: the client disconnected.",
    "code": "The error code.",
    "client_disconnected": "`true` if the client disconnected before the end.",
    "total_ms": "From the request's head to the response's last byte.",
    "backend_ms": "The part of `total_ms` spent waiting for backends.",
    "overhead_ms": "The rest of `total_ms`.",
    "queue_ms": "The part of `backend_ms` spent waiting for a free connection (`pool.connections`).",
    "prepare_ms": "Time until the first backend request.",
    "first_byte_ms": "Time until the response's first byte.",
    "key": "The name of the client's key (`auth.keys[].name`).",
    "model": "The requested model, at most 128 characters.",
    "route": "The route's `model`.",
    "trace_id": "The id of OpenTelemetry's trace, if traces are sent.",
    "backend": "The last backend that got the request.",
    "tools": "Number of tools on offer.",
    "tool_names": "Names of the tools on offer, at most 32.",
    "input_tokens": "Tokens of the prompt; absent if the response was forwarded unread and the server reports no usage.",
    "output_tokens": "Tokens of the answer; absent in the same case.",
    "usage_source": "`backend`, or `estimate` if any count is estimated.",
    "usage_tokenizer": "The estimate's encoding, or `bytes`.",
    "backend_errors": "Failed backend calls, also if retried.",
}
"""The gateway's own fields of the access line, with descriptions (R18.1). Fields without a value and counts of zero are
left out."""

_TOKENS: Final = ("input_tokens", "output_tokens")
"""Notes of an access record that are also counted."""


class Metrics:
    """The metrics of a gateway (R18.2), stored in `cells`; by default in the memory of this process.

    One object lasts as long as the process: `create_app` takes it, so that a reloaded configuration continues the
    numbers, and declares the metrics of the middlewares. Labels have few values: never a tool, a key, or a model name
    that only a client knows.
    """

    def __init__(self, cells: SharedCounters | None = None) -> None:
        self.requests = Counter("toolwire_requests_total", "Requests", "endpoint", "stream", "status", *BY_MODEL)
        self.duration = Histogram(
            "toolwire_request_duration_seconds", "Whole request", "endpoint", *BY_MODEL, bounds=_SECONDS
        )
        self.overhead = Histogram(
            "toolwire_overhead_seconds", "Time not spent waiting for a backend", "endpoint", bounds=_OVERHEAD
        )
        self.first_token = Histogram(
            "toolwire_time_to_first_token_seconds",
            "Time to the first byte of a stream",
            "endpoint",
            *BY_MODEL,
            bounds=_SECONDS,
        )
        self.inflight = Gauge("toolwire_inflight_requests", "Requests being served")
        self.body_bytes = Gauge(
            "toolwire_request_body_bytes",
            "Bytes of request bodies in memory",
        )
        self.connections = Gauge("toolwire_client_connections", "Open connections of clients")
        self.refused = Counter("toolwire_clients_refused_total", "Connections closed because of a limit", "cause")
        self.backend_errors = Counter("toolwire_backend_errors_total", "Failed backend calls", "backend", "code")
        self.backend_up = Gauge(
            "toolwire_backend_up",
            "1 if the backend is up (health checks, `/ready`, circuit breakers)",
            "backend",
            merge="last",
        )
        self.tools_native = Gauge(
            "toolwire_tools_native",
            "1 if the server handles tools, 0 if the gateway does (`mode: hybrid`, `auto`)",
            "backend",
            merge="last",
        )
        self.tools_templated = Gauge(
            "toolwire_tools_templated",
            "1 if the chat template can describe tools, else 0 (`mode: template`, `text`, `auto`)",
            "backend",
            merge="last",
        )
        self.tokens = Counter("toolwire_tokens_total", "Tokens", "direction", *BY_MODEL)
        self.middleware_errors = Counter(
            "toolwire_middleware_errors_total", "Unexpected exceptions in middlewares", "middleware"
        )
        self.dropped_lines = Counter(
            "toolwire_access_lines_dropped_total", "Access lines not written (`server.access_share`)"
        )
        self.rate_limited = Counter("toolwire_rate_limited_total", "Requests refused by a limit", "limit")
        self.limit_store_up = Gauge(
            "toolwire_limit_store_up", "1 if the shared counts of the limits can be reached", merge="last"
        )
        self.cache_bytes = Gauge(
            "toolwire_cache_bytes", "Bytes in caches, an upper estimate (`limits.cache_bytes`)", "contents"
        )
        self.cache_entries = Gauge("toolwire_cache_entries", "Entries of caches", "contents")
        self.cache_evictions = Counter("toolwire_cache_evictions_total", "Entries evicted from caches", "contents")
        self.cells = cells or SharedCounters()
        self.families: tuple[Family, ...] = tuple(f for f in vars(self).values() if isinstance(f, Family))
        for family in self.families:
            family.bind(self.cells)
        most = LimitsConfig().metric_labels
        self.routes, self.models = BoundedNames(most), BoundedNames(most)
        for series in self.cells.read():  # of the predecessor of this worker
            if series.name == self.requests.name:
                *_, route, model = series.values
                self.routes.know(route)
                self.models.know(model)
        self._inflight = self.inflight.at()
        self._log_share, self._slow_s, self._due = 1.0, 0.0, 0.0
        self._places: dict[_Kind, tuple[int, int, int, int | None]] = {}
        self._counted: dict[str, tuple[Counter, tuple[str, ...]]] = {
            "input_tokens": (self.tokens, ("input",)),
            "output_tokens": (self.tokens, ("output",)),
        }
        self._counted_at: dict[tuple[str, str], dict[str, int]] = {}
        self._labelled: dict[str, Counter] = {}

    def declare(self, fields: Iterable[AccessField]) -> None:
        """Counts these fields from now on, if they have a counter. Fields that are already declared stay. Raises
        `ConfigError` if two fields define the same counter differently."""
        for field in fields:
            spec = field.counter
            if spec is None:
                continue
            counter = self._counter(spec)
            self._counted_at.clear()
            if spec.label is None:
                self._counted[field.name] = (counter, ())
            elif field.value is not None:
                self._counted[field.name] = (counter, (field.value,))
            else:
                self._labelled[field.name] = counter

    def bound(self, names: int) -> None:
        """Sets the number of routes, and of models, with their own label. Names that are already known stay."""
        self.routes.most = self.models.most = names
        self._places.clear()
        self._counted_at.clear()

    def sample(self, share: float, slow_s: float) -> None:
        """Sets the share of access lines that is written, besides those of requests with an error, also one that a
        retry has hidden, and of those that take `slow_s`."""
        self._log_share, self._slow_s, self._due = share, slow_s, 0.0

    @property
    def being_served(self) -> int:
        """The number of requests that this process serves now."""
        return int(self.cells.numbers[self._inflight])

    def cached(self, name: str, use: CacheUse) -> None:
        """Reports the current use of the caches of this name. May be called from any thread, one call at a time."""
        self.cache_bytes.set(use.bytes, name)
        self.cache_entries.set(use.entries, name)
        self.cache_evictions.inc(name, by=use.evicted)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the metrics page of all workers and its content type, for this `Accept` header."""
        from .exposition import page  # not before the first scrape: it takes 50 ms

        return page(self.families, self.cells, accept)

    def begin(self) -> AccessRecord:
        """Counts the start of an exchange and returns its record. Call `finish` at the end."""
        self.cells.numbers[self._inflight] += 1
        return AccessRecord()

    def finish(self, record: AccessRecord, *, endpoint: str, request_id: str) -> None:
        """Counts a finished exchange and writes its access line."""
        total = time.monotonic() - record.started
        overhead = max(0.0, total - record.waited)
        first_byte = None if record.first_byte is None else record.first_byte - record.started
        began = record.stream and first_byte is not None
        kind = (endpoint, record.stream, record.status, began, record.route, record.model)
        requests, duration, overheads, first_token = self._places.get(kind) or self._place(kind)
        observed = [(duration, _SECONDS, total), (overheads, _OVERHEAD, overhead)]
        if first_token is not None and first_byte is not None:
            observed.append((first_token, _SECONDS, first_byte))
        numbers = self.cells.numbers
        numbers[self._inflight] -= 1
        numbers[requests] += 1
        for place, bounds, value in observed:
            numbers[place + bisect_left(bounds, value)] += 1
            numbers[place + len(bounds) + 1] += value
        if record.counts or not record.notes.keys().isdisjoint(_TOKENS):
            self._count(record)
        for error, backend in record.failures:
            self.backend_errors.inc(backend, error.code)
        if self._log_share < 1 and not self._is_written(record, total):
            self.dropped_lines.inc()
            return
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
        times = {"total_ms": total, "backend_ms": record.waited, "overhead_ms": overhead}
        if record.queued:
            times["queue_ms"] = record.queued
        if record.prepared is not None:
            times["prepare_ms"] = record.prepared - record.started
        if first_byte is not None:
            times["first_byte_ms"] = first_byte
        for name, seconds in times.items():
            fields[name] = int(seconds * 100_000 + 0.5) / 100  # takes a third of the time of `round`
        log_fields(ACCESS, "exchange", {**fields, **record.fields})

    def _is_written(self, record: AccessRecord, total: float) -> bool:
        """Returns True if the access line of this exchange is written. The share is exact, without chance: every
        fourth line of 0.25."""
        if record.code is not None or record.status >= 400 or record.failures or total >= self._slow_s:
            return True
        self._due += self._log_share
        if self._due < 1 - 1e-9:  # ten times 0.1 is less than 1
            return False
        self._due -= 1
        return True

    def _place(self, kind: _Kind) -> tuple[int, int, int, int | None]:
        """Returns the indexes of the cells for a kind of exchange: in `requests`, `duration`, `overhead` and
        `first_token`."""
        endpoint, stream, status, began, route, model = kind
        labels = self.routes.of(route), self.models.of(model)
        requests = self.requests.at(endpoint, "true" if stream else "false", str(status), *labels)
        duration, overhead = self.duration.at(endpoint, *labels), self.overhead.at(endpoint)
        places = (requests, duration, overhead, self.first_token.at(endpoint, *labels) if began else None)
        if len(self._places) >= SERIES_PER_FAMILY:
            self._places.clear()
        self._places[kind] = places
        return places

    def _count(self, record: AccessRecord) -> None:
        """Adds the record's counts to the counters of their fields."""
        labels = (record.route, record.model)
        places = self._counted_at.get(labels)
        if places is None:
            if len(self._counted_at) >= SERIES_PER_FAMILY:
                self._counted_at.clear()
            places = self._counted_at[labels] = {}
        tokens = [(name, record.notes.get(name)) for name in _TOKENS]
        for name, number in (*record.counts.items(), *tokens):
            if not number:
                continue
            place = places.get(name)
            if place is None:
                counted = self._counted.get(name)
                if counted is None:
                    continue
                counter, values = counted
                place = places[name] = counter.at(*values, *self._model_labels(counter, record))
            self.cells.numbers[place] += number
        for (name, label), number in record.labelled.items():
            by_label = self._labelled.get(name)
            if by_label is not None:
                by_label.inc(label, *self._model_labels(by_label, record), by=number)

    def _model_labels(self, counter: Counter, record: AccessRecord) -> tuple[str, ...]:
        """Returns the values of `BY_MODEL` if the counter has these labels, else none."""
        if counter.labels[-2:] != BY_MODEL:
            return ()
        return self.routes.of(record.route), self.models.of(record.model)

    def _counter(self, spec: CounterSpec) -> Counter:
        """Returns the counter of this definition, creating it if needed. Raises `ConfigError` if the name is defined
        differently."""
        known = next((family for family in self.families if family.name == spec.name), None)
        labels = (*(() if spec.label is None else (spec.label,)), *(BY_MODEL if spec.by_model else ()))
        if known is None:
            counter = Counter(spec.name, spec.meaning, *labels)
            counter.bind(self.cells)
            self.families = (*self.families, counter)
            return counter
        if not isinstance(known, Counter) or (known.documentation, known.labels) != (spec.meaning, labels):
            raise ConfigError(f"two middlewares define the counter {spec.name} differently: rename one of them")
        return known
