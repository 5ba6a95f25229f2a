"""What the gateway keeps, tells and runs by itself: stored responses, telemetry, tools, captures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where responses are kept for `previous_response_id` and `GET /v1/responses/{id}`. Opened when first used."""

    kind: Literal["none", "memory", "sqlite", "redis"] = doc(
        "`sqlite`: shared by the workers of one machine; `redis` (or Valkey): by several machines; `memory`: lost on exit.",
        default="sqlite",
    )
    path: str | None = doc(
        "`sqlite` only: the file; default: `responses.sqlite3` in the state folder of the user.", default=None
    )
    url: str | None = doc(
        "`redis` only: `redis://HOST:PORT/DB`, `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB` or "
        "`redis+cluster://HOST:PORT,HOST:PORT`; `rediss` for TLS; use `${ENV}` if it holds a password.",
        default=None,
    )
    replicas: int | None = doc(
        "`redis` only: so many replicas must know a response before it counts as kept; null: all that could take over, where "
        "Sentinels or a cluster know them, else none.",
        default=None,
    )
    failover_s: float = doc(
        "`redis` only, with Sentinels or a cluster: so long a request waits for a new master.", default=45.0
    )
    max_responses: int = doc(
        "Kept at most. Beyond, those used longest ago go first, of the API key that has the most.", default=10_000
    )
    max_responses_per_key: int | None = doc(
        "Kept at most of one API key; null: no bound but that of all.", default=None
    )
    max_age_s: float = doc(
        "Kept for so long; a turn of a conversation for so long after the last one that goes on from it.",
        default=86_400.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """OpenTelemetry. Needs the extra `otel`. What is not said here the standard `OTEL_*` variables say."""

    otel: bool = doc("Send traces and metrics over OTLP/HTTP.", default=False)
    otlp_endpoint: str | None = doc(
        "Base URL of the collector, such as `http://127.0.0.1:4318`; turns `otel` on.", default=None
    )
    content: bool = doc("What was said, and arguments and results of tools, become attributes of spans.", default=False)
    flush_s: float = doc("At the end, so long is waited for the collector to take the rest.", default=3.0)

    @property
    def on(self) -> bool:
        """Whether anything is sent."""
        return self.otel or self.otlp_endpoint is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Server-side tools: Python modules whose tools the gateway itself runs. See `docs/how-to/server-side-tools.md`."""

    folder: str | None = doc(
        "Folder with the modules, `*.py`; null: there are none. With it the default chain has `execution`.",
        default=None,
    )
    watch_s: float = doc("How often the folder is looked at for changes; 0: never.", default=1.0)
    timeout_s: float = doc("Time that one call may take; beyond, the model is told so.", default=0.1)
    load_timeout_s: float = doc("Time that a module's own code may take when it is loaded.", default=5.0)
    threads: int = doc("Handlers that block, running at once; others wait for a thread.", default=8)
    coroutines: int = doc("Handlers that are coroutines, running at once.", default=100)
    on_oversize: Literal["cut", "error"] = doc(
        "A result of more than 1000 characters: cut, or an error for the model.", default="cut"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Recordings of the last exchanges, for bug reports. They hold what was said; secrets are covered. In the file:
    just the number, or a mapping."""

    keep: int = doc("So many exchanges; the oldest go first. 0: none.", default=0)
    folder: str | None = doc(
        "Where, for all workers; default: a folder of their own, which is removed at the end.", default=None
    )
    exchange_bytes: int = doc("Kept of one exchange; beyond, the rest is left out.", default=4 * 1024 * 1024)
    secrets: tuple[str, ...] = doc("Regular expressions of what is covered besides keys.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectConfig:
    """The page at `/inspect`, which shows the last exchanges: what the model was sent, what it wrote and what the
    client got. In the file: just `true`, or a mapping. Without keys only at a loopback address."""

    on: bool = doc("Record exchanges and serve the page.", default=False)
    bytes: int = doc(
        "Kept of exchanges in memory, of all workers together; the oldest go first.", default=64 * 1024 * 1024
    )
