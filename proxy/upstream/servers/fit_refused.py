"""Requests as a server gets them that has refused a part of them (`toolwire.upstream.servers.concessions.FIELDS`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model import (
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
    replace,
)
from ...protocols.shared.opaque_reasoning import with_signature
from ...schemas.lenient import BY_NAME, DATA

_BOUNDS: Final = frozenset({"pattern", "minLength", "maxLength", "minItems", "maxItems"})
"""Keywords that make a grammar long."""


def without_key(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns fields without one of them."""
    return {key: value for key, value in fields.items() if key != name}


def has_reasoning(request: ModelRequest) -> bool:
    """True if a message has reasoning."""
    return any(isinstance(part, Reasoning) for message in request.messages for part in message.parts)


def without_reasoning(request: ModelRequest) -> ModelRequest:
    """Returns the request without the reasoning of earlier turns, which another server or key may have signed."""
    kept = ((one, tuple(part for part in one.parts if not isinstance(part, Reasoning))) for one in request.messages)
    return replace(request, messages=tuple(replace(one, parts=parts) for one, parts in kept if parts or not one.parts))


def lacks_reasoning(message: Message) -> bool:
    """True for a turn of the model without the text of its reasoning."""
    return message.role == "assistant" and not any(isinstance(part, Reasoning) and part.text for part in message.parts)


def with_some_reasoning(message: Message) -> Message:
    """Returns a turn of the model with words in the place of lost reasoning. They differ from turn to turn, because
    DeepSeek answers nothing after many equal ones."""
    if not lacks_reasoning(message):
        return message
    words = (
        f"{part.name} ({part.call_id})" if isinstance(part, ToolUse) else part.text.partition("<")[0][:60]
        for part in message.parts
        if isinstance(part, ToolUse | Text)
    )
    return replace(message, parts=(Reasoning(" ".join(words) or " "), *message.parts))


def is_to_think(request: ModelRequest) -> bool:
    """True if the client asks for reasoning. Messages has it without a budget, too (adaptive)."""
    sampling = request.sampling
    return (
        sampling.reasoning_effort not in (None, "none")
        or bool(sampling.reasoning_budget)
        or any(own.get("thinking") for own in request.protocol_fields.values())
    )


def with_adaptive_thinking(request: ModelRequest) -> ModelRequest:
    """Returns the request with thinking whose length the model chooses, in the place of a budget."""
    fields = {
        scope: {**own, "thinking": {**own["thinking"], "type": "adaptive"}} if own.get("thinking") else own
        for scope, own in request.protocol_fields.items()
    }
    return replace(request, protocol_fields=fields, sampling=replace(request.sampling, reasoning_budget=None))


def has_results(request: ModelRequest) -> bool:
    """True if a message has the result of a call."""
    return any(isinstance(part, ToolResult) for message in request.messages for part in message.parts)


def with_signed_call(message: Message) -> Message:
    """Returns a message whose first call has a signature; Gemini wants none on those beside it."""
    for at, part in enumerate(message.parts):
        if isinstance(part, ToolUse):
            return replace(message, parts=(*message.parts[:at], with_signature(part), *message.parts[at + 1 :]))
    return message


def with_single_texts(request: ModelRequest) -> ModelRequest:
    """Returns the request with one text in the place of several in each message and result."""
    messages = tuple(map(_with_one_text, request.messages))
    return request if messages == request.messages else replace(request, messages=messages)


def _with_one_text(message: Message) -> Message:
    parts = tuple(
        replace(part, parts=_one_text(part.parts)) if isinstance(part, ToolResult) else part for part in message.parts
    )
    return replace(message, parts=_one_text(parts))


def _one_text(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    first = next((at for at, part in enumerate(parts) if isinstance(part, Text)), None)
    if first is None:
        return parts
    text = Text("\n\n".join(part.text for part in parts if isinstance(part, Text)))
    return tuple(
        text if at == first else part for at, part in enumerate(parts) if at == first or not isinstance(part, Text)
    )


def without_bounds(schema: Any) -> Any:
    """Returns a schema without the keywords that make grammars long; the gateway and the client's tools still know
    them."""
    if isinstance(schema, list):
        return list(map(without_bounds, schema))
    if not isinstance(schema, Mapping):
        return schema
    kept = ((key, value) for key, value in schema.items() if key not in _BOUNDS)
    return {
        key: {name: without_bounds(one) for name, one in value.items()}
        if key in BY_NAME and isinstance(value, Mapping)
        else value
        if key in DATA
        else without_bounds(value)
        for key, value in kept
    }


def has_bounds(request: ModelRequest) -> bool:
    """True if the schema of a tool has keywords that `without_bounds` leaves out."""
    return any(tool.parameters and without_bounds(tool.parameters) != tool.parameters for tool in request.tools)


def _unscoped(part: Part) -> Part:
    if isinstance(part, OpaquePart):
        return part
    marks = {name: fields.get("cache_control") for name, fields in part.extra.items() if isinstance(fields, Mapping)}
    scoped = {name: mark for name, mark in marks.items() if isinstance(mark, Mapping) and "scope" in mark}
    if not scoped:
        return part
    bare = {name: {**part.extra[name], "cache_control": without_key(mark, "scope")} for name, mark in scoped.items()}
    return replace(part, extra={**part.extra, **bare})


def without_scopes(request: ModelRequest) -> ModelRequest:
    """Returns the request without the scopes of cache marks in messages (Claude Code)."""
    return replace(
        request, messages=tuple(replace(one, parts=tuple(map(_unscoped, one.parts))) for one in request.messages)
    )


def without_demand(request: ModelRequest) -> ModelRequest:
    """Returns the request without a demand for a call. The gateway asks again if none is made."""
    wanted = request.tool_choice.names
    tools = tuple(tool for tool in request.tools if wanted is None or tool.name in wanted)
    return replace(request, tools=tools, tool_choice=ToolChoice())
