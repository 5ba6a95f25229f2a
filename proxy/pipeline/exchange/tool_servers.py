"""Tool servers that a client names in its request (R26.2). The gateway asks them for their tools before it asks
the model, and runs the model's calls on them. The protocol writes the events for the client (`ToolServerForm`).

Rules:

1. A server that is unreachable, or lists nothing, fails no answer: the client gets the reason, and the model the
   other tools.
2. The tools of each server are a group of their own for the model (R8.16), named after its label, so that equal
   names of two servers, or of a server and the client, stay distinct.
3. A list that the client has in its history is shown again only if a definition has changed: users approve calls of
   the tools that they have seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...errors import ClientFault, quote
from ...events import Event
from ...formats.engine.rendering import prompt_name, result_text
from ...formats.engine.toolset import ToolSet
from ...model import Message, ModelRequest, Part, ToolResult, ToolSpec, ToolUse
from ...protocols.shared.tool_servers import (
    ApprovedCall,
    Definitions,
    ToolServer,
    ToolServerForm,
    ToolServerHistory,
    ToolServerTool,
    definitions,
)
from ...servertools.source import ClientToolServers, Enter, NotListed, RemoteTools, Result, offered_name, unknown_tool
from ...support.offload import weight
from .growth import too_much
from .request_state import Exchange

NAME_CHARS: Final = 64
"""Longest name that all model servers accept; the label is part of it."""
_LEAST_NAME_CHARS: Final = 16
SERVER_TYPE: Final = "mcp"
"""The type of the tool that stands for a server. It is also a name of each of the server's tools."""

Key = tuple[str | None, str]
"""A tool's group, and its name in it as the model knows it."""


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool on offer, the server that it belongs to, and the source that runs it under `name`."""

    tool: ToolServerTool
    server: ToolServer
    source: RemoteTools
    name: str


@dataclass(frozen=True, slots=True)
class _Listed:
    """The tools that a server lists, or the error why it lists none."""

    server: ToolServer
    tools: tuple[_Offered, ...] = ()
    error: str | None = None

    @property
    def definitions(self) -> Definitions:
        """The tools as `ToolServerHistory.listed` has them."""
        return definitions([offered.tool for offered in self.tools])


class RequestToolServers:
    """The tool servers of one request. `opening` are the first events for the client, `approved` the calls that it has
    approved."""

    def __init__(
        self, form: ToolServerForm, exchange: Exchange, history: ToolServerHistory, listed: Sequence[_Listed]
    ) -> None:
        self._form = form
        self._exchange = exchange
        self._offered: dict[Key, _Offered] = {
            (one.tool.spec.namespace, one.tool.spec.name): one for listing in listed for one in listing.tools
        }
        self._by_own = {(one.server.label, one.tool.name): one for one in self._offered.values()}
        self._history = history
        self.approved: tuple[ApprovedCall, ...] = tuple(
            replace(one, use=self._taught(one.use)) for one in history.approved
        )
        self.opening: list[Event] = [
            form.listed(one.server.label, [offered.tool for offered in one.tools], one.error)
            for one in listed
            if one.error is not None or history.listed.get(one.server.label) != one.definitions
        ]

    @classmethod
    async def open(cls, exchange: Exchange, servers: ClientToolServers) -> RequestToolServers | None:
        """Asks each server that a request names for its tools. Returns None if the request has nothing to do with tool
        servers. Raises `ClientFault` for a server that is not permitted, and for wrong fields."""
        form = exchange.protocol.served
        if form is None:
            return None
        named, messages = form.servers(exchange.body), exchange.request.messages
        for server in named:
            if (why := servers.refusal(server.url)) is not None:
                raise _not_permitted(server, why)
        history = form.history(exchange.body, messages)
        if not named and history.messages is messages:
            return None
        labels = {server.label for server in named}
        for approved in history.approved:
            if approved.use.namespace not in labels:
                raise ClientFault(
                    f"A call of the server {quote(approved.use.namespace)} was approved, which is not in 'tools'.",
                    param="tools",
                    hint="Send the server's tool again with the approval.",
                )
        listed = await asyncio.gather(*(_list(exchange, servers, server) for server in named))
        _check_number(exchange, form, listed)
        return cls(form, exchange, history, listed)

    # --- the model's request ----------------------------------------------------------------------------------------

    def without(self, request: ModelRequest) -> ModelRequest:
        """Returns the request with its earlier server calls as the model knows them, and without the servers among its
        tools."""
        tools = ToolSet(self._form.others(request.tools))
        messages = tuple(map(self._as_taught, self._history.messages))
        return replace(request, messages=messages, tools=tools)

    def offer(self, request: ModelRequest) -> ModelRequest:
        """Returns the request with the servers' tools added. Raises `ClientFault` for a tool choice that names an
        unknown tool, for two tools with the same name, and if the request becomes too large."""
        self._check_names(request)
        served = [one.tool for one in self._offered.values()]
        choice, chosen = self._form.choice(self._exchange.body, request, served)
        named = frozenset(choice.names or ())
        meant = frozenset(request.tool_choice.names or ())
        tools = (
            *(tool for tool in request.tools if tool.name not in named - meant or tool.kind == "hosted"),
            *(tool.spec for tool in served if tool.spec.name not in named or tool in chosen),
        )  # a choice has no groups: of tools with equal names only the chosen one stays
        limits = self._exchange.route.limits
        grown = request.grown + weight([tool.spec for tool in served], limits.body_bytes)
        changed = replace(request, tools=ToolSet(tools), tool_choice=choice, grown=grown)
        if changed.size > limits.body_bytes:
            raise too_much("bytes", limits, "tools")
        _check_server_tool_choice(changed)
        return changed

    def _check_names(self, request: ModelRequest) -> None:
        taken = {prompt_name(tool) for tool in request.tools if tool.kind != "hosted"}
        for one in self._offered.values():
            if (name := prompt_name(one.tool.spec)) in taken:
                raise ClientFault(
                    f"The tool {quote(one.tool.name)} of the server {quote(one.server.label)} would get the name {quote(name)}, which another tool has.",
                    code="duplicate_tool_name",
                    param=f"{one.server.param}.server_label",
                    hint="Give the server another label.",
                )
            taken.add(name)

    def _as_taught(self, message: Message) -> Message:
        if not any(isinstance(part, ToolUse) and part.namespace is not None for part in message.parts):
            return message
        return replace(message, parts=tuple(map(self._taught_part, message.parts)))

    def _taught_part(self, part: Part) -> Part:
        return self._taught(part) if isinstance(part, ToolUse) and part.namespace is not None else part

    def _taught(self, use: ToolUse) -> ToolUse:
        """Returns a call with the name that the model knows, in place of the server's own name."""
        known = self._by_own.get((use.namespace or "", use.name))
        if known is not None:
            return replace(use, name=known.tool.spec.name)
        if any(label == use.namespace for label, _ in self._by_own):
            return replace(use, name=_name(use.namespace or "", use.name))
        return use

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> frozenset[Key]:
        """The groups and names of the tool servers' tools on offer."""
        return frozenset(self._offered)

    def has(self, namespace: str | None, name: str | None) -> bool:
        """Returns True if a call of this group and name is a call of a tool server."""
        return (namespace, name) in self._offered

    def must_ask(self, use: ToolUse) -> bool:
        """Returns True if a call of a tool server needs the client's approval."""
        known = self._offered.get((use.namespace, use.name))
        return known is not None and known.server.needs_approval(known.tool.name, known.tool.read_only)

    async def run(self, use: ToolUse, limit_s: float, enter: Enter) -> Result:
        """Returns the result of a call of a tool that a client brought, within `limit_s`."""
        known = self._offered.get((use.namespace, use.name))
        if known is None:
            return unknown_tool(use.name, enter)
        return await known.source.tools.run(replace(use, name=known.name, namespace=None), limit_s, enter)

    # --- events for the client ---------------------------------------------------------------------------------------

    def began(self, use: ToolUse) -> Event:
        """Returns the event that shows the client a running call of a tool server."""
        return self._form.began(self._own(use), None)

    def ran(self, use: ToolUse, result: ToolResult, request_id: str | None = None) -> Event:
        """Returns the event that shows the client a call with its result."""
        return self._form.ran(self._own(use), result_text(result), result.is_error, request_id)

    def asks(self, use: ToolUse) -> Event:
        """Returns the event that asks the client to approve a call."""
        return self._form.approval_request(self._own(use))

    def _own(self, use: ToolUse) -> ToolUse:
        known = self._offered.get((use.namespace, use.name))
        return use if known is None else replace(use, name=known.tool.name)


def without_served(messages: Iterable[Message], keys: frozenset[Key]) -> list[Message]:
    """Returns the messages without the tool servers' calls and results. The client got these and sends them back
    itself."""
    theirs: set[str] = set()
    others: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolUse) and (part.namespace, part.name) in keys:
                theirs.add(part.call_id)
            elif not (isinstance(part, ToolResult) and part.call_id in theirs):
                parts.append(part)
        if parts or not message.parts:
            others.append(message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts)))
    return others


async def _list(exchange: Exchange, servers: ClientToolServers, server: ToolServer) -> _Listed:
    """Asks a server for its tools. The connection stays open until the exchange ends. A failure becomes the error of
    the result."""
    try:
        lease = await servers.lease(server.url, server.headers, exchange.owner)
    except NotListed as error:
        exchange.record.count("unlisted_servers")
        return _Listed(server, error=f"The server {quote(server.label)} lists no tools: {error}")
    exchange.at_end(lease.close)
    offered = []
    for name, tool in lease.server.offered.items():
        annotations = tool.listed.get("annotations")
        read_only = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        taught = _name(server.label, tool.name)
        if not server.allowed.selects(tool.name, read_only) or exchange.route.permission.forbids(
            (tool.name, taught, f"{server.label}__{tool.name}", f"{server.label}__{taught}", SERVER_TYPE)
        ):
            continue
        spec = ToolSpec(
            taught,
            tool.spec.description,
            tool.spec.parameters,
            namespace=server.label,
            namespace_description=server.description,
            server=True,
        )
        offered.append(_Offered(ToolServerTool(tool.name, spec, read_only), server, lease.server, name))
    return _Listed(server, tuple(offered))


def _name(label: str, name: str) -> str:
    """Returns the name of a tool in its group. It is shortened so that label and name together fit every model
    server."""
    room = max(_LEAST_NAME_CHARS, NAME_CHARS - len(label) - len("__"))
    return offered_name(name, most=room)


def _not_permitted(server: ToolServer, why: str) -> ClientFault:
    return ClientFault(
        f"The server {quote(server.label)} may not be asked by this gateway: {why}.",
        code="tool_server_not_allowed",
        param=f"{server.param}.server_url",
        hint="The operator permits URLs in `tools.mcp_from_clients`.",
    )


def _check_number(exchange: Exchange, form: ToolServerForm, listed: Sequence[_Listed]) -> None:
    most = exchange.route.limits.tools_max
    number = len(form.others(exchange.request.tools))
    for one in listed:
        number += len(one.tools)
        if number > most:
            raise ClientFault(
                f"With the {len(one.tools)} tools of the server {quote(one.server.label)} there are more than {most} tools.",
                param=f"{one.server.param}.allowed_tools",
                hint="Name those that are needed.",
            )


def _check_server_tool_choice(request: ModelRequest) -> None:
    """Checks that each tool in the choice exists, and that a forced call has a tool to call (R2.18). Raises
    `ClientFault` `invalid_tool_choice`."""
    choice = request.tool_choice
    known = {tool.name for tool in request.tools if tool.kind != "hosted"}
    missing = [name for name in choice.names or () if name not in known]
    if missing:
        raise ClientFault(
            f"'tool_choice' names {quote(missing[0])}, which is not in `tools`.",
            code="invalid_tool_choice",
            param="tool_choice",
        )
    if choice.forces and not request.callable_tools:
        raise ClientFault(
            "'tool_choice' demands a call, but no tool can be called.",
            code="invalid_tool_choice",
            param="tool_choice",
            hint="Leave it out, or see in the answer to a request without it which tools the servers list.",
        )


def tool_server_declarations(exchange: Exchange, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Returns those of `tools` that stand for tool servers which the gateway itself calls."""
    form = exchange.protocol.served
    if form is None or exchange.route.client_servers is None:
        return []
    others = set(map(id, form.others(tools)))
    return [tool for tool in tools if id(tool) not in others]
