"""Where the gateway listens, who may use it, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolwire.config.documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where and how the gateway listens."""

    host: str = doc(
        "Address to bind. Without keys only loopback is allowed, see `insecure_public`.", default="127.0.0.1"
    )
    port: int = doc("TCP port; 0 lets the system choose.", default=8080)
    workers: int = doc("Processes that share the port.", default=1)
    insecure_public: bool = doc("Allow an address that is not loopback although no key is set.", default=False)
    shutdown_delay_s: float = doc(
        "How long connections are still taken after SIGTERM, while `/ready` already says 503.", default=0.0
    )
    shutdown_grace_s: float = doc(
        "How long running answers may go on after that; then they end with the error `shutting_down`.", default=30.0
    )
    keepalive_s: float = doc("After this silence in a stream an SSE comment is sent.", default=10.0)
    head_s: float | None = doc(
        "For the head of a request, from its first byte; beyond: 408; null: no limit.", default=20.0
    )
    body_s: float | None = doc(
        "For the body of a request, and a second more for each 16 KiB that have come; beyond: 408; null: no limit.",
        default=30.0,
    )
    idle_s: float | None = doc(
        "A connection without a request is closed after so long; should be more than a proxy in front keeps it; null: never.",
        default=75.0,
    )
    write_stall_s: float | None = doc(
        "A client that takes nothing of what was written for it for so long is dropped; null: never.", default=60.0
    )
    pass_through: tuple[str, ...] = doc(
        "Paths at which requests pass to the server of their `model` as they are: below `/v1` to its API, others beside that.",
        default=("/v1/embeddings", "/v1/completions", "/v1/rerank", "/tokenize", "/detokenize"),
    )
    secret: str | None = doc(
        "Signs the opaque reasoning that clients bring back, at least 32 characters; use `${ENV}`. Several machines need the same one. "
        "Default: one that is made at the start and shared by the workers of the machine.",
        default=None,
        repr=False,
    )
    log_format: Literal["auto", "text", "json"] = doc(
        "Form of the log lines. `auto`: lines for people where standard error is a terminal, else `text`; `text`: all fields as "
        "`key=value`; `json`: an object a line.",
        default="auto",
    )
    log_level: Literal["debug", "info", "warning", "error"] = doc("Least level that is logged.", default="info")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How much is let through; beyond: 429 `rate_limit_exceeded` with `Retry-After`. 0 means no limit."""

    requests_per_min: int | None = doc("Requests a minute; so many may come at once.", default=None)
    tokens_per_min: int | None = doc("Tokens of prompts and answers a minute; so many may come at once.", default=None)
    concurrent: int | None = doc("Requests at the same time, streams until their end.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig(RateLimit):
    """One key. In the file: just the key, or a mapping. Limits that are null are those of `rate_limits.per_key`."""

    key: str = doc("The key, plain (use `${ENV}`) or as `sha256:<64 hex>` (`toolwire keys hash`).", repr=False)
    name: str | None = doc("Shown in the log.", default=None)
    admin: bool = doc("May read the captures of all, not only its own.", default=False)
    routes: tuple[str, ...] | None = doc(
        "Only these routes may be used, each by its `model`; default: all.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Who may use the gateway. No key at all turns authentication off."""

    keys: tuple[KeyConfig, ...] = doc("Keys. An empty one does not count.", default=())
    keys_file: str | None = doc(
        "File with further keys: one key or hash a line, `#` starts a comment; or (`.yaml`, `.yml`, `.json`) a list as in `keys`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsConfig:
    """Limits on use. Those of single keys are in `auth.keys`, those of routes in `routes`."""

    per_key: RateLimit = doc(
        "For each key that has none of its own; without keys: for all clients together.", default_factory=RateLimit
    )
    in_flight: int | None = doc("Requests at the same time, of all clients; beyond: 503 `overloaded`.", default=None)
    expected_output_tokens: int = doc(
        "Tokens that an answer is booked with until it has ended, unless the client asked for fewer.", default=256
    )
    store: Literal["auto", "memory", "redis"] = doc(
        "Where the counts are. `memory`: of one process; `redis` (or Valkey): shared by several machines; `auto`: `redis` if there "
        "is a `url`, else shared by the workers of this gateway.",
        default="auto",
    )
    url: str | None = doc("A Redis server, in the forms of `store.url`.", default=None)
    timeout_s: float = doc("How long one question to the shared counts may take.", default=0.5)
    on_store_failure: Literal["open", "closed"] = doc(
        "While the shared counts are away: `open`: each worker counts by itself; `closed`: 503 `store_unavailable`.",
        default="open",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """Which web pages may use the gateway from their scripts. None unless listed."""

    origins: tuple[str, ...] = doc("Origins such as `https://chat.example.org`; `*` is any page.", default=())
    max_age_s: float = doc("How long a browser may remember that it may ask.", default=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketConfig:
    """Responses over WebSocket, at `GET /v1/responses`."""

    on: bool = doc("Serve it. Off: 426, after which clients go on by HTTP.", default=True)
    connections: int = doc("WebSocket connections, of each worker; beyond: 503.", default=1_000)
    connections_per_key: int = doc(
        "WebSocket connections of one key, of each worker; beyond: 429. Without keys this limit does not count.",
        default=100,
    )
    max_age_s: float = doc(
        "A connection that is older takes no further request: `websocket_connection_limit_reached`. It closes after its last "
        "running response.",
        default=3_600.0,
    )
    lanes: int = doc("Lanes (`stream_id`) of a connection; beyond: `websocket_stream_limit_reached`.", default=32)
    in_flight: int = doc(
        "Responses of a connection at the same time, and as many that wait behind them; beyond: "
        "`websocket_stream_limit_reached`.",
        default=16,
    )
    heartbeat_s: float = doc(
        "After this time without a byte from the client a ping is sent; without an answer within half of that time the "
        "connection is closed. 0: no pings.",
        default=60.0,
    )
    remembered_bytes: int = doc(
        "Conversations that connections remember for `previous_response_id`, also with `store: false`, of each worker; "
        "beyond: the connection that has the most forgets.",
        default=128 * 1024 * 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Upper bounds. Each says what happens beyond it."""

    connections: int = doc(
        "Open connections of clients, of each worker; beyond: 503. Fewer if the system allows too few open files (`ulimit -n`).",
        default=10_000,
    )
    head_bytes: int = doc("Request line and header fields together; beyond: 431.", default=64 * 1024)
    header_fields: int = doc("Header fields of a request; beyond: 431.", default=128)
    body_bytes: int = doc("Request body, also what a compressed one holds; beyond: 413.", default=32 * 1024 * 1024)
    total_body_bytes: int = doc(
        "What the bodies of all requests that arrive or run hold together, of each worker, compressed ones as what they hold; beyond: 503. "
        "With keys, no key may hold more than is still free.",
        default=256 * 1024 * 1024,
    )
    json_values: int = doc("Values (numbers, strings, objects, ...) in a request body; beyond: 400.", default=100_000)
    json_depth: int = doc("Nesting of a request body; beyond: 400.", default=128)
    cache_bytes: int = doc(
        "Kept of requests and answers to be used again (compiled schemas, prompts, grammars, lists of tools, conversations, cached answers), of "
        "each worker; beyond: what was used longest ago is forgotten.",
        default=64 * 1024 * 1024,
    )
    tools_bytes: int = doc("The tools of a request together, as JSON; beyond: 400.", default=4 * 1024 * 1024)
    tools_warn: int = doc("Tools in a request; beyond: a warning in the log.", default=256)
    tools_max: int = doc("Tools in a request; beyond: 400.", default=2_048)
    schema_bytes: int = doc("Size of one tool's schema; beyond: 400.", default=256 * 1024)
    schema_properties: int = doc("Properties in one tool's schema, at all levels; beyond: 400.", default=1_000)
    schema_depth: int = doc("Nesting of one tool's schema; beyond: 400.", default=64)
    block_bytes: int = doc(
        "Size of one call block, or of the arguments of a call that a server made; beyond: text (soft) or an error (strict).",
        default=1024 * 1024,
    )
    calls_per_conversation: int | None = doc("Calls in the conversation of a request; beyond: 400.", default=None)
    calls_per_response: int = doc("Calls in one answer; beyond: text (soft) or an error (strict).", default=64)
    reply_bytes: int = doc("A whole (not streamed) backend answer; beyond: 502.", default=64 * 1024 * 1024)
    stream_bytes: int = doc(
        "A streamed backend answer, unless it passes unread; beyond: an error ends the stream.",
        default=256 * 1024 * 1024,
    )
    metric_labels: int = doc(
        "Routes, and models that the configuration or a server knows, that metrics tell apart, of each worker; beyond: `other`.",
        default=100,
    )
    frame_bytes: int = doc("One SSE frame of a backend; beyond: 502.", default=8 * 1024 * 1024)
