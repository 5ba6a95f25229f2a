"""Options of the server socket, client keys, rate limits, and upper bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The socket, shutdown, and logging."""

    host: str = doc(
        "Address to listen on. Without keys only a loopback address is allowed, see `insecure_public`.",
        default="127.0.0.1",
    )
    port: int = doc("TCP port; 0 lets the system choose.", default=8665)
    workers: int = doc("Processes that share the port.", default=1)
    insecure_public: bool = doc("Allow an address that is not loopback without a client key.", default=False)
    shutdown_delay_s: float = doc(
        "How long new connections are accepted after SIGTERM, while `/ready` already returns 503.", default=0.0
    )
    shutdown_grace_s: float = doc(
        "How long running answers may continue after that; then they end with the error `shutting_down`.", default=30.0
    )
    keepalive_s: float = doc("An SSE comment is sent after this silence in a stream.", default=10.0)
    head_s: float | None = doc(
        "Time limit for the head of a request, from its first byte; beyond: 408; null: no limit.", default=20.0
    )
    body_s: float | None = doc(
        "Time limit for the body of a request, plus one second for each 16 KiB received; beyond: 408; null: no limit.",
        default=30.0,
    )
    idle_s: float | None = doc(
        "A connection without a request is closed after this time; null: never. Set it higher than the idle time "
        "of a proxy in front.",
        default=75.0,
    )
    write_stall_s: float | None = doc(
        "A client that reads none of its response for this time is disconnected; null: never.", default=60.0
    )
    pass_through: tuple[str, ...] = doc(
        "Paths whose requests go unchanged to the server of their `model`.",
        default=("/v1/embeddings", "/v1/completions", "/v1/rerank", "/tokenize", "/detokenize"),
    )
    secret: str | None = doc(
        "The key that signs reasoning which clients send back, at least 32 characters, the same on all machines. "
        "Default: created at the start.",
        default=None,
        repr=False,
    )
    log_format: Literal["auto", "text", "json"] = doc(
        "Format of log lines. `auto`: short lines on a terminal, else `text`; `text`: all fields as `key=value`; "
        "`json`: one object per line.",
        default="auto",
    )
    log_level: Literal["debug", "info", "warning", "error"] = doc("Lowest level that is logged.", default="info")
    access_share: float = doc(
        "The share of access lines that is written, from 0 to 1. Lines with an error and of slow requests are "
        "always written.",
        default=1.0,
    )
    access_slow_s: float = doc("A request that takes this long is slow, for `access_share`.", default=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """Rate limits; beyond: 429 `rate_limit_exceeded` with `Retry-After`. 0 means no limit."""

    requests_per_min: int | None = doc("Requests per minute; this many may arrive at once.", default=None)
    tokens_per_min: int | None = doc(
        "Tokens of prompts and answers per minute; this many may be used at once.", default=None
    )
    concurrent: int | None = doc("Requests at the same time; a stream counts until its end.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig(RateLimitConfig):
    """One client key. In the file: just the key, or a mapping. Limits that are null are those of
    `rate_limits.per_key`."""

    key: str = doc("The key, plain (use `${ENV}`) or as `sha256:<64 hex>` (`toolwire keys hash`).", repr=False)
    name: str | None = doc("Name shown in the log.", default=None)
    admin: bool = doc("The key may read the captures of all clients, not only its own.", default=False)
    routes: tuple[str, ...] | None = doc(
        "The key may use only these routes, named by their `model`; default: all.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Client keys. Without any key, authentication is off."""

    keys: tuple[KeyConfig, ...] = doc("Client keys. Empty ones are ignored.", default=())
    keys_file: str | None = doc(
        "File with further keys: one key or hash per line, `#` starts a comment; or (`.yaml`, `.yml`, "
        "`.json`) a list as in `keys`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsConfig:
    """Rate limits. Limits of single keys are in `auth.keys`, those of routes in `routes`."""

    per_key: RateLimitConfig = doc(
        "For each key without its own limits; without keys: for all clients together.", default_factory=RateLimitConfig
    )
    in_flight: int | None = doc(
        "The most requests at the same time, of all clients; beyond: 503 `overloaded`.", default=None
    )
    expected_output_tokens: int = doc(
        "Tokens that a running answer counts for until its end, unless the client asked for fewer.", default=256
    )
    store: Literal["auto", "memory", "redis"] = doc(
        "Where usage is counted. `memory`: in one process; `redis` (or Valkey): shared by several machines; "
        "`auto`: `redis` if there is a `url`, else shared by the workers.",
        default="auto",
    )
    url: str | None = doc("URL of a Redis server, in the forms of `store.url`.", default=None)
    timeout_s: float = doc("Time limit of one request to the shared counts.", default=0.5)
    on_store_failure: Literal["open", "closed"] = doc(
        "If the shared counts are unavailable: `open`: each worker counts separately; `closed`: 503 "
        "`store_unavailable`.",
        default="open",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """The web pages whose scripts may use the gateway. Default: none."""

    origins: tuple[str, ...] = doc("Origins such as `https://chat.example.org`; `*` allows every page.", default=())
    max_age_s: float = doc("How long a browser may remember the permission.", default=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketConfig:
    """Responses over WebSocket, at `GET /v1/responses`."""

    on: bool = doc("Serve it. Off: 426, after which clients continue over HTTP.", default=True)
    connections: int = doc("The most WebSocket connections of each worker; beyond: 503.", default=1_000)
    connections_per_key: int = doc(
        "The most WebSocket connections of one key, for each worker; beyond: 429. Ignored if there are no keys.",
        default=100,
    )
    max_age_s: float = doc(
        "An older connection accepts no further request: `websocket_connection_limit_reached`.",
        default=3_600.0,
    )
    lanes: int = doc(
        "The most lanes (`stream_id`) of a connection; beyond: `websocket_stream_limit_reached`.", default=32
    )
    in_flight: int = doc(
        "The most running responses of a connection, and the most that wait; beyond: `websocket_stream_limit_reached`.",
        default=16,
    )
    heartbeat_s: float = doc(
        "A ping is sent after this time without a byte from the client; without an answer in half of it the "
        "connection is closed. 0: no pings.",
        default=60.0,
    )
    remembered_bytes: int = doc(
        "The most bytes of conversations remembered for `previous_response_id`, for each worker; beyond: the "
        "connection with the most forgets its own.",
        default=128 * 1024 * 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Upper bounds. Each describes the effect of exceeding it."""

    connections: int = doc(
        "Open connections of clients, for each worker; beyond: 503. Fewer if the system allows too few open "
        "files (`ulimit -n`).",
        default=10_000,
    )
    head_bytes: int = doc("Size of request line and header fields together; beyond: 431.", default=64 * 1024)
    header_fields: int = doc("Header fields of a request; beyond: 431.", default=128)
    body_bytes: int = doc("Size of a request body, also after decompression; beyond: 413.", default=32 * 1024 * 1024)
    total_body_bytes: int = doc(
        "Size of all request bodies that arrive or are in use, after decompression, for each worker; beyond: "
        "503. With keys, one key may not use more than is still free.",
        default=256 * 1024 * 1024,
    )
    json_values: int = doc("Values (numbers, strings, objects, ...) in a request body; beyond: 400.", default=100_000)
    json_depth: int = doc("Nesting of a request body; beyond: 400.", default=128)
    cache_bytes: int = doc(
        "Size of cached data (compiled schemas, prompts, grammars, lists of tools, conversations, "
        "answers), for each worker; beyond: the least recently used is dropped.",
        default=64 * 1024 * 1024,
    )
    tools_bytes: int = doc("Size of all tools of a request, as JSON; beyond: 400.", default=4 * 1024 * 1024)
    tools_warn: int = doc("Tools in a request; beyond: a warning in the log.", default=256)
    tools_max: int = doc("Tools in a request; beyond: 400.", default=2_048)
    schema_bytes: int = doc("Size of one tool's schema; beyond: 400.", default=256 * 1024)
    schema_properties: int = doc("Properties in one tool's schema, at all levels; beyond: 400.", default=1_000)
    schema_depth: int = doc("Nesting of one tool's schema; beyond: 400.", default=64)
    block_bytes: int = doc(
        "Size of one call block, or of the arguments of a call that a server returned; beyond: text (soft) or "
        "an error (strict).",
        default=1024 * 1024,
    )
    calls_per_conversation: int | None = doc("Calls in the conversation of a request; beyond: 400.", default=None)
    calls_per_response: int = doc("Calls in one answer; beyond: text (soft) or an error (strict).", default=64)
    reply_bytes: int = doc("Size of a backend response that is not streamed; beyond: 502.", default=64 * 1024 * 1024)
    stream_bytes: int = doc(
        "Size of a streamed backend response, unless it is forwarded unread; beyond: an error ends the stream.",
        default=256 * 1024 * 1024,
    )
    metric_labels: int = doc(
        "The most routes, and the most models known to the configuration or a server, with their own metric "
        "label, for each worker; beyond: `other`.",
        default=100,
    )
    frame_bytes: int = doc("Size of one SSE frame of a backend; beyond: 502.", default=8 * 1024 * 1024)
