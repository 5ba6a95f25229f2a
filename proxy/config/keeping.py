"""What the gateway keeps, tells and runs by itself: stored responses, telemetry, tools, captures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
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
    conversation_items: int = doc("A conversation (`/v1/conversations`) holds so many items.", default=10_000)
    conversation_bytes: int = doc("A conversation holds so many bytes.", default=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundConfig:
    """Responses with `background: true`, which are made without their clients. They need a store."""

    per_key: int = doc("So many are made at once for one API key, over all workers.", default=16)
    total: int = doc("So many are made at once in all, over all workers.", default=64)
    max_s: float = doc("One that takes longer fails.", default=3_600.0)
    lease_s: float = doc(
        "One whose process has shown no sign of life for so long has failed: it was killed.", default=30.0
    )
    event_bytes: int = doc(
        "So much of the events of one is kept, for `GET /v1/responses/{id}?stream=true`. Beyond, only the last one follows.",
        default=16 * 1024 * 1024,
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
class McpServerConfig:
    """A server of the Model Context Protocol whose tools the gateway offers and runs. Needs the extra `mcp`. See
    `docs/how-to/mcp.md`."""

    name: str = doc("What it is called in the log, in errors and at `/admin/tools`.")
    command: str | tuple[str, ...] = doc(
        "The program that the gateway runs and talks to over its pipes: a text as for a shell, `npx -y some-server`, or a list.",
        default=(),
        repr=False,
    )
    url: str | None = doc(
        "In place of `command`: the address of a server that speaks streamable HTTP.", default=None, repr=False
    )
    env: Mapping[str, str] = doc(
        "With `command`: variables that the process gets. `${NAME}` takes a value from the gateway's environment.",
        default_factory=dict,
        repr=False,
    )
    inherit: tuple[str, ...] = doc(
        "With `command`: names of further variables of the gateway's environment that it gets. It always gets those that every program "
        "needs (`PATH`, `HOME`, `LANG`, ...), and nothing else.",
        default=(),
    )
    headers: Mapping[str, str] = doc("With `url`: headers of every request.", default_factory=dict, repr=False)
    trust_env: bool = doc("Use the proxy variables of the environment.", default=False)
    allow: tuple[str, ...] = doc("Names of tools that are offered, or patterns such as `read_*`.", default=("*",))
    deny: tuple[str, ...] = doc("Names or patterns of tools that are not, whatever `allow` says.", default=())
    prefix: str = doc("Put before the names of its tools, so that they differ from others.", default="")
    timeout_s: float = doc(
        "Time that one call may take; beyond, it is given up and the model is told so.", default=30.0
    )
    connect_timeout_s: float = doc(
        "Time from its start until it has said which tools it has; beyond, it is started anew.", default=60.0
    )
    concurrent: int = doc("Calls running at once; others wait.", default=8)
    max_arguments_bytes: int = doc("The most that arguments may have.", default=2048)
    max_result_chars: int = doc(
        "The most characters of a result; of a longer one, see `tools.on_oversize`. A page or a file may need more.",
        default=1000,
    )

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments. Raises `ValueError` for a text with an open quote."""
        return tuple(shlex.split(self.command)) if isinstance(self.command, str) else self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Server-side tools, which the gateway itself runs: those of Python modules and of MCP servers. See
    `docs/how-to/server-side-tools.md`."""

    folder: str | None = doc(
        "Folder with the modules, `*.py`; null: there are none. With it the default chain has `execution`.",
        default=None,
    )
    watch_s: float = doc("How often the folder is looked at for changes; 0: never.", default=1.0)
    timeout_s: float = doc(
        "Time that one call may take, from the handler's beginning; beyond, its process is killed and the model is told so.",
        default=0.1,
    )
    load_timeout_s: float = doc("Time that a module's own code may take when it is loaded.", default=5.0)
    processes: int = doc(
        "Worker processes at most, and so handlers running at once, for each worker of the gateway. Started when needed.",
        default=8,
    )
    wait_s: float = doc("Time that a call may wait for a free process; beyond, the model is told so.", default=10.0)
    memory_bytes: int | None = doc("Address space of a process; null: no bound. Linux.", default=1024 * 1024 * 1024)
    cpu_s: float | None = doc(
        "Processor time that one call may use, of all its threads; null: `timeout_s` and ten seconds.",
        default=None,
    )
    env: Mapping[str, str] = doc(
        "Variables that tools get, besides those that every program needs. Nothing else of the gateway's environment "
        "reaches them; give secrets of tools as `${NAME}`.",
        default_factory=dict,
        repr=False,
    )
    on_oversize: Literal["cut", "error"] = doc(
        "A result of more than 1000 characters: cut, or an error for the model.", default="cut"
    )
    mcp: tuple[McpServerConfig, ...] = doc(
        "Servers of the Model Context Protocol, whose tools are offered too.", default=()
    )
    mcp_wait_s: float = doc(
        "At the start of the gateway so long is waited for MCP servers; the tools of one that takes longer are offered once it is there.",
        default=5.0,
    )
    mcp_from_clients: tuple[str, ...] = doc(
        "URLs of MCP servers that a Responses client may name in its `tools`, for the gateway to list and call them: `https://host/mcp`, or with any rest, "
        "`https://host/mcp/*`. Needs the extra `mcp`. Empty: none, and such tools are ignored. See `docs/how-to/mcp-from-clients.md`.",
        default=(),
    )

    @property
    def any(self) -> bool:
        """Whether there is a source of tools. Then the default chain has `execution`."""
        return self.folder is not None or bool(self.mcp) or bool(self.mcp_from_clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Recordings of the last exchanges, for bug reports. They hold what was said; secrets are covered. In the file:
    just the number, or a mapping."""

    keep: int = doc("So many exchanges; the oldest go first. 0: none.", default=0)
    folder: str | None = doc(
        "Where, for all workers; default: a folder of their own, which is removed at the end.", default=None
    )
    exchange_bytes: int = doc("Kept of one exchange; beyond, the rest is left out.", default=4 * 1024 * 1024)
    secrets: tuple[str, ...] = doc(
        "Regular expressions, those of RE2, of what is covered besides keys. Needs the extra `redact`.", default=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectConfig:
    """The page at `/inspect`, which shows the last exchanges: what the model was sent, what it wrote and what the
    client got. In the file: just `true`, or a mapping. Without keys only at a loopback address."""

    on: bool = doc("Record exchanges and serve the page.", default=False)
    bytes: int = doc(
        "Kept of exchanges in memory, of all workers together; the oldest go first.", default=64 * 1024 * 1024
    )
