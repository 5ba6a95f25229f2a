"""The Responses response object: all fields around the output of an answer.

Rules:

1. All keys are always present (`RESOURCE_KEYS`), in the order of the live service.
2. Echoed fields come from the client's body, in the protocol's own form even if the client used Chat's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import orjson

from ...errors import BackendFault, ClientFault, GatewayError
from ...formats.engine.toolset import SPEC_BYTES, known_set, note, note_of
from ...model import EMPTY, Usage, fields_of, scoped
from ...repair.characters import valid_text
from ..chat.reply import read_error, text_of
from ..chat.reply import read_usage as read_chat_usage
from ..shared.numbers import rest_of_counts, usage_of, with_rest
from ..shared.wire import dump, dumper, fields_in
from ..streams import WriteOptions
from .ids import new_response_id
from .items import PROTOCOL

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

RESOURCE_KEYS: Final = (
    "id", "object", "created_at", "status", "background", "completed_at", "error", "frequency_penalty",
    "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "model", "output",
    "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "reasoning",
    "safety_identifier", "service_tier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
    "truncation", "usage", "metadata",
)  # fmt: skip
"""All keys of the response object, in the order of the live service."""

_COUNTS: Final[Mapping[str, Any]] = {
    "input_tokens": None,
    "input_tokens_details": {"cached_tokens": None, "cache_write_tokens": None},
    "output_tokens": None,
    "output_tokens_details": {"reasoning_tokens": None},
    "total_tokens": None,
}
"""The modelled counts."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
"""Fields that are echoed unchanged, with their values if the client sent none."""


DEFAULT_TIER: Final = "default"
REDACTED: Final = "<redacted>"
"""Written in place of secrets."""

_AS_GIVEN: Final = ("prompt_cache_retention", "user")
"""Fields that are echoed at the end, if the client sent them."""

_RESOURCE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(RESOURCE_KEYS),
    **_DEFAULTS,
    "object": "response",
    "background": False,
    "service_tier": DEFAULT_TIER,
}
"""All keys in order, with their most frequent values."""


def response_id(answer_id: str) -> str:
    """Returns the id of the answer: the given one if it has the protocol's form, otherwise a new one."""
    return answer_id if answer_id.startswith("resp_") else new_response_id()


def resource(
    options: WriteOptions,
    ident: str,
    status: Status,
    output: Sequence[Mapping[str, Any]] = (),
    *,
    usage: Usage | None = None,
    reason: str | None = None,
    error: GatewayError | None = None,
    completed_at: int | None = None,
    fields: Mapping[str, Any] = EMPTY,
) -> dict[str, Any]:
    """Returns the response object. `output` are finished items, as from `output_items`; `reason` is the word in
    `incomplete_details`; `fields` are unmodelled fields of the model server."""
    echo = options.made.get(_echo)
    if echo is None:
        echo = options.made[_echo] = _echo(options)
    written = {
        **echo,
        "id": ident,
        "status": status,
        "completed_at": completed_at,
        "error": None if error is None else response_error(error),
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": list(output),
        "usage": None if usage is None or usage.missing == "both" else write_usage(usage),
    }
    if fields:
        written["service_tier"] = fields.get("service_tier", DEFAULT_TIER)
        written |= {key: value for key, value in fields.items() if key not in written}
    body = options.body
    for key in _AS_GIVEN:
        if isinstance(body.get(key), str):
            written[key] = body[key]
    if "conversation" in body and (conversation := conversation_of(body)) is not None:
        written["conversation"] = {"id": conversation}
    return written


def conversation_of(body: Mapping[str, Any]) -> str | None:
    """Returns the id of the conversation that a request or a response belongs to; None if there is none."""
    conversation = body.get("conversation")
    ident = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    return ident if isinstance(ident, str) else None


def write_begun(options: WriteOptions, ident: str) -> bytes:
    """Returns the JSON of the response in progress, for the store. `take_begun` returns the same bytes for the
    client."""
    written = write_resource(resource(options, ident, "in_progress"), options)
    options.made[write_begun] = ident, written
    return written


def take_begun(options: WriteOptions, ident: str) -> bytes:
    """Returns the bytes that `write_begun` has written for this response, once; otherwise writes them."""
    known: tuple[str, bytes] | None = options.made.pop(write_begun, None)
    if known is not None and known[0] == ident:
        return known[1]
    return write_resource(resource(options, ident, "in_progress"), options)


def write_resource(shown: Mapping[str, Any], options: WriteOptions) -> bytes:
    """Returns the JSON of a response object. The JSON of its tools, most of it, is cached for a list that comes
    again."""
    write = dumper(options.large)
    if not shown["tools"]:
        return write(shown)
    known = known_set(options.body.get("tools"), PROTOCOL) or ()
    tools: bytes | None = note_of(known, write_resource)
    if tools is None:
        tools = dump(shown["tools"])
        note(known, write_resource, tools, len(tools))
    try:
        written = {**shown, "tools": orjson.Fragment(tools)}
        return write(written) if options.large else orjson.dumps(written)
    except (orjson.JSONEncodeError, TypeError):  # the other writer does not support fragments
        return write(shown)


def _echo(options: WriteOptions) -> dict[str, Any]:
    """Returns a response object with all keys and the values that are the same throughout one answer."""
    body = options.body
    values = {
        **_RESOURCE,
        "created_at": options.created,
        "model": options.request.model,
        "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
        "text": _echo_text(body.get("text") or {}),
        "tool_choice": _echo_choice(body.get("tool_choice")),
        "tools": _echo_tools(body.get("tools") or ()),
        "metadata": body.get("metadata") or {},
        "background": body.get("background") is True,
    }
    for key in _DEFAULTS:
        if body.get(key) is not None:
            values[key] = body[key]
    return values


def _echo_text(text: Mapping[str, Any]) -> dict[str, Any]:
    form = dict(text.get("format") or {"type": "text"})
    if form["type"] == "json_schema":
        form = {"description": None, **form, "strict": form.get("strict") is True}
    rest = {key: value for key, value in text.items() if key != "format" and value is not None}
    return {"format": form, **rest}


def _echo_choice(choice: Any) -> Any:
    """Returns the tool choice in the flat form."""
    if not isinstance(choice, Mapping):
        return choice or "auto"
    inner = choice.get(str(choice.get("type")))
    if not isinstance(inner, Mapping):
        return choice
    flat = {"type": choice["type"], **inner}
    if isinstance(flat.get("tools"), list):
        flat["tools"] = [_echo_choice(tool) for tool in flat["tools"]]
    return flat


def _echo_tools(listed: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the tools as echoed; cached for a list that comes again."""
    known = known_set(listed, PROTOCOL) or ()
    shown: Sequence[Mapping[str, Any]] | None = note_of(known, _echo_tools)
    if shown is None:
        shown = note(known, _echo_tools, [_echo_tool(tool) for tool in listed], SPEC_BYTES * len(listed))
    return shown


def _echo_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a tool in the flat form; function tools have all their fields (R3.1)."""
    flat = _flat_tool(tool)
    if flat.get("type") != "function":
        return flat
    fields = {key: flat.pop(key, None) for key in ("type", "description", "name", "parameters", "strict")}
    return {**fields, **flat}


def _without_secrets(server: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool server without its credentials, as OpenAI shows it. Keys may be in headers, and in the path and
    the query of its URL."""
    shown = {key: value for key, value in server.items() if key != "authorization"}
    if (headers := shown.get("headers")) is not None:
        shown["headers"] = dict.fromkeys(headers, REDACTED) if isinstance(headers, Mapping) else None
    if (url := shown.get("server_url")) is not None:
        shown["server_url"] = _host_only(url) if isinstance(url, str) else REDACTED
    return shown


def _host_only(url: str) -> str:
    """Returns a URL without the parts that may hold a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    if not (parts.scheme and parts.netloc):
        return REDACTED
    bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return url if url.rstrip("/") == bare else f"{bare}/{REDACTED}"


def _flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tool in the flat form, with the tools inside a namespace in the flat form too."""
    kind = tool.get("type")
    inner = tool.get(str(kind))
    flat = dict(tool)
    if kind in ("function", "custom") and isinstance(inner, Mapping):
        del flat[kind]
        flat |= {key: value for key, value in inner.items() if flat.get(key) is None}
    if kind == "namespace":
        flat["tools"] = [_flat_tool(member) for member in flat["tools"]]
    return _without_secrets(flat) if kind == "mcp" else flat


def response_error(error: GatewayError) -> dict[str, str]:
    """Returns the `error` of a failed response, with one of the codes that clients know."""
    if error.code == "context_length_exceeded":
        code = "context_length_exceeded"
    elif error.status == 429:
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if 400 <= error.status < 500 else "server_error"
    return {"code": code, "message": valid_text(f"{error.code}: {error.message}")}


def write_usage(usage: Usage) -> dict[str, Any]:
    """Returns the `usage` object with its details (R11.1)."""
    written: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
    return with_rest(written, fields_of(usage.extra, PROTOCOL)) if usage.extra else written


def read_usage(usage: Any) -> Usage | None:
    """Returns the token counts; missing details are 0. None if there are none or impossible ones. Some servers use the
    names of Chat."""
    if not isinstance(usage, Mapping):
        return None
    if "input_tokens" not in usage and "output_tokens" not in usage:
        return read_chat_usage(usage)
    extra = scoped(PROTOCOL, rest_of_counts(usage, _COUNTS))
    before, after = fields_in(usage.get("input_tokens_details")), fields_in(usage.get("output_tokens_details"))
    return usage_of(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cached=before.get("cached_tokens"),
        stored=before.get("cache_write_tokens"),
        reasoning=after.get("reasoning_tokens"),
        extra=extra,
    )


# --- errors -----------------------------------------------------------------------------------------------------------


_OVERLOADED: Final = frozenset({"server_is_overloaded", "slow_down"})


def read_fault(answer: Mapping[str, Any]) -> GatewayError | None:
    """Returns the error in a body or a response object; None if it holds none. It has the server's message, shortened
    (R10.8)."""
    error = read_error(answer)
    details = answer.get("error")
    if error is None or isinstance(error, ClientFault) or not isinstance(details, dict):
        return error
    code = text_of(details.get("code"))
    if code in _OVERLOADED:
        return BackendFault(error.message, code="overloaded", transient=True)
    if "image" in code:
        return ClientFault(error.message, code="upstream_rejected")
    error.transient = error.transient or code == "server_error"
    return error
