"""Options of a route, in sections. Each section belongs to one middleware or one step of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """How tools are described in the prompt."""

    template: str | None = doc(
        "Template with `{tools}`, `{policy}`, `{format}`, `{examples}`. Default: a text for the model's family.",
        default=None,
    )
    template_file: str | None = doc("File with the template.", default=None)
    placement: Literal["append", "prepend", "separate", "user"] = doc(
        "The place of the tool description.", default="append"
    )
    inject_when_none: bool = doc("Describe tools also with `tool_choice: none`.", default=False)
    examples: str = doc("Text for `{examples}`.", default="")
    beside_template: str | None = doc(
        "With `mode: template`: the sentence in the system message if the model may choose; empty: none.",
        default=None,
    )
    reminder: bool | str = doc(
        "A line at the end of the user's message, if a tool can be called and no result came since: `true` "
        "(built-in), a text with `{tools}` and `{format}`, or `false` or `off`.",
        default=False,
    )
    flatten: Literal["auto", "sentinel", "bracket", "native"] = doc(
        "How earlier calls and results are written; `auto`, `sentinel`: in the route's format.",
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsConfig:
    """How calls are found and passed to the client."""

    recognise: Literal["any", "whole", "taught"] = doc(
        "Accept calls in other formats, if they name a tool on offer and fit it. `any`: between another family's "
        "markers, as the whole answer, or after text at its end; `whole`: not after text; `taught`: never.",
        default="any",
    )
    trim: Literal["edge", "none"] = doc(
        "Drop whitespace next to a call block, except one line end or blank between two texts.", default="edge"
    )
    unclosed: Literal["repair", "text", "error"] = doc(
        "A complete call whose closing tag is missing.", default="repair"
    )
    repair: Literal["safe", "off"] = doc("Safe repair of malformed JSON.", default="safe")
    coerce: Literal["safe", "off"] = doc(
        "`safe`: an argument of the wrong type is converted if only one conversion makes sense and the tool is "
        "not strict.",
        default="safe",
    )
    sentinel_arguments: Literal["any", "string"] = doc(
        "`string`: an object as `arguments` is malformed.", default="any"
    )
    argument_streaming: int | Literal["buffered"] = doc(
        "In streams, a call with this many bytes of arguments is sent while the model writes it; `buffered`: only "
        "when it is complete and checked. See https://toolwire.github.io/toolwire/how-to/stream-arguments/",
        default=256,
    )
    dedupe_calls: bool = doc("Drop a call that repeats an earlier one of the same answer.", default=False)
    stop_after_call: bool = doc("Stop the backend after the last wanted call.", default=False)
    named_stop: bool = doc("Finish a named choice with `stop`, as OpenAI does.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadAnswersConfig:
    """Reactions to answers that do not meet the request."""

    strict_failure: Literal["error", "assistant_message"] = doc("The effect of a strict failure.", default="error")
    choice_miss: Literal["pass", "reask", "error"] = doc(
        "A required call is missing. `reask`: the model is asked again once, unless a part of the answer was "
        "sent; text before a required call is held back for that. `pass`: the answer is returned.",
        default="reask",
    )
    format_miss: Literal["pass", "error"] = doc(
        "The final text does not match `response_format` or `text.format`.", default="pass"
    )
    reask: Literal[0, 1, 2, 3] | None = doc(
        "How often the model is asked again after a near miss (an attempted call that cannot be parsed), a strict "
        "failure, or a missing required call; for the latter two, answers are held back until they are checked. "
        "0: never. Default: once after a near miss, and as `choice_miss` says.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingConfig:
    """Constrained decoding: restricts what the server can generate."""

    constrain: Literal["auto", "off", "required"] = doc(
        "Constrained decoding for required and named choices; `required`: 400 if the server cannot do it.",
        default="auto",
    )
    constrain_auto: Literal["on", "off"] | None = doc(
        "The same for `tool_choice: auto`: text stays free, but a call that has begun is valid. Default: on for llama.cpp, "
        "vLLM and SGLang, unless `constrain` is `off`.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningConfig:
    """Reasoning text in the model's answer."""

    tags: tuple[str, str] | None = doc(
        "Opening and closing tag; null turns detection off.", default=("<think>", "</think>")
    )
    preopened: bool | None = doc(
        "The chat template opens the reasoning block: answers begin inside it. Default: detected, for each route.",
        default=None,
    )
    scan_calls: bool = doc("Calls inside reasoning count.", default=False)
    field: Literal["reasoning_content", "reasoning", "both", "inline", "drop"] = doc(
        "The field for reasoning in Chat responses.", default="reasoning_content"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLoopConfig:
    """Server-side tools: limits, at which the answer ends with the text so far, and what the client sees."""

    max_iterations: int = doc("Model answers for a request, including the first.", default=8)
    max_calls: int = doc("Calls run for a request.", default=20)
    max_seconds: float = doc("After this time no call is started and the model is not called again.", default=120.0)
    tool_conflict: Literal["error", "client_wins", "server_wins"] = doc(
        "A client's tool has the name of a server-side one: return 400, or offer one of the two.", default="error"
    )
    expose_server_tools: bool = doc("Responses: include their calls and results as items of the answer.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectConfig:
    """Detects a model that repeats the same call turn after turn."""

    repeats: int = doc(
        "Consecutive assistant turns with the same call (name and arguments) that count as a loop; 0: never.",
        default=0,
    )
    policy: Literal["notice", "fail"] = doc(
        "`notice`: add a note for the model; `fail`: 400 `tool_loop_detected`.", default="notice"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsConfig:
    """Requests that are accepted, and what is forwarded of them."""

    unknown_model: Literal["serve", "error"] = doc(
        "The server does not list the requested model. `serve`: if it has only one, that one answers; `error`: "
        "404 `model_not_found`. Ignored with `upstream_model`.",
        default="serve",
    )
    tool_names: Literal["standard", "relaxed"] = doc("`relaxed` also allows `.`, `/` and `:`.", default="standard")
    validation: Literal["default", "strict"] = doc(
        "`strict` refuses what is otherwise corrected: tools without `parameters`, strict tools called in "
        "parallel, results that do not follow their call.",
        default="default",
    )
    unsupported: Literal["error", "ignore"] = doc(
        "What to do with known fields that the route cannot support.", default="error"
    )
    forward_unknown: Literal["drop", "list", "all"] = doc(
        "Unknown fields that are forwarded: none, those in the backend's list, or all.", default="list"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesConfig:
    """The form of Responses answers."""

    ids: Literal["random", "sequential"] = doc(
        "`sequential`: calls are `fc_001`, `fc_002`, ... with `call_id` equal to `id`.", default="random"
    )
    error_event: bool = doc("Send `error` before `response.failed`.", default=True)
    done_marker: bool = doc("End streams with `data: [DONE]`.", default=False)
    keepalive: Literal["comment", "event"] = doc(
        "`event`: silent streams also repeat `response.in_progress`, for clients that wait for events.",
        default="comment",
    )
    event_s: float = doc("The silence after which `keepalive: event` repeats it.", default=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Retries after a model server failed, before any part of an answer was sent."""

    attempts: int = doc(
        "Attempts among a route's servers, including the first; 1: no retry. Each `fallback` adds one.",
        default=2,
    )
    backoff_s: float = doc(
        "The pause before a retry at the same server: random, up to this, doubled each time.", default=0.25
    )
    backoff_max_s: float = doc("The longest such pause.", default=8.0)
    retry_after_max_s: float = doc(
        "The longest `Retry-After` that is waited for; beyond: the client gets the error with it.",
        default=5.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageConfig:
    """Token counts."""

    source: Literal["auto", "backend", "estimate"] = doc("Where token counts come from.", default="auto")
    encoding: str = doc("tiktoken encoding for estimates.", default="o200k_base")
    count: Literal["auto", "backend_tokenize", "estimate"] = doc(
        "Who counts a prompt's tokens. `auto`: the server, if a client requests a count; `backend_tokenize`: also "
        "if it reported no usage; `estimate`: the gateway.",
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """How a route handles tools. `defaults` is for all routes; a route overrides single keys."""

    mode: Literal["prompt", "template", "text", "native", "hybrid", "auto"] = doc(
        "Who describes the tools and who reads the calls. `prompt`: the gateway does both; `template`: the chat "
        "template describes, the gateway reads; `text`: `template` if a test request shows that it works, else "
        "`prompt` (the default of `serve --backend URL`); `native`: the server does both; `hybrid`: the server, "
        "or the gateway if that fails; `auto`: `template` if it works, else `hybrid`.",
        default="prompt",
    )
    format: str = doc(
        "Tool-call format; `auto`: that of the model's family by its name, else `hermes`.",
        default="auto",
    )
    prompt: PromptConfig = doc("The tool description in the prompt.", default_factory=PromptConfig)
    calls: CallsConfig = doc("Calls in the answer.", default_factory=CallsConfig)
    bad_answers: BadAnswersConfig = doc("Answers that do not meet the request.", default_factory=BadAnswersConfig)
    decoding: DecodingConfig = doc("Constrained decoding.", default_factory=DecodingConfig)
    reasoning: ReasoningConfig = doc("Reasoning text.", default_factory=ReasoningConfig)
    tool_loop: ToolLoopConfig = doc("Limits of server-side tools.", default_factory=ToolLoopConfig)
    loop_detect: LoopDetectConfig = doc("Detection of repeated calls.", default_factory=LoopDetectConfig)
    requests: RequestsConfig = doc("What clients may request.", default_factory=RequestsConfig)
    responses: ResponsesConfig = doc("The Responses API.", default_factory=ResponsesConfig)
    retry: RetryConfig = doc("Retries after failures of a model server.", default_factory=RetryConfig)
    usage: UsageConfig = doc("Token counts.", default_factory=UsageConfig)
