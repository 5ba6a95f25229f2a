"""Checks a request beyond its schema: rules between fields, against the route, and about the client's tools.

The first fault is reported, in this order: parameters that the route does not support (R2.21, R2.24), each tool (R3),
`tool_choice` (R2.18), strict tools with parallel calls (C9), calls and results in the conversation (R2.7 to R2.9),
images (R5.9). For a tool: name, duplicate, missing parameters (C7), schema. `param` is a path into the client's
request.

Decisions about tools are noted with the tools and cached by content, so that checking the same tools again costs almost
nothing. Compiled schemas are stored in `exchange.state[ToolSchemas]`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, ClassVar, Final

from aiohttp import web

from toolwire.config import LimitsConfig
from toolwire.errors import ClientFault, quote
from toolwire.events import MAX_CHOICES
from toolwire.formats.engine.rendering import prompt_name
from toolwire.formats.engine.toolset import ToolSet, note, note_of
from toolwire.known.kinds import kinds_of
from toolwire.known.past import fold_items
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
    replace,
)
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.exchange.checked_calls import check_conversation
from toolwire.pipeline.exchange.field_positions import FieldPositions
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.protocols.shared.files import CONTENT_TYPES, read_file
from toolwire.protocols.shared.tool_servers import ToolServerForm
from toolwire.record import TOLERATED, AccessField, CounterSpec
from toolwire.schemas.lenient import mended
from toolwire.schemas.schema import (
    NotCompiled,
    SchemaCache,
    SchemaProblem,
    ToolSchemas,
    Uncheckable,
    validate_tool_name,
)
from toolwire.support.cache import CacheBudget, chars_of
from toolwire.support.offload import is_large, offload
from toolwire.tolerances import MANY_TOOLS, TOLERANCES, UNCHECKED
from toolwire.upstream.servers.adapt import requestable
from toolwire.upstream.servers.fit_media import has_images, refused_images

LOG: Final = logging.getLogger("toolwire.validation")


_ANSWER_CHANGING: Final[Mapping[str, Any]] = {
    "logprobs": bool,
    "audio": bool,
    "modalities": lambda value: not isinstance(value, list) or any(item != "text" for item in value),
    "prediction": bool,
    "web_search_options": lambda value: True,
    "logit_bias": bool,
}
"""Known fields that change the answer, each with a test whether its value has an effect (R2.24)."""
_SEEN_ELSEWHERE: Final = CONTENT_TYPES | {"item_reference", "configuration_update"}
"""Types of unmodelled parts that are not left out: files become text, `conversation` resolves references, and settings
apply."""
ANY_OBJECT: Final = {"type": "object"}
"""The schema that replaces one that cannot be checked."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """The checked tools, stored for requests with the same list. `tools`: the list, with schemas that every server
    accepts; `unchecked`: the name of a tool whose schema cannot be checked completely."""

    schemas: ToolSchemas
    tools: tuple[ToolSpec, ...]
    unchecked: str | None


class Validation(Middleware):
    """Refuses requests that cannot be served, before any work is done for them."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "echoed_calls",
            "Earlier calls in the request.",
            CounterSpec("toolwire_echoed_calls_total", "Earlier calls in requests"),
        ),
        AccessField("moved_results", "Tool results that did not directly follow their call."),
        AccessField("ignored_items", "Items and parts that the model server does not support."),
        AccessField("tolerances", "Names of the tolerated oddities."),
        AccessField(
            TOLERATED,
            "Number of the tolerated oddities.",
            CounterSpec(
                "toolwire_tolerated_total", "Oddities in requests that were tolerated", "what", tuple(TOLERANCES)
            ),
        ),
    )

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        return {"conversation": "which loads turns that may bring tools"}

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._schemas = SchemaCache(CacheBudget())

    async def start(self, app: web.Application) -> None:
        self._schemas = SchemaCache(app[CACHES])

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Returns the valid request. Raises `ClientFault`. Changes only invalid schemas, and a tool choice that
        requires a hosted tool which is not simulated."""
        options = exchange.route.options
        unmodelled = request.extra or request.sampling.n > 1 or exchange.protocol.binding_fields
        if unmodelled and options.requests.unsupported == "error":
            _check_supported(exchange, request)
        if request.sampling.n > MAX_CHOICES and not _is_relayed(exchange, request):
            raise ClientFault(
                f"Invalid 'n': {request.sampling.n} answers; the most is {MAX_CHOICES}.",
                code="invalid_value",
                param="n",
            )
        if request.tools:
            decided = await self._check_tools(exchange, request)
            exchange.state[ToolSchemas] = decided.schemas
            if decided.tools is not request.tools:
                request = replace(request, tools=decided.tools)
        choice = request.tool_choice
        if choice.allowed is not None or choice.mode not in ("auto", "none"):
            if _wants_hosted(exchange, request):
                LOG.warning("request %s: 'tool_choice' requires a hosted tool, which is not simulated", exchange.id)
                request = replace(request, tool_choice=ToolChoice())
            else:
                _check_choice(exchange, request)
        if request.response_format is not None:
            _check_form(exchange, request)
        if options.requests.validation == "strict":
            _check_strict_parallel(exchange.body, request)
        if is_large(request, reused=True):
            await offload(True, _check_messages, exchange, request)
        else:
            _check_messages(exchange, request)
        return request

    # --- tools ------------------------------------------------------------------------------------------------------

    async def _check_tools(self, exchange: Exchange, request: ModelRequest) -> _Decided:
        options, limits = exchange.route.options, exchange.route.limits
        count = len(request.tools)
        if count > limits.tools_max:
            raise ClientFault(
                f"{count} tools; the most is {limits.tools_max}.",
                code="invalid_tool_schema",
                param="tools",
                hint="Send fewer tools, or raise `limits.tools_max`.",
            )
        if count > limits.tools_warn:
            exchange.record.tolerate(MANY_TOOLS, f"{count} tools, more than limits.tools_warn", exchange.id)
        key = (self, options.requests.tool_names, options.requests.validation, exchange.protocol.name)
        noted: _Decided | None = note_of(request.tools, key)
        if noted is None:
            form = _served(exchange)
            others = request.tools if form is None else form.others(request.tools)
            hosted = ", ".join([tool.name for tool in others if tool.kind == "hosted"])
            noted = await self._decision(exchange, request)
            note(request.tools, key, noted, noted.schemas.weight)
            wire = exchange.route.pool.protocol
            if hosted and (_is_taught(exchange) or wire is None or wire.name != exchange.protocol.name):
                LOG.warning("request %s: hosted tools are not simulated: %s", exchange.id, quote(hosted))
        if noted.unchecked is not None:
            exchange.record.tolerate(UNCHECKED, f"of the tool {quote(noted.unchecked)}", exchange.id)
        return noted

    async def _decision(self, exchange: Exchange, request: ModelRequest) -> _Decided:
        """Returns the decision on a tool list that was not seen before; its schemas may be cached by content. New
        schemas are compiled in a thread, because a long list may take seconds."""
        if not is_large(request):
            try:
                return self._compiled_tools(exchange, request, compile_new=False)
            except NotCompiled:
                pass
        return await offload(True, self._compiled_tools, exchange, request)

    def _compiled_tools(self, exchange: Exchange, request: ModelRequest, compile_new: bool = True) -> _Decided:
        """Checks the tools one by one. Raises `ClientFault`, and `NotCompiled` if a schema had to be compiled without
        `compile_new`."""
        places = FieldPositions(exchange)
        options, limits = exchange.route.options, exchange.route.limits
        _check_size(request, limits)
        schemas = ToolSchemas()
        seen: dict[tuple[str | None, str], int] = {}
        longest = exchange.protocol.name_chars
        tools = list(request.tools)
        unchecked: str | None = None
        for index, tool in enumerate(request.tools):
            if tool.kind == "hosted":
                continue
            _check_name(
                tool, places.tool(tool, index, "name"), longest, relaxed=options.requests.tool_names == "relaxed"
            )
            first = seen.setdefault((tool.namespace, tool.name), index)
            if first != index:
                raise _tool_fault(f"Two tools have the name {quote(tool.name)}.", places.tool(tool, index, "name"))
            if tool.kind == "custom":
                continue
            param = places.tool(tool, index, "parameters")
            if tool.parameters is None and options.requests.validation == "strict":
                raise _tool_fault(f"The tool {quote(tool.name)} has no `parameters`.", param)
            strict = tool.strict is True and tool.parameters is not None
            if tool.parameters is not None and options.requests.validation != "strict":
                better = mended(tool.parameters)
                if better is not tool.parameters:
                    tool = tools[index] = replace(tool, parameters=better)
                    unchecked = tool.name
            optional = strict and not exchange.protocol.strict_requires_all
            get = partial(
                self._schemas.get, tool.parameters, limits, strict=strict, optional=optional, compile_new=compile_new
            )
            try:
                schema = schemas.put(prompt_name(tool), get, strict=strict)
                unchecked = tool.name if schema.dropped else unchecked
            except SchemaProblem as problem:
                if not isinstance(problem, Uncheckable) or strict or options.requests.validation == "strict":
                    message = f"The parameters of the tool {quote(tool.name)} are not usable: {problem.message}"
                    raise _tool_fault(message, param + problem.where) from None
                unchecked = tool.name
                schemas[prompt_name(tool)] = self._schemas.get(ANY_OBJECT, limits, compile_new=compile_new)
        same = all(map(is_, tools, request.tools))
        return _Decided(schemas, request.tools if same else ToolSet(tools), unchecked)


def _check_size(request: ModelRequest, limits: LimitsConfig) -> None:
    """Raises `ClientFault` if the tools have more bytes than `limits.tools_bytes`."""
    most = limits.tools_bytes
    received = [tool.received or (tool.name, tool.description, tool.parameters) for tool in request.tools]
    namespaces = [tool.namespace_description for tool in request.tools]
    if _is_longer(request, (received, namespaces), most):
        raise ClientFault(
            f"The tools have more than {most} bytes.",
            code="invalid_tool_schema",
            param="tools",
            hint="Send fewer tools or shorter descriptions, or raise `limits.tools_bytes`.",
        )


def _is_longer(request: ModelRequest, value: object, most: int) -> bool:
    """Returns True if a part of the request has more than `most` bytes. Checks the size of the whole body first."""
    return (request.origin is None or request.origin.size > most) and chars_of(value, most) > most


def _check_messages(exchange: Exchange, request: ModelRequest) -> None:
    past = request.past
    kinds = kinds_of(request.messages, past)
    if Message not in kinds:  # text needs none of these checks
        return
    places = FieldPositions(exchange)
    own = exchange.received.messages  # the other messages were stored, not sent
    if echoed := fold_items(past, "echoed", own, 0, _count_calls)[1]:
        exchange.record.count("echoed_calls", echoed)
    if exchange.protocol.whole_history:  # else a result may answer a call that only the client or the store knows
        check_conversation(exchange, request, places)
    if Image in kinds:
        _check_images(exchange, request, places)
    if OpaquePart in kinds:
        _check_items(exchange, request)


def _count_calls(before: int, messages: Sequence[Message], start: int, made: list[None]) -> int:
    return before + sum(isinstance(part, ToolUse) for message in messages for part in message.parts)


def _tool_fault(message: str, param: str, hint: str | None = None) -> ClientFault:
    return ClientFault(message, code="invalid_tool_schema", param=param, hint=hint)


def _check_name(tool: ToolSpec, param: str, longest: int, *, relaxed: bool) -> None:
    if not validate_tool_name(tool.name, relaxed=relaxed, longest=longest):
        letters = "letters, digits, `_`, `-`, `.`, `/` and `:`" if relaxed else "letters, digits, `_` and `-`"
        taken = validate_tool_name(tool.name, relaxed=True, longest=longest)
        hint = "Rename it, or set `requests.tool_names: relaxed` for the route." if taken else None
        raise _tool_fault(f"Invalid tool name {quote(tool.name)}: expected 1 to {longest} {letters}.", param, hint)


def _served(exchange: Exchange) -> ToolServerForm | None:
    """Returns how the client's protocol names tool servers, if the route allows them; else None."""
    return exchange.protocol.served if exchange.route.client_servers is not None else None


def _is_taught(exchange: Exchange) -> bool:
    """Returns True if the gateway describes the tools to the model."""
    return exchange.route.options.mode in ("prompt", "template", "text")


def _wants_hosted(exchange: Exchange, request: ModelRequest) -> bool:
    """Returns True if the client requires a call that only a hosted tool could answer, on a route that does not
    simulate those: a client written for a server with such tools continues without them (R28.5)."""
    choice, form = request.tool_choice, _served(exchange)
    if not _is_taught(exchange) or exchange.route.server_tools is not None:
        return False
    if form is not None and form.servers(exchange.body):
        return False
    hosted = {tool.name for tool in request.tools if tool.kind == "hosted"}
    others = {tool.name for tool in request.tools if tool.kind != "hosted"}
    if choice.mode == "named":
        return choice.name in hosted - others
    return choice.forces and bool(hosted) and not others and choice.allowed is None


def _check_choice(exchange: Exchange, request: ModelRequest) -> None:
    """Checks R2.18: named tools exist, and a call is required only if there is a tool to call. The gateway's own tools,
    which are not in `tools`, count. If the client names tool servers, their tools are not known yet
    (`toolwire.pipeline.exchange.tool_servers`). Raises `ClientFault`."""
    form = _served(exchange)
    if form is not None and form.servers(exchange.body):
        return
    choice, route, param = request.tool_choice, exchange.route, FieldPositions(exchange).choice
    fault = partial(ClientFault, code="invalid_tool_choice", param=param)
    if choice.allowed is not None and len(choice.allowed) > route.limits.tools_max:
        raise fault(
            f"'{param}' names {len(choice.allowed)} tools; the most is {route.limits.tools_max}.",
            hint="Name each tool once, or raise `limits.tools_max`.",
        )
    native = route.options.mode == "native"
    names = {tool.name for tool in request.tools if native or tool.kind != "hosted"}
    if route.server_tools is not None:
        names |= {tool.name for tool in route.permission.permitted(route.server_tools.tools.specs)}
    wanted = (choice.name,) if choice.mode == "named" and choice.name is not None else choice.allowed or ()
    for name in wanted:
        if name not in names:
            raise fault(f"'{param}' names {quote(name)}, which is not in `tools`.")
    if choice.forces and (not names or choice.allowed == ()):
        raise fault(f"'{param}' demands a call, but no tool can be called.", hint="Send `tools`, or leave it out.")


def _check_form(exchange: Exchange, request: ModelRequest) -> None:
    """Checks the size of the requested answer format, a schema like those of tools. Raises `ClientFault`."""
    most = exchange.route.limits.schema_bytes
    if _is_longer(request, request.response_format, most):
        raise ClientFault(
            f"The form of the answer has more than {most} bytes.",
            code="invalid_value",
            param=FieldPositions(exchange).form,
            hint="Send a smaller schema, or raise `limits.schema_bytes`.",
        )


def _check_strict_parallel(body: Mapping[str, Any], request: ModelRequest) -> None:
    if body.get("parallel_tool_calls") is True and any(tool.strict is True for tool in request.tools):
        raise ClientFault(
            "'parallel_tool_calls': true together with a strict tool is refused by this route.",
            code="invalid_value",
            param="parallel_tool_calls",
            hint="Send false, or leave it out.",
        )


# --- fields the route cannot honour ---------------------------------------------------------------------------------


def _check_supported(exchange: Exchange, request: ModelRequest) -> None:
    _check_binding(exchange, request)
    if (request.sampling.n == 1 and not request.extra) or _is_relayed(exchange, request):
        return
    pool, forward = exchange.route.pool, exchange.route.options.requests.forward_unknown
    takes = requestable(request, pool.capabilities, pool.protocol)
    if request.sampling.n > 1 and not takes.multiple_choices:
        raise _unsupported("n", "one answer at a time")
    for name, asks in _ANSWER_CHANGING.items():
        if name not in request.extra or not asks(request.extra[name]):
            continue
        # Probabilities belong to the model's own tokens; after a scan the client gets other pieces.
        available = name != "logprobs" or not request.callable_tools or exchange.route.options.mode == "native"
        listed = forward == "list" and name in takes.extra_parameters
        if not (available and (forward == "all" or listed)):
            raise _unsupported(name, "no such thing")


def _check_binding(exchange: Exchange, request: ModelRequest) -> None:
    client, server = exchange.protocol, exchange.route.pool.protocol
    if not client.binding_fields or (server is not None and server.name == client.name):
        return
    fields = fields_of(request.protocol_fields, client.name)
    for name, instead in client.binding_fields:
        if name in fields:
            raise ClientFault(
                f"'{name}' is not supported here: the model server of this route does not know it.",
                code="unsupported_parameter",
                param=name,
                hint=instead,
            )


def _unsupported(name: str, instead: str) -> ClientFault:
    return ClientFault(
        f"This route cannot honour '{name}': it gives {instead}.",
        code="unsupported_parameter",
        param=name,
        hint="Leave it out, or set `requests.unsupported: ignore` for the route.",
    )


def _is_relayed(exchange: Exchange, request: ModelRequest) -> bool:
    """Returns True if the backend gets the client's own bytes and decides itself (R1.6)."""
    own = exchange.route.pool.protocol
    if own is None or own.name != exchange.protocol.name:
        return False
    if exchange.route.options.mode == "native":
        return True
    return not request.tools and not any(
        isinstance(part, (ToolUse, ToolResult)) for message in request.messages for part in message.parts
    )


# --- the conversation -----------------------------------------------------------------------------------------------


def _check_items(exchange: Exchange, request: ModelRequest) -> None:
    """Counts and logs parts that neither the gateway nor the server supports, which are left out (R8.2). Files are not
    among them: the model gets a note about those (`toolwire.upstream.servers.fit_files`)."""
    wire, form = exchange.route.pool.protocol, _served(exchange)
    foreign = [
        part
        for message in request.messages
        for part in message.parts
        if isinstance(part, OpaquePart)
        and (wire is None or part.protocol != wire.name)
        and not (form is not None and form.is_server_item(part))
        and read_file(part) is None
    ]
    kinds = [str(part.payload.get("type")) for part in foreign if isinstance(part.payload, Mapping)]
    kinds = [kind for kind in kinds if kind not in _SEEN_ELSEWHERE]
    if kinds:
        exchange.record.count("ignored_items", len(kinds))
        LOG.warning(
            "request %s: left out because the model server does not support it: %s",
            exchange.id,
            quote(", ".join(kinds)),
        )


def _check_images(exchange: Exchange, request: ModelRequest, places: FieldPositions) -> None:
    takes = exchange.route.pool.capabilities
    if takes.images or takes.images_unknown or not takes.refuse_images:
        return
    for index, message in enumerate(request.messages):
        if has_images((message,)):
            raise refused_images(places.image(index))
