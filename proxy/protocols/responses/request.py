"""Reader of Responses requests: the client's JSON to `ModelRequest`. `request_writer.py` is the opposite direction.

Rules:

1. The form (types, ranges, which field needs which) is checked here. Checks that need the route or the whole
   conversation are in `toolwire.middlewares.validation`.
2. `null` for an optional field means absent. Unknown fields, items, parts and tools never cause an error.
3. Fields of the protocol that are not modelled (`metadata`, `include`, ...) go to `ModelRequest.protocol_fields`, and
   `reply` echoes them from the body; fields that the protocol does not have go to `ModelRequest.extra`.
4. All fields that are read are written back, except those in `GATEWAYS_OWN`, in the forms that `items` lists.

A `namespace` becomes one `ToolSpec` for each tool inside (R8.16). The input may contain tools as well
(`tools_in_input.py`). `instructions` becomes a system message before all others. `text.format` means the same as Chat's
`response_format`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Final

from ...errors import ClientFault, quote
from ...formats.engine.toolset import ToolSet, known_set, new_set
from ...known.past import Past, fold_items, make_once, past_of
from ...model import (
    EMPTY,
    Extra,
    Message,
    ModelRequest,
    Origin,
    Part,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    replace,
    scoped,
)
from ..shared.client_tools import with_distinct_names
from ..shared.mending import Mending, objects
from ..shared.request_schema import RequestSchema
from ..shared.wire import fields_in
from .client_tools import chosen_tool, client_tool, item_types
from .items import PROTOCOL, own_items, read_items
from .settings_in_input import settings_in
from .summaries import asks_summary
from .tools_in_input import carried_tools, in_force, not_deferred

KNOWN: Final = frozenset(
    {
        "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
        "max_output_tokens", "max_tool_calls", "temperature", "top_p", "presence_penalty", "frequency_penalty",
        "top_logprobs", "metadata", "store", "background", "text", "reasoning", "truncation", "include", "user",
        "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
        "previous_response_id", "conversation", "generate", "prompt", "context_management", "moderation", "client_metadata",
    }
)  # fmt: skip
"""Top-level fields of the protocol, and fields of its clients that a model does not need; others go to `extra`."""
GATEWAYS_OWN: Final = frozenset({"store", "background", "previous_response_id", "conversation", "generate"})
"""Fields that the gateway handles itself."""
_MODELLED: Final = GATEWAYS_OWN | {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "max_output_tokens"),
    *("temperature", "top_p", "presence_penalty", "frequency_penalty"),
}
_OWN: Final = KNOWN - _MODELLED
TOOL_FIELDS: Final = frozenset({"type", "name", "description", "parameters", "strict", "function", "custom"})


def code_of(param: str, general: str) -> str:
    """Returns the error code for a mistake at the path `param`; `general` if the path has no code of its own."""
    if param.startswith("tools"):
        return "invalid_tool_schema"
    if param.startswith("tool_choice"):
        return "invalid_tool_choice"
    if param.endswith(".call_id") and general != "missing_required_parameter":
        return "invalid_tool_call_id"
    return general


SHAPE: Final = RequestSchema("responses_request", code_of)
"""The schema of requests, compiled on first use."""


# --- read -----------------------------------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any], raw: bytes) -> ModelRequest:
    """Returns the request in `body`, whose bytes were `raw`. Raises `ClientFault` with the path of the first mistake
    (R8.1)."""
    tools = known_set(body.get("tools"), "responses")
    # a known list of tools was checked when it first came
    past = past_of(body.get("input"))
    SHAPE.check(body if tools is None else {**body, "tools": None}, len(raw), None if past is None else "input")
    _check_fields(body)
    if asks_summary(body):
        return _summary_request(body)
    if tools is None:
        listed = body["tools"]
        tools = new_set(listed, "responses", not_deferred(with_distinct_names(_read_tools(listed, "tools", EMPTY))))
    tools = _without_namesakes(_with_carried(tools, body.get("input")), body.get("tool_choice"))
    settings = _settings(body)
    top_k = body.get("top_k")
    stream = body.get("stream") is True
    return ModelRequest(
        model=body["model"],
        messages=with_namespaces(read_messages(body), tools, past) if tools else read_messages(body),
        tools=tools,
        tool_choice=_read_choice(body.get("tool_choice"), tools),
        parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        sampling=Sampling(
            temperature=body.get("temperature"),
            top_p=body.get("top_p"),
            max_tokens=None if body.get("max_output_tokens") is None else int(body["max_output_tokens"]),
            presence_penalty=body.get("presence_penalty"),
            frequency_penalty=body.get("frequency_penalty"),
            reasoning_effort=settings["effort"],
            top_k=top_k if type(top_k) is int else None,
        ),
        response_format=_read_format(settings["format"]),
        stream=stream,
        include_usage=stream,
        extra=_parameters(body),
        origin=Origin(PROTOCOL, raw, past),
        protocol_fields=scoped(PROTOCOL, _own_fields(body)),
    )


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the effort and the format in force at the end of the input."""
    effort = (body.get("reasoning") or EMPTY).get("effort")
    return {"effort": effort, "format": (body.get("text") or EMPTY).get("format"), **settings_in(body.get("input"))}


def _summary_request(body: Mapping[str, Any]) -> ModelRequest:
    """Returns the request for a summary instead of an answer (R28.1): without tools and format. The gateway writes it
    anew for servers, because not all of them know the item that requests a summary."""
    stream = body.get("stream") is True
    return ModelRequest(
        model=body["model"],
        messages=read_messages(body),
        tool_choice=ToolChoice("none"),
        sampling=Sampling(reasoning_effort=(body.get("reasoning") or EMPTY).get("effort")),
        stream=stream,
        include_usage=stream,
        protocol_fields=scoped(PROTOCOL, {key: value for key, value in _own_fields(body).items() if key != "text"}),
    )


def _parameters(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters for the model server: fields that the protocol does not have."""
    rest = {key: value for key, value in body.items() if key not in KNOWN and value is not None}
    if type(rest.get("top_k")) is int:
        del rest["top_k"]
    return rest or EMPTY


def _own_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of the protocol that are not modelled."""
    fields = {key: value for key, value in body.items() if key in _OWN and value is not None}
    for key, modelled in (("text", "format"), ("reasoning", "effort")):
        if key in fields:
            fields[key] = {k: value for k, value in fields[key].items() if k != modelled and value is not None}
            if not fields[key]:
                del fields[key]
    return fields


def _check_fields(body: Mapping[str, Any]) -> None:
    """Checks rules between fields. Raises `ClientFault`."""
    if body.get("background") is True and body.get("store") is False:
        raise ClientFault(
            "Invalid 'background': a response in the background has to be stored, but 'store' is false.",
            param="background",
            hint="Leave 'store' out, or 'background'.",
        )
    if body.get("stream_options") is not None and body.get("stream") is not True:
        raise ClientFault("'stream_options' is only allowed with 'stream': true.", param="stream_options")
    before = [name for name in ("previous_response_id", "conversation") if body.get(name) is not None]
    if len(before) == 2:
        raise ClientFault(
            "Invalid 'conversation': 'previous_response_id' already names what comes before.",
            param="conversation",
            hint="Send one of the two.",
        )
    known = bool(before) or body.get("prompt") is not None
    known = known or body.get("generate") is False  # a request that wants no answer yet needs no input
    if not known and (body.get("input") is None or body["input"] == []):
        raise SHAPE.missing("input")


def read_messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """Returns the conversation of a request: `instructions` as a system message, then its `input`."""
    items = own_items(body)
    first = instructions_of(body, past_of(items))
    return read_items(items) if first is None else (first, *read_items(items))


def instructions_of(body: Mapping[str, Any], past: Past | None) -> Message | None:
    """Returns the system message of a request; None if it has no `instructions`."""
    instructions = body.get("instructions")
    if not instructions:
        return None
    return make_once(past, "responses.instructions", (), lambda: Message("system", (Text(instructions),)), instructions)


def with_earlier_inputs(request: ModelRequest, body: Mapping[str, Any], earlier: Sequence[Any]) -> ModelRequest:
    """Returns the request with the tools and settings in the inputs of `earlier` turns added, oldest first (R28.1); the
    same object if there are none."""
    if not earlier or asks_summary(body):
        return request
    settings = {key: value for items in (*earlier, body.get("input")) for key, value in settings_in(items).items()}
    if settings:
        settings = {**_settings(body), **settings}
        sampling = replace(request.sampling, reasoning_effort=settings["effort"])
        request = replace(request, sampling=sampling, response_format=_read_format(settings["format"]))
    own = not_deferred(_read_tools(body.get("tools") or (), "tools", EMPTY))
    tools = _without_namesakes(_with_carried(ToolSet(own), body.get("input"), earlier), body.get("tool_choice"))
    return replace(request, tools=tools, tool_choice=_read_choice(body.get("tool_choice"), tools))


def _with_carried(tools: tuple[ToolSpec, ...], items: Any, earlier: Iterable[Any] = ()) -> tuple[ToolSpec, ...]:
    """Returns `tools` with those in the `items` of the input, and in `earlier` inputs, added; the same object if there
    are none."""
    old = [each for before in earlier for each in _carried(before)]
    new = list(_carried(items))
    if not old and not new:
        return tools
    offered = [tool for each, found in old if not found for tool in each]
    offered += [*tools, *(tool for each, found in new if not found for tool in each)]
    return ToolSet(
        with_distinct_names(in_force(offered, [tool for each, found in (*old, *new) if found for tool in each]))
    )


def _carried(items: Any) -> Iterator[tuple[list[ToolSpec], bool]]:
    """Yields the lists of tools in an input, and whether each was found by a search."""
    for path, found, listed in carried_tools(items):
        yield list(_read_tools(listed, path, EMPTY)), found


def _read_tools(tools: Iterable[Mapping[str, Any]], path: str, group: Mapping[str, Any]) -> Iterator[ToolSpec]:
    """Yields tools from the nested or flat form; the outer field wins if both have a value (R3.1). The tools of a
    namespace are yielded one by one (R8.16); `group` is the namespace that contains `tools`."""
    namespace, about = group.get("name"), group.get("description")
    # a description equal to the name has no content
    about = about if isinstance(about, str) and about not in ("", namespace) else None
    for index, tool in enumerate(tools):
        kind = tool["type"]
        if kind == "namespace":
            yield from _read_tools(tool["tools"], f"{path}[{index}].tools", tool)
        elif kind in ("function", "custom"):
            inner = tool.get(kind) or EMPTY
            fields = {key: _either(tool, inner, key) for key in ("name", "description", "parameters", "strict")}
            name = fields["name"]
            if name is None:
                raise SHAPE.missing(f"{path}[{index}].{kind}.name" if inner else f"{path}[{index}].name")
            custom = kind == "custom"
            yield ToolSpec(
                name,
                fields["description"],
                None if custom else fields["parameters"],
                None if custom else fields["strict"],
                kind="custom" if custom else "function",
                namespace=namespace,
                extra={PROTOCOL: tool},
                namespace_description=about,
            )
        elif namespace is None and (own := client_tool(tool)) is not None:
            yield own
        elif namespace is None:
            label = tool.get("name") or tool.get("server_label")
            yield ToolSpec(label if isinstance(label, str) else kind, kind="hosted", extra={PROTOCOL: tool})


def _either(outer: Mapping[str, Any], inner: Mapping[str, Any], key: str) -> Any:
    value = outer.get(key)
    return inner.get(key) if value is None else value


def _read_choice(choice: Any, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    match choice:
        case None:
            return ToolChoice("auto" if tools else "none")
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "allowed_tools"}:
            inner = choice.get("allowed_tools")
            inner = inner if isinstance(inner, Mapping) else choice
            match inner:
                case {"mode": ("auto" | "required") as mode, "tools": list(allowed)}:
                    return ToolChoice(
                        mode, allowed=tuple(_allowed(allowed, choice, tools)), extra=_choice_extra(choice)
                    )
        case {"type": "namespace", "name": str(group)} if members := _members(group, tools):
            return ToolChoice("required", allowed=members, extra=_choice_extra(choice))
        case {"type": str(kind)}:
            name = _chosen(choice)
            if name is not None:
                return ToolChoice("named", name, extra=_choice_extra(choice))
            if kind not in ("function", "custom"):  # its `ToolSpec` has the same name
                return ToolChoice("named", chosen_tool(kind, tools), extra=_choice_extra(choice))
    raise _bad_choice(choice)


def _choice_extra(choice: Mapping[str, Any]) -> Extra:
    """Returns the additional fields of a choice, in the flat or nested form."""
    fields = {**choice, **fields_in(choice.get(str(choice.get("type"))))}
    known = {"type", "name", "server_label", "mode", "tools", choice.get("type")}
    return scoped(PROTOCOL, {key: value for key, value in fields.items() if key not in known and value is not None})


def _chosen(choice: Mapping[str, Any]) -> str | None:
    """Returns the name in a choice, in the flat or nested form; for a hosted tool its label."""
    inner = choice.get(str(choice.get("type")))
    for source, key in ((choice, "server_label"), (choice, "name"), (inner, "name")):
        if isinstance(source, Mapping) and isinstance(source.get(key), str):
            return str(source[key])
    return None


def _allowed(allowed: Iterable[Any], choice: Any, tools: tuple[ToolSpec, ...]) -> Iterator[str]:
    types = item_types(tools)
    for tool in allowed:
        if not isinstance(tool, Mapping):
            raise _bad_choice(choice)
        name = _chosen(tool)
        if name is None and tool.get("type") in ("function", "custom", None):
            raise _bad_choice(choice)
        if tool.get("type") in ("function", "custom") and name is not None:
            yield name
        elif tool.get("type") == "namespace" and name is not None:
            yield from _members(name, tools)
        elif isinstance(kind := tool.get("type"), str) and (own := chosen_tool(kind, tools)) in types:
            yield own  # the gateway never offers hosted tools, so there is nothing to allow


def _without_namesakes(tools: tuple[ToolSpec, ...], choice: Any) -> tuple[ToolSpec, ...]:
    """Returns `tools` without those that share only the name with a tool in `choice`, which says another namespace. A
    `ToolChoice` has names only."""
    if not isinstance(choice, Mapping):
        return tools
    inner = choice.get("allowed_tools")
    listed = (inner if isinstance(inner, Mapping) else choice).get("tools")
    meant: dict[str, set[str | None]] = {}
    for one in listed if isinstance(listed, list) else (choice,):
        if isinstance(one, Mapping) and (name := _chosen(one)) is not None:
            whole = one.get("type") == "namespace"
            group = name if whole else one.get("namespace")
            for member in _members(name, tools) if whole else (name,):
                meant.setdefault(member, set()).add(group if isinstance(group, str) else None)
    groups = {name: meant[name] for name in meant if None not in meant[name]}
    named = [tool for tool in tools if tool.name in groups]
    others = {id(tool) for tool in named if tool.namespace not in groups[tool.name]}
    if not others or len(others) == len(named):
        return tools
    return ToolSet(tool for tool in tools if id(tool) not in others)


def _members(namespace: str, tools: Iterable[ToolSpec]) -> tuple[str, ...]:
    """Returns the names of the tools in a namespace."""
    return tuple(tool.name for tool in tools if tool.namespace == namespace)


def _bad_choice(choice: Any) -> ClientFault:
    return ClientFault(
        f"Invalid 'tool_choice': {quote(choice)}.",
        hint='Expected "auto", "none", "required", {"type":"function","name":...}, {"type":"custom","name":...}'
        ' or {"type":"allowed_tools","mode":"auto"|"required","tools":[...]}.',
        code="invalid_tool_choice",
        param="tool_choice",
    )


def _read_format(form: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns `text.format` in Chat's form; None for plain text."""
    if form is None or form["type"] == "text":
        return None
    if form["type"] == "json_schema":
        fields = {key: value for key, value in form.items() if key != "type" and value is not None}
        return {"type": "json_schema", "json_schema": fields}
    return form


# --- odd requests -----------------------------------------------------------------------------------------------------


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its items repaired, so that the reader accepts them; notes each in
    `mending`."""
    items: Any = body.get("input")
    items = list(items) if isinstance(items, list) else items
    for _, item in objects(items):
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            mending.named(item, "call_id")
    for at, item in objects(items):
        items[at] = _mended_item(item, mending)
    return {**body, "input": items}


def _mended_item(item: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match item.get("type"):
        case "function_call":
            mending.called(item.get("call_id"), item.get("name"))
            return {**item, "arguments": mending.arguments(item.get("arguments"))}
        case "custom_tool_call":
            mending.called(item.get("call_id"), item.get("name"))
        case "function_call_output" | "custom_tool_call_output":
            return {**item, "call_id": mending.result_id(item, "call_id")}
        case None | "message" if "role" in item:
            mending.begin_turn()
            return {**item, "content": mending.content(item.get("content"))}
        case None if "id" in item:  # a reference needs no type
            return {**item, "type": "item_reference"}
    return item


# --- missing namespaces of earlier calls (R28.8) ----------------------------------------------------------------------


def with_namespaces(
    messages: tuple[Message, ...], tools: Iterable[ToolSpec], past: Past | None = None
) -> tuple[Message, ...]:
    """Returns the messages with the missing namespace of each call added if only one tool fits; the same object if no
    tool has a namespace."""
    grouped = [tool for tool in tools if tool.namespace is not None]
    if not grouped:
        return messages
    plain = {tool.name for tool in tools if tool.namespace is None}
    times = Counter(name for tool in grouped for name in _namespaced_names(tool))
    by_name = {
        name: tool for tool in grouped for name in _namespaced_names(tool) if times[name] == 1 and name not in plain
    }

    def step(
        before: Mapping[str, str], messages: Sequence[Message], start: int, made: list[Message]
    ) -> Mapping[str, str]:
        renamed = dict(before)
        made += [_with_namespace(message, by_name, renamed) for message in messages]
        return renamed

    key = "namespaces", tuple(sorted((name, tool.name, tool.namespace) for name, tool in by_name.items()))
    return tuple(fold_items(past, key, messages, EMPTY, step)[0])


def _namespaced_names(tool: ToolSpec) -> set[str]:
    """Returns the names that clients may use for a tool with a namespace when they omit the `namespace` field."""
    return {tool.name, *(f"{tool.namespace}{mark}{tool.name}" for mark in ("__", ".", "_", "/"))}


def _with_namespace(message: Message, by_name: Mapping[str, ToolSpec], renamed: dict[str, str]) -> Message:
    parts = tuple([_part_with_namespace(part, by_name, renamed) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _part_with_namespace(part: Part, by_name: Mapping[str, ToolSpec], renamed: dict[str, str]) -> Part:
    """Returns a call with its namespace, a result with the name of its call's tool. `renamed` collects the tool names
    of renamed calls by call id."""
    if isinstance(part, ToolUse) and part.namespace is None and (tool := by_name.get(part.name)) is not None:
        renamed[part.call_id] = tool.name
        return replace(part, name=tool.name, namespace=tool.namespace)
    if isinstance(part, ToolResult) and (name := renamed.get(part.call_id)) is not None:
        return replace(part, name=name)
    return part
