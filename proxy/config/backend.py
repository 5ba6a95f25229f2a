"""Model servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits towards a backend; null means none."""

    connect_s: float | None = doc("To connect.", default=5.0)
    first_byte_s: float | None = doc("From the request to the answer's first byte.", default=300.0)
    idle_s: float | None = doc("Between two reads.", default=300.0)
    total_s: float | None = doc("For the whole exchange.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Connections to a backend (C36)."""

    connections: int = doc("At most so many at once; 0 means no limit.", default=1000)
    idle_connections: int = doc(
        "Kept open at most while unused. A connection rests for 0.1 s before it is used again, so a worker wants a tenth of its "
        "requests per second.",
        default=500,
    )
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
class CodexConfig:
    """A Codex app-server. All that it can do by itself is off; no switch of that touches the tools of clients."""

    shell: bool = doc(
        "The model may run commands on the server's machine, without writing: it can then read every file that the server can read.",
        default=False,
    )
    web_search: bool = doc("The model may search the web.", default=False)
    view_image: bool = doc("The model may look at image files of the server's machine.", default=False)
    mcp_servers: bool = doc("The model may use the MCP servers of the server's own configuration.", default=False)
    instructions: str = doc(
        "What the model is told before the conversation, which comes as one text; empty: nothing. Of `native` mode it is the client's "
        "system message.",
        default="You are the assistant in a conversation with a client program. What the user sends is the whole conversation "
        "so far: each turn stands under a line that begins with `===` and names who speaks; without such lines it is what the user says. Follow the system turns. Write the "
        "assistant's next turn, without such a line, and nothing else.",
    )
    config: Mapping[str, Any] = doc(
        "Further keys of Codex's configuration for each thread (`model_provider`, ...); they win over what the gateway sets.",
        default_factory=dict,
        repr=False,
    )
    folder: str | None = doc(
        "Where threads are at home. Default: an empty folder, if the gateway runs the server; else the server's.",
        default=None,
    )
    env: Mapping[str, str] = doc("With `command`: variables that the process gets.", default_factory=dict, repr=False)
    inherit: tuple[str, ...] = doc(
        "With `command`: names of further variables of the gateway's environment that it gets. It always gets those that every program "
        "needs (`PATH`, `HOME`, `CODEX_HOME`, `LANG`, ...), and the proxies with `trust_env`.",
        default=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """One model server. What is None here comes from the preset."""

    kind: str = doc(
        "`openai_chat`, `openai_completions`, `openai_responses`, `anthropic_messages`, `codex_app_server`, `mock`, or a plug-in's name.",
        default="openai_chat",
    )
    url: str | None = doc(
        "Base URL, with or without `/v1`; of a `codex_app_server` that runs elsewhere `ws://...` or `wss://...`.",
        default=None,
    )
    websocket: bool = doc(
        "`openai_responses` only: stream over WebSocket where the server offers it (`GET /v1/responses`), else over HTTP.",
        default=False,
    )
    command: tuple[str, ...] = doc(
        "`codex_app_server` only, in place of `url`: the program that the gateway runs, such as `[codex, app-server]`.",
        default=(),
        repr=False,
    )
    api_key: str | None = doc("Sent as a bearer token; use `${ENV}`.", default=None, repr=False)
    headers: Mapping[str, str] = doc("Further request headers.", default_factory=dict, repr=False)
    preset: str = doc(
        "What the server takes: `generic`, `openai`, `anthropic`, `vllm`, `sglang`, `llamacpp`, `ollama`, `lmstudio`, `transformers`; `auto`: that of "
        "the engine which the server says it is, `generic` if it says none.",
        default="auto",
    )
    identify_s: float | None = doc(
        "So often the server is asked what it is and which models it serves; besides, at the start, and after it failed. null: only then; "
        "0: never.",
        default=30.0,
    )
    system_role: bool | None = doc("Takes `system` messages; else they move to the first user message.", default=None)
    late_system: bool | None = doc(
        "Takes `system` messages behind others, which many chat templates refuse; else they go to the user message that follows. Where "
        "neither this, the preset nor the server's template says, those of OpenAI's clients stay and those of Anthropic's go.",
        default=None,
    )
    developer_role: bool | None = doc("Takes `developer` messages; else they become `system`.", default=None)
    images: Literal["true", "false", "error"] | None = doc(
        "Takes images: `true`, `false` (a note stands in their place), `error` (400). Where neither this, the preset nor the server says, they go "
        "to the server, and one that refuses them is asked again with the note.",
        default=None,
    )
    files: bool | None = doc(
        "Takes files such as PDF; else their text stands in their place (extra `pdf`), or a note. Where neither this, the preset nor the protocol "
        "says, only those that a client sends in the server's own protocol go there.",
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
    stop_sequences: int | None = doc(
        "Takes at most so many `stop` sequences, 0: none; the gateway applies the others. Default: 4, and any number where the server is known "
        "to take them.",
        default=None,
    )
    choice_objects: bool | None = doc(
        "Takes `tool_choice` as an object; else a tool that is named there is sent alone, with `required`. One that refuses is asked so by itself.",
        default=None,
    )
    extra_parameters: tuple[str, ...] | None = doc("Further request fields that are forwarded.", default=None)
    response_format: tuple[Literal["json_object", "json_schema"], ...] | None = doc(
        "The types of `response_format` that it takes; where it does not take what a client asks for, the next best is sent and the rest said "
        "in words.",
        default=None,
    )
    template: str | None = doc(
        "`openai_completions` only: how a conversation becomes one text: `plain` (the default), `chatml`, `llama3`, `mistral`, `gemma`, or a "
        "Jinja file whose name ends with `.jinja`; `options` may give its `bos_token` and `eos_token`.",
        default=None,
    )
    tool_types: tuple[str, ...] | None = doc(
        "Under `mode: native`, the types of tools that it takes: `function`, `custom`, or those of hosted tools.",
        default=None,
    )
    reasoning_effort: bool | None = doc("Takes `reasoning_effort`.", default=None)
    reasoning_history: Literal["reasoning_content", "reasoning", "none"] | None = doc(
        "How it calls the text of reasoning in earlier turns, if it speaks Chat: `reasoning_content` (the default) or `reasoning`; `none`: it "
        "refuses such text, also in Responses, where it takes `encrypted_content` only.",
        default=None,
    )
    special_tokens: bool | None = doc(
        "Takes `skip_special_tokens: false`, to show markers that are special tokens.", default=None
    )
    template_choice: Literal["none", "auto"] | None = doc(
        "Under `mode: template`, the `tool_choice` with which it writes tools into the prompt and does not read the answer. Default: `none`, and "
        "`auto` for SGLang, which leaves tools out under `none` and reads calls only if it was started with a parser.",
        default=None,
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = doc(
        "What it calls the limit on an answer, if it speaks Chat. Default: `max_tokens`, or what a Chat client says.",
        default=None,
    )
    short_names: bool | None = doc(
        "Takes names of tools of at most 64 characters: longer ones are sent in a short form, and clients get their own back.",
        default=None,
    )
    default_max_tokens: int | None = doc(
        "The limit on answers where a client sets none. Default: none, and 4096 for `anthropic_messages`.", default=None
    )
    verdict_s: float = doc(
        "So long it is remembered of each model what the server has refused, and under `mode: hybrid` and `auto` whether it does tools by "
        "itself.",
        default=3600.0,
    )
    timeouts: Timeouts = doc("Time limits.", default_factory=Timeouts)
    pool: Pool = doc("Connection pool.", default_factory=Pool)
    trust_env: bool = doc(
        "Use the proxies of the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`. They are spoken to over plain HTTP, and see no more of "
        "a server with TLS than its address.",
        default=False,
    )
    verify_tls: bool = doc("Check certificates.", default=True)
    health_path: str | None = doc("Path asked by `/ready`; default: the model list.", default=None)
    health_check_s: float | None = doc(
        "Ask so often whether it is up; while it is not, routes with another server leave it out. Default: never.",
        default=None,
    )
    breaker: BreakerConfig = doc("Circuit breaker.", default_factory=BreakerConfig)
    script: Any = doc("`mock` only: the scripted answers, or the path of a file with them.", default=None)
    codex: CodexConfig = doc("`codex_app_server` only.", default_factory=CodexConfig)
    options: Mapping[str, Any] = doc("Options of a plug-in backend, or of a `template`.", default_factory=dict)
