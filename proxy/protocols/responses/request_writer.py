"""Writer of Responses requests: `ModelRequest` to the JSON for a Responses server (R24.2a, docs/adr/0031).

The rules are those of `request.py`, the opposite direction, and of `items.py`. The gateway stores the conversation and
the server must not: `store` is always false, no item is a reference, and ids that only a storing server could know are
left out. Servers accept call ids of at most 64 characters, and limits of at least 16 tokens.

A plain system message at the beginning becomes `instructions`. A tool from another protocol is strict only if it says
so there, because the default differs here.

It cannot express, besides what `items` lists: `Sampling.stop` (`ServerSide.stops`), `seed`, `n` and `reasoning_budget`,
`include_usage` (always on), `constraint`, `tool_choice` and `parallel_tool_calls` without tools, a namespace without a
description, a hosted tool inside one, additional fields of a namespace, the namespace of a tool that `tool_choice`
names, and Chat's parameters in `_FOREIGN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ...known.kinds import kinds_of
from ...known.past import fold_items, make_once
from ...model import EMPTY, Message, ModelRequest, Reasoning, Text, ToolChoice, ToolSpec, fields_of
from ..shared.call_ids import at_most
from ..shared.client_tools import is_client_tool
from ..shared.openai import FORMAT_NAME
from ..shared.wire import fields_in
from .ids import response_of
from .item_writer import write_items
from .items import PROTOCOL, own_items
from .request import GATEWAYS_OWN, KNOWN, TOOL_FIELDS

LEAST_TOKENS: Final = 16
"""Minimum limit that servers accept."""
CALL_ID_CHARS: Final = 64
"""Maximum length of a call id."""

COUNTED: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation"}
)
"""Fields accepted by servers when counting tokens."""

_SHARED: Final = frozenset(
    {
        "metadata", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "top_logprobs",
    }
)  # fmt: skip
"""Parameters that mean the same in Chat."""
_FOREIGN: Final = frozenset({"logprobs", "verbosity", "modalities", "audio", "prediction", "web_search_options"})
"""Parameters of Chat that have another place here, or none."""
_LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED: Final = "reasoning.encrypted_content"
"""The value of `include` that requests encrypted reasoning."""
_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_CALL_PREFIXES: Final[Mapping[str, str]] = {"function_call": "fc", "custom_tool_call": "ctc"}


# --- a client's own body --------------------------------------------------------------------------------------------


def own_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a Responses client's body for a server that must not store anything; the same object if the client
    already disables storing."""
    if body.get("store") is False and "generate" not in body:
        return body
    body = {name: value for name, value in body.items() if name != "generate"}
    items = own_items(body)
    fitted: dict[str, Any] = {} if isinstance(items, str) else {"input": list(_without_stored(items))}
    if body.get("reasoning"):  # the gateway stores the reasoning instead of the server
        included = body.get("include") or []
        fitted["include"] = included if ENCRYPTED in included else [*included, ENCRYPTED]
    theirs = {key: value for key, value in body.items() if key not in GATEWAYS_OWN}
    return {**theirs, **fitted, "store": False}


def _without_stored(items: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields items without ids and references that only a server which stored them could resolve."""
    for item in items:
        kind = item.get("type")
        if kind == "item_reference":
            continue
        ident = item.get("id")
        if kind == "reasoning" and not item.get("encrypted_content"):
            if not (item.get("summary") or item.get("content")):
                continue
            drop = "id" in item
        elif kind == "reasoning":
            drop = isinstance(ident, str) and response_of(ident) is not None
        else:
            drop = "id" in item and not (
                isinstance(ident, str) and ident.startswith(_CALL_PREFIXES.get(kind or "", ""))
            )
        yield {key: value for key, value in item.items() if key != "id"} if drop else item


# --- requests -------------------------------------------------------------------------------------------------------


def write_request(request: ModelRequest) -> dict[str, Any]:
    """Returns the JSON object of a request to a Responses server."""
    instructions, messages = _instructions(request.messages)
    items = fold_items(request.past, "responses.write", messages, 0, _write_more)[0]
    body: dict[str, Any] = {"model": request.model, "input": items, "store": False}
    if request.tools:
        body["tools"] = make_once(request.past, "Responses tools", request.tools, lambda: write_tools(request.tools))
        if request.tool_choice.mode != "auto" or request.tool_choice.allowed is not None:
            body["tool_choice"] = write_choice(request.tool_choice, request.tools)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    sampling, extra = request.sampling, request.extra
    own = fields_of(request.protocol_fields, PROTOCOL)
    most = sampling.max_tokens
    fields = {
        "instructions": instructions,
        **{key: value for key, value in extra.items() if key in _SHARED},
        **own,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_output_tokens": None if most is None else max(most, LEAST_TOKENS),
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "top_k": sampling.top_k,
        "reasoning": _reasoning(own.get("reasoning", EMPTY), request) or None,
        "text": _text(own.get("text", EMPTY), request) or None,
        "include": _included(own.get("include"), request),
        "stream": True if request.stream else None,
    }
    body.update((key, value) for key, value in fields.items() if value is not None)
    # `extra` fields with names of this protocol come from other protocols, where they mean something else
    body.update((key, value) for key, value in extra.items() if key not in KNOWN and key not in _FOREIGN)
    return body


def _write_more(_: int, messages: Sequence[Message], start: int, items: list[Mapping[str, Any]]) -> int:
    items += [_with_server_id(item) for item in _without_stored(write_items(messages))]
    return 0


def _instructions(messages: tuple[Message, ...]) -> tuple[str | None, tuple[Message, ...]]:
    """Returns the text of a first message that is plain instructions, and the other messages, of which there must be
    some."""
    match messages:
        case (Message(role="system", parts=(Text(text, extra),), name=None) as first, _, *_) if text:
            if not fields_of(extra, PROTOCOL) and not fields_of(first.extra, PROTOCOL):
                return text, messages[1:]
    return None, messages


def _with_server_id(item: Mapping[str, Any]) -> Mapping[str, Any]:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and (fitting := at_most(CALL_ID_CHARS, call_id)) is not call_id:
        return {**item, "call_id": fitting}
    return item


def _reasoning(own: Mapping[str, Any], request: ModelRequest) -> Mapping[str, Any]:
    effort = request.sampling.reasoning_effort
    return own if effort is None else {**own, "effort": effort}


def _text(own: Mapping[str, Any], request: ModelRequest) -> Mapping[str, Any]:
    form, verbosity = request.response_format, request.extra.get("verbosity")
    shape = {} if form is None else {"format": _write_format(form)}
    detail = {} if verbosity is None else {"verbosity": verbosity}
    return {**detail, **own, **shape}


def _write_format(form: Mapping[str, Any]) -> dict[str, Any]:
    schema = form.get("json_schema")
    if not isinstance(schema, Mapping):
        return dict(form)
    return {"type": form["type"], **schema, "name": schema.get("name") or FORMAT_NAME}


def _included(own: Any, request: ModelRequest) -> Any:
    """Returns `include` with token probabilities, which Chat requests elsewhere, and encrypted reasoning, which the
    gateway needs to send reasoning back. Models without reasoning refuse the latter, so it is added only if the request
    uses reasoning."""
    wanted = [_LOGPROBS] if request.extra.get("logprobs") is True else []
    if _reasons(request):
        wanted.append(ENCRYPTED)
    included = own if isinstance(own, list) else []
    missing = [word for word in wanted if word not in included]
    return [*included, *missing] if missing else own


def _reasons(request: ModelRequest) -> bool:
    """True if the request sets reasoning options, or contains reasoning from such a server."""
    sampling = request.sampling
    if sampling.reasoning_effort not in (None, "none") or sampling.reasoning_budget:
        return True
    if any("thinking" in fields for fields in request.protocol_fields.values()):
        return True
    if Reasoning not in kinds_of(request.messages, request.past):
        return False
    parts = (part for message in request.messages for part in message.parts)
    return any(isinstance(part, Reasoning) and "encrypted_content" in fields_of(part.extra, PROTOCOL) for part in parts)


# --- tools ----------------------------------------------------------------------------------------------------------


def write_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Returns the tools; neighbours with the same namespace form one group."""
    written: list[dict[str, Any]] = []
    for (namespace, about), members in groupby(tools, key=lambda tool: (tool.namespace, tool.namespace_description)):
        shown = [_write_tool(tool) for tool in members]
        if namespace is None:
            written += shown
        else:
            written.append({"type": "namespace", "name": namespace, "description": about or namespace, "tools": shown})
    return written


def _write_tool(tool: ToolSpec) -> dict[str, Any]:
    if tool.kind == "hosted" or _is_typed_tool(tool):
        return dict(tool.received) or {"type": tool.name}
    received = fields_of(tool.extra, PROTOCOL)
    inner = fields_in(tool.received.get(tool.kind))
    fields: dict[str, Any]
    if tool.kind == "custom":
        form = tool.received.get("format") or inner.get("format")
        if isinstance(form, Mapping) and isinstance(grammar := form.get("grammar"), Mapping):  # Chat's form
            form = {"type": form.get("type"), **grammar}
        fields = {"name": tool.name, "description": tool.description, "format": form}
    else:
        fields = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        }
        if not received:
            fields["parameters"] = _NO_PARAMETERS if tool.parameters is None else tool.parameters
            fields["strict"] = tool.strict is True
    rest = {**inner, **received} if received else EMPTY
    return {
        **{key: value for key, value in rest.items() if key not in TOOL_FIELDS and value is not None},
        "type": tool.kind,
        **{key: value for key, value in fields.items() if value is not None},
    }


def _is_typed_tool(tool: ToolSpec) -> bool:
    """True if a client-run tool was sent in this protocol by its type alone."""
    return is_client_tool(tool) and PROTOCOL in tool.extra


def write_choice(choice: ToolChoice, tools: Iterable[ToolSpec] = ()) -> Any:
    """Returns the wire form of `tool_choice`. `tools` are needed to tell functions from custom and hosted tools."""
    known = {tool.name: tool for tool in tools}

    def named(name: str) -> dict[str, Any]:
        tool = known.get(name)
        if tool is not None and tool.kind == "hosted":
            kind = str(tool.received.get("type") or name)
            label = tool.received.get("server_label")
            return {"type": kind, "server_label": label} if isinstance(label, str) else {"type": kind}
        if tool is not None and _is_typed_tool(tool):
            return {"type": tool.received["type"]}
        return {"type": "function" if tool is None else tool.kind, "name": name}

    rest = fields_of(choice.extra, PROTOCOL)
    if choice.mode == "named" and choice.name is not None:
        return {**rest, **named(choice.name)}
    if choice.allowed is not None and choice.mode != "none":
        return {**rest, "type": "allowed_tools", "mode": choice.mode, "tools": [named(name) for name in choice.allowed]}
    return choice.mode
