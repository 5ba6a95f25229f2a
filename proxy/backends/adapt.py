"""A request made fit for one backend: pure functions from `ModelRequest` to `ModelRequest`.

Rules: a part that needs no change is kept as the same object; nothing is dropped without a rule that says so; the result has
no `constraint` any more, it has become a field in `extra`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final, Literal

from ..errors import ClientFault
from ..formats.longjson import compact
from ..formats.rendering import as_taught, prompt_name, taught_arguments, with_groups
from ..model import (
    EMPTY,
    Constraint,
    Extra,
    Image,
    Message,
    ModelRequest,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
    merged,
    scoped,
)
from ..protocols.base import ServerSide
from ..protocols.wire import dump
from .base import Capabilities

CONTINUE: Final = "Continue."
"""What the user says when a transcript has no user turn where the backend's template needs one (R5.8a)."""

SHOW_SPECIAL_TOKENS: Final[Mapping[str, Any]] = {"skip_special_tokens": False}
"""vLLM's and SGLang's field: a marker that is a special token of the model else never reaches the text."""

PROBABILITIES: Final = frozenset({"logprobs", "top_logprobs"})
"""The fields that ask for them."""

IMAGE_OMITTED: Final = "[image omitted]"

CLIENTS_OWN: Final = frozenset({"grammar", "json_schema", "regex", "ebnf", "structured_outputs", "format"})
"""Fields with which a client that knows its server constrains an answer itself."""

_BREAK: Final = "\n\n"


def adapt(
    request: ModelRequest,
    takes: Capabilities,
    *,
    forward_unknown: Literal["drop", "list", "all"] = "list",
    wire: ServerSide | None = None,
) -> ModelRequest:
    """`request` as this backend can take it. `wire` is its protocol, which takes what it does not model itself as it
    is.

    Raises `ClientFault` `unsupported_content` for images that the backend neither takes nor may drop (R5.9).
    """
    messages = request.messages
    if request.tools or not all(map(_is_plain, messages)):
        request = fit_tools(request, takes)
        messages = fit_parts(fit_images(request.messages, takes), wire)
    messages = fit_roles(messages, takes)
    messages = fit_turns(messages, takes)
    known = _known_fields(takes, forward_unknown)
    messages = keep_part_fields(messages, known, None if wire is None else wire.name)
    if takes.merge_roles:
        messages = merge_neighbours(messages)
    sampling = request.sampling
    if sampling.reasoning_effort is not None and not takes.reasoning_effort:
        sampling = replace(sampling, reasoning_effort=None)
    if sampling.n > 1 and not takes.multiple_choices:
        sampling = replace(sampling, n=1)
    if sampling.top_k is not None and "top_k" not in known:
        sampling = replace(sampling, top_k=None)
    extra = keep_fields(request.extra, takes, forward_unknown)
    response_format = request.response_format if takes.response_format else None
    if request.constraint is not None and (fields := constraint_fields(request.constraint, takes.constrain)):
        # A server takes one constraint at a time.
        response_format = fields.pop("response_format", None)
        extra = {**{name: value for name, value in extra.items() if name not in CLIENTS_OWN}, **fields}
    if request.special_tokens and takes.special_tokens:
        extra = {**SHOW_SPECIAL_TOKENS, **extra}  # what the client says itself counts
    include_usage = request.stream and takes.stream_usage
    protocol_fields = request.protocol_fields
    if protocol_fields and not include_usage:
        protocol_fields = _without_stream_options(protocol_fields)
    if (
        messages is request.messages
        and sampling is request.sampling
        and response_format is request.response_format
        and include_usage == request.include_usage
        and request.constraint is None
        and extra == request.extra
        and protocol_fields is request.protocol_fields
    ):
        return request
    return replace(
        request,
        messages=messages,
        sampling=sampling,
        response_format=response_format,
        include_usage=include_usage,
        constraint=None,
        extra=extra,
        protocol_fields=protocol_fields,
    )


def _is_plain(message: Message) -> bool:
    """One text or nothing, as most messages are."""
    parts = message.parts
    return not parts or (len(parts) == 1 and type(parts[0]) is Text)


def may_be_asked(request: ModelRequest, takes: Capabilities, wire: ServerSide | None) -> Capabilities:
    """What a server that `takes` this may be asked for by `request`, as the client sent it.

    Without tools it is the server that decides (R1.6): several answers and probabilities go to it whatever is known of it, and images, if
    nobody has said that it takes none. `wire` is its protocol; a backend without any takes what it says.
    """
    if request.tools or wire is None:
        return takes
    return replace(
        takes,
        images=takes.images or takes.images_unknown,
        multiple_choices=True,
        extra_parameters=takes.extra_parameters | PROBABILITIES,
    )


def keep_fields(
    extra: Mapping[str, Any], takes: Capabilities, forward_unknown: Literal["drop", "list", "all"]
) -> Mapping[str, Any]:
    """The fields that are not modelled and still go to the backend (C4)."""
    if forward_unknown == "all":
        return extra
    if forward_unknown == "drop" or not takes.extra_parameters:
        return EMPTY
    return {name: value for name, value in extra.items() if name in takes.extra_parameters}


class _All:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


def _known_fields(takes: Capabilities, forward_unknown: Literal["drop", "list", "all"]) -> Container[str]:
    """The names of fields that are not modelled and still go to the backend (C4)."""
    if forward_unknown == "all":
        return _All()
    return takes.extra_parameters if forward_unknown == "list" else ()


def _kept(extra: Extra, known: Container[str], wire: str | None) -> Extra:
    """Of the fields that are not modelled those that the backend knows, and only those of its protocol; the same object if that is all."""
    if wire is None or not extra:
        return extra
    fields = fields_of(extra, wire)
    if len(extra) == 1 and fields and all(name in known for name in fields):
        return extra
    return scoped(wire, {name: value for name, value in fields.items() if name in known})


def _without_stream_options(extra: Extra) -> Extra:
    """What is for a protocol itself goes to every server that speaks it, but these to none that does not know them."""
    if not any("stream_options" in fields for fields in extra.values()):
        return extra
    kept = {
        name: {key: value for key, value in fields.items() if key != "stream_options"} for name, fields in extra.items()
    }
    return {name: fields for name, fields in kept.items() if fields} or EMPTY


def keep_part_fields(messages: tuple[Message, ...], known: Container[str], wire: str | None) -> tuple[Message, ...]:
    """Fields of parts that are not modelled, as `keep_fields` has it of those of the request. Thinking keeps all: its own server made
    them, and wants to see them again."""
    if not any(map(_has_fields, messages)):
        return messages

    def kept(part: Part) -> Part:
        if isinstance(part, ToolResult):
            parts = each(part.parts)
            part = part if parts is part.parts else replace(part, parts=parts)
        if not _says_more(part) or isinstance(part, Reasoning | Opaque):
            return part
        extra = _kept(part.extra, known, wire)
        return part if extra is part.extra else replace(part, extra=extra)

    def each(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        fitted = tuple(map(kept, parts))
        return parts if all(map(is_, fitted, parts)) else _merged_texts(fitted)

    fitted = []
    for message in messages:
        parts = each(message.parts)
        fitted.append(message if parts is message.parts else replace(message, parts=parts))
    return messages if all(map(is_, fitted, messages)) else tuple(fitted)


def _says_more(part: Part) -> bool:
    return not isinstance(part, Opaque) and bool(part.extra)


def _has_fields(message: Message) -> bool:
    for part in message.parts:
        if isinstance(part, Opaque):
            continue
        if part.extra or (type(part) is ToolResult and any(map(_says_more, part.parts))):
            return True
    return False


def _merged_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts, neighbouring texts as one if there is nothing more to say of them. Texts of nothing are left out."""
    out: list[Part] = []
    for part in parts:
        if type(part) is not Text or part.text or part.extra:
            _add(out, part)
    return tuple(out)


# --- tools, where the server does them itself -----------------------------------------------------------------------


def fit_tools(request: ModelRequest, takes: Capabilities) -> ModelRequest:
    """Only tools of types that the server knows (R3.8): a custom one becomes a function with one text (R8.9), a hosted
    one is left out, one in a group gets a name of its own (R8.16). Earlier calls follow.

    What the model then calls is given the client's words again by `middlewares.arguments`.
    """
    kept = (tool for tool in request.tools if tool.kind != "hosted" or _is_known(tool, takes))
    tools = tuple(_fit_tool(tool, takes) for tool in with_groups(tuple(kept)))
    fitting = len(tools) == len(request.tools) and all(a is b for a, b in zip(tools, request.tools, strict=True))
    choice = request.tool_choice if fitting else _fit_choice(request, takes)
    return replace(request, tools=tools, tool_choice=choice, messages=_fit_calls(request.messages, takes))


def _is_known(tool: ToolSpec, takes: Capabilities) -> bool:
    return tool.received.get("type", tool.kind) in takes.tool_types


def _fit_tool(tool: ToolSpec, takes: Capabilities) -> ToolSpec:
    if tool.kind == "custom" and "custom" not in takes.tool_types:
        return as_taught(tool)
    return tool if tool.namespace is None else replace(tool, name=prompt_name(tool), namespace=None)


def _fit_choice(request: ModelRequest, takes: Capabilities) -> ToolChoice:
    """The same demand in the names that the server knows; none if nothing that it names is left."""
    choice = request.tool_choice
    wanted = (choice.name,) if choice.mode == "named" else choice.allowed
    if wanted is None:
        return choice
    kept = [tool for tool in request.tools if tool.kind != "hosted" or _is_known(tool, takes)]
    names = tuple(prompt_name(tool) for tool in kept if tool.name in wanted)
    if choice.mode == "named":
        return replace(choice, name=names[0]) if names else ToolChoice()
    return replace(choice, allowed=names)


def _fit_calls(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    def fit(part: Part) -> Part:
        if isinstance(part, ToolUse):
            if part.kind == "custom" and "custom" not in takes.tool_types:
                part = replace(part, arguments=taught_arguments(part), kind="function")
            return part if part.namespace is None else replace(part, name=prompt_name(part), namespace=None)
        return part

    out = []
    for message in messages:
        parts = tuple(map(fit, message.parts))
        same = all(a is b for a, b in zip(parts, message.parts, strict=True))
        out.append(message if same else replace(message, parts=parts))
    return tuple(out)


# --- messages -------------------------------------------------------------------------------------------------------


def fit_images(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    """Images kept, replaced by a note, or refused (R5.9). Looks into tool results as well."""
    if takes.images or not any(_has_image(message.parts) for message in messages):
        return messages
    if not takes.drop_images:
        index = next(i for i, message in enumerate(messages) if _has_image(message.parts))
        raise ClientFault(
            "This model's server takes no images.",
            code="unsupported_content",
            param=f"messages[{index}].content",
            hint="Send text only, or set `images: true` or `images: drop` for the backend.",
        )
    return tuple(
        replace(message, parts=_without_images(message.parts)) if _has_image(message.parts) else message
        for message in messages
    )


def _has_image(parts: Iterable[Part]) -> bool:
    return any(isinstance(p, Image) or (isinstance(p, ToolResult) and _has_image(p.parts)) for p in parts)


def _without_images(parts: Iterable[Part]) -> tuple[Part, ...]:
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Image):
            out.append(Text(IMAGE_OMITTED))
        elif isinstance(part, ToolResult):
            out.append(replace(part, parts=_without_images(part.parts)))
        else:
            out.append(part)
    return tuple(out)


def fit_parts(messages: tuple[Message, ...], wire: ServerSide | None) -> tuple[Message, ...]:
    """Neighbouring texts of a message, or of a result, as one, since many servers take only a plain string (R5.9).
    Parts that the protocol `wire` has no form for are left out (R8.2), and a message that holds nothing else; in a
    result they are text."""
    fitted = [_fit_parts(message, wire) for message in messages]
    if all(map(is_, fitted, messages)):
        return messages
    return tuple(message for message in fitted if message is not None)


def _fit_parts(message: Message, wire: ServerSide | None) -> Message | None:
    if _is_plain(message):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            part = _fit_result(part, wire)
        if _can_be_said(part, wire):
            _add(parts, part)
    if not parts:
        return None
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else replace(message, parts=tuple(parts))


def _fit_result(result: ToolResult, wire: ServerSide | None) -> ToolResult:
    parts: list[Part] = []
    for part in result.parts:
        foreign = isinstance(part, Opaque) and (wire is None or part.protocol != wire.name)
        _add(parts, Text(dump(part.payload).decode()) if foreign and isinstance(part, Opaque) else part)
    same = len(parts) == len(result.parts) and all(map(is_, parts, result.parts))
    return result if same else replace(result, parts=tuple(parts))


def _add(parts: list[Part], part: Part) -> None:
    """Put a part behind others; a text into the text before it."""
    last = parts[-1] if parts else None
    if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
        parts[-1] = Text(last.text + part.text)
    else:
        parts.append(part)


def _can_be_said(part: Part, wire: ServerSide | None) -> bool:
    if isinstance(part, Opaque):
        return wire is not None and part.protocol == wire.name
    return not isinstance(part, Reasoning) or bool(part.text) or (wire is not None and wire.bare_reasoning)


def fit_roles(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    """`developer` becomes `system` (C13); without a system role such a message goes to the head of the next user message,
    or becomes one itself when none follows (R5.1)."""
    if not takes.developer_role and any(m.role == "developer" for m in messages):
        messages = tuple(replace(m, role="system") if m.role == "developer" else m for m in messages)
    if takes.system_role or not any(_instructs(m.role) for m in messages):
        return messages
    out: list[Message] = []
    held: list[Message] = []
    for message in messages:
        if _instructs(message.role):
            held.append(message)
        elif message.role == "user" and held:
            out.append(replace(message, parts=_joined([*(m.parts for m in held), message.parts])))
            held = []
        else:
            out.append(message)
    if held:
        out.append(Message("user", _joined([m.parts for m in held])))
    return tuple(out)


def _instructs(role: Role) -> bool:
    return role in ("system", "developer")


def fit_turns(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    """At least one user message, and a user or tool message at the end (R5.8a), unless the backend continues a last
    assistant message."""
    if not any(m.role == "user" for m in messages):
        head = next((i for i, m in enumerate(messages) if not _instructs(m.role)), len(messages))
        messages = (*messages[:head], Message("user", (Text(CONTINUE),)), *messages[head:])
    if messages[-1].role in ("user", "tool") or (messages[-1].role == "assistant" and takes.continuation):
        return messages
    return (*messages, Message("user", (Text(CONTINUE),)))


def merge_neighbours(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Neighbouring messages of one role joined (R5.10). Tool messages stay apart: each answers one call."""
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        if last is None or last.role != message.role or message.role == "tool":
            out.append(message)
            continue
        name = last.name if last.name == message.name else None
        out[-1] = replace(
            last, parts=_joined([last.parts, message.parts]), name=name, extra=merged(last.extra, message.extra)
        )
    return tuple(out)


def _joined(several: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Parts of several messages in one, texts with a blank line between."""
    out: list[Part] = []
    for parts in several:
        if out and parts and isinstance(out[-1], Text) and isinstance(parts[0], Text):
            out[-1] = Text(out[-1].text + _BREAK + parts[0].text, merged(out[-1].extra, parts[0].extra))
            out += parts[1:]
        else:
            out += parts
    return tuple(out)


# --- constrained decoding -------------------------------------------------------------------------------------------


def constraint_fields(constraint: Constraint, feature: str) -> dict[str, Any]:
    """The request fields with which a server of this feature enforces `constraint` (R10.10, R23.2); none if it cannot."""
    if constraint.free:
        # Such a grammar of the whole answer was run in llama.cpp only; the others have a form that is made for it.
        feature = {"guided": "guided_tag", "ebnf": "structural_tag", "json_schema": "none", "format": "none"}.get(
            feature, feature
        )
    match feature:
        case "none":
            return {}
        case "gbnf":
            return {"grammar": constraint.gbnf}
        case "guided":
            return {"structured_outputs": {"grammar": constraint.gbnf}}
        case "ebnf":
            return {"ebnf": constraint.gbnf}
        case "guided_tag" | "structural_tag" if constraint.tags is None:
            return {}
        case "guided_tag":
            return {"structured_outputs": {"structural_tag": compact(constraint.tags)}}
        case "structural_tag":
            return {"response_format": constraint.tags}
        case "json_schema":
            schema = {"name": "tool_call", "schema": call_schema(constraint.calls), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case "format":
            return {"format": call_schema(constraint.calls)}
        case _:
            raise ValueError(f"unknown feature for constrained decoding: {feature!r}")


def call_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A JSON Schema of one call, `{"name": ..., "arguments": {...}}`, of one of the tools."""
    if len(tools) == 1:
        return _one_call(tools[0], "#/properties/arguments")
    return {"anyOf": [_one_call(tool, f"#/anyOf/{i}/properties/arguments") for i, tool in enumerate(tools)]}


def _one_call(tool: ToolSpec, place: str) -> dict[str, Any]:
    parameters = _moved(tool.parameters or {"type": "object", "properties": {}}, place)
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """A schema whose local references still point inside it after it moved to `place`."""
    if isinstance(schema, Mapping):
        return {
            key: place + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [_moved(value, place) for value in schema]
    return schema
