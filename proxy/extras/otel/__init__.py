"""OpenTelemetry: traces and metrics over OTLP. Needs the extra `otel`."""
