"""OpenTelemetry spans and metrics of exchanges, backend calls and server-side tool executions (R18.3).

Imported only if `telemetry` is on. Names are those of the semantic conventions for HTTP and for generative AI;
other names begin with `toolwire.`. Rules:

1. No global provider is set or read, so two gateways in one process stay separate.
2. Nothing here waits. Spans and numbers go into queues that threads of the SDK empty (`toolwire.extras.otel.otlp`).
3. Prompts, answers, arguments and results are sent only with `content`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from ..._version import __version__
from ...config import BackendConfig
from ...errors import GatewayError
from ...events import Event, Fault, Finish, Start
from ...folding import fold
from ...model import ModelRequest, Usage
from ...observability.content import input_messages, output_messages, tool_definitions
from ...record import COMPLETED, AccessRecord, BackendObserver, CallDecision, ReadRequest, ToolRun

NAME: Final = "toolwire"

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_CHUNK_SECONDS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_TOKEN_SECONDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS: Final = tuple(4**power for power in range(14))
"""Bounds of histograms, as the conventions recommend."""

Attributes = dict[str, Any]


class Tracing:
    """Creates the observers of an application's exchanges. `backends` gives the address and type of each backend."""

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        backends: Mapping[str, BackendConfig],
        *,
        content: bool = False,
    ) -> None:
        self.tracer = tracers.get_tracer(NAME, __version__)
        self.content = content
        self._backends = {name: _of_backend(config) for name, config in backends.items()}
        meter = meters.get_meter(NAME, __version__)

        def seconds(name: str, description: str, bounds: Sequence[float] = _SECONDS) -> Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=bounds)

        self.duration = seconds("gen_ai.client.operation.duration", "One call of a model")
        self.first_chunk = seconds(
            "gen_ai.client.operation.time_to_first_chunk",
            "From the request to the first chunk of a stream",
            _FIRST_CHUNK_SECONDS,
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of one call of a model",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.tool_duration = seconds("gen_ai.execute_tool.duration", "One server-side execution")
        self.served = seconds(
            "gen_ai.server.request.duration", "One request of a client, to the last byte of its answer"
        )
        self.served_first = seconds(
            "gen_ai.server.time_to_first_token",
            "From a client's request to the first byte of its stream",
            _FIRST_CHUNK_SECONDS,
        )
        self.served_token = seconds(
            "gen_ai.server.time_per_output_token",
            "Time for each token after the first one of a client's stream",
            _TOKEN_SECONDS,
        )

    def begin(self, request: web.Request, request_id: str) -> ExchangeTrace:
        """Starts the trace of a request. An `Observe`."""
        return ExchangeTrace(self, request, request_id)

    def of_backend(self, name: str) -> Attributes:
        """Returns the attributes of all calls of the backend `name`; empty if unknown."""
        return self._backends.get(name, {})


class ExchangeTrace:
    """The span of one exchange, as an `ExchangeObserver`."""

    output: Callable[[bytes], None] | None = None

    def __init__(self, tracing: Tracing, request: web.Request, request_id: str) -> None:
        self._tracing = tracing
        carrier = {name: value for name in _PROPAGATOR.fields if (value := request.headers.get(name)) is not None}
        route = request.match_info.route.resource
        path = request.path if route is None else route.canonical
        attributes: Attributes = {
            "http.request.method": request.method,
            "http.route": path,
            "url.path": request.path,
            "url.scheme": request.scheme,
            "network.protocol.version": f"{request.version.major}.{request.version.minor}",
            "toolwire.request_id": request_id,
        }
        if agent := request.headers.get("User-Agent"):
            attributes["user_agent.original"] = agent[:200]
        self._span = tracing.tracer.start_span(
            f"{request.method} {path}", _PROPAGATOR.extract(carrier), SpanKind.SERVER, attributes
        )
        self._context = set_span_in_context(self._span, Context())
        self._calls = 0

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        """Adds the trace id to the access record, and protocol and route to the span."""
        context = self._span.get_span_context()
        if context.is_valid:
            record.note("trace_id", f"{context.trace_id:032x}")
        self._span.set_attributes({"toolwire.endpoint": read.endpoint, "toolwire.route": read.route.model})

    def backend_call(self, backend: str, request: ModelRequest) -> BackendTrace:
        """Starts the span of a backend call."""
        self._calls += 1
        return BackendTrace(self._tracing, self._context, backend, request, self._calls)

    def tool(self, name: str, call_id: str, arguments: str) -> ToolTrace:
        """Starts the span of an execution of a server-side tool."""
        return ToolTrace(self._tracing, self._context, name, call_id, arguments)

    def decided(self, decision: CallDecision) -> None:
        """See `ExchangeObserver`. Traces count decisions, see `ended`."""

    def ended(self, record: AccessRecord) -> None:
        """Adds status and counts to the span and ends it, and records the metrics of the request."""
        span = self._span
        span.set_attribute("http.response.status_code", record.status)
        span.set_attributes({f"toolwire.{name}": number for name, number in record.counts.items()})
        if record.code is not None:
            span.set_attribute("error.type", record.code)
            if record.status >= 500 or record.status == 200:  # 200: the stream failed; 4xx is no error of the server
                span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._served(record)

    def _served(self, record: AccessRecord) -> None:
        """Records the metrics of the gateway as a server. Their model is one that the configuration or a server
        knows, as clients could create series otherwise (R18.2)."""
        seconds = time.monotonic() - record.started
        common: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": NAME,
            "gen_ai.request.model": record.model,
        }
        failed = {} if record.code is None else {"error.type": record.code}
        self._tracing.served.record(seconds, {**common, **failed})
        if failed or not record.stream or record.first_byte is None:
            return
        first_s = record.first_byte - record.started
        self._tracing.served_first.record(first_s, common)
        tokens = record.notes.get("output_tokens") or 0
        if tokens > 1:
            self._tracing.served_token.record((seconds - first_s) / (tokens - 1), common)


class BackendTrace(BackendObserver):
    """The span of one backend call."""

    def __init__(self, tracing: Tracing, parent: Context, backend: str, request: ModelRequest, attempt: int) -> None:
        self._tracing = tracing
        self._streams = request.stream
        self._started = self._last = time.time_ns()
        self._first: int | None = None
        self._usage: Usage | None = None
        self._error: str | None = None
        self._events: list[Event] | None = [] if tracing.content else None
        self._common: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": request.model,
            **tracing.of_backend(backend),
        }
        attributes = {
            **self._common,
            **_of_request(request),
            "toolwire.backend": backend,
            "toolwire.call": attempt,
        }
        if tracing.content:
            attributes.update(input_messages(request))
            attributes.update(tool_definitions(request))
        self._span = tracing.tracer.start_span(
            f"chat {request.model}", parent, SpanKind.CLIENT, attributes, start_time=self._started
        )

    def headers(self) -> Mapping[str, str]:
        """Returns the headers that pass the trace on to the server."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(self._span, Context()))
        return carrier

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Adds the response's status to the span."""
        self._last = time.time_ns()
        self._span.set_attribute("http.response.status_code", status)

    def received(self, data: bytes) -> None:
        """Stores the times of the first and the latest bytes of the response."""
        self._last = time.time_ns()
        if self._first is None:
            self._first = self._last

    def event(self, event: Event) -> None:
        """Adds finish reason, usage or error of an event to the span."""
        if self._events is not None:
            self._events.append(event)
        match event:
            case Start():
                self._received(event)
            case Finish():
                self._last = time.time_ns()
                self._usage = event.usage
                self._span.set_attribute("gen_ai.response.finish_reasons", [event.reason, *event.others])
            case Fault():
                self.failed(event.error)

    def failed(self, error: BaseException) -> None:
        """Stores the error of a failed call."""
        self._last = time.time_ns()
        self._error = error.code if isinstance(error, GatewayError) else type(error).__name__

    def closed(self) -> None:
        """Records the metrics of the call and ends its span."""
        span, common = self._span, self._common
        if self._error is not None:
            common["error.type"] = self._error
            span.set_attribute("error.type", self._error)
            span.set_status(Status(StatusCode.ERROR))
        if self._streams and self._first is not None:
            first_s = (self._first - self._started) / 1e9
            span.set_attribute("gen_ai.response.time_to_first_chunk", first_s)
            self._tracing.first_chunk.record(first_s, common)
        if self._usage is not None and not self._usage.estimated:
            counts = (("input", self._usage.input_tokens), ("output", self._usage.output_tokens))
            for kind, tokens in counts:
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", tokens)
                self._tracing.tokens.record(tokens, {**common, "gen_ai.token.type": kind})
        if self._events and isinstance(self._events[-1], Finish):
            span.set_attributes(output_messages(fold(self._events)))
        self._tracing.duration.record((self._last - self._started) / 1e9, common)
        span.end(self._last)

    def _received(self, start: Start) -> None:
        if self._first is None:  # a backend without HTTP bytes
            self._first = time.time_ns()
        if start.response_id:
            self._span.set_attribute("gen_ai.response.id", start.response_id)
        if start.model:
            self._common["gen_ai.response.model"] = start.model
            self._span.set_attribute("gen_ai.response.model", start.model)


class ToolTrace(ToolRun):
    """The span of one execution of a server-side tool."""

    def __init__(self, tracing: Tracing, parent: Context, name: str, call_id: str, arguments: str) -> None:
        self._tracing = tracing
        self._started = time.time_ns()
        # Metrics do not get the name: models and clients choose names, and each would be a series (R18.2).
        self._common: Attributes = {"gen_ai.operation.name": "execute_tool"}
        call = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id, "gen_ai.tool.type": "function"}
        attributes: Attributes = {**self._common, **call}
        if tracing.content:
            attributes["gen_ai.tool.call.arguments"] = arguments
        self._span = tracing.tracer.start_span(
            f"execute_tool {name}", parent, SpanKind.INTERNAL, attributes, start_time=self._started
        )

    def ended(self, state: str, result: str) -> None:
        """Ends the span of the execution. Every state except `COMPLETED` is an error."""
        if state != COMPLETED:
            self._common["error.type"] = state
            self._span.set_attribute("error.type", state)
            self._span.set_status(Status(StatusCode.ERROR))
        if self._tracing.content:
            self._span.set_attribute("gen_ai.tool.call.result", result)
        now = time.time_ns()
        self._tracing.tool_duration.record((now - self._started) / 1e9, self._common)
        self._span.end(now)


def _of_backend(config: BackendConfig) -> Attributes:
    """Returns provider and address of a backend as attributes. A server that only claims to speak OpenAI's API counts
    as `openai`, as the conventions require."""
    provider = (
        config.kind if config.kind == "mock" else "openai" if config.preset in ("auto", "generic") else config.preset
    )
    attributes: Attributes = {"gen_ai.provider.name": provider}
    host = config.url and URL(config.url).host
    if config.url and host:
        attributes["server.address"] = host
        port = URL(config.url).port
        if port is not None:
            attributes["server.port"] = port
    return attributes


def _of_request(request: ModelRequest) -> Attributes:
    sampling = request.sampling
    values: Attributes = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.stop_sequences": sampling.stop or None,
        "gen_ai.request.choice.count": sampling.n if sampling.n != 1 else None,
    }
    attributes = {name: value for name, value in values.items() if value is not None}
    attributes["gen_ai.request.stream"] = request.stream
    return attributes
