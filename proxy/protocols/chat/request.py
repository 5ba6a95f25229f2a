"""Reader of Chat Completions requests: the client's JSON to `ModelRequest`. `request_writer.py` is the opposite
direction.

Rules:

1. The form (types, ranges, which field needs which) is checked here. Checks that need the route or the whole
   conversation (matching ids, order, tool schemas, unsupported fields) are in `toolwire.middlewares.validation`.
2. `null` for an optional field means absent.
3. The parts of a message are read in one order: reasoning, content, refusal, calls. The protocol cannot express another
   order of these kinds.
4. All fields that are read are written back (`tests/protocols/test_nothing_is_lost.py`), in one of several equivalent
   forms: nested tools, calls in place of `function_call`, `max_tokens`, stop sequences in a list, a single text as a
   string, reasoning under `reasoning_content`, a refusal beside the content. Default values are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...errors import ClientFault, quote
from ...formats.engine.toolset import ToolSet, known_set, new_set
from ...known.past import fold_items, past_of
from ...model import (
    EMPTY,
    LIKE_SERVER,
    Extra,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
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
    scoped,
)
from ..shared.mending import Mending, objects
from ..shared.openai import FORMAT_NAME
from ..shared.request_schema import RequestSchema
from ..shared.wire import rest_of
from .extra_fields import CALL_FIELDS, OPAQUE, PROTOCOL, REASONING, call_extra, nested_rest_of, opaque_of

_SAMPLING_FIELDS: Final = frozenset(
    {
        "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "presence_penalty",
        "frequency_penalty", "n", "reasoning_effort", "top_k",
    }
)  # fmt: skip
MODELLED: Final = _SAMPLING_FIELDS | {
    "model", "messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "stream",
    "stream_options", "response_format",
}  # fmt: skip
"""Modelled top-level fields; all others go to `extra`."""
SPEAKERS: Final = frozenset({"system", "developer", "user", "assistant"})
"""Roles of messages other than tool results."""
_MESSAGE_FIELDS: Final = frozenset(
    {"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "function_call", "reasoning_content"}
)
TOOL_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})
_WHOLE_NUMBERS: Final = frozenset({"seed", "n"})
_STREAM_FIELDS: Final = frozenset({"include_usage"})
_TEXT_FIELDS: Final = frozenset({"type", "text"})
_REFUSAL_FIELDS: Final = frozenset({"type", "refusal"})
_IMAGE_FIELDS: Final = frozenset({"url", "detail"})
_ALLOWED_FIELDS: Final = frozenset({"mode", "tools"})
_AUTO: Final = ToolChoice()
_NONE: Final = ToolChoice("none")


def code_of(param: str, general: str) -> str:
    """Returns the error code for a mistake at the path `param` (R2; docs/reference/errors.md); `general` if the path
    has no code of its own."""
    if param.startswith(("tools", "functions")):
        return "invalid_tool_schema"
    if param.startswith("tool_choice") or param == "function_call":
        return "invalid_tool_choice"
    if param.startswith("messages[") and (
        param.endswith(".tool_call_id") or (".tool_calls[" in param and param.endswith("].id"))
    ):
        return "invalid_tool_call_id"
    return general


SHAPE: Final = RequestSchema("chat_request", code_of)
"""The schema of requests, compiled on first use."""


def read_request(body: Mapping[str, Any], raw: bytes) -> ModelRequest:
    """Returns the request in `body`, whose bytes were `raw`. Raises `ClientFault` with the path of the first mistake
    (R2)."""
    listed: Any = body.get("tools")
    items: Any = body.get("messages")
    tools, past = known_set(listed, PROTOCOL), past_of(items)
    # a known list of tools was checked when it first came
    SHAPE.check(body if tools is None else {**body, "tools": None}, len(raw), None if past is None else "messages")
    stream = body.get("stream") is True
    stream_options = body.get("stream_options")
    if stream_options is not None and not stream:
        raise ClientFault("'stream_options' is only allowed with 'stream': true.", param="stream_options")
    if tools is None:
        tools = new_set(listed, PROTOCOL, (_tool(tool, f"tools[{i}]") for i, tool in enumerate(listed)))
    extra = EMPTY if body.keys() <= MODELLED else rest_of(body, MODELLED)
    top_k = body.get("top_k")
    if top_k is not None and type(top_k) is not int:  # not a field of the protocol, so the schema does not check it
        extra = {**extra, "top_k": top_k}
    if body.get("functions"):
        tools = ToolSet((*tools, *map(_legacy_function, body["functions"])))
    return ModelRequest(
        model=body["model"],
        messages=tuple(fold_items(past, "chat.read", items, _Called({}, ""), _read_more)[0]),
        tools=tools,
        tool_choice=_read_choice(body, tools),
        parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        sampling=_read_sampling(body),
        response_format=_read_format(body.get("response_format")),
        stream=stream,
        include_usage=bool(stream_options and stream_options.get("include_usage")),
        extra=extra,
        origin=Origin(PROTOCOL, raw, past),
        protocol_fields=_own_fields(stream_options) if stream_options else EMPTY,
    )


def _read_format(form: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the format of the answer; a schema in the flat forms of other servers (llama.cpp, Together) as OpenAI
    nests it."""
    if form is None or "json_schema" in form or not isinstance(form.get("schema"), Mapping):
        return form
    if form["type"] not in ("json_object", "json_schema"):
        return form
    fields = {key: value for key, value in form.items() if key != "type" and value is not None}
    return {"type": "json_schema", "json_schema": {"name": FORMAT_NAME, **fields}}


def _own_fields(stream_options: Mapping[str, Any]) -> Extra:
    rest = rest_of(stream_options, _STREAM_FIELDS)
    return scoped(PROTOCOL, {"stream_options": rest}) if rest else EMPTY


def _read_sampling(body: Mapping[str, Any]) -> Sampling:
    fields = {name: value for name in body.keys() & _SAMPLING_FIELDS if (value := body[name]) is not None}
    if not fields:
        return LIKE_SERVER
    limit = fields.pop("max_completion_tokens", fields.get("max_tokens"))
    if limit is not None:
        fields["max_tokens"] = int(limit)
    if isinstance(stop := fields.get("stop", ()), str):
        fields["stop"] = (stop,)
    elif stop:
        fields["stop"] = tuple(stop)
    for name in _WHOLE_NUMBERS & fields.keys():
        fields[name] = int(fields[name])
    if "top_k" in fields and type(fields["top_k"]) is not int:
        del fields["top_k"]
    return Sampling(**fields)


class _Called(NamedTuple):
    """The state after reading some messages: their calls by id, and the id of the last `function_call` (the deprecated
    form)."""

    calls: Mapping[str, ToolUse]
    legacy_id: str


def _read_more(before: _Called, items: Sequence[Mapping[str, Any]], start: int, messages: list[Message]) -> _Called:
    called, legacy_id = dict(before.calls), before.legacy_id
    for index, item in enumerate(items, start):
        role = item["role"]
        if len(item) == 2 and role in SPEAKERS and type(text := item.get("content")) is str:
            messages.append(Message(role, (Text(text),) if text else ()))  # most messages
            continue
        _check_role_fields(item, role, f"messages[{index}]")
        content = _parts(item.get("content"))
        name = item.get("name")
        known = _MESSAGE_FIELDS
        if role == "function":  # the deprecated form of a tool result; it answers the function_call before it
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
            reasoning = next((f for f in REASONING if item.get(f) and isinstance(item[f], str)), None)
            opaque = opaque_of(item)
            if reasoning is not None or opaque:
                content.insert(0, Reasoning(item[reasoning] if reasoning else "", scoped(PROTOCOL, opaque)))
                known = known | {*opaque, *([reasoning] if reasoning else ())}
            if item.get("refusal"):
                content.append(Refusal(item["refusal"]))
            calls = [_call(call) for call in item.get("tool_calls") or ()]
            if item.get("function_call"):
                legacy_id = f"call_function{index}"
                calls.append(ToolUse(legacy_id, item["function_call"]["name"], item["function_call"]["arguments"]))
            called.update((call.call_id, call) for call in calls)
            content += calls
        messages.append(Message(role, tuple(content), name, scoped(PROTOCOL, rest_of(item, known))))
    return _Called(called, legacy_id)


def _check_role_fields(item: Mapping[str, Any], role: str, path: str) -> None:
    """Checks which fields a role must and must not have (R2.5, R2.6, R2.8). Raises `ClientFault`."""
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
        raise SHAPE.missing(f"{path}.tool_call_id")
    if item.get("content") is None and not (role == "assistant" and _has_other_content(item)):
        raise SHAPE.missing(f"{path}.content")


def _has_other_content(item: Mapping[str, Any]) -> bool:
    """True if an assistant message without content has another field with content, so that clients may send it back."""
    return any(item.get(key) for key in ("tool_calls", "function_call", "refusal", "audio", *REASONING, *OPAQUE))


def _parts(content: str | Iterable[Mapping[str, Any]] | None) -> list[Part]:
    """Returns the parts of a message's content; empty text is left out."""
    if not content:
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts: list[Part] = []
    for item in content:
        match item["type"]:
            case "text" | "input_text" | "output_text" if isinstance(item.get("text"), str):
                extra = EMPTY if len(item) == 2 else scoped(PROTOCOL, rest_of(item, _TEXT_FIELDS))
                if item["text"] or extra:
                    parts.append(Text(item["text"], extra))
            case "refusal":
                parts.append(Refusal(item["refusal"], scoped(PROTOCOL, rest_of(item, _REFUSAL_FIELDS))))
            case "image_url":
                image = item["image_url"]
                image = {"url": image} if isinstance(image, str) else image
                rest = nested_rest_of(item, "image_url", image, _IMAGE_FIELDS)
                parts.append(Image(image["url"], image.get("detail"), rest))
            case _:
                parts.append(OpaquePart(PROTOCOL, item))
    return parts


def _call(call: Mapping[str, Any]) -> ToolUse:
    kind = call["type"]
    inner = call[kind]
    plain = len(call) == 3 and len(inner) == 2
    extra = EMPTY if plain else call_extra(call, kind)
    if kind == "custom":
        return ToolUse(call["id"], inner["name"], inner["input"], "custom", extra=extra)
    return ToolUse(call["id"], inner["name"], inner["arguments"], extra=extra)


def _tool(tool: Mapping[str, Any], path: str) -> ToolSpec:
    """Returns a tool from the nested or flat form; the outer field wins if both have a value (R3.1)."""
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
        raise SHAPE.missing(f"{path}.{kind}.name" if kind in tool else f"{path}.name")
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
            return ToolChoice("named", name, extra=nested_rest_of(choice, kind, inner, CALL_FIELDS))
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": ("auto" | "required") as mode, "tools": list(allowed)},
        }:
            rest = nested_rest_of(choice, "allowed_tools", choice["allowed_tools"], _ALLOWED_FIELDS)
            return ToolChoice(mode, allowed=tuple(_allowed(allowed, choice)), extra=rest)
        case _:
            raise _bad_choice(choice)


def _allowed(tools: Iterable[Any], choice: Any) -> Iterable[str]:
    for tool in tools:
        match tool:
            case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
                yield name
            case {"type": str(kind)} if kind not in ("function", "custom"):
                pass  # the gateway never offers hosted tools, so there is nothing to allow
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


# --- odd requests -----------------------------------------------------------------------------------------------------


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its messages repaired, so that the reader accepts them; notes each in
    `mending`."""
    messages: Any = body.get("messages")
    messages = list(messages) if isinstance(messages, list) else messages
    for _, message in objects(messages):
        if message.get("role") == "tool":
            mending.named(message, "tool_call_id")
    for at, message in objects(messages):
        messages[at] = _mended_message(message, mending)
    return {**body, "messages": messages}


def _mended_message(message: dict[str, Any], mending: Mending) -> dict[str, Any]:
    message = dict(message)
    if message.get("role") == "assistant":
        mending.begin_turn()
    called, calls = message.get("function_call"), message.get("tool_calls")
    if message.get("role") == "tool":  # null content is refused (C15)
        message["tool_call_id"] = mending.result_id(message, "tool_call_id")
    elif not (calls or called):
        message["content"] = mending.content(message.get("content"))
    if isinstance(calls, list):
        message["tool_calls"] = [_mended_call(call, mending) for call in calls]
    if isinstance(called, dict):
        message["function_call"] = {**called, "arguments": mending.arguments(called.get("arguments"))}
    return message


def _mended_call(call: Any, mending: Mending) -> Any:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        return call
    mending.called(call.get("id"), inner.get("name"))
    return {**call, "function": {**inner, "arguments": mending.arguments(inner.get("arguments"))}}
