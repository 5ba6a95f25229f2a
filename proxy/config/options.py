"""How a route treats tools: a section for each concern, which a middleware or a step of the pipeline owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .documented import doc


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """How tools are written into the prompt."""

    template: str | None = doc(
        "Template text with `{tools}`, `{policy}`, `{format}`, `{examples}`; default: in the words of the format's family.",
        default=None,
    )
    template_file: str | None = doc("File that holds the template.", default=None)
    placement: Literal["append", "prepend", "separate", "user"] = doc("Where the segment goes.", default="append")
    inject_when_none: bool = doc("Show the tools also under `tool_choice: none`.", default=False)
    examples: str = doc("Text for `{examples}`.", default="")
    beside_template: str | None = doc(
        "Under `mode: template`, the sentence in the system message where the model may choose; empty for none. Default: a built-in one.",
        default=None,
    )
    reminder: bool | str = doc(
        "A line at the end of what the user says, where a tool can be called and no result was said since: `true` for the built-in one, or "
        "a text, with `{tools}` (their names) and `{format}` (the form of a call) if wanted; `false` or `off` for none.",
        default=False,
    )
    flatten: Literal["auto", "sentinel", "bracket", "native"] = doc(
        "How earlier calls and results are written; `auto`, `sentinel`: in the form that the format teaches, whichever that is.",
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsConfig:
    """How calls are found in what the model writes, and handed on."""

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
    sentinel_arguments: Literal["any", "string"] = doc(
        "`string`: an object as `arguments` is malformed.", default="any"
    )
    argument_streaming: Literal["buffered", "incremental"] = doc(
        "`incremental`: the arguments of a call are streamed while the model writes them, unless its tool is strict; a call that "
        "turns out malformed ends the answer.",
        default="buffered",
    )
    dedupe_calls: bool = doc("Drop a call that repeats an earlier one of the same answer.", default=False)
    stop_after_call: bool = doc("Stop the backend after the last wanted call.", default=False)
    named_stop: bool = doc("Finish a named choice with `stop`, as OpenAI does.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadAnswersConfig:
    """What becomes of an answer that is not what was demanded."""

    strict_failure: Literal["error", "assistant_message"] = doc("What a strict failure becomes.", default="error")
    choice_miss: Literal["pass", "reask", "error"] = doc(
        "A required call was not made. `reask`: ask once more, or as often as `reask` says, then pass.", default="pass"
    )
    format_miss: Literal["pass", "error"] = doc(
        "The final text does not have the form of `response_format` or `text.format`.", default="pass"
    )
    reask: Literal[0, 1, 2, 3] | None = doc(
        "So often the model is asked again after a near miss (it tried to call, and nothing was sent yet), a strict failure, or without a "
        "required call. Where one of the latter two can happen, answers are held back until they are judged; for near misses nothing is. "
        "0: never. Default: once after a near miss, never after the others.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingConfig:
    """Constrained decoding: what the server may write at all."""

    constrain: Literal["auto", "off", "required"] = doc(
        "Constrained decoding for required and named choices.", default="auto"
    )
    constrain_auto: Literal["on", "off"] | None = doc(
        "Constrained decoding under `tool_choice: auto`: text stays free, a call that has begun is valid. Default: on where it was run "
        "against the real engine (`constrain` of the backend `gbnf`, `guided`, `ebnf` or a structural tag), unless the route's `constrain` is "
        "`off`; else off.",
        default=None,
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
class ToolLoopConfig:
    """Server-side tools: how often the model is asked again with their results, and what the client sees of them. At a
    limit the answer ends with what it has said."""

    max_iterations: int = doc("Answers of the model for one request, the first one included.", default=8)
    max_calls: int = doc("Calls that are run for one request.", default=20)
    max_seconds: float = doc("After this time no call is started and the model is not asked again.", default=120.0)
    tool_conflict: Literal["error", "client_wins", "server_wins"] = doc(
        "A client's tool has the name of a server-side tool: 400, or whose tool is offered.", default="error"
    )
    expose_server_tools: bool = doc(
        "Responses: the calls and results of server-side tools are items of the answer.", default=False
    )


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
class RequestsConfig:
    """What a client may ask for, and what of it goes on to the server."""

    unknown_model: Literal["serve", "error"] = doc(
        "A client asks for a model that the server does not list. `serve`: if it serves a single one, that one answers; `error`: 404 "
        "`model_not_found` with the names. Not where `upstream_model` says what is asked for.",
        default="serve",
    )
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
class UsageConfig:
    """Token counts."""

    source: Literal["auto", "backend", "estimate"] = doc("Where token counts come from.", default="auto")
    encoding: str = doc("tiktoken encoding for estimates.", default="o200k_base")
    count: Literal["auto", "backend_tokenize", "estimate"] = doc(
        "Who counts a prompt. `auto`: the server, where a client asks for a count and it can; `backend_tokenize`: also where it has "
        "given no usage; `estimate`: the gateway.",
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """How a route treats tools. `defaults:` sets them for all routes, a route overrides single keys."""

    mode: Literal["prompt", "template", "text", "native", "hybrid", "auto"] = doc(
        "`prompt`: inject and parse; `template`: the backend gets the tools, so that the model's own chat template writes them, and the gateway "
        "reads the calls in the text; `text`: `template` where a small request of the gateway's own has shown that it works and the model's family "
        "is known, else `prompt` (what `serve --backend URL` does); `native`: the backend does tools; `hybrid`: it is asked to, and where it "
        "refuses or nearly calls, the same request goes on as under `prompt`; `auto`: `template` where that was shown to work, else as `hybrid`, "
        "and each model is tried with a small request of the gateway's own before.",
        default="prompt",
    )
    format: str = doc(
        "Name of the tool-call format; `auto`: that of the model's family, by the model's name, else `hermes`.",
        default="auto",
    )
    prompt: PromptConfig = doc("The prompt segment.", default_factory=PromptConfig)
    calls: CallsConfig = doc("Calls in the answer.", default_factory=CallsConfig)
    bad_answers: BadAnswersConfig = doc("Answers that are not what was demanded.", default_factory=BadAnswersConfig)
    decoding: DecodingConfig = doc("Constrained decoding.", default_factory=DecodingConfig)
    reasoning: ReasoningConfig = doc("Thinking text.", default_factory=ReasoningConfig)
    tool_loop: ToolLoopConfig = doc("Bounds on server-side tools.", default_factory=ToolLoopConfig)
    loop_detect: LoopDetectConfig = doc("Clients whose model goes round in circles.", default_factory=LoopDetectConfig)
    requests: RequestsConfig = doc("What clients may ask for.", default_factory=RequestsConfig)
    responses: ResponsesConfig = doc("The Responses API.", default_factory=ResponsesConfig)
    retry: RetryConfig = doc("When a model server fails.", default_factory=RetryConfig)
    usage: UsageConfig = doc("Token counts.", default_factory=UsageConfig)
