"""Adapts a request to one backend: pure functions from `ModelRequest` to `ModelRequest`.

Rules: a part that needs no change stays the same object. Nothing is dropped without a rule that says so. The result has
no `constraint`: it becomes a field in `extra`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from operator import is_
from typing import Any, Final, Literal

from ...config import BackendConfig
from ...formats.engine.rendering import (
    SHORT_NAME_CHARS,
    as_taught,
    prompt_name,
    short_name,
    taught_arguments,
    with_groups,
)
from ...known.kinds import kinds_of
from ...known.past import Past, make_once, map_items
from ...model import (
    EMPTY,
    Extra,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
    replace,
    scoped,
)
from ...protocols.base import ServerSide
from ...protocols.shared.client_tools import as_function, form_of, is_client_tool
from ...schemas.lenient import BY_NAME, DATA, complete
from ...tolerances import NAMES
from .base import Capabilities
from .concessions import (
    NONE,
    Concessions,
    Limits,
    fit_sampling,
    is_usual,
    reduced_capabilities,
    without_refused,
)
from .constraints import constraint_fields
from .fit_files import files_in, fit_files, is_sent
from .fit_history import Tell, with_paired_results
from .fit_media import fit_images, has_images, images_after_results, without_images_of
from .fit_messages import (
    fit_call_ids,
    fit_parts,
    fit_reasoning,
    fit_roles,
    fit_turns,
    merge_neighbours,
    merged_texts,
    separate_results,
)
from .refusals import LIMIT_FIELDS

SHOW_SPECIAL_TOKENS: Final[Mapping[str, Any]] = {"skip_special_tokens": False}
"""vLLM's and SGLang's field. Without it a marker that is a special token of the model is missing from the text."""


PROBABILITIES: Final = frozenset({"logprobs", "top_logprobs"})
"""The request fields for token probabilities."""


CLIENTS_OWN: Final = frozenset({"grammar", "json_schema", "regex", "ebnf", "structured_outputs", "format"})
"""Fields with which a client that knows the server constrains an answer itself."""


def _silent(name: str, detail: str) -> None:
    """Discards a reported tolerance."""


def adapt(
    request: ModelRequest,
    takes: Capabilities,
    *,
    forward_unknown: Literal["drop", "list", "all"] = "list",
    wire: ServerSide | None = None,
    late_system: bool = True,
    own: bool = False,
    given_up: Concessions = NONE,
    context: int | None = None,
    kinds: frozenset[type] | None = None,
    tell: Tell = _silent,
) -> ModelRequest:
    """Returns `request` in a form that this backend accepts.

    `wire`: the backend's protocol, which passes on its own unmodelled fields. `late_system`: whether system messages
    may follow others, where that is unknown. `own`: the client uses the backend's protocol, so all its tool types are
    known. `given_up`: the concessions made so far. `context`: tokens of prompt and answer together, if known. `kinds`:
    the result of `kinds_of` for the messages, or for more of them, if known. `tell` is called for each tolerance.

    Raises `ClientFault` `unsupported_content` for images if the operator wants them refused (R5.9).
    """
    if given_up is not NONE:
        takes = reduced_capabilities(takes, given_up)
        request = without_refused(request, given_up.without, tell)
    messages = request.messages
    if kinds is None:
        kinds = kinds_of(messages, request.past)
    plain = not request.tools and Message not in kinds
    past = None if plain else request.past
    if not plain:
        request = fit_tools(request, takes, wire, tell, own=own)
        messages = request.messages  # of the same kinds
        if OpaquePart in kinds:
            messages = fit_files(messages, takes, wire, tell)
            kinds = kinds_of(messages, past)
        if Image in kinds:
            messages = fit_images(messages, takes, tell)
            if wire is not None and wire.no_images_of:
                messages = without_images_of(wire.no_images_of, messages, tell)
        if Reasoning in kinds and takes.reasoning_history == "none":
            messages = fit_reasoning(messages, wire)
        if wire is not None:
            messages = with_paired_results(messages, tell, past)
            if Image in kinds and wire.results_are_text:
                messages = images_after_results(messages, tell)
        messages = fit_parts(messages, wire, past)
    messages = fit_roles(messages, takes, late_system=late_system)
    messages = fit_turns(messages, takes)
    known = _known_fields(takes, forward_unknown)
    if not plain:
        messages = keep_part_fields(messages, known, wire, past)
    if takes.merge_roles:
        messages = merge_neighbours(messages)
    if not takes.user_after_tool:
        messages = separate_results(messages)
    if takes.short_ids:
        messages = fit_call_ids(messages, past)
    sampling, limits = request.sampling, limits_of(wire, context)
    if given_up is not NONE or not is_usual(sampling, limits):
        sampling = fit_sampling(request, limits, given_up, tell)
    if sampling.max_tokens is None and takes.default_max_tokens is not None:
        sampling = replace(sampling, max_tokens=takes.default_max_tokens)
    if sampling.max_tokens == 0 and (wire is None or not wire.warms_cache):
        sampling = replace(sampling, max_tokens=1)
    takes_effort = takes.reasoning_effort or "reasoning_effort" in known or "tool_effort" in given_up.without
    if sampling.reasoning_effort is not None and not takes_effort:
        sampling = replace(sampling, reasoning_effort=None)
    if sampling.n > 1 and not takes.multiple_choices:
        sampling = replace(sampling, n=1)
    if sampling.top_k is not None and "top_k" not in known:
        sampling = replace(sampling, top_k=None)
    extra = {name: value for name, value in request.extra.items() if name in known} if request.extra else EMPTY
    limit, (usual, other) = sampling.max_tokens, LIMIT_FIELDS
    if limit is not None and usual in given_up.without and wire is not None and other in wire.limit_fields:
        extra, sampling = {**extra, other: limit}, replace(sampling, max_tokens=None)
    response_format = None if request.response_format is None else supported_format(request.response_format, takes)
    if request.constraint is not None and (fields := constraint_fields(request.constraint, takes.constrain)):
        # A server takes one constraint at a time.
        response_format = fields.pop("response_format", None)
        extra = {**{name: value for name, value in extra.items() if name not in CLIENTS_OWN}, **fields}
    if request.special_tokens and takes.special_tokens:
        extra = {**SHOW_SPECIAL_TOKENS, **extra}  # the client's own value wins
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


def limits_of(wire: ServerSide | None, context: int | None) -> Limits:
    """Returns the sampling limits of this protocol. `context`: tokens of prompt and answer together, if known."""
    return Limits(context=context) if wire is None else Limits(wire.most_temperature, wire.efforts, context)


def needs_changes(
    request: ModelRequest, takes: Capabilities, wire: ServerSide, context: int | None, kinds: frozenset[type]
) -> bool:
    """True if a request that is already in the server's own protocol must be changed nevertheless. `kinds`: the result
    of `kinds_of` for its messages."""
    if request.tools:
        if not takes.choice_objects and request.tool_choice.names is not None:
            return True
        if takes.short_names and any(len(tool.name) > SHORT_NAME_CHARS for tool in request.tools):
            return True
        if make_once(request.past, "incomplete tools", request.tools, lambda: any(map(_is_incomplete, request.tools))):
            return True
    sampling, limits = request.sampling, Limits(wire.most_temperature, wire.efforts, context)
    if not is_usual(sampling, limits) and fit_sampling(request, limits, NONE, _silent) is not sampling:
        return True
    if Message not in kinds:
        return False
    if Image in kinds and not (takes.images or takes.images_unknown) and has_images(request.messages):
        return True
    files = files_in(request.messages) if OpaquePart in kinds else ()
    if not all(is_sent(part, in_result, takes, wire) for part, _, in_result in files):
        return True
    messages = with_paired_results(request.messages, _silent, request.past)
    if Image in kinds and wire.results_are_text:
        messages = images_after_results(messages, _silent)
    return messages is not request.messages


def capabilities_after(takes: Capabilities, several: Iterable[Concessions]) -> Capabilities:
    """Returns the capabilities that remain after the concessions of several servers."""
    for given_up in several:
        takes = reduced_capabilities(takes, given_up)
    return takes


def supported_format(form: Mapping[str, Any] | None, takes: Capabilities) -> Mapping[str, Any] | None:
    """Returns the `response_format` to send for `form`: the same, the next best that the server supports, or None. The
    rest is explained in the prompt (`needs_instructions`)."""
    if form is None or not takes.response_format:
        return None
    kind = form.get("type")
    if kind == "json_schema" and kind not in takes.response_format:
        return {"type": "json_object"} if "json_object" in takes.response_format else None
    if kind == "json_object" and kind not in takes.response_format:
        return _ANY_OBJECT if "json_schema" in takes.response_format else None
    return form


def needs_instructions(form: Mapping[str, Any] | None, takes: Capabilities) -> bool:
    """True if the server is not sent all of `form`, so the prompt must explain it (R2.22)."""
    if form is None or form.get("type") not in ("json_object", "json_schema"):
        return False
    sent = supported_format(form, takes)
    return sent is None or (sent is not form and sent is not _ANY_OBJECT)


_ANY_OBJECT: Final[Mapping[str, Any]] = {
    "type": "json_schema",
    "json_schema": {"name": "object", "schema": {"type": "object"}},
}
"""Sent for `json_object` to a server that supports only schemas."""


def with_limit_field(
    body: Mapping[str, Any], facts: Capabilities | BackendConfig, wire: ServerSide
) -> Mapping[str, Any]:
    """Returns a body of the protocol `wire` with the token limit of the answer in the field that this server expects
    (R24.4), such as `max_completion_tokens`; the same object if nothing changes. `facts`: the server's capabilities or
    its configuration."""
    names = wire.limit_fields
    if not names or (facts.max_tokens_field is None and facts.default_max_tokens is None):
        return body
    wanted = facts.max_tokens_field if facts.max_tokens_field in names else names[0]
    present = next((name for name in names if body.get(name) is not None), None)
    if present is None:
        return body if facts.default_max_tokens is None else {**body, wanted: facts.default_max_tokens}
    if present == wanted or facts.max_tokens_field is None:
        return body
    return {**{name: value for name, value in body.items() if name not in names}, wanted: body[present]}


def reasoning_named(body: Mapping[str, Any], takes: Capabilities, wire: ServerSide) -> Mapping[str, Any]:
    """Returns a body of the protocol `wire` with the reasoning of earlier turns in the field that this server wants;
    the same object if nothing changes."""
    wanted, names = takes.reasoning_history, wire.reasoning_names
    if wanted not in names or wanted == names[0]:
        return body
    messages = body.get("messages") or ()
    if not any(names[0] in message for message in messages):
        return body
    renamed = [
        {wanted if key == names[0] else key: value for key, value in message.items()}
        if names[0] in message
        else message
        for message in messages
    ]
    return {**body, "messages": renamed}


def takes_usual_reasoning(takes: Capabilities, wire: ServerSide | None) -> bool:
    """True if the server accepts the reasoning of earlier turns in the protocol's usual field."""
    wanted, names = takes.reasoning_history, () if wire is None else wire.reasoning_names
    return wanted != "none" and (wanted not in names or wanted == names[0])


def requestable(request: ModelRequest, takes: Capabilities, wire: ServerSide | None) -> Capabilities:
    """Returns `takes` with the additional features that `request`, as the client sent it, may use.

    Without tools the server decides (R1.6): several choices and probabilities are passed on even if it is not known to
    support them. `wire` is its protocol; for a backend without one (None) only its own capabilities count.
    """
    return takes if request.tools or wire is None else _decided_by_itself(takes)


@lru_cache(maxsize=256)  # a pure function of the capabilities, called for each request
def _decided_by_itself(takes: Capabilities) -> Capabilities:
    return dataclasses.replace(
        takes,
        multiple_choices=True,
        extra_parameters=takes.extra_parameters | PROBABILITIES,
    )


class _All:
    """A container of every name."""

    def __contains__(self, name: object) -> bool:
        return True


_ALL: Final = _All()


def _known_fields(takes: Capabilities, forward_unknown: Literal["drop", "list", "all"]) -> Container[str]:
    """Returns the names of unmodelled fields that are sent to the backend (C4): none, the ones that the configuration
    lists, or all."""
    if forward_unknown == "all":
        return _ALL
    return takes.extra_parameters if forward_unknown == "list" else ()


def _known_extra(extra: Extra, known: Container[str], wire: ServerSide | None) -> Extra:
    """Returns the unmodelled fields of the backend's protocol that it knows; the same object if those are all."""
    if wire is None or not extra:
        return extra
    fields = fields_of(extra, wire.name)
    taken = fields
    if not all(name in known for name in fields):
        taken = {**wire.known_fields(fields), **{name: value for name, value in fields.items() if name in known}}
    return extra if fields and len(extra) == 1 and taken == fields else scoped(wire.name, taken)


def _without_stream_options(extra: Extra) -> Extra:
    """Drops `stream_options` from protocol fields. Protocol fields go to every server of the protocol, but some refuse
    these."""
    if not any("stream_options" in fields for fields in extra.values()):
        return extra
    others = {
        name: {key: value for key, value in fields.items() if key != "stream_options"} for name, fields in extra.items()
    }
    return {name: fields for name, fields in others.items() if fields} or EMPTY


def keep_part_fields(
    messages: tuple[Message, ...], known: Container[str], wire: ServerSide | None, past: Past | None
) -> tuple[Message, ...]:
    """Returns the messages with the unmodelled fields of parts filtered like those of the request.
    Reasoning keeps all of its fields, because the server that made them needs them back."""

    def filtered(part: Part) -> Part:
        if isinstance(part, ToolResult):
            parts = each_filtered(part.parts)
            part = part if parts is part.parts else replace(part, parts=parts)
        if not _has_extra(part) or isinstance(part, Reasoning | OpaquePart):
            return part
        extra = _known_extra(part.extra, known, wire)
        return part if extra is part.extra else replace(part, extra=extra)

    def each_filtered(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        fitted = tuple(map(filtered, parts))
        return parts if all(map(is_, fitted, parts)) else merged_texts(fitted)

    def fit(message: Message) -> Message:
        parts = each_filtered(message.parts) if _has_fields(message) else message.parts
        return message if parts is message.parts else replace(message, parts=parts)

    return map_items(past, ("fields", known, wire), messages, fit)


def _has_extra(part: Part) -> bool:
    return not isinstance(part, OpaquePart) and bool(part.extra)


def _has_fields(message: Message) -> bool:
    for part in message.parts:
        if isinstance(part, OpaquePart):
            continue
        if part.extra or (type(part) is ToolResult and any(map(_has_extra, part.parts))):
            return True
    return False


def fit_tools(
    request: ModelRequest, takes: Capabilities, wire: ServerSide | None, tell: Tell, *, own: bool
) -> ModelRequest:
    """Returns the request with tools of types that the server knows (R3.8), and with earlier calls adapted to them.

    A custom tool becomes a function with one text (R8.9). A hosted tool is dropped unless it was sent in the server's
    own protocol. A tool in a group gets a name of its own (R8.16). A typed tool that the client runs becomes a function
    unless the server knows its type (R28.5). If `tool_choice` must be a word, only the tools that it names are sent
    (R24.1).

    `toolwire.middlewares.arguments` restores the client's names in the calls of the answer.
    """

    def fitted() -> tuple[ToolSpec, ...]:
        sent = tuple(tool for tool in request.tools if own or tool.kind != "hosted" or _is_known(tool, takes, wire))
        fit = sent if own else (_fit_tool(tool, takes, wire) for tool in with_groups(sent))
        whole = tuple(map(_with_complete_schema, fit))
        return whole if own else tuple([_with_strictness(tool, wire) for tool in whole])

    tools = make_once(request.past, ("fit tools", takes, wire, own), request.tools, fitted)
    fitting = len(tools) == len(request.tools) and all(map(is_, tools, request.tools))
    choice = request.tool_choice if fitting or own else _fit_choice(request, takes, wire)
    if not takes.choice_objects and (wanted := choice.names) is not None:
        tools = tuple(tool for tool in tools if tool.name in wanted)
        choice = ToolChoice("required" if choice.mode == "named" else choice.mode)
    messages = _fit_calls(request, takes, wire, own or _own_forms(request, takes, wire), own=own)
    if takes.short_names and any(len(tool.name) > SHORT_NAME_CHARS for tool in tools):
        fitting = False
        tell(NAMES, f"the model server takes {SHORT_NAME_CHARS} characters")
        tools = tuple(replace(tool, name=short_name(tool.name)) for tool in tools)
        choice = replace(
            choice,
            name=None if choice.name is None else short_name(choice.name),
            allowed=None if choice.allowed is None else tuple(map(short_name, choice.allowed)),
        )
    if fitting and choice is request.tool_choice and messages is request.messages:
        return request
    return replace(request, tools=tools, tool_choice=choice, messages=messages)


def _is_incomplete(tool: ToolSpec) -> bool:
    """True for a function tool with parameters that not every server accepts."""
    return tool.kind == "function" and complete(tool.parameters) is not tool.parameters


def _with_complete_schema(tool: ToolSpec) -> ToolSpec:
    """Returns the tool with parameters as every server accepts them."""
    return replace(tool, parameters=complete(tool.parameters)) if _is_incomplete(tool) else tool


def _with_strictness(tool: ToolSpec, wire: ServerSide | None) -> ToolSpec:
    """Returns the tool without `strict` if it has optional properties, which the client's protocol allows and the
    server's does not. The gateway judges its calls all the same."""
    if tool.strict is not True or wire is None or not wire.strict_requires_all or wire.name in tool.extra:
        return tool
    return tool if _lists_all(tool.parameters) else replace(tool, strict=None)


def _lists_all(schema: Any) -> bool:
    """True if every object in a schema lists all its properties in `required`."""
    if isinstance(schema, list):
        return all(map(_lists_all, schema))
    if not isinstance(schema, Mapping):
        return True
    named, listed = schema.get("properties"), schema.get("required") or ()
    if isinstance(named, Mapping) and not all(name in listed for name in named):
        return False
    for key, value in schema.items():
        inner = list(value.values()) if key in BY_NAME and isinstance(value, Mapping) else value
        if key not in DATA and not _lists_all(inner):
            return False
    return True


def _is_known(tool: ToolSpec, takes: Capabilities, wire: ServerSide | None) -> bool:
    own = takes.own_tools and wire is not None and wire.name in tool.extra
    return own or tool.received.get("type", tool.kind) in takes.tool_types


def has_client_tool(tool: ToolSpec, takes: Capabilities, wire: ServerSide | None) -> bool:
    """True if the server knows the client's tool by the type that was sent in place of a schema (R28.5)."""
    if wire is None or wire.name not in tool.extra:
        return False
    return takes.client_tools or tool.received.get("type") in takes.tool_types


def _own_forms(request: ModelRequest, takes: Capabilities, wire: ServerSide | None) -> bool:
    """True if earlier calls may be sent to the server in the special forms of such tools."""

    def known() -> bool:
        return any(is_client_tool(tool) and has_client_tool(tool, takes, wire) for tool in request.tools)

    return takes.client_tools or make_once(request.past, ("own forms", takes, wire), request.tools, known)


def _fit_tool(tool: ToolSpec, takes: Capabilities, wire: ServerSide | None) -> ToolSpec:
    if is_client_tool(tool):
        if has_client_tool(tool, takes, wire):
            return tool
        tool = as_function(tool)
    if tool.kind == "custom" and "custom" not in takes.tool_types:
        return as_taught(tool)
    return tool if tool.namespace is None else replace(tool, name=prompt_name(tool), namespace=None)


def _fit_choice(request: ModelRequest, takes: Capabilities, wire: ServerSide | None) -> ToolChoice:
    """Returns the tool choice with the names that the server gets; no choice if none of the named tools is left."""
    choice = request.tool_choice
    wanted = (choice.name,) if choice.mode == "named" else choice.allowed
    if wanted is None:
        return choice
    sent = [tool for tool in request.tools if tool.kind != "hosted" or _is_known(tool, takes, wire)]
    names = tuple(_fit_tool(tool, takes, wire).name for tool in sent if tool.name in wanted)
    if choice.mode == "named":
        return replace(choice, name=names[0]) if names else ToolChoice()
    return replace(choice, allowed=names)


def _fit_calls(
    request: ModelRequest, takes: Capabilities, wire: ServerSide | None, own_forms: bool, *, own: bool
) -> tuple[Message, ...]:
    def fit_part(part: Part) -> Part:
        if isinstance(part, ToolUse | ToolResult) and part.extra and (form := form_of(part)) is not None:
            if own_forms and wire is not None and wire.name == form:
                return part
            part = replace(part, extra=EMPTY)
        if isinstance(part, ToolUse):
            if part.kind == "custom" and "custom" not in takes.tool_types and not own:
                part = replace(part, arguments=taught_arguments(part), kind="function")
            if part.namespace is not None and not own:
                part = replace(part, name=prompt_name(part), namespace=None)
            short = takes.short_names and len(part.name) > SHORT_NAME_CHARS
            return replace(part, name=short_name(part.name)) if short else part
        return part

    def fit(message: Message) -> Message:
        parts = tuple(map(fit_part, message.parts))
        return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)

    return map_items(request.past, ("calls", takes, wire, own_forms, own), request.messages, fit)
