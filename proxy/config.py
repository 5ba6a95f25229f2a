"""What can be configured: frozen dataclasses, their defaults and their meaning. Loading is in `proxy.configuration.settings`.

Rules of this module:

1. One dataclass per section of the file; the attribute name is the key in the file. The configuration reference and the
   shipped JSON Schema are generated from the types, defaults and `doc(...)` texts here, so they cannot drift.
2. Constructing has no side effects; nothing here reads a file, an environment variable or a clock.
3. Times are seconds (`_s`), sizes are bytes (`_bytes`), unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DEFAULT_CHAIN: tuple[str, ...] = (
    "validation",
    "conversation",
    "loop_detection",
    "execution",
    "output_format",
    "reask",
    "arguments",
    "transformation",
    "injection",
    "forwarding",
)
"""Outermost first. See docs/explanation for why this order."""

ON_DEMAND: tuple[str, ...] = ("rate_limit",)
"""Outermost in every chain that does not name them, where they have something to do."""


def doc(text: str, **kwargs: Any) -> Any:
    """A dataclass field with its documentation. Takes what `dataclasses.field` takes."""
    return field(metadata={"doc": text}, **kwargs)


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
    log_format: Literal["text", "json"] = doc("Form of the log lines.", default="text")
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
    url: str | None = doc("`redis://HOST:PORT/DB`; use `${ENV}` if it holds a password.", default=None)
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
class LimitsConfig:
    """Upper bounds. Each says what happens beyond it."""

    connections: int = doc(
        "Open connections of clients, of each worker; beyond: 503. Fewer if the system allows too few open files (`ulimit -n`).",
        default=10_000,
    )
    head_bytes: int = doc("Request line and header fields together; beyond: 431.", default=64 * 1024)
    header_fields: int = doc("Header fields of a request; beyond: 431.", default=128)
    body_bytes: int = doc("Request body, also what a compressed one holds; beyond: 413.", default=32 * 1024 * 1024)
    inflated_bytes: int = doc(
        "What the compressed bodies of the requests that run hold together, of each worker; beyond: 503, or 413 for one alone.",
        default=128 * 1024 * 1024,
    )
    json_values: int = doc("Values (numbers, strings, objects, ...) in a request body; beyond: 400.", default=100_000)
    json_depth: int = doc("Nesting of a request body; beyond: 400.", default=128)
    tools_warn: int = doc("Tools in a request; beyond: a warning in the log.", default=100)
    tools_max: int = doc("Tools in a request; beyond: 400.", default=128)
    schema_bytes: int = doc("Size of one tool's schema; beyond: 400.", default=256 * 1024)
    schema_properties: int = doc("Properties in one tool's schema, at all levels; beyond: 400.", default=1_000)
    schema_depth: int = doc("Nesting of one tool's schema; beyond: 400.", default=64)
    block_bytes: int = doc("Size of one call block; beyond: text (soft) or an error (strict).", default=1024 * 1024)
    calls_per_conversation: int | None = doc("Calls in the conversation of a request; beyond: 400.", default=None)
    calls_per_response: int = doc("Calls in one answer; beyond: text (soft) or an error (strict).", default=64)
    reply_bytes: int = doc("A whole (not streamed) backend answer; beyond: 502.", default=64 * 1024 * 1024)
    stream_bytes: int = doc(
        "A streamed backend answer, unless it passes unread; beyond: an error ends the stream.",
        default=256 * 1024 * 1024,
    )
    frame_bytes: int = doc("One SSE frame of a backend; beyond: 502.", default=8 * 1024 * 1024)


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
    url: str | None = doc("`redis` only: `redis://HOST:PORT/DB`; use `${ENV}` if it holds a password.", default=None)
    max_responses: int = doc("Kept at most; the oldest go first.", default=10_000)
    max_age_s: float = doc("Kept for so long.", default=86_400.0)


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
class ToolLoopConfig:
    """How often the model is asked again with the results of server-side tools. At a limit the answer ends with what it has said."""

    max_iterations: int = doc("Answers of the model for one request, the first one included.", default=8)
    max_calls: int = doc("Calls that are run for one request.", default=20)
    max_seconds: float = doc("After this time no call is started and the model is not asked again.", default=120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectConfig:
    """A model that makes the same call in turn after turn."""

    repeats: int = doc(
        "So many assistant turns in a row with one and the same call (name and arguments) are a loop; 0: never.",
        default=0,
    )
    policy: Literal["notice", "fail"] = doc(
        "`notice`: the model is told; `fail`: 400 `tool_loop_detected`.", default="notice"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Recordings of the last exchanges, for bug reports. They hold what was said; secrets are covered. In the file: just the
    number, or a mapping."""

    keep: int = doc("So many exchanges; the oldest go first. 0: none.", default=0)
    folder: str | None = doc(
        "Where, for all workers; default: a folder of their own, which is removed at the end.", default=None
    )
    exchange_bytes: int = doc("Kept of one exchange; beyond, the rest is left out.", default=4 * 1024 * 1024)
    secrets: tuple[str, ...] = doc("Regular expressions of what is covered besides keys.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesConfig:
    """How the Responses API is written."""

    ids: Literal["random", "sequential"] = doc(
        "`sequential`: calls are `fc_001`, `fc_002`, ... with `call_id` equal to `id`.", default="random"
    )
    error_event: bool = doc("A failed stream has an `error` event before `response.failed`.", default=True)
    done_marker: bool = doc("`data: [DONE]` ends a stream.", default=False)
    keepalive: Literal["comment", "event"] = doc(
        "`event`: a silent stream also repeats `response.in_progress`, for clients that count events.",
        default="comment",
    )
    event_s: float = doc("After this silence `keepalive: event` repeats the event.", default=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits towards a backend; null means none."""

    connect_s: float | None = doc("To connect.", default=5.0)
    first_byte_s: float | None = doc("From the request to the answer's first byte.", default=300.0)
    idle_s: float | None = doc("Between two reads.", default=300.0)
    total_s: float | None = doc("For the whole exchange.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Connections to a backend."""

    connections: int = doc("At most so many at once; 0 means no limit.", default=1000)
    idle_connections: int = doc("Kept open at most while unused.", default=200)
    idle_s: float = doc("How long an unused connection is kept.", default=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When a server that fails is left alone. Each worker learns for itself."""

    failures: int | None = doc(
        "So many failures in a row, and it gets no requests; 0: never. Default: 5 on routes that have another server, never on "
        "others.",
        default=None,
    )
    open_s: float = doc("For so long; then one request at a time finds out.", default=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """One model server. What is None here comes from the preset."""

    kind: str = doc(
        "`openai_chat`, `openai_completions`, `openai_responses`, `mock`, or a plug-in's name.", default="openai_chat"
    )
    url: str | None = doc("Base URL, with or without `/v1`.", default=None)
    api_key: str | None = doc("Sent as a bearer token; use `${ENV}`.", default=None, repr=False)
    headers: Mapping[str, str] = doc("Further request headers.", default_factory=dict, repr=False)
    preset: str = doc(
        "What the server takes: `generic`, `openai`, `vllm`, `sglang`, `llamacpp`, `ollama`, `lmstudio`; `auto`: that of the engine which "
        "the server says it is, `generic` if it says none.",
        default="auto",
    )
    identify_s: float | None = doc(
        "So often the server is asked what it is and which models it serves; besides, at the start, and after it failed. null: only then; "
        "0: never.",
        default=30.0,
    )
    system_role: bool | None = doc("Takes `system` messages; else they move to the first user message.", default=None)
    developer_role: bool | None = doc("Takes `developer` messages; else they become `system`.", default=None)
    images: Literal["true", "false", "drop"] | None = doc(
        "Takes images: `true`, `false` (400), `drop` (replaced by a note). Where neither this nor the preset says, those of requests without"
        " tools go to the server.",
        default=None,
    )
    merge_roles: bool | None = doc("Neighbouring messages of one role are merged.", default=None)
    stream_usage: bool | None = doc("Takes `stream_options.include_usage`.", default=None)
    constrain: str | None = doc(
        "Feature for constrained decoding: `gbnf`, `guided`, `ebnf`, `guided_tag`, `structural_tag`, `json_schema`, `format`, `none`.",
        default=None,
    )
    continuation: bool | None = doc("Goes on from a last assistant message (prefill).", default=None)
    multiple_choices: bool | None = doc("Takes `n` above 1.", default=None)
    extra_parameters: tuple[str, ...] | None = doc("Further request fields that are forwarded.", default=None)
    timeouts: Timeouts = doc("Time limits.", default_factory=Timeouts)
    pool: Pool = doc("Connection pool.", default_factory=Pool)
    trust_env: bool = doc("Use the proxy variables of the environment; every request costs more then.", default=False)
    verify_tls: bool = doc("Check certificates.", default=True)
    health_path: str | None = doc("Path asked by `/ready`; default: the model list.", default=None)
    health_check_s: float | None = doc(
        "Ask so often whether it is up; while it is not, routes with another server leave it out. Default: never.",
        default=None,
    )
    breaker: BreakerConfig = doc("Circuit breaker.", default_factory=BreakerConfig)
    script: Any = doc("`mock` only: the scripted answers, or the path of a file with them.", default=None)
    options: Mapping[str, Any] = doc("Options of a plug-in backend.", default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """How tools are written into the prompt."""

    template: str | None = doc(
        "Template text with `{tools}`, `{policy}`, `{format}`, `{examples}`; default: built in.", default=None
    )
    template_file: str | None = doc("File that holds the template.", default=None)
    placement: Literal["append", "prepend", "separate", "user"] = doc("Where the segment goes.", default="append")
    inject_when_none: bool = doc("Show the tools also under `tool_choice: none`.", default=False)
    examples: str = doc("Text for `{examples}`.", default="")
    reminder: bool | str = doc(
        "A line at the end of what the user says, where a tool can be called and no result was said since: `true` for the built-in one, or "
        "a text, with `{tools}` (their names) and `{format}` (a call as it is written) if wanted; `false` or `off` for none.",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningConfig:
    """Thinking text in the model's answer."""

    tags: tuple[str, str] | None = doc(
        "Opening and closing tag; null turns detection off.", default=("<think>", "</think>")
    )
    preopened: bool | None = doc(
        "The template opens the block: the answer starts inside it. Default: answers show it, and the route learns it.",
        default=None,
    )
    scan_calls: bool = doc("Calls inside reasoning count.", default=False)
    field: Literal["reasoning_content", "reasoning", "both", "inline", "drop"] = doc(
        "Where Chat puts it.", default="reasoning_content"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Asking again after a model server failed and before anything of an answer was sent."""

    attempts: int = doc(
        "Tries among the servers of a route, the first one included; 1: none is repeated. Each `fallback` is one more.",
        default=2,
    )
    backoff_s: float = doc(
        "Before the same server is asked again: a random pause up to this, twice as much each time.", default=0.25
    )
    backoff_max_s: float = doc("Longest such pause.", default=8.0)
    retry_after_max_s: float = doc(
        "Longest `Retry-After` that is waited for; beyond: the client gets the error, with its `Retry-After`.",
        default=5.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """How a route treats tools. `defaults:` sets them for all routes, a route overrides single keys."""

    mode: Literal["prompt", "native"] = doc(
        "`prompt`: inject and parse; `native`: the backend does tools.", default="prompt"
    )
    format: str = doc(
        "Name of the tool-call format; `auto`: that of the model's family, by the model's name, else `hermes`.",
        default="auto",
    )
    flatten: Literal["auto", "sentinel", "bracket", "native"] = doc(
        "How earlier calls and results are written; `auto`, `sentinel`: in the form that the format teaches, whichever that is.",
        default="auto",
    )
    prompt: PromptConfig = doc("The prompt segment.", default_factory=PromptConfig)
    reasoning: ReasoningConfig = doc("Thinking text.", default_factory=ReasoningConfig)
    responses: ResponsesConfig = doc("The Responses API.", default_factory=ResponsesConfig)
    recognise: Literal["any", "whole", "taught"] = doc(
        "Calls in forms that were not taught, of tools on offer and with arguments that fit. `any`: between another family's markers, "
        "as the whole answer, or behind prose at its end; `whole`: not behind prose; `taught`: nowhere.",
        default="any",
    )
    trim: Literal["edge", "none"] = doc(
        "Drop whitespace that touches a call block, but for a line end or a blank between two texts.", default="edge"
    )
    unclosed: Literal["repair", "text", "error"] = doc("A whole call whose closing tag is missing.", default="repair")
    repair: Literal["safe", "off"] = doc("Safe repair of malformed JSON.", default="safe")
    coerce: Literal["safe", "off"] = doc(
        "`safe`: an argument of the wrong type that can only mean one thing is mended, unless its tool is strict.",
        default="safe",
    )
    strict_failure: Literal["error", "assistant_message"] = doc("What a strict failure becomes.", default="error")
    argument_streaming: Literal["buffered", "incremental"] = doc(
        "`incremental`: the arguments of a call are streamed while the model writes them, unless its tool is strict; a call that "
        "turns out malformed ends the answer.",
        default="buffered",
    )
    sentinel_arguments: Literal["any", "string"] = doc(
        "`string`: an object as `arguments` is malformed.", default="any"
    )
    format_miss: Literal["pass", "error"] = doc(
        "The final text does not have the form of `response_format` or `text.format`.", default="pass"
    )
    choice_miss: Literal["pass", "reask", "error"] = doc(
        "A required call was not made. `reask`: ask once more, or as often as `reask` says, then pass.", default="pass"
    )
    reask: Literal[0, 1, 2, 3] | None = doc(
        "So often the model is asked again after a near miss (it tried to call, and nothing was sent yet), a strict failure, or without a "
        "required call. Where one of the latter two can happen, answers are held back until they are judged; for near misses nothing is. "
        "0: never. Default: once after a near miss, never after the others.",
        default=None,
    )
    constrain: Literal["auto", "off", "required"] = doc(
        "Constrained decoding for required and named choices.", default="auto"
    )
    constrain_auto: Literal["on", "off"] | None = doc(
        "Constrained decoding under `tool_choice: auto`: text stays free, a call that has begun is valid. Default: on for servers with "
        "`constrain: gbnf` unless the route's `constrain` is `off`, where it was run against the real server; else off.",
        default=None,
    )
    tool_conflict: Literal["error", "client_wins", "server_wins"] = doc(
        "A client's tool has the name of a server-side tool: 400, or whose tool is offered.", default="error"
    )
    tool_loop: ToolLoopConfig = doc("Bounds on server-side tools.", default_factory=ToolLoopConfig)
    expose_server_tools: bool = doc(
        "Responses: the calls and results of server-side tools are items of the answer.", default=False
    )
    loop_detect: LoopDetectConfig = doc("Clients whose model goes round in circles.", default_factory=LoopDetectConfig)
    unknown_model: Literal["serve", "error"] = doc(
        "A client asks for a model that the server does not list. `serve`: if it serves a single one, that one answers; `error`: 404 "
        "`model_not_found` with the names. Not where `upstream_model` says what is asked for.",
        default="serve",
    )
    stop_after_call: bool = doc("Stop the backend after the last wanted call.", default=False)
    dedupe_calls: bool = doc("Drop a call that repeats an earlier one of the same answer.", default=False)
    named_stop: bool = doc("Finish a named choice with `stop`, as OpenAI does.", default=False)
    tool_names: Literal["standard", "relaxed"] = doc("`relaxed` also allows `.`, `/` and `:`.", default="standard")
    validation: Literal["default", "strict"] = doc(
        "`strict` refuses what is otherwise mended: tools without `parameters`, strict tools called in parallel, "
        "results that stand apart from their call.",
        default="default",
    )
    unsupported: Literal["error", "ignore"] = doc("Known fields that the route cannot honour.", default="error")
    forward_unknown: Literal["drop", "list", "all"] = doc(
        "Unknown fields: none, those of the backend's list, all.", default="list"
    )
    retry: RetryConfig = doc("When a model server fails.", default_factory=RetryConfig)
    usage_source: Literal["auto", "backend", "estimate"] = doc("Where token counts come from.", default="auto")
    encoding: str = doc("tiktoken encoding for estimates.", default="o200k_base")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareConfig:
    """One entry of a chain. In the file: a name, or a mapping with `use` and the options."""

    use: str = doc("Built-in name, entry-point name, or dotted path `package.module:Attribute`.")
    on_failure: Literal["fail", "skip"] = doc(
        "An unexpected exception fails the request, or the middleware is skipped.", default="fail"
    )
    options: Mapping[str, Any] = doc("Options of the middleware, checked by its own model.", default_factory=dict)


def default_chain() -> tuple[MiddlewareConfig, ...]:
    """The built-in chain as configuration."""
    return tuple(MiddlewareConfig(use=name) for name in DEFAULT_CHAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """One of several servers of a route. In the file: a name, or a mapping with `backend`."""

    backend: str = doc("Key in `backends`.")
    weight: float = doc("Its share of the requests, above 0.", default=1.0)
    upstream_model: str | None = doc("Name sent to it; default: that of the route.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig:
    """Which models go where."""

    model: str = doc(
        "Model name or glob (`*`); exact names win over globs, earlier globs over later ones.", default="*"
    )
    aliases: tuple[str, ...] = doc("Further names.", default=())
    backend: str = doc("Key in `backends`.", default="default")
    backends: tuple[TargetConfig, ...] = doc("Several servers in place of `backend`.", default=())
    balance: Literal["weighted", "round_robin", "least_busy", "sticky"] = doc(
        "Which of `backends` is asked. `sticky`: the same one for the same `sticky_by`.", default="weighted"
    )
    sticky_by: str = doc(
        "`prompt` (all up to the first user message), or the name of a request header.", default="prompt"
    )
    fallback: tuple[TargetConfig, ...] = doc(
        "Servers that are asked in this order when those before failed or are down.", default=()
    )
    upstream_model: str | None = doc("Name sent to the backend; default: the client's.", default=None)
    chain: tuple[MiddlewareConfig, ...] | None = doc(
        "Chain of this route; default: the top-level `chain`.", default=None
    )
    rate_limit: RateLimit = doc("For all clients of this route together.", default_factory=RateLimit)
    rate_limit_per_key: RateLimit = doc(
        "For each key on this route, besides the key's own limits.", default_factory=RateLimit
    )
    options: RouteOptions = doc("Overrides of `defaults`.", default_factory=RouteOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The whole configuration."""

    server: ServerConfig = doc("Listening.", default_factory=ServerConfig)
    auth: AuthConfig = doc("Keys.", default_factory=AuthConfig)
    cors: CorsConfig = doc("Web pages.", default_factory=CorsConfig)
    limits: LimitsConfig = doc("Upper bounds.", default_factory=LimitsConfig)
    rate_limits: RateLimitsConfig = doc("Limits on use.", default_factory=RateLimitsConfig)
    store: StoreConfig = doc("Where responses are kept.", default_factory=StoreConfig)
    telemetry: TelemetryConfig = doc("OpenTelemetry.", default_factory=TelemetryConfig)
    tools: ToolsConfig = doc("Server-side tools.", default_factory=ToolsConfig)
    capture: CaptureConfig = doc("Recordings for bug reports.", default_factory=CaptureConfig)
    backends: Mapping[str, BackendConfig] = doc("Model servers by name.", default_factory=dict)
    defaults: RouteOptions = doc("Options of every route.", default_factory=RouteOptions)
    chain: tuple[MiddlewareConfig, ...] = doc("Middlewares, outermost first.", default_factory=default_chain)
    routes: tuple[RouteConfig, ...] = doc("Routes; default: every model to the only backend.", default=())
