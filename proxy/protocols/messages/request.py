"""Reader of Messages requests: the client's JSON to `ModelRequest`. `request_writer.py` is the opposite direction.

Rules:

1. The form (types, ranges, which field needs which) is checked here. Checks that need the route or the whole
   conversation are in `toolwire.middlewares.validation`.
2. `null` for an optional field means absent.
3. All fields that are read are written back (`tests/protocols/test_messages_request.py`), in one of several equivalent
   forms: a single plain text as a string, system messages at the beginning as `system`, a format in `output_config`.
   Default values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from ...errors import ClientFault, quote
from ...fastparse import with_own_texts
from ...formats.engine.rendering import prompt_name
from ...formats.engine.toolset import ToolSet, known_set, new_set, note, note_of
from ...known.past import Past, fold_items, make_once, past_of
from ...model import (
    EMPTY,
    Message,
    ModelRequest,
    Origin,
    Part,
    Role,
    Sampling,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    replace,
    scoped,
)
from ...support.cache import weight_of
from ...tolerances import ARGUMENTS
from ..shared.client_tools import with_distinct_names
from ..shared.mending import Mending, is_json_object, object_of, objects
from ..shared.openai import FORMAT_NAME
from ..shared.request_schema import RequestSchema
from ..shared.wire import dump, fields_in, load, rest_of
from .blocks import PROTOCOL, TOOL_CHANGES, read_content
from .client_tools import client_tools
from .ids import read_id

MODELLED: Final = frozenset(
    {
        "model", "messages", "system", "max_tokens", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k",
        "stop_sequences", "output_format",
    }
)  # fmt: skip
KNOWN: Final = MODELLED | {
    "betas", "cache_control", "compaction", "container", "context_management", "diagnostics", "fallbacks", "inference_geo", "mcp_servers",
    "metadata", "output_config", "service_tier", "speed", "thinking", "thread", "user_profile_id", "workspace_id",
}  # fmt: skip
"""Top-level fields of the protocol; others go to `extra`, for the model server."""
BETA: Final = "anthropic-beta"
"""Request header with which clients enable beta features."""
_BILLING: Final = "x-anthropic-billing-header:"
"""Beginning of a text with Claude Code's billing note."""
HEADERS: Final = (BETA, "anthropic-user-profile-id", "anthropic-workspace-id")
"""Request headers that are stored as fields of the protocol."""
GATEWAYS_OWN: Final = frozenset({"thread"})
"""Fields that the gateway handles itself."""
_OWN: Final = KNOWN - MODELLED - GATEWAYS_OWN

_TYPE: Final = frozenset({"type"})
MESSAGE_FIELDS: Final = frozenset({"role", "content"})
TOOL_FIELDS: Final = frozenset({"type", "name", "description", "input_schema", "strict"})
CHOICE_FIELDS: Final = frozenset({"type", "name", "disable_parallel_tool_use"})


def code_of(param: str, general: str) -> str:
    """Returns the error code for a mistake at the path `param`; `general` if the path has no code of its own."""
    if param.startswith("tools"):
        return "invalid_tool_schema"
    if param.startswith("tool_choice"):
        return "invalid_tool_choice"
    if param.endswith((".tool_use_id", "].id")) and general != "missing_required_parameter":
        return "invalid_tool_call_id"
    return general


SHAPE: Final = RequestSchema("messages_request", code_of)
"""The schema of requests, compiled on first use."""


def read_request(body: Mapping[str, Any], raw: bytes) -> ModelRequest:
    """Returns the request in `body`, whose bytes were `raw`. Raises `ClientFault` with the path of the first mistake
    (R14.1)."""
    items: Any = body.get("messages")
    tools, past = known_set(body.get("tools"), PROTOCOL), past_of(items)
    # a known list of tools was checked when it first came
    SHAPE.check(body if tools is None else {**body, "tools": None}, len(raw), None if past is None else "messages")
    _refuse_lost_turns(body)
    if tools is None:
        listed = body["tools"]
        tools = new_set(listed, PROTOCOL, with_distinct_names(chain.from_iterable(map(_read_tool, listed))))
    if past is not None or any(word in raw for word in CHANGES):
        tools = in_force(tools, changes_in(items, past), _read_definition)
    notes, system = _read_system(body.get("system"), past)
    choice = body.get("tool_choice") or EMPTY
    return ModelRequest(
        model=body["model"],
        messages=(*system, *fold_items(past, "messages.read", items, EMPTY, _read_more)[0]),
        tools=tools,
        tool_choice=_read_choice(body.get("tool_choice"), tools),
        parallel_tool_calls=choice.get("disable_parallel_tool_use") is not True,
        sampling=_read_sampling(body),
        response_format=_read_format((body.get("output_config") or EMPTY).get("format") or body.get("output_format")),
        stream=body.get("stream") is True,
        include_usage=body.get("stream") is True,
        extra=rest_of(body, KNOWN),
        origin=Origin(PROTOCOL, raw, past),
        protocol_fields=scoped(PROTOCOL, {**_own_fields(body), "system": notes} if notes else _own_fields(body)),
    )


def _refuse_lost_turns(body: Mapping[str, Any]) -> None:
    """Raises `ClientFault` for a request that continues a stored conversation, because none are stored (R12.2):
    answering it without the earlier turns would be wrong."""
    thread = body.get("thread")
    if thread is not None and thread["type"] == "continue":
        raise ClientFault(
            f"The thread that continues from {quote(thread.get('previous_message_id'))} is not stored here.",
            code="previous_response_not_found",
            param="thread.previous_message_id",
            status=404,
            hint="Send the whole conversation.",
        )


def _read_sampling(body: Mapping[str, Any]) -> Sampling:
    thinking = body.get("thinking") or EMPTY
    return Sampling(
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        max_tokens=int(body["max_tokens"]),
        stop=tuple(body.get("stop_sequences") or ()),
        reasoning_effort=(body.get("output_config") or EMPTY).get("effort"),
        top_k=body.get("top_k"),
        reasoning_budget=0 if thinking.get("type") == "disabled" else thinking.get("budget_tokens"),
    )


def _own_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of the protocol that are not modelled."""
    fields = {key: value for key, value in body.items() if key in _OWN and value is not None}
    for key, modelled in (("thinking", {"budget_tokens"}), ("output_config", {"effort", "format"})):
        if key in fields:
            fields[key] = {k: value for k, value in fields[key].items() if k not in modelled and value is not None}
            if not fields[key] or fields[key] == {"type": "disabled"}:
                del fields[key]
    return fields


def _read_format(form: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the format of the answer in Chat's form."""
    if form is None:
        return None
    if form["type"] == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": FORMAT_NAME, **rest_of(form, _TYPE)}}
    return form


# --- messages -------------------------------------------------------------------------------------------------------


def _read_system(system: Any, past: Past | None) -> tuple[Sequence[Mapping[str, Any]], tuple[Message, ...]]:
    """Returns Claude Code's billing notes and the system message. A billing note differs in each request and is for
    Anthropic's servers only. In a message it would prevent prompt caching on other servers (R28.6), and reuse of
    earlier results in the gateway."""
    notes: list[Mapping[str, Any]] = []
    if isinstance(system, list):
        notes = [block for block in system if isinstance(block, Mapping) and _is_billing(block)]
        system = [block for block in system if block not in notes] if notes else system
    parts = read_content(system)
    messages = (Message("system", parts),) if parts else ()
    if past is not None:
        messages = make_once(past, "messages.system", (), lambda: messages, dump(with_own_texts(system)))
    return notes, messages


def _is_billing(block: Mapping[str, Any]) -> bool:
    text = block.get("text")
    return isinstance(text, str) and text.startswith(_BILLING)


def _read_more(
    before: Mapping[str, str], items: Sequence[Mapping[str, Any]], start: int, messages: list[Message]
) -> Mapping[str, str]:
    """Reads the next messages. The state has the tool name of each call by call id."""
    names = dict(before)
    for item in items:
        role: Role = item["role"]
        parts = read_content(without_changes(item), names)
        if role == "system" and not parts and item["content"]:
            continue  # the message had only tool changes
        if role == "assistant":
            names.update((part.call_id, part.name) for part in parts if isinstance(part, ToolUse))
        elif role == "user" and parts and all(isinstance(part, ToolResult) for part in parts):
            role = "tool"
        if names:
            parts = tuple(map(_with_read_id, parts))
        results = tuple(part for part in parts if isinstance(part, ToolResult)) if role == "assistant" else ()
        if results:
            parts = tuple(part for part in parts if not isinstance(part, ToolResult))
        messages.append(Message(role, parts, None, scoped(PROTOCOL, rest_of(item, MESSAGE_FIELDS))))
        if results:
            messages.append(Message("tool", results))
    return names


def item_of(body: Mapping[str, Any], index: int) -> int:
    """Returns the index in `messages` of the item that became message `index` of the request: `system` comes before
    them, and one item can become two messages or none."""
    messages = [*_read_system(body.get("system"), None)[1]]
    at = 0
    for at, item in enumerate(body["messages"]):
        _read_more(EMPTY, [item], at, messages)
        if len(messages) > index:
            break
    return at


def _with_read_id(part: Part) -> Part:
    """Returns a call or a result with the id that its server wrote."""
    if not isinstance(part, ToolUse | ToolResult) or (written := read_id(part.call_id)) == part.call_id:
        return part
    return replace(part, call_id=written)


# --- tools ----------------------------------------------------------------------------------------------------------


def _read_tool(tool: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    """Returns the tool, or all tools of a toolset."""
    kind, name = tool.get("type"), tool.get("name")
    if kind in (None, "custom"):
        about, parameters, strict = tool.get("description"), tool.get("input_schema"), tool.get("strict")
        buffered = tool.get("eager_input_streaming") is False
        return (ToolSpec(tool["name"], about, parameters, strict, extra={PROTOCOL: tool}, buffered=buffered),)
    if kind == "function" and (function := _function(tool)) is not None:
        return (function,)
    hosted = ToolSpec(name if isinstance(name, str) else str(kind), kind="hosted", extra={PROTOCOL: tool})
    return client_tools(tool) or (hosted,)


def _read_definition(tool: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    """Returns the tool that a message adds. Raises `ClientFault` for a field of the wrong type: the schema describes
    only those of `tools`."""
    kinds = (("description", str, "a string"), ("input_schema", Mapping, "an object"), ("strict", bool, "a boolean"))
    for field, kind, word in kinds:
        value = tool.get(field)
        if value is not None and not isinstance(value, kind):
            message = f"Invalid '{field}' of a tool in 'messages': expected {word} or null, got {quote(value)}."
            raise ClientFault(message, code="invalid_type", param="messages")
    return _read_tool(tool)


def _function(tool: Mapping[str, Any]) -> ToolSpec | None:
    """Returns the tool of a definition in OpenAI's shapes; None if it has no name."""
    inner = tool.get("function")
    about = inner if isinstance(inner, Mapping) else tool
    match about.get("name"), about.get("description"), about.get("parameters"), about.get("strict"):
        case str(name), (str() | None) as said, (Mapping() | None) as parameters, (bool() | None) as strict:
            return ToolSpec(name, said, parameters, strict)
    return None


def _read_choice(choice: Any, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    match choice:
        case None:
            return ToolChoice("auto" if tools else "none")
        case {"type": "auto" | "none" as mode}:
            return ToolChoice(mode, extra=_choice_extra(choice))
        case {"type": "any"}:
            return ToolChoice("required", extra=_choice_extra(choice))
        case {"type": "tool", "name": str(name)}:
            members = tuple(tool.name for tool in tools if tool.namespace == name)
            if members and all(tool.name != name for tool in tools):
                return ToolChoice("required", allowed=members, extra=_choice_extra(choice))  # any tool of the toolset
            return ToolChoice("named", name, extra=_choice_extra(choice))
    raise ClientFault(
        f"Invalid 'tool_choice': {quote(choice)}.",
        hint='Expected {"type":"auto"}, {"type":"any"}, {"type":"none"} or {"type":"tool","name":...}.',
        code="invalid_tool_choice",
        param="tool_choice",
    )


def _choice_extra(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    return scoped(PROTOCOL, rest_of(choice, CHOICE_FIELDS))


# --- odd requests -----------------------------------------------------------------------------------------------------


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its messages repaired, so that the reader accepts them; notes each in
    `mending`."""
    messages: Any = body.get("messages")
    messages = list(messages) if isinstance(messages, list) else messages
    for _, message in objects(messages):
        for _, block in objects(message.get("content")):
            if block.get("type") == "tool_result":
                mending.named(block, "tool_use_id")
    for at, message in objects(messages):
        if message.get("role") == "assistant":
            mending.begin_turn()
        content = mending.content(message.get("content"))
        content = list(content) if isinstance(content, list) else content
        for place, block in objects(content):
            content[place] = _mended_block(block, mending)
        messages[at] = {**message, "content": content}
    return {**body, "messages": messages}


def _mended_block(block: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match block.get("type"):
        case "tool_use":
            mending.called(block.get("id"), block.get("name"))
            return {**block, "input": _mended_input(block.get("input"), mending)}
        case "tool_result":
            return {**block, "tool_use_id": mending.result_id(block, "tool_use_id")}
    return block


def _mended_input(value: Any, mending: Mending) -> Any:
    """Returns the arguments of a call as an object; an object written as text is parsed."""
    if value is None or isinstance(value, dict):
        return value
    mending.note(ARGUMENTS)
    text = value if isinstance(value, str) else dump(value).decode()
    return load(text if is_json_object(text) else object_of(text))


# --- tools that come and go in a conversation -------------------------------------------------------------------------


ADDITION: Final = "tool_addition"
REMOVAL: Final = "tool_removal"
REFERENCE: Final = "tool_reference"
CHANGES: Final = (b"defer_loading", b"tool_addition", b"tool_removal")
"""A body that changes tools contains at least one of these."""
_DEFERRED: Final = "deferred"
_COMPACTION: Final = "compaction"
"""Type of a summary, which also has the tool changes of the messages that it stands for."""
_SEARCHES: Final = "tool_search_tool"
"""Prefix of the types of the server's own searches."""


class Change(NamedTuple):
    """A change of the tools on offer."""

    name: str
    added: bool
    """True if the tool is on offer from here on, False if it is removed."""
    definition: Mapping[str, Any] | None = None
    """The tool's definition, if the change contains one."""
    found: bool = False
    """True if the change is in a tool result: a search found the tool."""


def in_force(
    tools: tuple[ToolSpec, ...], changes: Sequence[Change], read: Callable[[Mapping[str, Any]], tuple[ToolSpec, ...]]
) -> tuple[ToolSpec, ...]:
    """Returns the tools on offer after these changes; the same object if nothing changes. `read` reads a definition."""
    deferred: Collection[str] | None = note_of(tools, _DEFERRED)
    if deferred is None:
        names = frozenset([prompt_name(tool) for tool in tools if tool.received.get("defer_loading") is True])
        deferred = note(tools, _DEFERRED, names, weight_of(names))
    if len(deferred) == len(tools) or any(_is_search(tool) for tool in tools if deferred):
        deferred = ()  # the server finds them, or no search tool could
    changes = [change for change in changes if deferred or not change.found]
    if not deferred and not changes:
        return tools
    known = {prompt_name(tool): tool for tool in tools}
    offered = {name: tool for name, tool in known.items() if name not in deferred}
    for name, added, definition, _ in changes:
        if definition is not None:
            known[name] = read(definition)[0]
        if not added:
            offered.pop(name, None)
        elif name in known:
            offered[name] = known[name]
    return ToolSet(offered.values())


def without_changes(message: Mapping[str, Any]) -> Any:
    """Returns the content of a message; that of a system message without its tool changes."""
    content = message["content"]
    if message["role"] != "system" or isinstance(content, str):
        return content
    return [block for block in content if block.get("type") not in (ADDITION, REMOVAL)]


def _is_search(tool: ToolSpec) -> bool:
    return tool.kind == "hosted" and str(tool.received.get("type")).startswith(_SEARCHES)


def changes_in(messages: Sequence[Mapping[str, Any]], past: Past | None) -> Sequence[Change]:
    """Returns the tool changes in these messages, in order."""
    return fold_items(past, "messages.tools", messages, 0, _more_changes)[0]


def _more_changes(_: int, messages: Sequence[Mapping[str, Any]], start: int, changes: list[Change]) -> int:
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            continue
        for block in content:
            if message["role"] == "system":
                changes += _system_changes(block)
            elif block.get("type") == _COMPACTION:
                for _, change in objects(block.get(TOOL_CHANGES)):
                    changes += _system_changes(change)
            elif message["role"] == "user" and block.get("type") == "tool_result":
                changes += _result_changes(block.get("content"))
    return 0


def _system_changes(block: Mapping[str, Any]) -> Iterator[Change]:
    kind, tool = block.get("type"), block.get("tool")
    if kind not in (ADDITION, REMOVAL) or not isinstance(tool, Mapping):
        return
    definition = tool.get("definition") if kind == ADDITION and tool.get("type") == "tool_definition" else None
    defined = fields_in(definition)
    name = defined.get("name") if defined else tool.get("name") if tool.get("type") == REFERENCE else None
    if isinstance(name, str):
        yield Change(name, kind == ADDITION, defined or None)


def _result_changes(content: Any) -> Iterator[Change]:
    for part in content if isinstance(content, list) else ():
        if part.get("type") == REFERENCE and isinstance(name := part.get("tool_name"), str):
            yield Change(name, True, found=True)
