"""OpenTelemetry's standard variables: which of them turn `telemetry` on or off, and why some have no effect.

The SDK reads further ones itself: headers, the service's name, resource attributes, samplers, intervals.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ..config import TelemetryConfig

PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
"""The packages that `telemetry` needs."""

MISSING: Final = "OpenTelemetry is not installed; install it with: pip install 'toolwire[otel]'"

_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_IN_SPANS: Final = frozenset({"true", "span_only", "span_and_event"})


def is_installed() -> bool:
    """Returns True if the packages of the extra `otel` are there."""
    try:
        return all(importlib.util.find_spec(package) is not None for package in PACKAGES)
    except ModuleNotFoundError:
        return False


def with_variables(config: TelemetryConfig, env: Mapping[str, str]) -> TelemetryConfig:
    """Returns the options with the effect of the standard variables. An endpoint turns on what `telemetry.otel` leaves
    open; an exporter `none` and `OTEL_SDK_DISABLED` turn off."""
    if config.otel is False or _value(env, "OTEL_SDK_DISABLED").lower() == "true":
        return replace(config, otel=False)
    traces = config.traces and _value(env, "OTEL_TRACES_EXPORTER") != "none"
    metrics = config.metrics and _value(env, "OTEL_METRICS_EXPORTER") != "none"
    content = config.content or _value(env, _CONTENT).lower() in _IN_SPANS
    config = replace(config, content=content)
    if config.otel or config.otlp_endpoint:
        return replace(config, traces=traces, metrics=metrics)
    traces = traces and _names_collector(env, "TRACES")
    metrics = metrics and _names_collector(env, "METRICS")
    if not (traces or metrics) or not is_installed():
        return config
    return replace(config, otel=True, traces=traces, metrics=metrics)


def unmet_variables(config: TelemetryConfig, env: Mapping[str, str]) -> Iterator[str]:
    """Yields messages about variables that ask for what the gateway does not do. `config` is the result of
    `with_variables`."""
    if config.otel is False:
        return
    for signal in ("TRACES", "METRICS"):
        exporter = _value(env, f"OTEL_{signal}_EXPORTER")
        if exporter not in ("", "none", "otlp"):
            yield f"OTEL_{signal}_EXPORTER: {exporter!r} is not supported; expected `otlp` or `none`"
    if config.on:
        return
    named = [name for name in map(_endpoint, ("", "TRACES", "METRICS")) if _value(env, name)]
    grpc = [name for name in map(_protocol, ("", "TRACES", "METRICS")) if _value(env, name) == "grpc"]
    if named and grpc:
        yield (
            f"{grpc[0]}: the gateway speaks http/protobuf, not gRPC, so nothing is sent; expected `http/protobuf` and an "
            "endpoint for it, usually on port 4318"
        )
    elif named and not is_installed():
        yield f"{named[0]}: nothing is sent: {MISSING}, or set `telemetry: {{otel: false}}`"


def _names_collector(env: Mapping[str, str], signal: str) -> bool:
    """Returns True if the variables name a collector for this signal that speaks HTTP."""
    endpoint = _value(env, _endpoint(signal)) or _value(env, _endpoint(""))
    protocol = _value(env, _protocol(signal)) or _value(env, _protocol(""))
    return bool(endpoint) and protocol != "grpc"


def _endpoint(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" if signal else "OTEL_EXPORTER_OTLP_ENDPOINT"


def _protocol(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL" if signal else "OTEL_EXPORTER_OTLP_PROTOCOL"


def _value(env: Mapping[str, str], name: str) -> str:
    """Returns a variable; an empty one counts as not set."""
    return env.get(name, "").strip()
