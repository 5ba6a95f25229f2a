"""Words of model servers' errors: one table of all that the gateway concludes from them, except for an overflow of the
context and an unknown model (`toolwire.protocols.shared.server_errors`), and the questions about tools that it answers.

Rules:

1. A message that repeats the request is searched up to that part: pydantic's `input` (vLLM, FastAPI), which may contain
   the name of any field.
2. A field is refused if the message names it, and says that it is unknown or not supported, or that it needs one value.
   A value beyond a range, or of another type, is the client's mistake, and so is a schema.
3. Messages are cleaned and short (`MAX_MESSAGE_CHARS`).
"""

from __future__ import annotations

import re
from typing import Final

from ...errors import GatewayError

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels of reasoning effort, lowest first."""

LIMIT_FIELDS: Final = ("max_tokens", "max_completion_tokens")
"""The two fields of Chat for the limit of the answer. A server that refuses one takes the other."""

SAMPLING: Final = ("top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "temperature")
"""Fields of sampling of which one value, or none, may be all that a model takes. Of several in one message the first is
refused: Claude takes one of the first and the last."""

UNMODELLED: Final = (
    *("store", "metadata", "user", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("safety_identifier", "service_tier", "verbosity", "prediction", "context_management", "client_metadata"),
)
"""Fields that say nothing about the answer's content."""

_FORMATS: Final = r"(?:\bresponse_? ?format\b|\bjson_(?:schema|object)\b|\bstructured outputs?\b|\bjson mode\b|\bresponse mime type\b)"
_NOT_TAKEN: Final = (
    r"(?:(?:\bnot|n't|\bun)[- ]?support|\bunavailable|\bcannot be combined|\bunknown|\bunrecognized|_forbidden"
    r"|\bpermitted|\bmust be|\bshould be)"
)
_FORMAT: Final = (
    r"^(?!.*(?:\binvalid schema\b|\bmust contain\b|\bkeywords?\b|\bjson_schema(?:\.\w|:? (?:name|with|property)\b)))"
    rf"(?:.*{_FORMATS}.{{0,80}}{_NOT_TAKEN}|.*{_NOT_TAKEN}.{{0,80}}{_FORMATS})"
)
_VALUE: Final = (
    r"^(?!.*\b(?:unset|thinking)\b).*(?:\b(?:must|should) be (?:[<>]|0 \(|an? |valid|in\b|within|between|at |less|greater|positive|non-)"
    r"|\brange\b|\bout of\b|\b(?:above|below) m\w+imum|\bexpected an?\b|\binvalid type\b)"
)
_UNKNOWN: Final = r"\b(?:unsupported|unknown|unrecognized|extra_forbidden)\b"

_TABLE: Final = {
    # --- the request or a part of it ---
    # OpenRouter finds no endpoints "that support" it (404), a model of Ollama is "missing data required" for it (500).
    "unsupported": r"(?:\bthat|\bnot|n't|\bno \w+) support|\bunsupported\b|\bmissing data required\b",
    # An image or a file that is not there, or did not arrive.
    "missing": (
        r"\bnot? (?:be )?(?:found|exist|such)|n't exist|\bexpired\b|\bdownload|\bfetch|\bretriev|\btimed? ?out"
    ),
    # One image or file, or their number. Later requests may have others.
    "one_of_its_kind": (
        r"\bexceed|\btoo (?:large|big|small|many)|\bsize\b|\bpixels?\b|\bdimension|\binvalid (?:image|file|pdf|base64)|\bcorrupt"
        r"|\bdecod|(?:could not|unable to|failed to|cannot) (?:process|load|read|parse|open|identify)|\bis (?:a )?valid\b"
        r"|\bat most [1-9]|\bcould not be\b|\bbase64.encoded|\bformats?\b|\b(?:media|mime).?types?\b|\bimage/|\bwidth\b|\bpages?\b"
        r"|\bpassword|\bimage tokens\b"
    ),
    "images": (
        r"\bimages?\b|image_url|input_image|\bvision\b|multi-?modal|mmproj|unknown variant .?image|content.{0,40}must be a string"
    ),
    "files": r"\bfiles?\b|\bdocuments?\b|\bpdf\b|input_file|unknown variant .?(?:file|document)",
    "answer_tokens": (
        r"max(?:imum)?[_ ](?:completion_|output_|new_)?tokens|completion tokens|token count|context_window"
    ),
    "long_name": r"^(?=.*name).*(?:too long|maximum length|max length|at most 64|\{1,64\})",
    "grammar": r"grammar|ebnf|structur|guided|json.?schema|constrain",
    # --- roles ---
    "template": r"\broles?\b|\bsystem (?:message|prompt)|\btool call ids?\b",  # an error that comes as 404 (mlx_lm)
    "alternating": r"\broles? (?:must|should) alternate|alternat\w{0,8} user",
    "late_system": r"system (?:message|prompt|role).{0,40}\b(?:begin|first|start)",
    "system": r"system (?:role|messages?|prompts?).{0,20}\b(?:not|unsupported)\b|only user and assistant",
    "developer": r"\bdeveloper\b",
    "user_after_tool": r"\brole .?user\b.{0,20}\bafter role .?tool\b",
    "short_ids": r"\btool call ids?\b.{0,80}\blength (?:of )?9\b",
    # --- fields (`FIELDS`) ---
    "high_temperature": rf"^(?=.*\btemperature\b){_VALUE}",
    **{name: rf"^(?!{_VALUE}).*\b{name.replace('_', '_?')}\b" for name in SAMPLING},
    "stop": (
        r"\b(?:parameter|argument|field|property|name)\W{1,4}stop\b|\bstop(?: sequences?)?['\"`]? (?:is|are) (?:not|un)"
        r"|(?:\bnot|n't|\bun)[- ]?support[^.]{0,40}\bstop\b"
    ),
    # Claude since Opus 4.7.
    "thinking_budget": r"\bthinking\.type\.enabled\b.{0,10}\bnot supported",
    # A turn of the model at the end: Claude since 4.6, Mistral, llama.cpp with a model that thinks.
    "prefill": r"\bprefill\b|\bmust end with a user message|\bexpected last role user|\bassistant messages at the end\b",
    # OpenAI's Chat since GPT-5.4; without any effort it has one of its own.
    "tool_effort": r"\btools? with reasoning_effort are not support",
    "reasoning_effort": (
        r"\breasoning(?:[_.]?effort| value)\b|\beffort\b|\bdoes not support thinking\b"
        rf"|(?:unsupported|invalid) value: '(?:{'|'.join(EFFORTS)})'"
    ),
    "reasoning_content": (
        r"(?<!issing )(?<!issing .)\breasoning_content\b(?!.{0,60}(?:\bmust be\b|\bmissing\b|\brequired\b))"
    ),
    # DeepSeek V4, Kimi: they want it with all earlier turns of the model.
    "missing_reasoning": r"\bmissing .?reasoning_content\b|\breasoning_content\b.{0,50}\b(?:passed back|missing|required)\b",
    "signatures": (
        r"\bsignature\b.{0,40}\bthinking\b|\bthinking\b.{0,80}\bcannot be modified"
        r"|(?:\binvalid|\bcorrupted|\bmalformed) thought.?signature|\bthought.?signature is (?:not valid|invalid)"
        r"|\binvalid_encrypted_content\b|\bencrypted content\b.{0,100}\bcould not be (?:verified|decrypted)"
    ),
    "unsigned_calls": r"\bmissing a .?thought_?signature\b",
    "content_parts": (
        r"\bcontent\b.{0,40}\b(?:must be|expected|of type) (?:an? )?string\b(?! with)|\bcontent\b.{0,40}\binvalid type: sequence"
        r"|\binvalid message (?:format|content type)\b"
    ),
    # llama.cpp makes a grammar of the schemas, and cannot read it.
    "schema_bounds": r"failed to parse grammar|schema conversion failed",
    "cache_scope": rf"\bcache_control\b.{{0,20}}\bscope\b.{{0,20}}\bextra inputs|{_UNKNOWN}.{{0,80}}\bcache_control\b.{{0,20}}\bscope\b",
    "strict": (
        rf"{_UNKNOWN}.{{0,80}}\bstrict\b|\bsame .?strict\b"
        r"|\bstrict\b.{0,60}(?:\bnot (?:be )?(?:support|permitted|allowed)|\bunsupported|\bextra inputs)"
    ),
    "parallel_tool_calls": r"\bparallel_tool_calls\b",
    "stream_options": r"\bstream_options\b",
    **{
        name: (rf"{_UNKNOWN}(?:(?!max_).){{0,80}}\b{name}\b|\b{name}\b\W{{1,3}}(?:is )?(?:not supported|unsupported)")
        for name in LIMIT_FIELDS
    },
    "tool_choice": r"\btool_choice\b(?!.*(?:requires? --|type: '?object|\bnot (?:found|match)))",
    "json_schema": _FORMAT,
    "json_object": _FORMAT,
    "streamed": (
        r"\bstream(?:ing)?\b(?! (?:options|error)).{0,20}\bnot (?:supported|available|allowed)"
        r"|(?:not|n't) (?:currently )?support.{0,30}\bstream(?:s|ing)?\b|\bstream['\"`]? does not support true|\bverified to stream\b"
    ),
    "whole": (
        r"\bstream\b.{0,20}\b(?:must|needs? to|has to|should) be (?:set to )?[\"'`]?true|\bonly supports? stream"
        r"|\bsupports? only stream|\bnon-stream|\bstream ?= ?[\"'`]?(?:true\b.{0,20}\brequired|false\b.{0,20}\bnot)"
        r"|\b(?:must|requires?)\b.{0,40}\bstream ?= ?[\"'`]?true"
    ),
    **{
        name: (
            rf"(?:{_UNKNOWN}|\b(?:unexpected|extra inputs|(?:not|n't) support\w*)\b).{{0,80}}\b{name}\b"
            rf"|\b{name}\b\W{{1,3}}(?:is )?(?:not supported|unsupported|not (?:permitted|allowed)|extra inputs)"
        )
        for name in UNMODELLED
    },
    "thinking": r"\bthinking\b",
    # --- tools ---
    "tools": r"\btools?\b|\btool[_-]|function[ _-]call|failed to parse grammar|schema conversion failed|prompt with jinja template",
    # The particular tools of a request, not tools in general.
    "one_tool": r"\btools?(?:\[|\.)\d|schema|grammar|too (?:many|long|large)|at most|maximum|duplicate|pattern",
    # Tools in general: llama.cpp sends it with 500, others with 404 or inside a 200.
    "no_tools": (
        r"\btool\S* (?:param |choice )?requires? --|\btools?\b.{0,40}(?:\bnot|n't) (?:be )?support"
        r"|(?:\bnot|n't) support.{0,40}\btools?\b|unsupported\b.{0,40}\btools?\b|found that support tool"
    ),
    # `tool_choice` must be a word, not an object (LM Studio).
    "choice_form": (
        r"^(?>.*?tool_choice\b)(?!.*requires? --).*(?:type: '?object|supported string values"
        r"|(?:must be|expected|valid|not) an? (?:string|str\b|object))"
    ),
    # A server could not read a call of its own model: llama.cpp, Ollama, LM Studio.
    "unread_call": (
        r"failed to parse (?:input at|tool.?call)|(?:error|failed|failure) (?:while )?pars\w+ (?:the )?tool.?calls?\b"
        r"|tool.?calls? pars\w+ (?:error|failed)|xml syntax error on line"
    ),
}
_PATTERNS: Final = {name: re.compile(words, re.IGNORECASE) for name, words in _TABLE.items()}
_REPEATED: Final = re.compile(
    r"[\"']input[\"']: ?(?=[\[{\"'\d-]|(?:true|false|null|none)\b)|\binput_value=", re.IGNORECASE
)


def says(what: str, text: str) -> bool:
    """True if a server's message says this: a key of the table."""
    return _PATTERNS[what].search(own_words(text)) is not None


def own_words(text: str) -> str:
    """Returns a server's message up to where it repeats the request."""
    repeated = _REPEATED.search(text)
    return text if repeated is None else text[: repeated.start()]


def refuses_tools(error: GatewayError) -> bool:
    """True if a server refused a request because of its tools, or the way they were sent (R24.1). False if it refuses
    only the form of `tool_choice`."""
    return not is_slip(error) and says_no_tools(error.upstream_status, error.message)


def refuses_all_tools(error: GatewayError) -> bool:
    """True if the error means that the server accepts no tools at all, not just those of this request."""
    return refuses_tools(error) and not says("one_tool", error.message)


def says_no_tools(status: int | None, text: str) -> bool:
    """True if a message with this status refuses tools, or the way they were sent."""
    if status in (400, 422, 501):
        return says("tools", text) and not says("choice_form", text)
    return status in (None, 404, 500) and says("no_tools", text)


def is_slip(error: GatewayError) -> bool:
    """True for an error with the status of a refusal that may pass: the model, not the request, was wrong."""
    return error.transient and error.upstream_status == 400


def cannot_read_calls(error: GatewayError) -> bool:
    """True if a server could not read what its own model wrote as a call. The gateway may be able to."""
    return is_slip(error) or (error.upstream_status in (None, 500) and says("unread_call", error.message))
