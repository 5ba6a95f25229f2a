"""OpenTelemetry: spans and metrics as the semantic conventions name them, to a real receiver, and never in the way."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import function, gateway_before, mock_config, post, read_config, serving, upstream_config
from tests.waiting import GUARD_S, until
from toolwire.app import create_app
from toolwire.config import TelemetryConfig
from toolwire.configuration.telemetry_variables import with_variables
from toolwire.record import ObservedTool
from toolwire.support.conversion import ConfigError
from toolwire.testing import Answer, Refuse, Say, Upstream

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from toolwire.extras.otel.tracing import Tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SECRET = "a-word-that-is-nowhere-else"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}]}
CALL = '<tool_call>{"name": "weather", "arguments": "{}"}</tool_call>'


class Seen:
    """What was told to OpenTelemetry, in memory."""

    def __init__(self, *, content: bool = False) -> None:
        self._content = content
        self._spans = InMemorySpanExporter()
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)

    @asynccontextmanager
    async def gateway(self, config: Any, plugins: Any = None) -> AsyncIterator[TestServer]:
        tracing = Tracing(self._tracers, self._meters, config.backends, content=self._content)
        async with TestServer(create_app(config, plugins=plugins, observe=[tracing.begin])) as server:
            yield server

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.kind is kind]

    def span(self, kind: SpanKind) -> tuple[ReadableSpan, dict[str, Any]]:
        (span,) = self.spans(kind)
        return span, dict(span.attributes or {})

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        found = self._reader.get_metrics_data()
        return {
            metric.name: [(dict(point.attributes), point) for point in metric.data.data_points]
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def text(self) -> str:
        return json.dumps([json.loads(span.to_json()) for span in self._spans.get_finished_spans()])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_spans_of_an_exchange(stream: bool) -> None:
    seen = Seen()
    body = {**ASK, "tools": [function("weather")], "stream": stream, "temperature": 0.5, "max_tokens": 100}
    async with Upstream([Say(CALL, usage=(12, 7))]) as upstream, seen.gateway(upstream_config(upstream.url)) as server:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1", "X-Request-Id": "mine"}
        answer = await post(server, body, headers=headers)
        assert answer.status == 200
        (asked,) = upstream.requests
        port = upstream.port
    server_span, outer = seen.span(SpanKind.SERVER)
    client_span, inner = seen.span(SpanKind.CLIENT)
    assert server_span.name == "POST /v1/chat/completions"
    assert f"{server_span.context.trace_id:032x}" == TRACE
    assert server_span.parent is not None
    assert f"{server_span.parent.span_id:016x}" == PARENT
    assert outer["http.response.status_code"] == 200
    assert (outer["toolwire.request_id"], outer["toolwire.calls"]) == ("mine", 1)
    assert client_span.name == "chat m"
    assert client_span.parent is not None
    assert client_span.parent.span_id == server_span.context.span_id
    wanted = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.stream": stream,
        "gen_ai.response.id": "chatcmpl-up",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 7,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert wanted.items() <= inner.items()
    assert ("gen_ai.response.time_to_first_chunk" in inner) is stream
    # What the model server gets: our span as the parent, and the vendor's state.
    assert asked.headers["traceparent"] == f"00-{TRACE}-{client_span.context.span_id:016x}-01"
    assert asked.headers["tracestate"] == "vendor=1"
    assert SECRET not in seen.text()
    metrics = seen.metrics()
    ((common, duration),) = metrics["gen_ai.client.operation.duration"]
    assert common["gen_ai.request.model"] == "m"
    assert duration.count == 1
    tokens = {common["gen_ai.token.type"]: point.sum for common, point in metrics["gen_ai.client.token.usage"]}
    assert tokens == {"input": 12, "output": 7}
    assert ("gen_ai.client.operation.time_to_first_chunk" in metrics) is stream
    ((common, served),) = metrics["gen_ai.server.request.duration"]
    assert common == {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "toolwire", "gen_ai.request.model": "m"}
    assert served.count == 1
    for name in ("time_to_first_token", "time_per_output_token"):
        assert (f"gen_ai.server.{name}" in metrics) is stream


async def test_content_by_opt_in() -> None:
    seen = Seen(content=True)
    async with Upstream([Say("hello")]) as upstream, seen.gateway(upstream_config(upstream.url)) as server:
        messages = [{"role": "system", "content": "be brief"}, *ASK["messages"]]
        assert (await post(server, {"messages": messages, "tools": [function("weather")]})).status == 200
    _, inner = seen.span(SpanKind.CLIENT)
    (user,) = json.loads(inner["gen_ai.input.messages"])
    assert user == {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    assert json.loads(inner["gen_ai.system_instructions"])[0]["content"].startswith("be brief")
    (out,) = json.loads(inner["gen_ai.output.messages"])
    assert out == {"role": "assistant", "parts": [{"type": "text", "content": "hello"}], "finish_reason": "stop"}


async def test_a_refusal_and_a_stream_that_breaks_off_are_errors() -> None:
    seen = Seen()
    async with (
        Upstream([Refuse(500), Say("half", cut=True)]) as upstream,
        seen.gateway(upstream_config(upstream.url)) as server,
    ):
        assert (await post(server, ASK)).status == 502
        assert (await post(server, {**ASK, "stream": True})).status == 200
    refused, broken = seen.spans(SpanKind.CLIENT)
    assert (refused.attributes or {})["error.type"] == "upstream_error"
    assert (broken.attributes or {})["error.type"] == "upstream_disconnected"
    for span in (refused, broken, *seen.spans(SpanKind.SERVER)):
        assert span.status.status_code is StatusCode.ERROR
    points = seen.metrics()["gen_ai.client.operation.duration"]
    assert {common["error.type"] for common, _ in points} == {"upstream_error", "upstream_disconnected"}


async def test_each_attempt_has_a_span() -> None:
    seen = Seen()
    async with Upstream([Refuse(500)]) as bad, Upstream([Say("hi", usage=(1, 2))]) as good:
        config = read_config(
            {
                "backends": {"bad": {"url": bad.url}, "good": {"url": good.url}},
                "routes": [{"backend": "bad", "fallback": ["good"]}],
            }
        )
        async with seen.gateway(config) as server:
            assert (await post(server, {**ASK, "tools": [function("weather")]})).status == 200
    first, second = [dict(span.attributes or {}) for span in seen.spans(SpanKind.CLIENT)]
    assert [(span["toolwire.backend"], span["toolwire.call"]) for span in (first, second)] == [("bad", 1), ("good", 2)]
    assert (first["error.type"], "error.type" in second) == ("upstream_error", False)
    assert (first["server.port"], second["server.port"]) == (port_of(config, "bad"), port_of(config, "good"))
    assert second["gen_ai.usage.output_tokens"] == 2
    _, outer = seen.span(SpanKind.SERVER)
    assert "error.type" not in outer


def port_of(config: Any, name: str) -> int:
    return int(str(config.backends[name].url).rpartition(":")[2])


async def test_a_request_that_is_refused_has_a_span() -> None:
    seen = Seen()
    async with seen.gateway(mock_config(["hi"])) as server:
        assert (await post(server, b"{", headers={"traceparent": "00-zz-1-1"})).status == 400
    span, attributes = seen.span(SpanKind.SERVER)
    assert span.parent is None  # a malformed context is ignored
    assert (attributes["http.response.status_code"], attributes["error.type"]) == (400, "invalid_json")
    assert span.status.status_code is StatusCode.UNSET  # the client's affair
    assert not seen.spans(SpanKind.CLIENT)


MODULE = """
SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
TOOLS = [{"type": "function", "function": {"name": "greet", "description": "Greets.", "parameters": SCHEMA}}]


def handle_tool_call(name, parameters):
    if parameters["who"] == "nobody":
        raise ValueError("nobody is there")
    return "hello " + parameters["who"]
"""


def greet(who: str) -> str:
    arguments = json.dumps({"who": who})
    return f"<tool_call>{json.dumps({'name': 'greet', 'arguments': arguments})}</tool_call>"


async def test_executions_have_spans(tmp_path: Path) -> None:
    seen = Seen()
    (tmp_path / "greeting.py").write_text(MODULE)
    tools = {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0, "wait_s": GUARD_S, "load_timeout_s": GUARD_S}
    async with (
        Upstream([Say(greet(SECRET), greet("nobody")), Say("done")]) as upstream,
        seen.gateway(upstream_config(upstream.url, tools=tools)) as server,
    ):
        answer = await post(server, ASK)
        assert answer.json()["choices"][0]["message"]["content"] == "done"
    parent, outer = seen.span(SpanKind.SERVER)
    assert (outer["toolwire.executions"], outer["toolwire.failed_executions"]) == (2, 1)
    spans = seen.spans(SpanKind.INTERNAL)
    assert [span.name for span in spans] == ["execute_tool greet"] * 2
    for span in spans:
        assert span.parent is not None
        assert span.parent.span_id == parent.context.span_id
        attributes = dict(span.attributes or {})
        assert attributes["gen_ai.operation.name"] == "execute_tool"
        assert str(attributes["gen_ai.tool.call.id"]).startswith("call_")
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET, StatusCode.ERROR}
    first, second = seen.spans(SpanKind.CLIENT)
    assert first.end_time is not None
    assert second.start_time is not None
    assert first.end_time <= second.start_time  # although the first answer is closed only at the end
    assert len(seen.metrics()["gen_ai.execute_tool.duration"]) == 2
    assert SECRET not in seen.text()


def test_an_execution_that_was_left_is_cancelled() -> None:
    told: list[str] = []

    class Run:
        def ended(self, state: str, result: str) -> None:
            told.append(state)

    class Observer:
        def tool(self, *_: str) -> Run:
            return Run()

    exchange: Any = SimpleNamespace(record=SimpleNamespace(observers=[Observer()]))
    with pytest.raises(asyncio.CancelledError), ObservedTool(exchange.record, "slow", "call_1", "{}"):
        raise asyncio.CancelledError
    with ObservedTool(exchange.record, "clock", "call_2", "{}") as run:
        run.ended("TOOL_COMPLETED", "12:00")
    assert told == ["cancelled", "TOOL_COMPLETED"]


# --- over the wire --------------------------------------------------------------------------------------------------


TAKEN = Answer(framing="length")


def exported(collector: Upstream) -> tuple[list[str], set[str], set[str]]:
    """The names of spans, services and metrics that an OTLP/HTTP receiver got."""

    def bodies(path: str) -> list[bytes]:
        return [asked.body for asked in collector.posts if asked.path == path]

    traces = [one for body in bodies("/v1/traces") for one in ExportTraceServiceRequest.FromString(body).resource_spans]
    numbers = [ExportMetricsServiceRequest.FromString(body).resource_metrics for body in bodies("/v1/metrics")]
    spans = [span.name for resource in traces for scope in resource.scope_spans for span in scope.spans]
    services = {
        pair.value.string_value
        for resource in traces
        for pair in resource.resource.attributes
        if pair.key == "service.name"
    }
    scopes = [scope for resources in numbers for resource in resources for scope in resource.scope_metrics]
    return spans, services, {metric.name for scope in scopes for metric in scope.metrics}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    logger = logging.getLogger("opentelemetry")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


async def test_a_collector_gets_everything_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables alone: `tests/unit/test_telemetry_variables.py`."""
    async with Upstream([TAKEN]) as collector, Upstream([Say("hi", usage=(1, 2))]) as upstream:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        options = with_variables(TelemetryConfig(flush_s=GUARD_S), os.environ)
        config = replace(upstream_config(upstream.url), telemetry=options)
        async with serving(config) as server:
            for stream in (False, True):
                body = {**ASK, "tools": [function("weather")], "stream": stream}
                assert (await post(server, body)).status == 200
    spans, services, metrics = exported(collector)
    assert sorted(spans) == ["POST /v1/chat/completions"] * 2 + ["chat m"] * 2
    assert services == {"mine"}
    assert {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.server.request.duration",
    } <= metrics


@pytest.mark.parametrize("signal", ["metrics", "traces"])
async def test_without_traces_a_clients_context_still_reaches_the_server(signal: str) -> None:
    async with Upstream([TAKEN]) as collector, Upstream([Say("hi", usage=(1, 2))]) as upstream:
        telemetry = {"otlp_endpoint": collector.url, "flush_s": GUARD_S, signal: False}
        config = upstream_config(upstream.url, telemetry=telemetry)
        async with serving(config) as server:
            assert (await post(server, ASK, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})).status == 200
    spans, services, metrics = exported(collector)
    assert services == ({"toolwire"} if signal == "metrics" else set())
    passed = upstream.requests[0].headers["traceparent"]
    assert passed.startswith(f"00-{TRACE}-")
    assert (bool(spans), bool(metrics)) == (signal == "metrics", signal == "traces")
    assert (PARENT in passed) == (signal == "traces")


async def test_a_collector_cannot_send_the_headers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OTEL_EXPORTER_OTLP_HEADERS` has keys. Old versions of the exporter follow redirects."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    async with Upstream([TAKEN]) as other, Upstream([Say("hi", usage=(1, 2))]) as upstream:
        redirect = Answer(status=307, headers={"Location": f"{other.url}/v1/traces"}, framing="length")
        async with Upstream([redirect]) as collector:
            settings = {"otlp_endpoint": collector.url, "flush_s": 10}
            async with serving(upstream_config(upstream.url, telemetry=settings)) as server:
                assert (await post(server, ASK)).status == 200
    assert "secret" in [asked.headers["x-key"] for asked in collector.posts]
    assert other.requests == []


async def test_a_collector_that_is_away_costs_nothing_but_spans(caplog: pytest.LogCaptureFixture, nobody: str) -> None:
    config = {"telemetry": {"otlp_endpoint": nobody, "flush_s": 0.05}}
    async with asyncio.timeout(GUARD_S), gateway_before([Say("hi")], **config) as (server, _):
        for _ in range(5):
            assert (await post(server, ASK)).status == 200
    await until(lambda: not any("otel" in thread.name.lower() for thread in threading.enumerate()))
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert all(record.name == "toolwire.telemetry" for record in said), said
    assert len(said) <= 2


def test_a_missing_extra_is_said_when_the_configuration_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.startup.names.is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'toolwire\[otel\]'"):
        create_app({"backends": {"m": {"kind": "mock"}}, "telemetry": {"otel": True}})
