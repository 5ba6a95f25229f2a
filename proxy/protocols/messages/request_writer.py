"""Writer of Messages requests: `ModelRequest` to the JSON for a Messages server (R24.2a).

The rules are those of `request.py`, the opposite direction. A server requires `max_tokens`, a user message first,
results directly after their calls and before anything else, calls after the text of a message, and an object as every
schema. It refuses empty texts and reasoning that it has not signed.

It cannot express: `seed`, penalties, `n`, a format without a schema, a message's `name`, `constraint`. For
`ToolChoice.allowed` the other tools are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...known.past import Past, fold_items, make_once
from ...model import (
    EMPTY,
    Message,
    ModelRequest,
    Part,
    Refusal,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
)
from ..shared.client_tools import is_client_tool
from ..shared.wire import rest_of
from .blocks import PROTOCOL, request_blocks, write_content
from .request import HEADERS, KNOWN, TOOL_FIELDS

MAX_TOKENS: Final = 4096
"""The `max_tokens` of requests without one: every model of the protocol supports this much."""

COUNTED: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format"}
    | {"cache_control", "context_management", "mcp_servers", "speed"}
)
"""Fields accepted by servers when counting tokens."""

_NOT_IN_BODY: Final = frozenset({*HEADERS, "system"})
"""Protocol fields that are not written as fields of the body: headers, and the notes in `system`."""
_OF_OPENAI: Final = frozenset({"name", "strict", "description"})
"""Fields of an answer's format that this protocol's servers refuse."""
_BEGIN: Final = "Continue."
_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


def write_request(request: ModelRequest) -> dict[str, Any]:
    """Returns the JSON object of a request to a Messages server."""
    sampling = request.sampling
    protocol_fields = fields_of(request.protocol_fields, PROTOCOL)
    blocks, messages = write_messages(request.messages, request.past)
    system = [*protocol_fields.get("system", ()), *blocks]
    most = MAX_TOKENS if sampling.max_tokens is None else sampling.max_tokens
    body: dict[str, Any] = {"model": request.model, "max_tokens": most, "messages": messages}
    if system:
        body["system"] = write_content(system)
    tools = _offered(request)
    if tools:
        body["tools"] = make_once(request.past, "Messages tools", tools, lambda: write_tools(tools))
        if choice := write_choice(request.tool_choice, parallel=request.parallel_tool_calls):
            body["tool_choice"] = choice
    own = rest_of(protocol_fields, _NOT_IN_BODY)
    fields = {
        **own,
        "temperature": None if sampling.temperature is None else min(sampling.temperature, 1),
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_sequences": list(sampling.stop) or None,
        "thinking": _thinking(own.get("thinking", EMPTY), sampling),
        "output_config": _output(own.get("output_config", EMPTY), request) or None,
        "stream": True if request.stream else None,
    }
    body.update((key, value) for key, value in fields.items() if value is not None)
    # `extra` fields with names of this protocol come from other protocols, where they mean something else
    body.update((key, value) for key, value in request.extra.items() if key not in KNOWN)
    return body


def _offered(request: ModelRequest) -> list[ToolSpec]:
    allowed = request.tool_choice.allowed
    return [tool for tool in request.tools if allowed is None or tool.kind == "hosted" or tool.name in allowed]


def _thinking(own: Mapping[str, Any], sampling: Sampling) -> Mapping[str, Any] | None:
    match sampling.reasoning_budget:
        case None:
            return own or None
        case 0:
            return {**own, "type": "disabled"}
        case budget:
            return {"type": "enabled", **own, "budget_tokens": budget}


def _output(own: Mapping[str, Any], request: ModelRequest) -> dict[str, Any]:
    written = dict(own)
    if request.sampling.reasoning_effort is not None:
        written["effort"] = request.sampling.reasoning_effort
    form = request.response_format
    if form is not None and form.get("type") not in ("text", "json_object"):
        schema = form.get("json_schema")
        if isinstance(schema, Mapping):
            plain = {key: value for key, value in schema.items() if key not in _OF_OPENAI}
            if "description" in schema and isinstance(shape := schema.get("schema"), Mapping):
                plain["schema"] = {"description": schema["description"], **shape}
            form = {"type": form["type"], **plain}
        written["format"] = form
    return written


def write_messages(
    messages: Sequence[Message], past: Past | None = None
) -> tuple[Sequence[Mapping[str, Any]], Sequence[dict[str, Any]]]:
    """Returns the blocks of `system`, and the `messages` array."""
    out, end = fold_items(past, "messages.write", messages, _Written(), _write_more, _before_results)
    return end.system, out or [{"role": "user", "content": _BEGIN}]


class _Written(NamedTuple):
    """The state after writing some messages: the blocks of `system`, whether other messages were written (`begun`), and
    whether the last one contains tool results."""

    system: tuple[Mapping[str, Any], ...] = ()
    begun: bool = False
    results: bool = False


def _before_results(messages: Sequence[Message], at: int) -> int:
    """Moves a checkpoint at position `at` before the tool results of the same turn. Returns the new position."""
    while 0 < at < len(messages) and messages[at].role == "tool":
        at -= 1
    return at


def _write_more(
    before: _Written, messages: Sequence[Message], start: int, out: list[dict[str, Any]]
) -> _Written | None:
    """Writes the next messages. Returns None if the first one contains results that must be added to the message
    before, which is already written."""
    system, begun, follow = list(before.system), before.begun, before.results
    results: list[Mapping[str, Any]] | None = None  # results of the last message, if this call wrote it
    for message in messages:
        blocks = list(request_blocks(_in_order(message)))
        if message.role in ("system", "developer") and not begun:
            system += blocks
            continue
        if not blocks:
            continue
        if message.role == "tool" and follow:
            if results is None:
                return None
            results += blocks
            out[-1]["content"] = results
            continue
        role = {"tool": "user", "developer": "system"}.get(message.role, message.role)
        if role == "assistant" and not begun:
            out.append({"role": "user", "content": _BEGIN})
        out.append({**fields_of(message.extra, PROTOCOL), "role": role, "content": write_content(blocks)})
        begun, follow, results = True, message.role == "tool", blocks
    return _Written(tuple(system), begun, follow)


def _in_order(message: Message) -> Iterable[Part]:
    """Returns the parts in the order that servers accept: results first, and no text after a call."""
    if message.role != "assistant":
        return sorted(message.parts, key=lambda part: not isinstance(part, ToolResult))
    parts = message.parts
    last = max((at for at, part in enumerate(parts) if isinstance(part, Text | Refusal)), default=-1)
    early = [part for part in parts[: last + 1] if isinstance(part, ToolUse)]
    if not early:
        return parts
    rest = [part for part in parts[: last + 1] if not isinstance(part, ToolUse)]
    return [*rest, *early, *parts[last + 1 :]]


def write_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Returns the tools; the tools of a toolset become one entry, as it was received."""
    distinct: dict[int, ToolSpec] = {}
    for number, tool in enumerate(tools):
        distinct.setdefault(id(fields_of(tool.extra, PROTOCOL)) if is_client_tool(tool) else -1 - number, tool)
    return [write_tool(tool) for tool in distinct.values()]


def write_tool(tool: ToolSpec) -> dict[str, Any]:
    """Returns a tool definition with all fields received in this protocol. A tool known by its type is written as
    received."""
    if tool.kind == "hosted" or (is_client_tool(tool) and PROTOCOL in tool.extra):
        return dict(tool.received) or {"type": tool.name, "name": tool.name}
    received = fields_of(tool.extra, PROTOCOL)
    parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    known = {
        "type": received.get("type"),
        "description": tool.description,
        "input_schema": parameters if "type" in parameters else {"type": "object", **parameters},
        "strict": tool.strict,
    }
    return {
        **rest_of(received, TOOL_FIELDS),
        "name": tool.name,
        **{key: value for key, value in known.items() if value is not None},
    }


def write_choice(choice: ToolChoice, *, parallel: bool) -> dict[str, Any] | None:
    """Returns the wire form of `tool_choice`; None if it is the default."""
    fields = fields_of(choice.extra, PROTOCOL)
    if choice.mode == "auto" and parallel and not fields:
        return None
    kind = {"required": "any", "named": "tool"}.get(choice.mode, choice.mode)
    written: dict[str, Any] = {**fields, "type": kind}
    if choice.mode == "named":
        written["name"] = choice.name
    if not parallel and choice.mode != "none":
        written["disable_parallel_tool_use"] = True
    return written
