"""OpenTelemetry's standard variables (R35.6): which of them send what, and what is said where they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire.config import TelemetryConfig
from toolwire.configuration import telemetry_variables
from toolwire.configuration.settings import load
from toolwire.configuration.telemetry_variables import unmet_variables

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
TRACES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
BOTH, ONLY_TRACES, ONLY_METRICS, NOTHING = (True, True), (True, False), (False, True), (False, False)
NO_TRACES = {"OTEL_TRACES_EXPORTER": "none"}
OTHER_TRACES = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}

CASES: dict[str, tuple[dict[str, str], dict[str, Any], tuple[bool, bool], str]] = {
    "none": ({}, {}, NOTHING, ""),
    "an endpoint": (BASE, {}, BOTH, ""),
    "an empty one is none": ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, {}, NOTHING, ""),
    "that of traces": (TRACES, {}, ONLY_TRACES, ""),
    "that of metrics": ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/metrics"}, {}, ONLY_METRICS, ""),
    "no traces": (BASE | NO_TRACES, {}, ONLY_METRICS, ""),
    "no metrics, by the file": (BASE, {"metrics": False}, ONLY_TRACES, ""),
    "no traces, although the file has a collector": (NO_TRACES, {"otlp_endpoint": "http://c"}, ONLY_METRICS, ""),
    "one only, of which the file wants none": (TRACES, {"traces": False}, NOTHING, ""),
    "neither": (TRACES | NO_TRACES, {}, NOTHING, ""),
    "no SDK": (BASE | {"OTEL_SDK_DISABLED": "TRUE"}, {"otel": True}, NOTHING, ""),
    "the file says no": (BASE, {"otel": False}, NOTHING, ""),
    "the file says no, with an endpoint": ({}, {"otel": False, "otlp_endpoint": "http://c"}, NOTHING, ""),
    "the file says yes": ({}, {"otel": True}, BOTH, ""),
    "gRPC": (BASE | GRPC, {}, NOTHING, "OTEL_EXPORTER_OTLP_PROTOCOL: the gateway speaks http/protobuf, not gRPC"),
    "gRPC, but not for traces": (BASE | GRPC | OTHER_TRACES, {}, ONLY_TRACES, ""),
    "an exporter that is not there": (
        BASE | {"OTEL_TRACES_EXPORTER": "zipkin"},
        {},
        BOTH,
        "OTEL_TRACES_EXPORTER: 'zipkin' is not supported; expected `otlp` or `none`",
    ),
}


def loaded(env: dict[str, str], **section: Any) -> TelemetryConfig:
    return load(env=env, overrides={"backends": {"m": {"kind": "mock"}}, "telemetry": section}).telemetry


@pytest.mark.parametrize("case", CASES)
def test_what_is_sent(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, section, sent, warning = CASES[case]
    monkeypatch.setattr(telemetry_variables, "is_installed", lambda: True)
    telemetry = loaded(env, **section)
    assert ((telemetry.on and telemetry.traces), (telemetry.on and telemetry.metrics)) == sent
    lines = list(unmet_variables(telemetry, env))
    assert len(lines) == bool(warning), lines
    assert "".join(lines).startswith(warning)


def test_without_the_extra_nothing_is_sent_and_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_variables, "is_installed", lambda: False)
    telemetry = loaded(BASE)
    assert not telemetry.on
    (line,) = unmet_variables(telemetry, BASE)
    assert line.startswith("OTEL_EXPORTER_OTLP_ENDPOINT: nothing is sent")
    assert "pip install 'toolwire[otel]'" in line


def test_content_is_an_opt_in() -> None:
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    wanted = {"": False, "NO_CONTENT": False, "EVENT_ONLY": False, "span_only": True, "SPAN_AND_EVENT": True}
    assert {value: loaded({name: value}).content for value in wanted} == wanted
