"""Exports OpenTelemetry traces and metrics to a collector over OTLP/HTTP, from threads of the SDK.

The URL is `telemetry.otlp_endpoint`, or comes from the standard `OTEL_*` variables, which also set sampling, headers,
the service's name and intervals (`toolwire.configuration.telemetry_variables`). An unavailable collector costs spans,
never a request. Imported only if telemetry is on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracerProvider

from ..._version import __version__
from ...config import BackendConfig, TelemetryConfig
from ...features import FeatureContext
from ...pipeline.sending.delivery import Serving
from ...record import Observe
from .tracing import NAME, ExchangeTrace, Tracing

LOG: Final = logging.getLogger("toolwire.telemetry")


class Reported(SpanExporter):
    """Wraps an exporter, and logs once when it begins to fail and once when it works again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports spans, and logs the first failure and the first success after it."""
        result = self._exporter.export(spans)
        fails = result is not SpanExportResult.SUCCESS
        if fails != self._fails:
            self._fails = fails
            if fails:
                LOG.warning("the collector does not accept traces; traces are dropped meanwhile")
            else:
                LOG.info("the collector accepts traces again")
        return result

    def shutdown(self) -> None:
        """Shuts the wrapped exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flushes the wrapped exporter. Returns False if that failed."""
        return self._exporter.force_flush(timeout_millis)


class Exporting:
    """The exporters of an application. Opened by the first exchange, so that creating an application starts no
    thread."""

    def __init__(self, config: TelemetryConfig, backends: Mapping[str, BackendConfig]) -> None:
        self._config = config
        self._backends = backends
        self._tracing: Tracing | None = None
        self._shutdowns: list[Callable[[], object]] = []
        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []

    def begin(self, request: web.Request, request_id: str) -> ExchangeTrace:
        """Starts the trace of a request. An `Observe`."""
        if self._tracing is None:
            self._tracing = self._open()
        return self._tracing.begin(request, request_id)

    async def close(self) -> None:
        """Sends the remaining data for at most `telemetry.flush_s`, then drops it."""
        if not self._shutdowns:
            return
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            for shutdown in self._shutdowns:
                shutdown()
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:
                pass  # the event loop has ended

        # A separate thread, because the loop waits for its own threads at the end, however long they take.
        threading.Thread(target=shut_down, name="toolwire-otel-shutdown", daemon=True).start()
        try:
            async with asyncio.timeout(self._config.flush_s):
                await done.wait()
        except TimeoutError:
            for exporter in self._exporters:
                exporter.shutdown()  # it would continue to retry
            LOG.warning("the last traces and metrics could not be delivered in %g s", self._config.flush_s)

    def _open(self) -> Tracing:
        resource = Resource.create({"service.version": __version__})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: NAME}))
        tracers = self._tracers(resource) if self._config.traces else NoOpTracerProvider()
        meters = self._meters(resource) if self._config.metrics else NoOpMeterProvider()
        return Tracing(tracers, meters, self._backends, content=self._config.content)

    def _tracers(self, resource: Resource) -> TracerProvider:
        exporter = OTLPSpanExporter(self._endpoint("traces"))
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Reported(exporter)))
        self._exporters.append(exporter)
        self._shutdowns.append(provider.shutdown)
        return provider

    def _meters(self, resource: Resource) -> MeterProvider:
        exporter = OTLPMetricExporter(self._endpoint("metrics"))
        reader = PeriodicExportingMetricReader(exporter)
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._exporters.append(exporter)
        self._shutdowns.append(provider.shutdown)
        return provider

    def _endpoint(self, signal: str) -> str | None:
        base = self._config.otlp_endpoint
        return None if base is None else f"{base.rstrip('/')}/v1/{signal}"


EXPORTING: Final = web.AppKey("toolwire.exporting", Exporting)


class Telemetry:
    """OpenTelemetry, as a `toolwire.features.Feature`."""

    observes_all: ClassVar[bool] = False
    open_paths: ClassVar[str | None] = None

    def __init__(self, context: FeatureContext) -> None:
        settings = (context.config.telemetry, context.config.backends)
        self._exporting = context.shared.take(EXPORTING, settings, partial(Exporting, *settings), Exporting.close)

    @property
    def observe(self) -> Observe:
        return self._exporting.begin

    def open(self, app: web.Application, serving: Serving) -> None:
        """Nothing: there are no paths, and exporters begin with the first exchange."""
