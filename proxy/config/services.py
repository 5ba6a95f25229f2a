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
        "`sqlite`: shared by the workers of one machine; `redis` (or Valkey): by several machines; `memory`: "
        "lost at exit; `none`: nothing is stored.",
        default="sqlite",
    )
    path: str | None = doc(
        "`sqlite` only: the file. Default: `responses.sqlite3` in the user's state folder.", default=None
    )
    url: str | None = doc(
        "`redis` only: `redis://HOST:PORT/DB`, `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB` or "
        "`redis+cluster://HOST:PORT,HOST:PORT`; `rediss` for TLS; use `${ENV}` if it contains a password.",
        default=None,
    )
    replicas: int | None = doc(
        "`redis` only: how many replicas must have a response before it counts as stored; null: all that Sentinels"
        " or the cluster report.",
        default=None,
    )
    failover_s: float = doc(
        "`redis` only, with Sentinels or a cluster: how long a request waits for a new master.", default=45.0
    )
    max_responses: int = doc(
        "The most stored responses. Beyond it the least recently used ones of the API key with the most are deleted.",
        default=10_000,
    )
    max_responses_per_key: int | None = doc(
        "The most stored responses of one API key; null: only the limit for all.", default=None
    )
    max_age_s: float = doc(
        "How long a response is stored, and a turn of a conversation after the last turn that continues it.",
        default=86_400.0,
    )
    conversation_items: int = doc("The most items of a conversation (`/v1/conversations`).", default=10_000)
    conversation_bytes: int = doc("The most bytes of a conversation.", default=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundConfig:
    """Responses with `background: true`, which continue without their client. They need a store."""

    per_key: int = doc("The most running at once for one API key, over all workers.", default=16)
    total: int = doc("The most running at once in total, over all workers.", default=64)
    max_s: float = doc("A response that takes longer fails.", default=3_600.0)
    lease_s: float = doc(
        "A response fails if its process has shown no activity for this time.",
        default=30.0,
    )
    event_bytes: int = doc(
        "The most bytes of events stored per response, for `GET /v1/responses/{id}?stream=true`. Beyond it only "
        "the last event is added.",
        default=16 * 1024 * 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """OpenTelemetry. Needs the extra `otel`. Other settings come from the standard `OTEL_*` variables."""

    otel: bool | None = doc(
        "Send traces and metrics over OTLP/HTTP. Default: if `otlp_endpoint` or a variable such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.",
        default=None,
    )
    otlp_endpoint: str | None = doc("Base URL of the collector, such as `http://127.0.0.1:4318`.", default=None)
    traces: bool = doc("Send traces. `OTEL_TRACES_EXPORTER=none` turns them off too.", default=True)
    metrics: bool = doc("Send metrics. `OTEL_METRICS_EXPORTER=none` turns them off too.", default=True)
    content: bool = doc("Add prompts, answers, and arguments and results of tools to spans.", default=False)
    flush_s: float = doc("At the end, how long the gateway waits for the collector.", default=3.0)

    @property
    def on(self) -> bool:
        """True if anything is sent."""
        wanted = self.otlp_endpoint is not None if self.otel is None else self.otel
        return wanted and (self.traces or self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerConfig:
    """A server of the Model Context Protocol whose tools the gateway offers and runs. Needs the extra `mcp`. See
    https://toolwire.github.io/toolwire/how-to/mcp/"""

    name: str = doc("Name in the log, in errors and at `/admin/tools`.")
    command: str | tuple[str, ...] = doc(
        "The program to run, with its pipes as the connection: a shell-like text, `npx -y some-server`, or a list.",
        default=(),
        repr=False,
    )
    url: str | None = doc(
        "Instead of `command`: the URL of a server that speaks streamable HTTP.", default=None, repr=False
    )
    env: Mapping[str, str] = doc(
        "With `command`: environment variables of the process.",
        default_factory=dict,
        repr=False,
    )
    inherit: tuple[str, ...] = doc(
        "With `command`: further variables that the process gets from the gateway's environment, besides those "
        "that every program needs (`PATH`, `HOME`, `LANG`, ...).",
        default=(),
    )
    headers: Mapping[str, str] = doc("With `url`: headers of every request.", default_factory=dict, repr=False)
    trust_env: bool = doc("Use the proxy variables of the environment.", default=False)
    allow: tuple[str, ...] = doc("Names of the tools that are offered, or patterns such as `read_*`.", default=("*",))
    deny: tuple[str, ...] = doc("Names or patterns of tools that are not offered, even if `allow` matches.", default=())
    prefix: str = doc("Put before the names of its tools, to tell them apart from others.", default="")
    timeout_s: float = doc("Time limit of one call, after which the model gets an error.", default=30.0)
    connect_timeout_s: float = doc(
        "Time limit until it has listed its tools, after which it is started again.", default=60.0
    )
    concurrent: int = doc("The most calls running at once; others wait.", default=8)
    max_arguments_bytes: int = doc("The largest size of arguments.", default=2048)
    max_result_chars: int = doc(
        "The most characters of a result; `tools.on_oversize` decides about longer ones.",
        default=1000,
    )

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments. Raises `ValueError` for a text with an unclosed quote."""
        return tuple(shlex.split(self.command)) if isinstance(self.command, str) else self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Server-side tools, which the gateway itself runs: those of Python modules and of MCP servers. See
    https://toolwire.github.io/toolwire/how-to/server-side-tools/"""

    folder: str | None = doc(
        "Folder with tool modules, `*.py`. The default chain then contains `execution`.",
        default=None,
    )
    watch_s: float = doc("How often the folder is checked for changes; 0: never.", default=1.0)
    timeout_s: float = doc(
        "Time limit of one call, after which its process is killed and the model gets an error.",
        default=0.1,
    )
    load_timeout_s: float = doc("Time limit for a module's own code when it is loaded.", default=5.0)
    processes: int = doc(
        "The most worker processes, each of which runs one handler, for each worker of the gateway.",
        default=8,
    )
    wait_s: float = doc("How long a call may wait for a free process before the model gets an error.", default=10.0)
    memory_bytes: int | None = doc(
        "Limit of the address space of a process; null: no limit. Linux only.", default=1024 * 1024 * 1024
    )
    cpu_s: float | None = doc(
        "Processor time limit of one call; null: `timeout_s` plus ten seconds.",
        default=None,
    )
    env: Mapping[str, str] = doc(
        "Environment variables of tools, besides those that every program needs; pass secrets as `${NAME}`.",
        default_factory=dict,
        repr=False,
    )
    on_oversize: Literal["cut", "error"] = doc(
        "A result of more than 1000 characters is cut, or becomes an error for the model.", default="cut"
    )
    mcp: tuple[McpServerConfig, ...] = doc(
        "Servers of the Model Context Protocol, whose tools are offered too.", default=()
    )
    mcp_wait_s: float = doc(
        "How long the gateway's start waits for MCP servers. The tools of slower ones are offered later.",
        default=5.0,
    )
    mcp_from_clients: tuple[str, ...] = doc(
        "URLs of MCP servers that a Responses client may name in its `tools`: `https://host/mcp`, or with any "
        "continuation `https://host/mcp/*`. Needs the extra `mcp`. Empty: such tools are ignored. See "
        "https://toolwire.github.io/toolwire/how-to/mcp-from-clients/",
        default=(),
    )

    @property
    def any(self) -> bool:
        """True if a source of tools is configured. Then the default chain contains `execution`."""
        return self.folder is not None or bool(self.mcp) or bool(self.mcp_from_clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Recordings of the latest exchanges, for bug reports. They contain conversations; secrets are replaced by stars.
    In the file: just the number, or a mapping."""

    keep: int = doc("The number of exchanges; the oldest are deleted first. 0: none.", default=0)
    folder: str | None = doc(
        "The folder, for all workers. Default: a temporary folder, which is removed at the end.", default=None
    )
    exchange_bytes: int = doc("The most bytes recorded of one exchange; the rest is left out.", default=4 * 1024 * 1024)
    secrets: tuple[str, ...] = doc(
        "Regular expressions (RE2) of further secrets to replace, besides keys. Needs the extra `redact`.", default=()
    )

    @property
    def on(self) -> bool:
        """Whether exchanges are recorded."""
        return self.keep > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectConfig:
    """The inspector, a page at `/inspect` that shows the latest exchanges: the prompt, the model's output and the
    client's response. In the file: just `true`, or a mapping. Without client keys it works only on a loopback
    address."""

    on: bool = doc("Record exchanges and serve the page.", default=False)
    bytes: int = doc(
        "The most bytes of exchanges in memory, for all workers together; the oldest are deleted first.",
        default=64 * 1024 * 1024,
    )
