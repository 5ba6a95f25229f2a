"""Permission to use a tool on a route: one decision for every place that offers a tool, runs a call or delivers one.

Rules:

1. The middlewares of the route's chain decide which tools are forbidden (`Middleware.forbids`), at any place in it.
2. They decide anew for each request and for each call before it is run. An earlier permission (a call that a client
   has approved, a stored turn) does not count.
3. A hosted tool that brings other tools without naming them is forbidden on a route where any tool is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...formats.engine.toolset import NAME_BYTES, ToolSet, note, note_of
from ...model import Message, ModelRequest, OpaquePart, ToolSpec, ToolUse
from ...protocols.shared.tool_names import (
    OPTIONS_FIELD,
    SERVERS_FIELD,
    TOOL_LISTS,
    Names,
    brought_by,
    brought_by_server,
    names_of,
    names_of_item,
)

Forbids = Callable[[Names], bool]
"""Returns whether a tool with these names is forbidden."""


class Permission:
    """The tools that the middlewares of one route forbid."""

    def __init__(self, rules: Iterable[Forbids] = ()) -> None:
        self._rules = tuple(rules)

    def forbids(self, names: Names) -> bool:
        """Returns True if a tool with these names must not be used."""
        return any(rule(names) for rule in self._rules)

    def denies(self, tool: ToolSpec | ToolUse) -> bool:
        """Returns True if a tool must not be offered, or a call must not be made."""
        if not self._rules:
            return False
        return self.forbids(names_of(tool)) or (isinstance(tool, ToolSpec) and self._any_forbidden(brought_by(tool)))

    def denies_item(self, payload: Any) -> bool:
        """Returns True if an opaque item of an answer (passed on without being understood) calls a forbidden tool."""
        if not self._rules or not isinstance(payload, Mapping):
            return False
        names = names_of_item(payload)
        return bool(names) and self.forbids(names)

    def permitted(self, tools: tuple[ToolSpec, ...], served: Collection[ToolSpec] = ()) -> tuple[ToolSpec, ...]:
        """Returns the tools that may be offered; the same object if that is all of them. `served` are the tools that
        stand for tool servers: each of their tools is judged when it is listed. The result is cached with the list."""
        if not self._rules:
            return tools
        key = (self, bool(served))
        noted: tuple[ToolSpec, ...] | None = note_of(tools, key)
        if noted is not None:
            return noted
        listed = set(map(id, served))
        permitted = ToolSet((tool for tool in tools if id(tool) in listed or not self.denies(tool)), of=tools)
        return note(tools, key, tools if len(permitted) == len(tools) else permitted, NAME_BYTES * len(permitted))

    def elsewhere(self, request: ModelRequest) -> ModelRequest:
        """Returns the request without forbidden tools outside of its list of tools: in the protocol's own fields and in
        the conversation. The same object if there are none."""
        if not self._rules:
            return request
        extra = self._of_fields(request.extra, request.tools)
        fields = {name: self._of_fields(own, request.tools) for name, own in request.protocol_fields.items()}
        messages = tuple(map(self._of_message, request.messages))
        changes: dict[str, Any] = {}
        if extra is not request.extra:
            changes["extra"] = extra
        if any(own is not request.protocol_fields[name] for name, own in fields.items()):
            changes["protocol_fields"] = fields
        if any(one is not before for one, before in zip(messages, request.messages, strict=True)):
            changes["messages"] = messages
        return replace(request, **changes) if changes else request

    def _of_fields(self, fields: Any, tools: Sequence[ToolSpec]) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        changed = dict(fields)
        if fields.get(OPTIONS_FIELD) is not None and self.forbids(("web_search",)):
            del changed[OPTIONS_FIELD]
        if isinstance(servers := fields.get(SERVERS_FIELD), list):
            changed[SERVERS_FIELD] = permitted = [
                server for server in servers if not self._any_forbidden(brought_by_server(server, tools))
            ]
            if not permitted:
                del changed[SERVERS_FIELD]
        return fields if changed == fields else changed

    def _of_message(self, message: Message) -> Message:
        if not any(isinstance(part, OpaquePart) for part in message.parts):
            return message
        parts = tuple(self._of_list(part) if isinstance(part, OpaquePart) else part for part in message.parts)
        same = all(one is before for one, before in zip(parts, message.parts, strict=True))
        return message if same else replace(message, parts=parts)

    def _of_list(self, part: OpaquePart) -> OpaquePart:
        payload = part.payload
        if not isinstance(payload, Mapping) or payload.get("type") not in TOOL_LISTS:
            return part
        tools = payload.get("tools")
        permitted = (
            [tool for tool in tools if not self._denies_listed(tool, payload)] if isinstance(tools, list) else tools
        )
        return part if permitted == tools else replace(part, payload={**payload, "tools": permitted})

    def _denies_listed(self, tool: Any, listing: Mapping[str, Any]) -> bool:
        if not isinstance(tool, Mapping):
            return False
        group = listing.get("server_label")
        name = tool.get("name") or tool.get("type")
        namespace = group if isinstance(group, str) else None
        return isinstance(name, str) and self.forbids(names_of(ToolUse("", name, "", namespace=namespace)))

    def _any_forbidden(self, brought: Iterable[Names] | None) -> bool:
        """Returns True if any of these tools is forbidden, or if their names are unknown (rule 3)."""
        return brought is None or any(map(self.forbids, brought))


NOTHING_FORBIDDEN: Final = Permission()
"""The permission of a route on which every tool may be used."""
