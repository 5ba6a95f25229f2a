"""Options of the server socket, client keys, rate limits, and upper bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Socket, shutdown, logging."""

    host: str = doc(
        "Address to listen on; without keys only a loopback address, see `insecure_public`.",
        default="127.0.0.1",
    )
    port: int = doc("TCP port; 0: a free one.", default=8665)
    workers: int = doc("Processes that share the port.", default=1)
    insecure_public: bool = doc("Allow other addresses than loopback without a client key.", default=False)
    shutdown_delay_s: float = doc(
        "How long connections are accepted after SIGTERM, while `/ready` already returns 503.", default=0.0
    )
    shutdown_grace_s: float = doc(
        "How long running answers may then continue before they end with `shutting_down`.", default=30.0
    )
    keepalive_s: float = doc("The silence in a stream after which an SSE comment is sent.", default=10.0)
    head_s: float | None = doc(
        "Time limit for a request's head, from its first byte; beyond: 408; null: no limit.", default=20.0
    )
    body_s: float | None = doc(
        "Time limit for a request's body, plus one second for each 16 KiB received; beyond: 408; null: no limit.",
        default=30.0,
    )
    idle_s: float | None = doc(
        "A connection without a request is closed after this time; null: never. Set it higher than the idle "
        "time of a proxy in front.",
        default=75.0,
    )
    write_stall_s: float | None = doc(
        "A client that reads nothing of its response for this time is disconnected; null: never.", default=60.0
    )
    pass_through: tuple[str, ...] = doc(
        "Paths whose requests go unchanged to the server of their `model`.",
        default=("/v1/embeddings", "/v1/completions", "/v1/rerank", "/tokenize", "/detokenize"),
    )
    secret: str | None = doc(
        "Signs reasoning that clients send back; at least 32 characters, the same on all machines. Default: made "
        "at the start.",
        default=None,
        repr=False,
    )
    log_format: Literal["auto", "text", "json"] = doc(
        "`auto`: short lines on a terminal, else `text` (all fields as `key=value`); `json`: one object per line.",
        default="auto",
    )
    log_level: Literal["debug", "info", "warning", "error"] = doc("The lowest level that is logged.", default="info")
    access_share: float = doc(
        "The share of access lines that is written, 0 to 1; those of errors and slow requests always are.",
        default=1.0,
    )
    access_slow_s: float = doc("The duration from which a request is slow, for `access_share`.", default=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """Rate limits; beyond: 429 `rate_limit_exceeded` with `Retry-After`. 0: no limit."""

    requests_per_min: int | None = doc("Requests per minute; all may arrive at once.", default=None)
    tokens_per_min: int | None = doc("Tokens of prompts and answers per minute; all may be used at once.", default=None)
    concurrent: int | None = doc("Requests at the same time; a stream counts until its end.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig(RateLimitConfig):
    """One client key. In the file: just the key, or a mapping. It also has the options of
    `rate_limits.per_key`, which apply where its own are null."""

    key: str = doc("The key (use `${ENV}`), or `sha256:<64 hex>` from `toolwire keys hash`.", repr=False)
    name: str | None = doc("Name shown in the log.", default=None)
    admin: bool = doc("It may read the captures of all clients, not only its own.", default=False)
    routes: tuple[str, ...] | None = doc("The routes that it may use, by their `model`. Default: all.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Client keys. Without any, authentication is off."""

    keys: tuple[KeyConfig, ...] = doc("The keys; empty ones are ignored.", default=())
    keys_file: str | None = doc(
        "File with further keys: one key or hash per line, `#` starts a comment; or (`.yaml`, `.yml`, `.json`) a "
        "list as in `keys`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsConfig:
    """Limits for all clients. Those of single keys are in `auth.keys`, those of routes in `routes`."""

    per_key: RateLimitConfig = doc(
        "For each key without its own limits; without keys: for all clients together.", default_factory=RateLimitConfig
    )
    in_flight: int | None = doc(
        "The most requests at the same time, of all clients; beyond: 503 `overloaded`.", default=None
    )
    expected_output_tokens: int = doc(
        "Tokens that a running answer counts for, unless the client asked for fewer.", default=256
    )
    store: Literal["auto", "memory", "redis"] = doc(
        "Where usage is counted. `memory`: per process; `redis` (or Valkey): shared by machines; `auto`: `redis` "
        "with a `url`, else shared by the workers.",
        default="auto",
    )
    url: str | None = doc("A Redis server, in the forms of `store.url`.", default=None)
    timeout_s: float = doc("Time limit of a request to the shared counts.", default=0.5)
    on_store_failure: Literal["open", "closed"] = doc(
        "Without the shared counts, `open`: each worker counts separately; `closed`: 503 `store_unavailable`.",
        default="open",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """The web pages whose scripts may use the gateway. Default: none."""

    origins: tuple[str, ...] = doc("Origins such as `https://chat.example.org`; `*` allows every page.", default=())
    max_age_s: float = doc("How long browsers may remember the permission.", default=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsocketConfig:
    """Responses over WebSocket, at `GET /v1/responses`."""

    on: bool = doc("Off: 426, after which clients continue over HTTP.", default=True)
    connections: int = doc("Connections per worker; beyond: 503.", default=1_000)
    connections_per_key: int = doc(
        "Connections of a key per worker; beyond: 429.",
        default=100,
    )
    max_age_s: float = doc(
        "An older connection accepts no request: `websocket_connection_limit_reached`.",
        default=3_600.0,
    )
    lanes: int = doc("Lanes (`stream_id`) of a connection; beyond: `websocket_stream_limit_reached`.", default=32)
    in_flight: int = doc(
        "Running responses of a connection, and as many that wait; beyond: `websocket_stream_limit_reached`.",
        default=16,
    )
    heartbeat_s: float = doc(
        "The silence of a client after which it gets a ping; without an answer in half of it the connection is "
        "closed. 0: no pings.",
        default=60.0,
    )
    remembered_bytes: int = doc(
        "Size of the conversations remembered for `previous_response_id`, per worker; beyond: the connection with the most "
        "forgets its own.",
        default=128 * 1024 * 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Upper bounds, and the effect of exceeding them."""

    connections: int = doc(
        "Connections of clients per worker; beyond: 503. Fewer if `ulimit -n` is too low.",
        default=10_000,
    )
    head_bytes: int = doc("Request line and header fields; beyond: 431.", default=64 * 1024)
    header_fields: int = doc("Header fields; beyond: 431.", default=128)
    body_bytes: int = doc("A request's body, also after decompression; beyond: 413.", default=32 * 1024 * 1024)
    total_body_bytes: int = doc(
        "All request bodies that arrive or are in use, per worker, after decompression; beyond: 503. A key may "
        "not use more than is still free.",
        default=256 * 1024 * 1024,
    )
    json_values: int = doc("Values (numbers, strings, objects, ...) in a body; beyond: 400.", default=100_000)
    json_depth: int = doc("Nesting of a body; beyond: 400.", default=128)
    cache_bytes: int = doc(
        "Cached data (compiled schemas, prompts, grammars, lists of tools, conversations, answers) per worker; "
        "beyond: the least recently used is dropped.",
        default=64 * 1024 * 1024,
    )
    tools_bytes: int = doc("All tools of a request, as JSON; beyond: 400.", default=4 * 1024 * 1024)
    tools_warn: int = doc("Tools in a request; beyond: a warning in the log.", default=256)
    tools_max: int = doc("Tools in a request; beyond: 400.", default=2_048)
    schema_bytes: int = doc("A tool's schema; beyond: 400.", default=256 * 1024)
    schema_properties: int = doc("Properties in a tool's schema, at all levels; beyond: 400.", default=1_000)
    schema_depth: int = doc("Nesting of a tool's schema; beyond: 400.", default=64)
    block_bytes: int = doc(
        "A call block, or the arguments of a call that a server returned; beyond: text (soft) or an error (strict).",
        default=1024 * 1024,
    )
    calls_per_conversation: int | None = doc("Calls in a request's conversation; beyond: 400.", default=None)
    calls_per_response: int = doc("Calls in an answer; beyond: text (soft) or an error (strict).", default=64)
    reply_bytes: int = doc("A backend's response that is not streamed; beyond: 502.", default=64 * 1024 * 1024)
    stream_bytes: int = doc(
        "A backend's stream, unless it is forwarded unread; beyond: an error ends it.",
        default=256 * 1024 * 1024,
    )
    metric_labels: int = doc(
        "Routes, and known models, with a metric label of their own, per worker; beyond: `other`.",
        default=100,
    )
    frame_bytes: int = doc("An SSE frame of a backend; beyond: 502.", default=8 * 1024 * 1024)
