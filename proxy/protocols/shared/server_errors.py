"""Errors of servers: the status of one inside an answer (`status_in`), and context overflow: the message that the
prompt does not fit the model's context, with the token counts in it.

Servers share neither a code nor a sentence. `is_overflow` looks for the words that vLLM, llama.cpp, SGLang, TGI, LM
Studio, Ollama and the hosted services use; `read_overflow` assigns each number in the sentence a role by the words
beside it. Clients need the result in the words of their own protocol: Claude Code compacts a conversation only if it
reads Anthropic's sentence, and takes the counts from it (R28.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import BackendFault, ClientFault, GatewayError
from .wire import dump, load

MAX_NESTING: Final = 4
"""Levels of error objects in each other that are read."""

MAX_CHARS: Final = 2_000
"""Length of the part of a message that is searched."""

OVERFLOW_CODES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
)
"""Codes and types of errors that servers use for an overflow."""

SLIP: Final = "tool_use_failed"
"""Groq's code for a call that its model wrote wrong: no refusal of the request, and another attempt may succeed."""

_WORDS: Final = re.compile(
    r"maximum (?:context|prompt|model) length|context[ _](?:length|window|size|limit)[ _]?(?:is |was |has been )?exceed"
    r"|exceed\w{0,8} (?:the )?(?:available |model'?s? |maximum |max |configured )*context"
    r"|longer than the (?:model'?s context|maximum model)|context the overflow|(?:prompt|input) (?:is )?too long"
    r"|(?<!image )\b(?:prompt|input|total)(?: tokens?| length| count| of| \(?[\d.,]+(?: tokens)?\)?)*+ exceeds? (?:the |model'?s? |configured )*+"
    r"(?:max|limit)(?!.{0,40}(?:image|file|character|byte|array|\d ?(?:[kmg]i?b\b|tools)))|exceed\w{0,8} (?:the )?model token limit"
    r"|request exceeds the maximum number of tokens"
    r"|greater than the context length|context length is only|reached context length|range of input length should be"
    r"|tokens in the prompt cannot exceed|sum of prompt length|length of prompt_tokens"
    r"|`?inputs`? (?:tokens \+|must have less than)",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"(?<![\w.-])\d{1,3}(?:,\d{3})+(?![\w])|(?<![\w.-])\d{1,12}(?![\w])")
_WINDOW: Final = re.compile(
    r"(?:context (?:length|window|size|limit)|(?:maximum|max) (?:model |prompt )?length|maximum|limit|less than|at most|exceed"
    r"|n_ctx|allowed|<=|>)[^\d,;]{0,25}$",
    re.IGNORECASE,
)
_WINDOW_AFTER: Final = re.compile(r"^\W{0,3}(?:tokens? )?maximum", re.IGNORECASE)
_OUTPUT: Final = re.compile(
    r"^\W{0,3}(?:tokens? )?(?:(?:in|for|of) (?:the )?)?`?(?:completion|output|max_new_tokens|max_tokens)", re.IGNORECASE
)
_OUTPUT_BEFORE: Final = re.compile(
    r"max_(?:completion_)?tokens[`'\"]? is too large: $|limit: \d{1,12} \+ $", re.IGNORECASE
)
_INPUT: Final = re.compile(
    r"^\W{0,3}(?:tokens? )?(?:(?:in|from|of) (?:the |your )?)?`?(?:messages|prompt|inputs?|text input|tool input|functions)",
    re.IGNORECASE,
)
_INPUT_AFTER: Final = re.compile(r"^ \+ \d", re.IGNORECASE)
_OTHER_UNIT: Final = re.compile(r"^ (?:(?:input )?characters|messages;|bytes|draft)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Token counts of a request that does not fit: the prompt's, those reserved for the output (0 if the server names
    none), and the size of the context window."""

    prompt: int
    output: int
    window: int


def is_overflow(text: str) -> bool:
    """Returns True if a server's message says that the prompt does not fit the context."""
    return _WORDS.search(text[:MAX_CHARS]) is not None


def read_overflow(text: str) -> Overflow | None:
    """Returns the counts in a message of which `is_overflow` is true, or None if it does not name the window and a
    larger count."""
    text = text[:MAX_CHARS]
    window: int | None = None
    prompt = output = 0
    totals: list[int] = []
    for match in _NUMBER.finditer(text):
        before, after = text[max(0, match.start() - 60) : match.start()], text[match.end() : match.end() + 30]
        count = int(match[0].replace(",", ""))
        if _OTHER_UNIT.match(after):
            continue
        if _OUTPUT.match(after) or _OUTPUT_BEFORE.search(before):
            output = max(output, count)
        elif _INPUT.match(after) or _INPUT_AFTER.match(after):
            prompt += count
        elif window is None and (_WINDOW_AFTER.match(after) or _WINDOW.search(before)):
            window = count
        else:
            totals.append(count)
    total = max(totals, default=0)
    if window is None and totals:
        window = min(totals)
    if window is None:
        return None
    if not prompt:
        prompt = max(0, total - output)
        if not output and prompt < window:  # "greater than the context length (n_keep: 8210 >= n_ctx: 4096)"
            prompt, window = window, prompt
    return Overflow(prompt, output, window) if prompt and window and prompt + output > window else None


# --- forms of error bodies --------------------------------------------------------------------------------------------


_INSIDE: Final = ("error", "errors", "base_resp")
"""Keys under which servers put the error object, or a list with one. The last is MiniMax's."""
_MESSAGES: Final = ("message", "msg", "error_msg", "error_message", "errorMessage", "Message", "status_msg", "detail")
_CODES: Final = ("code", "error_code", "status_code")
_SIGNS: Final = frozenset({*_INSIDE, *_CODES, "detail"})
_ANSWERS: Final = ("choices", "content", "data", "output", "result", "results", "response")
_FINE: Final = frozenset({"", "0", "200", "ok", "success"})


def error_in(answer: Mapping[str, Any]) -> Any:
    """Returns the error object, or the text, in a body or a frame that says that it is an error; None for all others.
    Services differ in where the error stands, and what its message and its code are called."""
    if answer.get("error"):
        return error_object(answer)
    if "error" in (answer.get("object"), answer.get("type")):
        return error_object(answer) or answer
    if _SIGNS.isdisjoint(answer) or _is_answer(answer):
        return None
    found = error_object(answer)
    if answer.get("errors") or answer.get("detail"):
        return found
    failed = isinstance(found, dict) and str(found.get("code") or "").lower() not in _FINE
    return found if failed and found.get("message") else None


def _is_answer(body: Mapping[str, Any]) -> bool:
    """True if a body or a frame has a part of an answer, or counts the tokens of one, so that other fields are no
    error."""
    return any(map(body.get, _ANSWERS)) or (body.get("choices") is not None and bool(body.get("usage")))


def error_object(body: Any) -> Any:
    """Returns the error object in an error's body with its `message` and `code` under these keys, or the text that
    stands in its place; None if there is neither."""
    for _ in range(MAX_NESTING):
        if isinstance(body, list):
            body = body[0] if body else None
        elif isinstance(body, dict) and (inner := _inside(body)):
            body = inner
        else:
            break
    if not isinstance(body, dict):
        return body if body is None or isinstance(body, str) else dump(body).decode()
    message = next((body[key] for key in _MESSAGES if body.get(key)), "")
    code = next((body[key] for key in _CODES if body.get(key)), None)
    text = _unwrapped(message) if isinstance(message, str) else dump(message).decode()
    provider = _provider_error(body)
    if provider is not None and provider[0] and provider[0] not in text:
        body = {"status_code": code, **body}
        text, code = f"{text}: {provider[0]}" if text else provider[0], provider[1] or code
    return {**body, "message": text, "code": code}


def _provider_error(body: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Returns message and code of the error that OpenRouter got from a provider; its own message says nothing."""
    metadata = body.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str) or raw[:1] == "<" or len(raw) > MAX_CHARS:
        return None
    try:
        error = error_object(load(raw))
    except ValueError:
        return raw, None
    return (error["message"], error["code"]) if isinstance(error, dict) else (str(error or ""), None)


def _inside(body: Mapping[str, Any]) -> Any:
    """Returns the error object in an error object, or the text or list in its place; None if there is none. An object
    with a message of its own may list details, which are none."""
    error = body.get("error")
    if isinstance(error, dict) and error:
        return error
    if any(isinstance(body.get(key), str) and body[key] for key in _MESSAGES):
        return None
    inside = next((body[key] for key in _INSIDE if body.get(key)), None)
    return inside or next((body[key] for key in _MESSAGES if body.get(key) and isinstance(body[key], dict)), None)


def _unwrapped(message: str) -> str:
    """Returns the message in a message that is the JSON of another server's error, which gateways pass on like this;
    any other message unchanged."""
    if message[:1] not in ("{", "[") or len(message) > MAX_CHARS:
        return message
    try:
        error = error_object(load(message))
    except ValueError:
        return message
    return error["message"] or message if isinstance(error, dict) else message


# --- errors inside of an answer ---------------------------------------------------------------------------------------


_NO_MODEL_WORD: Final = "modelnotfound"
_FAULT_WORDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("badrequest", "invalidrequest", "validation", "unprocessableentity", "invalidprompt"), 400),
    **dict.fromkeys(("authentication", "unauthorized", "permission", "permissiondenied", "forbidden"), 401),
    **dict.fromkeys(("notfound", _NO_MODEL_WORD), 404),
    **dict.fromkeys(("requesttoolarge", "payloadtoolarge"), 413),
    **dict.fromkeys(("ratelimit", "ratelimitexceeded", "toomanyrequests", "insufficientquota"), 429),
    **dict.fromkeys(("overloaded", "serviceunavailable", "serverisoverloaded", "slowdown"), 503),
    **dict.fromkeys(("timeout", "gatewaytimeout"), 504),
}
"""Statuses by the words of codes and types, in lower case, without separators and the ending `error`."""
_MODEL: Final = re.compile(r"(?<![\w/.-])models?(?![\w/-])", re.IGNORECASE)
_NO_MODEL: Final = re.compile(
    r"\b(?:invalid model(?: name| id\b|:)|unknown model\b(?! (?:param|field|option|arg|setting|propert))|valid model id\b"
    r"|model identifier is invalid|server is pinned to\b)"
    r"|(?<!embedding )\bmodel(?: [\"'`]?[\w./:@-]{1,200}[\"'`]?)? (?:(?:does|was|is|could)(?: not|n't)|not) (?:be )?(?:exist|found)"
    r"|模型不存在",
    re.IGNORECASE,
)
"""Matches the words of a 400 for a model that the server does not have: of LiteLLM, OpenRouter, DeepSeek, Mistral,
OpenAI's Responses, Open WebUI, Bedrock, Zhipu, and `transformers serve`, which serves one model only."""
_FINAL: Final = frozenset({"insufficientquota"})
"""Limits for which a retry is useless."""


def overflow_fault(
    text: str, *, param: str | None = None, hint: str | None = None, upstream_status: int | None = None
) -> ClientFault:
    """Returns the error for a prompt that does not fit the context; `text` is the server's. Clients know OpenAI's words
    only: others are replaced by them, or stand behind them where the server names no counts."""
    if "maximum context length" not in text.lower():
        counts = read_overflow(text)
        text = f"{UNCOUNTED} {text}".rstrip() if counts is None else _in_words_of_openai(counts)
    return ClientFault(text, code="context_length_exceeded", param=param, hint=hint, upstream_status=upstream_status)


UNCOUNTED: Final = "This model's maximum context length is exceeded. Please reduce the length of the messages."
"""OpenAI's words for an overflow of which a server names no counts."""


def _in_words_of_openai(counts: Overflow) -> str:
    begin = f"This model's maximum context length is {counts.window} tokens. However, "
    if not counts.output:
        return f"{begin}your messages resulted in {counts.prompt} tokens. Please reduce the length of the messages."
    return (
        f"{begin}you requested {counts.prompt + counts.output} tokens ({counts.prompt} in the messages, {counts.output} in"
        " the completion). Please reduce the length of the messages or completion."
    )


def status_in(error: Mapping[str, Any]) -> int | None:
    """Returns the HTTP status that fits an error object; None if it has neither a known code nor type."""
    codes = (error.get("code"), error.get("status"), error.get("status_code"))
    numbers = (int(word) if isinstance(word, str) and word.isdecimal() and len(word) == 3 else word for word in codes)
    for number in numbers:
        if type(number) is int and 400 <= number < 600:
            return number
    return next((_FAULT_WORDS[word] for word in _words(error) if word in _FAULT_WORDS), None)


def fault_of(error: Mapping[str, Any], message: str) -> GatewayError:
    """Returns the gateway's error for a server's error object; `message` is the server's text, shortened."""
    if error.get("code") == SLIP:
        return slip_fault(message)
    status = status_in(error)
    words = frozenset(_words(error))
    if lacks_model(status, message) or (status == 404 and _NO_MODEL_WORD in words):
        fault: GatewayError = no_model_fault(message)
    else:
        fault = _fault(status, message, lasting=not _FINAL.isdisjoint(words))
    fault.upstream_status = status
    return fault


def slip_fault(text: str) -> BackendFault:
    """Returns the error for a call that the model wrote wrong (`SLIP`); `text` is the server's."""
    return BackendFault(text, upstream_status=400, transient=True)


def lacks_model(status: int | None, text: str) -> bool:
    """Returns True if an error with this status and message says that the server does not have the model. A 404 that is
    not about the path has only to name it: servers word it in many ways, some without "not found"."""
    return (status == 404 and _MODEL.search(text) is not None) or (
        status in (400, 422) and _NO_MODEL.search(text) is not None
    )


def no_model_fault(text: str) -> ClientFault:
    """Returns the error for a model that the server does not have; `text` is the server's."""
    return ClientFault(
        text or "The model server does not have this model.",
        code="model_not_found",
        param="model",
        hint="GET /v1/models lists the names.",
    )


def _words(error: Mapping[str, Any]) -> Iterable[str]:
    for key in ("code", "type", "status"):
        word = error.get(key)
        if isinstance(word, str):
            yield word.lower().replace("_", "").replace(" ", "").replace("-", "").removesuffix("error")


def _fault(status: int | None, message: str, *, lasting: bool) -> GatewayError:
    match status:
        case 400 | 422:
            return ClientFault(message, code="upstream_rejected")
        case 401 | 403:
            return BackendFault(message, code="upstream_auth")
        case 408 | 504:
            return BackendFault(message, code="upstream_timeout", transient=True)
        case 413:
            return ClientFault(message, code="request_too_large")
        case 429:
            return ClientFault(message, code="rate_limit_exceeded", transient=not lasting)
        case 503 | 529:
            return BackendFault(message, code="overloaded" if status == 529 else None, transient=True)
        case _:
            return BackendFault(message, transient=status in (500, 502))
