"""Chat Completions requests: the client's JSON to `ModelRequest`, and `ModelRequest` to the JSON for a chat backend.

Rules:

1. The shape (types, ranges, which field needs which) is checked here; what needs the route or the whole conversation
   (ids that match, order, tool schemas, unsupported fields) is left to `middlewares.validation`.
2. `null` for an optional field means absent.
3. A message is read in one canonical order: reasoning, content, refusal, calls. Order between those kinds is the one
   thing about a message that this protocol cannot express.
4. What is read is written back, every field of it (`tests/protocols/test_nothing_is_lost.py`), but in one of several forms that say the same:
   nested tools, calls in place of `function_call`, `max_tokens`, stop sequences in a list, a single text as a string, thinking
   under `reasoning_content`, a refusal beside the content; what is the default is left out.

What `write_request` cannot express, beyond rule 3: `Text("")`, fields of other protocols, `ToolUse.item_id` and `namespace`,
`ToolResult.is_error`, parts of other protocols (they become their JSON text inside a tool result and are left out
elsewhere), empty arguments (they become `{}`), `constraint` (a backend writes it in its own words), `tool_choice` and
`parallel_tool_calls` without tools, `Sampling.reasoning_budget`.
Hosted tools and unknown parts are written back from what was received.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...errors import ClientFault, quote
from ...formats.toolset import ToolSet, known_set, new_set
from ...model import (
    EMPTY,
    Extra,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
    scoped,
)
from ...scan._grammar import SPACE
from ..request_schema import RequestSchema
from ..wire import dump, whole
from .plain import is_plain

MODELLED: Final = frozenset(
    {
        "model", "messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "stream",
        "stream_options", "response_format", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop",
        "seed", "presence_penalty", "frequency_penalty", "n", "reasoning_effort", "top_k",
    }
)  # fmt: skip
"""Top-level fields that the model has a place for; all others go to `extra`."""

_MESSAGE_FIELDS: Final = frozenset(
    {"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "function_call", "reasoning_content"}
)
PROTOCOL: Final = "chat"
_TOOL_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})
_SPEAKERS: Final = frozenset({"system", "developer", "user", "assistant"})
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_text")
_AUTO: Final = ToolChoice()
_NONE: Final = ToolChoice("none")


def code_of(param: str, general: str) -> str:
    """The code that belongs to an error at `param` (R2; docs/reference/errors.md)."""
    if param.startswith(("tools", "functions")):
        return "invalid_tool_schema"
    if param.startswith("tool_choice") or param == "function_call":
        return "invalid_tool_choice"
    if param.startswith("messages[") and (
        param.endswith(".tool_call_id") or (".tool_calls[" in param and param.endswith("].id"))
    ):
        return "invalid_tool_call_id"
    return general


# --- read -----------------------------------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any], raw: bytes, shape: RequestSchema) -> ModelRequest:
    """The request in `body`, whose bytes were `raw`. Raises `ClientFault` with the path of the first fault (R2)."""
    tools = known_set(body.get("tools"), "chat")
    if tools is None:
        shape.check(body)
    elif not is_plain(body):
        shape.check({**body, "tools": None})  # a known list was checked when it came first
    stream = body.get("stream") is True
    stream_options = body.get("stream_options")
    if stream_options is not None and not stream:
        raise ClientFault("'stream_options' is only allowed with 'stream': true.", param="stream_options")
    if tools is None:
        listed = body["tools"]
        tools = new_set(listed, "chat", (_tool(tool, f"tools[{i}]", shape) for i, tool in enumerate(listed)))
    extra = _rest(body, MODELLED)
    top_k = body.get("top_k")
    if top_k is not None and type(top_k) is not int:  # no field of the protocol, so nobody has checked it
        extra = {**extra, "top_k": top_k}
    if body.get("functions"):
        tools = ToolSet((*tools, *map(_legacy_function, body["functions"])))
    return ModelRequest(
        model=body["model"],
        messages=_read_messages(body["messages"], shape),
        tools=tools,
        tool_choice=_read_choice(body, tools),
        parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        sampling=_read_sampling(body),
        response_format=body.get("response_format"),
        stream=stream,
        include_usage=bool(stream_options and stream_options.get("include_usage")),
        extra=extra,
        origin=Origin(PROTOCOL, raw),
        protocol_fields=_own_fields(stream_options),
    )


def _own_fields(stream_options: Mapping[str, Any] | None) -> Extra:
    rest = _rest(stream_options or EMPTY, frozenset({"include_usage"}))
    return scoped(PROTOCOL, {"stream_options": rest}) if rest else EMPTY


def _rest(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """What is not modelled. Nulls are absent (rule 2)."""
    return {key: item for key, item in value.items() if key not in known and item is not None} or EMPTY


def _read_sampling(body: Mapping[str, Any]) -> Sampling:
    limit = body.get("max_completion_tokens")
    if limit is None:
        limit = body.get("max_tokens")
    stop = body.get("stop")
    seed = body.get("seed")
    top_k = body.get("top_k")
    return Sampling(
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        max_tokens=None if limit is None else int(limit),
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        seed=None if seed is None else int(seed),
        presence_penalty=body.get("presence_penalty"),
        frequency_penalty=body.get("frequency_penalty"),
        n=int(body.get("n") or 1),
        reasoning_effort=body.get("reasoning_effort"),
        top_k=top_k if type(top_k) is int else None,
    )


def _read_messages(items: Iterable[Mapping[str, Any]], shape: RequestSchema) -> tuple[Message, ...]:
    called: dict[str, ToolUse] = {}
    legacy_id = ""
    messages = []
    for index, item in enumerate(items):
        role = item["role"]
        if len(item) == 2 and role in _SPEAKERS and type(text := item.get("content")) is str:
            messages.append(Message(role, (Text(text),) if text else ()))  # most messages
            continue
        _check_role_fields(item, role, f"messages[{index}]", shape)
        content = _parts(item.get("content"))
        name = item.get("name")
        known = _MESSAGE_FIELDS
        if role == "function":  # The deprecated form of a tool result; it answers the function_call before it.
            role, call_id = "tool", legacy_id or f"call_function{index}"
        else:
            call_id = item.get("tool_call_id") or ""
        if role == "tool":
            call = called.get(call_id)
            result = ToolResult(
                call_id, tuple(content), call.name if call else name, kind=call.kind if call else "function"
            )
            content = [result]
        elif role == "assistant":
            reasoning = next((f for f in _REASONING_FIELDS if item.get(f) and isinstance(item[f], str)), None)
            if reasoning is not None:
                content.insert(0, Reasoning(item[reasoning]))
                known = known | {reasoning}
            if item.get("refusal"):
                content.append(Refusal(item["refusal"]))
            calls = [_call(call) for call in item.get("tool_calls") or ()]
            if item.get("function_call"):
                legacy_id = f"call_function{index}"
                calls.append(ToolUse(legacy_id, item["function_call"]["name"], item["function_call"]["arguments"]))
            called.update((call.call_id, call) for call in calls)
            content += calls
        messages.append(Message(role, tuple(content), name, scoped(PROTOCOL, _rest(item, known))))
    return tuple(messages)


def _check_role_fields(item: Mapping[str, Any], role: str, path: str, shape: RequestSchema) -> None:
    """Which fields a role must and must not have (R2.5, R2.6, R2.8)."""
    if role != "assistant" and item.get("tool_calls"):
        raise ClientFault(
            f"Invalid '{path}.tool_calls': only an assistant message may have it, not role {quote(role)}.",
            param=f"{path}.tool_calls",
        )
    if role != "tool" and item.get("tool_call_id") is not None:
        param = f"{path}.tool_call_id"
        raise ClientFault(
            f"Invalid '{param}': only a tool message may have it, not role {quote(role)}.",
            code="invalid_tool_call_id",
            param=param,
        )
    if role == "tool" and not item.get("tool_call_id"):
        raise shape.missing(f"{path}.tool_call_id")
    if item.get("content") is None and not (role == "assistant" and _says_something(item)):
        raise shape.missing(f"{path}.content")


def _says_something(item: Mapping[str, Any]) -> bool:
    """Whether an assistant message without content is one that a client may replay."""
    return any(item.get(key) for key in ("tool_calls", "function_call", "refusal", "audio", *_REASONING_FIELDS))


def _parts(content: str | Iterable[Mapping[str, Any]] | None) -> list[Part]:
    """Content as parts; empty text is no part."""
    if not content:
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts: list[Part] = []
    for item in content:
        match item["type"]:
            case "text":
                extra = EMPTY if len(item) == 2 else scoped(PROTOCOL, _rest(item, _TEXT_FIELDS))
                if item["text"] or extra:
                    parts.append(Text(item["text"], extra))
            case "refusal":
                parts.append(Refusal(item["refusal"], scoped(PROTOCOL, _rest(item, _REFUSAL_FIELDS))))
            case "image_url":
                image = item["image_url"]
                image = {"url": image} if isinstance(image, str) else image
                rest = _nested_rest(item, "image_url", image, _IMAGE_FIELDS)
                parts.append(Image(image["url"], image.get("detail"), rest))
            case _:
                parts.append(Opaque(PROTOCOL, item))
    return parts


_TEXT_FIELDS: Final = frozenset({"type", "text"})
_REFUSAL_FIELDS: Final = frozenset({"type", "refusal"})
_IMAGE_FIELDS: Final = frozenset({"url", "detail"})
_CALL_FIELDS: Final = frozenset({"name", "arguments", "input"})


def _nested_rest(outer: Mapping[str, Any], key: str, inner: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """What is not modelled of an object that holds another one under `key`, of which `known` is: in the same shape."""
    rest = {k: value for k, value in outer.items() if k not in (key, "type", "id") and value is not None}
    if inside := _rest(inner, known):
        rest[key] = inside
    return scoped(PROTOCOL, rest)


def nest(written: dict[str, Any], key: str, extra: Extra) -> dict[str, Any]:
    """The object with the fields that `_nested_rest` has kept."""
    fields = fields_of(extra, PROTOCOL)
    if not fields:
        return written
    inside = fields.get(key)
    rest = {k: value for k, value in fields.items() if k != key}
    inner = {**inside, **written[key]} if isinstance(inside, Mapping) else written[key]
    return {**rest, **written, key: inner}


def call_extra(call: Mapping[str, Any], key: str) -> Extra:
    """What is not modelled of a call whose name stands under `key`, in a request or in an answer."""
    inner = call.get(key)
    return _nested_rest(call, key, inner if isinstance(inner, Mapping) else EMPTY, _CALL_FIELDS)


def _call(call: Mapping[str, Any]) -> ToolUse:
    kind = call["type"]
    inner = call[kind]
    plain = len(call) == 3 and len(inner) == 2
    extra = EMPTY if plain else call_extra(call, kind)
    if kind == "custom":
        return ToolUse(call["id"], inner["name"], inner["input"], "custom", extra=extra)
    return ToolUse(call["id"], inner["name"], inner["arguments"], extra=extra)


def _tool(tool: Mapping[str, Any], path: str, shape: RequestSchema) -> ToolSpec:
    """Nested or flat; the outer field wins if both hold a value (R3.1)."""
    kind = tool["type"]
    if kind not in ("function", "custom"):
        label = tool.get("name") or tool.get("server_label")
        return ToolSpec(label if isinstance(label, str) else kind, kind="hosted", extra={PROTOCOL: tool})
    inner = tool.get(kind) or EMPTY

    def field(key: str) -> Any:
        value = tool.get(key)
        return inner.get(key) if value is None else value

    name = field("name")
    if name is None:
        raise shape.missing(f"{path}.{kind}.name" if kind in tool else f"{path}.name")
    if kind == "custom":
        return ToolSpec(name, field("description"), kind="custom", extra={PROTOCOL: tool})
    return ToolSpec(name, field("description"), field("parameters"), field("strict"), extra={PROTOCOL: tool})


def _legacy_function(function: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        function["name"], function.get("description"), function.get("parameters"), extra={PROTOCOL: function}
    )


def _read_choice(body: Mapping[str, Any], tools: tuple[ToolSpec, ...]) -> ToolChoice:
    choice = body.get("tool_choice")
    if choice is None and body.get("function_call") is not None:
        choice = body["function_call"]
        if isinstance(choice, dict):
            choice = {"type": "function", "function": choice}
    match choice:
        case None:
            return _AUTO if tools else _NONE
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function" | "custom" as kind} if isinstance(inner := choice.get(kind), Mapping) and isinstance(
            name := inner.get("name"), str
        ):
            return ToolChoice("named", name, extra=_nested_rest(choice, kind, inner, _CALL_FIELDS))
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": ("auto" | "required") as mode, "tools": list(allowed)},
        }:
            rest = _nested_rest(choice, "allowed_tools", choice["allowed_tools"], _ALLOWED_FIELDS)
            return ToolChoice(mode, allowed=tuple(_allowed(allowed, choice)), extra=rest)
        case _:
            raise _bad_choice(choice)


_ALLOWED_FIELDS: Final = frozenset({"mode", "tools"})


def _allowed(tools: Iterable[Any], choice: Any) -> Iterable[str]:
    for tool in tools:
        match tool:
            case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
                yield name
            case {"type": str(kind)} if kind not in ("function", "custom"):
                pass  # A hosted tool: the gateway never offers it, so there is nothing to allow.
            case _:
                raise _bad_choice(choice)


def _bad_choice(choice: Any) -> ClientFault:
    return ClientFault(
        f"Invalid 'tool_choice': {quote(choice)}.",
        hint='Expected "auto", "none", "required", {"type":"function","function":{"name":...}}'
        ' or {"type":"allowed_tools","allowed_tools":{"mode":"auto"|"required","tools":[...]}}.',
        code="invalid_tool_choice",
        param="tool_choice",
    )


# --- write ----------------------------------------------------------------------------------------------------------


def write_request(request: ModelRequest) -> dict[str, Any]:
    """The JSON object that asks a chat backend for the same."""
    body: dict[str, Any] = {"model": request.model, "messages": write_messages(request.messages)}
    if request.tools:
        body["tools"] = [write_tool(tool) for tool in request.tools]
        if request.tool_choice.mode != "auto" or request.tool_choice.allowed is not None:
            body["tool_choice"] = write_choice(request.tool_choice, request.tools)
        if not request.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    sampling = request.sampling
    fields = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "n": sampling.n if sampling.n != 1 else None,
        "reasoning_effort": sampling.reasoning_effort,
        "top_k": sampling.top_k,
        "response_format": request.response_format,
    }
    for key, value in fields.items():
        if value is not None:
            body[key] = value
    if request.stream:
        body["stream"] = True
        wishes = {"include_usage": True} if request.include_usage else {}
        wishes |= fields_of(request.protocol_fields, PROTOCOL).get("stream_options", EMPTY)
        if wishes:
            body["stream_options"] = wishes
    for key, value in request.extra.items():
        body.setdefault(key, value)  # what is modelled is said already
    return body


def write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The `messages` array. A message with tool results becomes one `tool` message each, before what else it holds. Turns of
    the assistant of which nothing can be said here are left out."""
    out: list[dict[str, Any]] = []
    for message in messages:
        rest: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                out.append(_write_result(part, message))
            else:
                rest.append(part)
        silent = message.role == "assistant" and not any(map(_can_be_said, rest))
        if not message.parts or (rest and not silent):
            out.append(_write_message(message, rest))
    return out


def _can_be_said(part: Part) -> bool:
    """Whether something of a part reaches a chat backend."""
    if isinstance(part, Opaque):
        return part.protocol == PROTOCOL
    return not isinstance(part, Reasoning) or bool(part.text)


def _write_result(result: ToolResult, message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "tool", "tool_call_id": result.call_id}
    written["content"] = _write_content(result.parts, json_text=True)
    if message.role == "tool" and message.name is not None:
        written["name"] = message.name
    return {**written, **fields_of(message.extra, PROTOCOL)}


def _write_message(message: Message, parts: list[Part]) -> dict[str, Any]:
    plain = len(parts) == 1 and message.role in _SPEAKERS and message.name is None and not message.extra
    if plain and type(text := parts[0]) is Text and not text.extra:
        return {"role": message.role, "content": text.text}  # most messages
    written: dict[str, Any] = {"role": "user" if message.role == "tool" else message.role}
    calls = [write_call(part) for part in parts if isinstance(part, ToolUse)]
    thoughts = "".join(part.text for part in parts if isinstance(part, Reasoning))
    refusals = [part for part in parts if isinstance(part, Refusal) and not fields_of(part.extra, PROTOCOL)]
    content = [part for part in parts if not isinstance(part, (ToolUse, Reasoning)) and part not in refusals]
    written["content"] = _write_content(content) if content or not (calls or refusals or thoughts) else None
    if message.name is not None:
        written["name"] = message.name
    if refusals:
        written["refusal"] = "".join(part.text for part in refusals)
    if thoughts:
        written["reasoning_content"] = thoughts
    if calls:
        written["tool_calls"] = calls
    return {**written, **fields_of(message.extra, PROTOCOL)}


def _write_content(parts: Iterable[Part], *, json_text: bool = False) -> str | list[Any]:
    """A string if it is one text (or nothing), else content parts. `json_text`: foreign values as compact JSON (R4.2)."""
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
            case Opaque(protocol="chat"):
                written.append(part.payload)
            case Opaque() if json_text:
                written.append({"type": "text", "text": dump(part.payload).decode()})
            case _:
                pass
    if not written:
        return ""
    if len(written) == 1 and written[0].get("type") == "text" and set(written[0]) == {"type", "text"}:
        return str(written[0]["text"])
    return written


def write_call(call: ToolUse) -> dict[str, Any]:
    """A finished call, in a message or in a reply. No arguments are `{}` (R7.3)."""
    written: dict[str, Any]
    if call.kind == "custom":
        written = {"id": call.call_id, "type": "custom", "custom": {"name": call.name, "input": whole(call.arguments)}}
    else:
        arguments = whole(call.arguments) if call.arguments.strip(SPACE) else "{}"
        written = {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    return nest(written, call.kind, call.extra) if call.extra else written


def write_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool definition in the nested shape, with all that was received in this protocol; a hosted one as it was received in any."""
    if tool.kind == "hosted":
        return dict(tool.received) or {"type": tool.name}
    received = fields_of(tool.extra, PROTOCOL)
    if not received and tool.kind == "custom":  # in another protocol's words, its format would say nothing here
        inner = tool.received.get("custom")
        received = {"custom": inner} if isinstance(inner, Mapping) else EMPTY
    known = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    inner = received.get(tool.kind)
    rest = _rest(inner if isinstance(inner, Mapping) else EMPTY, _TOOL_FIELDS)
    body = {**rest, "name": tool.name, **{key: value for key, value in known.items() if value is not None}}
    outer = _rest(received, _TOOL_FIELDS | {"type", tool.kind})
    if tool.kind == "custom" and not isinstance(inner, Mapping):  # it came flat: its format belongs to the tool itself
        body, outer = {**outer, **body}, EMPTY
    return {**outer, "type": tool.kind, tool.kind: body}


def write_choice(choice: ToolChoice, tools: Iterable[ToolSpec] = ()) -> Any:
    """The wire form of `tool_choice`. `tools` tells custom tools from functions."""
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
