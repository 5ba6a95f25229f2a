"""Options of model servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits for requests to a backend; null means no limit."""

    connect_s: float | None = doc("To connect.", default=5.0)
    first_byte_s: float | None = doc("From the request to the first byte of the response.", default=300.0)
    idle_s: float | None = doc("Between two reads.", default=300.0)
    total_s: float | None = doc("For the whole exchange.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Connections to a backend."""

    # the defaults: C36
    connections: int = doc("The most connections at the same time; 0: no limit.", default=1000)
    idle_connections: int = doc(
        "The most unused connections that stay open. A worker needs a tenth of its requests per second.",
        default=500,
    )
    idle_s: float = doc("How long an unused connection stays open.", default=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When requests to a failing server stop. Each worker counts failures separately."""

    failures: int | None = doc(
        "Consecutive failures after which the server gets no requests; 0: never. Default: 5 on routes with another"
        " server, else never.",
        default=None,
    )
    open_s: float = doc("How long it gets no requests; then single requests test whether it works.", default=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexConfig:
    """A Codex app-server. Its own tools are off by default; clients' tools are not affected."""

    shell: bool = doc(
        "The model may run commands on the server's machine: without write access, but it can read every file "
        "that the server can read.",
        default=False,
    )
    web_search: bool = doc("The model may search the web.", default=False)
    view_image: bool = doc("The model may view image files on the server's machine.", default=False)
    mcp_servers: bool = doc("The model may use the MCP servers of the server's own configuration.", default=False)
    instructions: str = doc(
        "Instructions before the conversation; empty: none. Not in `native` mode.",
        default="You are the assistant in a conversation with a client program. What the user sends is the whole conversation "
        "so far: each turn stands under a line that begins with `===` and names who speaks; without such lines it is what the user says. Follow the system turns. Write the "
        "assistant's next turn, without such a line, and nothing else.",
    )
    config: Mapping[str, Any] = doc(
        "Further keys of Codex's configuration for each thread, such as `model_provider`.",
        default_factory=dict,
        repr=False,
    )
    folder: str | None = doc(
        "The folder of threads. Default: with `command` an empty folder, else the server's own.",
        default=None,
    )
    env: Mapping[str, str] = doc("With `command`: environment variables.", default_factory=dict, repr=False)
    inherit: tuple[str, ...] = doc(
        "With `command`: further variables of the gateway's environment, besides those that every program needs "
        "(`PATH`, `HOME`, `CODEX_HOME`, `LANG`, ...).",
        default=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """One model server. The preset sets the options that are null."""

    kind: str = doc(
        "`openai_chat`, `openai_completions`, `openai_responses`, `anthropic_messages`, `codex_app_server`, `mock`, or a plug-in's name.",
        default="openai_chat",
    )
    url: str | None = doc(
        "Base URL, with or without `/v1`; for a remote `codex_app_server` `ws://...` or `wss://...`.",
        default=None,
    )
    websocket: bool = doc(
        "`openai_responses` only: stream over WebSocket if offered.",
        default=False,
    )
    command: tuple[str, ...] = doc(
        "`codex_app_server` only, instead of `url`: the program to run, such as `[codex, app-server]`.",
        default=(),
        repr=False,
    )
    api_key: str | None = doc("Sent as a bearer token; use `${ENV}`.", default=None, repr=False)
    headers: Mapping[str, str] = doc("Further request headers.", default_factory=dict, repr=False)
    preset: str = doc(
        "The type of the server: `generic`, `openai`, `anthropic`, `vllm`, `sglang`, `llamacpp`, `ollama`, "
        "`lmstudio`, `transformers`; `auto`: detected, else `generic`.",
        default="auto",
    )
    identify_s: float | None = doc(
        "How often the server is asked for its type and models, besides at the start and after a failure; null: "
        "only then; 0: never.",
        default=30.0,
    )
    system_role: bool | None = doc(
        "Accepts `system` messages; else they move into the first user message.", default=None
    )
    late_system: bool | None = doc(
        "Accepts `system` messages after others; else they move into the next user message. If unknown, those of "
        "Anthropic clients move.",
        default=None,
    )
    developer_role: bool | None = doc("Accepts `developer` messages; else they become `system` messages.", default=None)
    images: Literal["true", "false", "error"] | None = doc(
        "Accepts images: `true`, `false` (a note replaces them), `error` (400). If unknown, they are sent, and "
        "replaced by the note if the server refuses them.",
        default=None,
    )
    files: bool | None = doc(
        "Accepts files such as PDF; else their text (extra `pdf`) or a note is sent. If unknown, only files in "
        "the server's own protocol are sent.",
        default=None,
    )
    merge_roles: bool | None = doc("Merge neighbouring messages of the same role.", default=None)
    stream_usage: bool | None = doc("Accepts `stream_options.include_usage`.", default=None)
    constrain: str | None = doc(
        "Feature for constrained decoding: `gbnf`, `guided`, `ebnf`, `guided_tag`, `structural_tag`, "
        "`json_schema`, `format`, `none`.",
        default=None,
    )
    continuation: bool | None = doc("Continues a last assistant message (prefill).", default=None)
    multiple_choices: bool | None = doc("Accepts `n` above 1.", default=None)
    stop_sequences: int | None = doc(
        "The most `stop` sequences that it accepts; the gateway applies the others. Default: 4, or any number if "
        "it is known to accept them.",
        default=None,
    )
    choice_objects: bool | None = doc(
        "Accepts `tool_choice` as an object; else it gets only the named tool, with `required`.",
        default=None,
    )
    extra_parameters: tuple[str, ...] | None = doc("Further request fields to forward.", default=None)
    response_format: tuple[Literal["json_object", "json_schema"], ...] | None = doc(
        "Accepted types of `response_format`. For others it gets the closest one, and the prompt the rest.",
        default=None,
    )
    template: str | None = doc(
        "`openai_completions` only: the chat template: `plain` (the default), `chatml`, `llama3`, `mistral`, "
        "`gemma`, or a `.jinja` file; `options` may set its `bos_token` and `eos_token`.",
        default=None,
    )
    tool_types: tuple[str, ...] | None = doc(
        "With `mode: native`: accepted types of tools, such as `function` and `custom`.",
        default=None,
    )
    reasoning_effort: bool | None = doc("Accepts `reasoning_effort`.", default=None)
    reasoning_history: Literal["reasoning_content", "reasoning", "none"] | None = doc(
        "Chat only: the field for reasoning of earlier turns. Default: `reasoning_content`. `none`: its "
        "text is left out, in Responses too.",
        default=None,
    )
    special_tokens: bool | None = doc(
        "Accepts `skip_special_tokens: false`, which shows markers that are special tokens.",
        default=None,
    )
    template_choice: Literal["none", "auto"] | None = doc(
        "With `mode: template`: the `tool_choice` with which the server describes tools and parses nothing. "
        "Default: `none`; SGLang: `auto`.",
        default=None,
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = doc(
        "Chat only: the field for the limit of an answer. Default: the one that a Chat client uses, else `max_tokens`.",
        default=None,
    )
    short_names: bool | None = doc(
        "Accepts tool names of at most 64 characters; longer ones are shortened for it.",
        default=None,
    )
    default_max_tokens: int | None = doc(
        "The limit of an answer if the client sets none. Default: none; `anthropic_messages`: 4096.",
        default=None,
    )
    verdict_s: float = doc(
        "How long the gateway remembers what the server refused and, with `mode: hybrid` and `auto`, whether it "
        "handles tools.",
        default=3600.0,
    )
    timeouts: Timeouts = doc("Time limits.", default_factory=Timeouts)
    pool: Pool = doc("Connection pool.", default_factory=Pool)
    trust_env: bool = doc(
        "Use the proxies of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.",
        default=False,
    )
    verify_tls: bool = doc("Check the server's certificate.", default=True)
    health_path: str | None = doc("The path that `/ready` requests. Default: the model list.", default=None)
    health_check_s: float | None = doc(
        "The interval of health checks; a server that is down is skipped if the route has another. Default: no checks.",
        default=None,
    )
    breaker: BreakerConfig = doc("Circuit breaker.", default_factory=BreakerConfig)
    script: Any = doc("`mock` only: scripted answers, or the path of their file.", default=None)
    codex: CodexConfig = doc("`codex_app_server` only.", default_factory=CodexConfig)
    options: Mapping[str, Any] = doc("Options of a plug-in backend, or of a `template`.", default_factory=dict)

    @property
    def public_url(self) -> str:
        """`url` for messages: without user, password and query. Empty if there is none, it is malformed, or it may have
        a password with a slash, a question mark or a number sign, which ends before the `@`."""
        try:
            parts = urlsplit(self.url or "")
        except ValueError:
            return ""
        if "@" in parts.path + parts.query + parts.fragment:
            return ""
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
