"""Options of storage, background responses, telemetry, server-side tools, captures and the inspector."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Storage of responses, for `previous_response_id` and `GET /v1/responses/{id}`. Opened at the first use."""

    kind: Literal["none", "memory", "sqlite", "redis"] = doc(
        "`sqlite`: shared by the workers of a machine; `redis` (or Valkey): by machines; `memory`: lost at exit; "
        "`none`: nothing is stored.",
        default="sqlite",
    )
    path: str | None = doc("`sqlite`: the file. Default: `responses.sqlite3` in the user's state folder.", default=None)
    url: str | None = doc(
        "`redis`: `redis://HOST:PORT/DB`, `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB` or "
        "`redis+cluster://HOST:PORT,HOST:PORT`; `rediss` for TLS; use `${ENV}` for passwords.",
        default=None,
    )
    replicas: int | None = doc(
        "`redis`: replicas that must have a response before it counts as stored; null: all that Sentinels or the "
        "cluster report.",
        default=None,
    )
    failover_s: float = doc(
        "`redis` with Sentinels or a cluster: how long a request waits for a new master.", default=45.0
    )
    max_responses: int = doc(
        "Stored responses; beyond: the least recently used of the API key with the most are deleted.",
        default=10_000,
    )
    max_responses_per_key: int | None = doc(
        "Stored responses of an API key; null: only the limit for all.", default=None
    )
    max_age_s: float = doc(
        "How long a response is stored, and a turn of a conversation after the last turn that continues it.",
        default=86_400.0,
    )
    conversation_items: int = doc("Items of a conversation (`/v1/conversations`); beyond: 413.", default=10_000)
    conversation_bytes: int = doc("Size of a conversation; beyond: 413.", default=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundConfig:
    """Responses with `background: true`, which continue without their client. They need a store."""

    per_key: int = doc("Running at once for an API key, over all workers; beyond: 429.", default=16)
    total: int = doc("Running at once, over all workers; beyond: 429.", default=64)
    max_s: float = doc("A response that takes longer fails.", default=3_600.0)
    lease_s: float = doc(
        "A response fails if its process shows no activity for this time.",
        default=30.0,
    )
    event_bytes: int = doc(
        "Stored events of a response, for `GET /v1/responses/{id}?stream=true`; beyond: only the last event is added.",
        default=16 * 1024 * 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """OpenTelemetry (extra `otel`). Other settings come from the standard `OTEL_*` variables."""

    otel: bool | None = doc(
        "Send traces and metrics over OTLP/HTTP. Default: if `otlp_endpoint` or a variable such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.",
        default=None,
    )
    otlp_endpoint: str | None = doc("Base URL of the collector, such as `http://127.0.0.1:4318`.", default=None)
    traces: bool = doc("Send traces. `OTEL_TRACES_EXPORTER=none` also turns them off.", default=True)
    metrics: bool = doc("Send metrics. `OTEL_METRICS_EXPORTER=none` also turns them off.", default=True)
    content: bool = doc("Add prompts, answers, tool arguments and results to spans.", default=False)
    flush_s: float = doc("How long the gateway waits for the collector at the end.", default=3.0)

    @property
    def on(self) -> bool:
        """True if anything is sent."""
        wanted = self.otlp_endpoint is not None if self.otel is None else self.otel
        return wanted and (self.traces or self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerConfig:
    """A server of the Model Context Protocol whose tools the gateway offers and runs (extra `mcp`). See
    https://toolwire.github.io/toolwire/how-to/mcp/"""

    name: str = doc("Name in the log, in errors and at `/admin/tools`.")
    command: str | tuple[str, ...] = doc(
        "The program to run, connected by pipes: a text as for a shell (`npx -y some-server`), or a list.",
        default=(),
        repr=False,
    )
    url: str | None = doc("Instead of `command`: the URL of a server with streamable HTTP.", default=None, repr=False)
    env: Mapping[str, str] = doc(
        "With `command`: environment variables.",
        default_factory=dict,
        repr=False,
    )
    inherit: tuple[str, ...] = doc(
        "With `command`: further variables of the gateway's environment, besides those that every program needs "
        "(`PATH`, `HOME`, `LANG`, ...).",
        default=(),
    )
    headers: Mapping[str, str] = doc("With `url`: headers of every request.", default_factory=dict, repr=False)
    trust_env: bool = doc("Use the proxy variables of the environment.", default=False)
    allow: tuple[str, ...] = doc("Tools that are offered: names, or patterns such as `read_*`.", default=("*",))
    deny: tuple[str, ...] = doc("Tools that are not offered, even if `allow` matches.", default=())
    prefix: str = doc("Put before the names of its tools.", default="")
    timeout_s: float = doc("Time limit of a call; then the model gets an error.", default=30.0)
    connect_timeout_s: float = doc("Time limit to list its tools; then it is started again.", default=60.0)
    concurrent: int = doc("Calls running at once; others wait.", default=8)
    max_arguments_bytes: int = doc("Arguments of a call; beyond: the model gets an error.", default=2048)
    max_result_chars: int = doc(
        "Characters of a result; beyond: as `tools.on_oversize` says.",
        default=1000,
    )

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments. Raises `ValueError` for a text with an unclosed quote."""
        return tuple(shlex.split(self.command)) if isinstance(self.command, str) else self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Server-side tools, which the gateway runs: Python modules and MCP servers. See
    https://toolwire.github.io/toolwire/how-to/server-side-tools/"""

    folder: str | None = doc(
        "Folder with tool modules, `*.py`.",
        default=None,
    )
    watch_s: float = doc("How often the folder is checked; 0: never.", default=1.0)
    timeout_s: float = doc(
        "Time limit of a call; then its process is killed and the model gets an error.",
        default=0.1,
    )
    load_timeout_s: float = doc("Time limit for a module's own code at load.", default=5.0)
    processes: int = doc(
        "Handler processes per worker; each runs one call at a time.",
        default=8,
    )
    wait_s: float = doc("How long a call waits for a free process before the model gets an error.", default=10.0)
    memory_bytes: int | None = doc(
        "Address space of a process; null: no limit. Linux only.", default=1024 * 1024 * 1024
    )
    cpu_s: float | None = doc(
        "Processor time limit of a call; null: `timeout_s` plus ten seconds.",
        default=None,
    )
    env: Mapping[str, str] = doc(
        "Environment variables of tools, besides those that every program needs; secrets as `${NAME}`.",
        default_factory=dict,
        repr=False,
    )
    on_oversize: Literal["cut", "error"] = doc(
        "A result above 1000 characters is cut, or becomes an error for the model.", default="cut"
    )
    mcp: tuple[McpServerConfig, ...] = doc("MCP servers whose tools are offered too.", default=())
    mcp_wait_s: float = doc(
        "How long the start waits for MCP servers; tools of slower ones are offered later.",
        default=5.0,
    )
    mcp_from_clients: tuple[str, ...] = doc(
        "URLs of MCP servers that Responses clients may name in `tools`: `https://host/mcp`, or with any "
        "continuation `https://host/mcp/*` (extra `mcp`). Empty: such tools are ignored. See "
        "https://toolwire.github.io/toolwire/how-to/mcp-from-clients/",
        default=(),
    )

    @property
    def any(self) -> bool:
        """True if a source of tools is configured. Then the default chain contains `execution`."""
        return self.folder is not None or bool(self.mcp) or bool(self.mcp_from_clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Recordings of the latest exchanges, for bug reports. They hold conversations; secrets are replaced by stars. In
    the file: just the number, or a mapping."""

    keep: int = doc("Recorded exchanges; the oldest are deleted first. 0: none.", default=0)
    folder: str | None = doc("The folder, for all workers. Default: a temporary one, removed at the end.", default=None)
    exchange_bytes: int = doc("The recorded part of one exchange; the rest is left out.", default=4 * 1024 * 1024)
    secrets: tuple[str, ...] = doc(
        "Regular expressions (RE2) of further secrets, besides keys (extra `redact`).", default=()
    )

    @property
    def on(self) -> bool:
        """Whether exchanges are recorded."""
        return self.keep > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectConfig:
    """The inspector, a page at `/inspect` that shows the latest exchanges. In the file: just `true`, or a mapping.
    Without client keys it works only on a loopback address."""

    on: bool = doc("Record exchanges and serve the page.", default=False)
    bytes: int = doc(
        "Size of the exchanges in memory, of all workers together; the oldest are deleted first.",
        default=64 * 1024 * 1024,
    )
