"""Writer of Chat Completions requests: `ModelRequest` to the JSON for a chat backend.

The rules are those of `request.py`, the opposite direction. It cannot express, beyond rule 3 there: `Text("")`, fields
of other protocols, `ToolUse.item_id` and `namespace`, `ToolResult.is_error`, parts of other protocols (JSON text inside
a tool result, left out elsewhere), empty arguments (they become `{}`), `constraint` (backends write it in their own
form), `tool_choice` and `parallel_tool_calls` without tools, `Sampling.reasoning_budget`. Hosted tools and unknown
parts are written as they were received.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final

from ...known.past import Past, fold_items, make_once
from ...model import (
    EMPTY,
    LIKE_SERVER,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
)
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.call_ids import as_written, at_most
from ..shared.wire import dump, fields_in, rest_of
from .extra_fields import PROTOCOL, join_fields, nest
from .request import SPEAKERS, TOOL_FIELDS

ID_CHARS: Final = 40
"""Maximum length of a call id at OpenAI."""
_SAMPLED: Final = (
    *("temperature", "top_p", "max_tokens", "stop", "seed", "presence_penalty", "frequency_penalty", "n"),
    *("reasoning_effort", "top_k"),
)
_sampled: Final = attrgetter(*_SAMPLED)
_UNSET: Final = _sampled(LIKE_SERVER)


def write_request(request: ModelRequest) -> dict[str, Any]:
    """Returns the JSON object of a request to a chat backend."""
    body: dict[str, Any] = {"model": request.model, "messages": write_messages(request.messages, request.past)}
    if request.tools:
        body["tools"] = make_once(
            request.past, "Chat tools", request.tools, lambda: [write_tool(tool) for tool in request.tools]
        )
        if request.tool_choice.mode != "auto" or request.tool_choice.allowed is not None:
            body["tool_choice"] = write_choice(request.tool_choice, request.tools)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    sampling = request.sampling
    if sampling is not LIKE_SERVER:
        values = _sampled(sampling)
        body.update(compress(zip(_SAMPLED, values, strict=True), map(ne, values, _UNSET)))
        if sampling.stop:
            body["stop"] = list(sampling.stop)
    if request.response_format is not None:
        body["response_format"] = request.response_format
    if request.stream:
        body["stream"] = True
        wishes = {"include_usage": True} if request.include_usage else {}
        wishes |= fields_of(request.protocol_fields, PROTOCOL).get("stream_options", EMPTY)
        if wishes:
            body["stream_options"] = wishes
    for key, value in request.extra.items():
        body.setdefault(key, value)  # modelled fields are already written
    return body


def write_messages(messages: Sequence[Message], past: Past | None = None) -> list[dict[str, Any]]:
    """Returns the `messages` array. Each tool result of a message becomes a `tool` message before the rest of the
    message. Assistant messages with nothing that Chat can express are left out."""
    return fold_items(past, "chat.write", messages, 0, _write_more)[0]


def _write_more(_: int, messages: Sequence[Message], start: int, out: list[dict[str, Any]]) -> int:
    for message in messages:
        parts, role = message.parts, message.role
        plain = len(parts) == 1 and role in SPEAKERS and message.name is None and not message.extra
        if plain and type(text := parts[0]) is Text and not text.extra:
            out.append({"role": role, "content": text.text})  # most messages
            continue
        rest: list[Part] = []
        for part in parts:
            if isinstance(part, ToolResult):
                out.append(_write_result(part, message))
            else:
                rest.append(part)
        silent = role == "assistant" and not any(map(_is_expressible, rest))
        if not parts or (rest and not silent):
            out.append(_write_message(message, rest))
    return 0


def _is_expressible(part: Part) -> bool:
    """True if a chat backend gets any of a part's content."""
    if isinstance(part, OpaquePart):
        return part.protocol == PROTOCOL
    return not isinstance(part, Reasoning) or bool(part.text or fields_of(part.extra, PROTOCOL))


def _write_result(result: ToolResult, message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "tool", "tool_call_id": at_most(ID_CHARS, as_written(result.call_id))}
    written["content"] = _write_content(result.parts, json_text=True)
    if message.role == "tool" and message.name is not None:
        written["name"] = message.name
    return {**written, **fields_of(message.extra, PROTOCOL)}


def _write_message(message: Message, parts: list[Part]) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "user" if message.role == "tool" else message.role}
    calls = [
        {**write_call(part), "id": at_most(ID_CHARS, as_written(part.call_id))}
        for part in parts
        if isinstance(part, ToolUse)
    ]
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    opaque: Mapping[str, Any] = EMPTY
    refusals = [part for part in parts if isinstance(part, Refusal) and not fields_of(part.extra, PROTOCOL)]
    content = [part for part in parts if not isinstance(part, (ToolUse, Reasoning)) and part not in refusals]
    written["content"] = _write_content(content) if content or not (calls or refusals) else None
    if message.name is not None:
        written["name"] = message.name
    if refusals:
        written["refusal"] = "".join(part.text for part in refusals)
    if reasoning:
        written["reasoning_content"] = reasoning
    for part in parts:
        if isinstance(part, Reasoning) and part.extra:
            opaque = join_fields(opaque, fields_of(part.extra, PROTOCOL))
    if calls:
        written["tool_calls"] = calls
    return {**written, **opaque, **fields_of(message.extra, PROTOCOL)}


def _write_content(parts: Iterable[Part], *, json_text: bool = False) -> str | list[Any]:
    """Returns a string for a single text or no parts, otherwise content parts. `json_text`: parts of other protocols
    are written as compact JSON (R4.2)."""
    written: list[Any] = []
    for part in parts:
        match part:
            case Text():
                written.append({**fields_of(part.extra, PROTOCOL), "type": "text", "text": part.text})
            case Image():
                image = {"url": part.url} if part.detail is None else {"url": part.url, "detail": part.detail}
                written.append(nest({"type": "image_url", "image_url": image}, "image_url", part.extra))
            case Refusal():
                written.append({**fields_of(part.extra, PROTOCOL), "type": "refusal", "refusal": part.text})
            case OpaquePart(protocol="chat"):
                written.append(part.payload)
            case OpaquePart() if json_text:
                written.append({"type": "text", "text": dump(part.payload).decode()})
            case _:
                pass
    if not written:
        return ""
    if len(written) == 1 and written[0].get("type") == "text" and set(written[0]) == {"type", "text"}:
        return str(written[0]["text"])
    return written


def write_call(call: ToolUse) -> dict[str, Any]:
    """Returns a complete call for a message or a reply. Empty arguments become `{}` (R7.3)."""
    written: dict[str, Any]
    if call.kind == "custom":
        written = {
            "id": call.call_id,
            "type": "custom",
            "custom": {"name": call.name, "input": valid_text(call.arguments)},
        }
    else:
        arguments = valid_text(call.arguments) if call.arguments.strip(SPACE) else "{}"
        written = {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    return nest(written, call.kind, call.extra) if call.extra else written


def write_tool(tool: ToolSpec) -> dict[str, Any]:
    """Returns a tool definition in the nested form, with all fields received in this protocol. A hosted tool is written
    as it was received in any protocol."""
    if tool.kind == "hosted":
        return dict(tool.received) or {"type": tool.name}
    received = fields_of(tool.extra, PROTOCOL)
    if not received and tool.kind == "custom":  # another protocol's form of its format would be invalid here
        inner = tool.received.get("custom")
        received = {"custom": inner if isinstance(inner, Mapping) else _custom_format(tool.received.get("format"))}
    known = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    inner = received.get(tool.kind)
    rest = rest_of(fields_in(inner), TOOL_FIELDS)
    body = {**rest, "name": tool.name, **{key: value for key, value in known.items() if value is not None}}
    outer = rest_of(received, TOOL_FIELDS | {"type", tool.kind})
    # it came in the flat form, in which `format` belongs to the tool itself
    if tool.kind == "custom" and not isinstance(inner, Mapping):
        body, outer = {**outer, **body}, EMPTY
    return {**outer, "type": tool.kind, tool.kind: body}


def _custom_format(form: Any) -> Mapping[str, Any]:
    """Returns the format of a custom tool of Responses in the form of this protocol."""
    match form:
        case {"type": "grammar", "syntax": syntax, "definition": definition}:
            grammar = {"syntax": syntax, "definition": definition}
            return {"format": {"type": "grammar", "grammar": grammar}}
        case _:
            return EMPTY


def write_choice(choice: ToolChoice, tools: Iterable[ToolSpec] = ()) -> Any:
    """Returns the wire form of `tool_choice`. `tools` are needed to tell custom tools from functions."""
    custom = {tool.name for tool in tools if tool.kind == "custom"}

    def named(name: str) -> dict[str, Any]:
        kind = "custom" if name in custom else "function"
        return {"type": kind, kind: {"name": name}}

    if choice.mode == "named" and choice.name is not None:
        written = named(choice.name)
        return nest(written, written["type"], choice.extra)
    if choice.allowed is not None and choice.mode != "none":
        allowed = {"mode": choice.mode, "tools": [named(name) for name in choice.allowed]}
        return nest({"type": "allowed_tools", "allowed_tools": allowed}, "allowed_tools", choice.extra)
    return choice.mode
