"""All names by which a tool is known: on offer, in a call, and in other wire objects that stand for a tool or a call.

Rules:

1. A tool of a group (a `namespace` of Responses, the label of a tool server) is known by its name, and by its name with
   the group.
2. A hosted tool, and a tool that the client runs and sent by its type, is known by its type too, with and without the
   version in it, whatever name the client gives it.
3. A hosted tool that stands for a tool server (`mcp`, `mcp_toolset`) brings tools whose names are known only if the
   client lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ...formats.engine.rendering import prompt_name
from ...model import ToolSpec, ToolUse
from .client_tools import is_client_tool
from .wire import fields_in

Names = tuple[str, ...]
"""All names of one tool."""

SERVERS_FIELD: Final = "mcp_servers"
"""Field of Messages with the servers that the model server calls."""

OPTIONS_FIELD: Final = "web_search_options"
"""Field of Chat that stands for the hosted tool `web_search`."""

_VERSION: Final = re.compile(r"(?:_preview)?(?:_\d{8}|_\d{4}[_-]\d\d[_-]\d\d)?")
TOOL_LISTS: Final = frozenset({"additional_tools", "mcp_list_tools", "tool_search_output"})
"""Types of conversation items that offer tools to the model, in `tools`."""

_CALL: Final = re.compile(r"(?:response\.)?(\w+)_call(?:\..*)?")
_RUN_ELSEWHERE: Final = frozenset({"code_interpreter", "file_search", "image_generation", "mcp", "web_search"})
"""Calls that the server has run itself and only reports; the client does not have to make them."""


def names_of(tool: ToolSpec | ToolUse) -> Names:
    """Returns the names of a tool on offer, or of a call; rules 1 and 2."""
    names = (tool.name, prompt_name(tool)) if tool.namespace is not None else (tool.name,)
    by_type = isinstance(tool, ToolSpec) and (tool.kind == "hosted" or is_client_tool(tool))
    if isinstance(tool, ToolSpec) and by_type and isinstance(kind := tool.received.get("type"), str):
        return (*names, *_of_type(kind))
    return names


def brought_by(tool: ToolSpec) -> list[Names] | None:
    """Returns the names of the tools that a hosted tool brings with it: an empty list unless it stands for a tool
    server; None if it does not list them (rule 3)."""
    received = tool.received
    match received.get("type") if tool.kind == "hosted" else None:
        case "mcp":
            allowed = received.get("allowed_tools")
            listed = allowed.get("tool_names") if isinstance(allowed, Mapping) else allowed
            return _of_server(listed, received.get("server_label"))
        case "mcp_toolset":
            configs, others = received.get("configs"), received.get("default_config")
            if not isinstance(others, Mapping) or others.get("enabled") is not False:
                return None
            on = [
                name
                for name, one in (configs.items() if isinstance(configs, Mapping) else ())
                if not (isinstance(one, Mapping) and one.get("enabled") is False)
            ]
            return _of_server(on, received.get("mcp_server_name"))
        case _:
            return []


def brought_by_server(server: Any, tools: Iterable[ToolSpec]) -> list[Names] | None:
    """Returns the names of the tools that an entry of `mcp_servers` brings, like `brought_by`. An entry with a toolset
    among `tools` brings none itself."""
    fields = fields_in(server)
    name, settings = fields.get("name"), fields.get("tool_configuration")
    if any(tool.received.get("mcp_server_name") == name for tool in tools if tool.kind == "hosted"):
        return []
    if isinstance(settings, Mapping) and settings.get("enabled") is False:
        return []
    return _of_server(settings.get("allowed_tools") if isinstance(settings, Mapping) else None, name)


def names_of_item(payload: Mapping[str, Any]) -> Names:
    """Returns the names of the tool that an unmodelled item, or an event of one, asks the client to run; empty if it
    asks for no call."""
    if isinstance(item := payload.get("item"), Mapping):
        return names_of_item(item)
    kind = payload.get("type")
    if not isinstance(kind, str):
        return ()
    if kind == "mcp_approval_request":
        return next(_grouped([payload.get("name")], payload.get("server_label")), ())
    called = _CALL.fullmatch(kind)
    return () if called is None or called[1] in _RUN_ELSEWHERE else _of_type(called[1])


def is_item(payload: Mapping[str, Any]) -> bool:
    """True if this is an item, False if it is an event about one."""
    return "item" not in payload and "." not in str(payload.get("type"))


def _of_type(kind: str) -> Names:
    """Returns all spellings of a type: `web_search_preview`, `bash_20250124`; the calls of `computer_use_preview` are
    `computer_call`."""
    plain = next(kind[:at] for at in range(1, len(kind) + 1) if _VERSION.fullmatch(kind, at)) if kind else kind
    more = ("computer", "computer_use") if plain.startswith("computer") else ()
    return tuple(dict.fromkeys((kind, plain, *more)))


def _of_server(listed: Any, label: Any) -> list[Names] | None:
    return list(_grouped(listed, label)) if isinstance(listed, list) else None


def _grouped(names: Iterable[Any], label: Any) -> Iterator[Names]:
    for name in names:
        if isinstance(name, str):
            yield (name, f"{label}__{name}") if isinstance(label, str) else (name,)
