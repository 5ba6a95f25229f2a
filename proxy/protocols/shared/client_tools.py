"""Tools that the client itself runs and of which it sends only a type, because their descriptions and parameters are
published (R28.5, docs/adr/0056). The tables are in `messages/client_tools.py` and `responses/client_tools.py`.

Inside the gateway each is a function. Its `extra` holds the tool as received, which includes its type. A server that
knows the type gets the tool as received; every other server gets a function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...model import COMMON, EMPTY, ToolResult, ToolSpec, ToolUse, replace

_SENT_WHOLE: Final = frozenset({None, "function", "custom"})
"""Types of tools that come with a description and parameters."""
ITEM_TYPE: Final = "item_type"
"""Key in the `extra` of a call or a result of Responses: the type of an item that has a type of its own."""
TOOLSET: Final = "toolset_name"
"""Key in the `extra` of a call of Messages: the set that its tool belongs to."""


@dataclass(frozen=True, slots=True)
class Published:
    """Published description and parameters of a tool, in our own words."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def is_client_tool(tool: ToolSpec) -> bool:
    """True if the client sent only the type of a function."""
    return tool.kind == "function" and tool.received.get("type") not in _SENT_WHOLE


def with_distinct_names(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Returns the tools with distinct names among those that can be called. If a tool known by its type has the name of
    another one, the tool with its own schema is kept, otherwise the first; the duplicate becomes a hosted tool, or is
    dropped if it is in a namespace."""
    listed = list(tools)
    if not any(map(is_client_tool, listed)):
        return listed
    taken = {(tool.namespace, tool.name) for tool in listed if tool.kind != "hosted" and not is_client_tool(tool)}
    out = []
    for tool in listed:
        if is_client_tool(tool):
            name = (tool.namespace, tool.name)
            if name in taken and tool.namespace is not None:
                continue
            tool = replace(tool, kind="hosted") if name in taken else tool
            taken.add(name)
        out.append(tool)
    return out


def as_function(tool: ToolSpec) -> ToolSpec:
    """Returns the tool as a plain function, for a server that does not know its type."""
    return replace(tool, extra=EMPTY)


def form_of(part: ToolUse | ToolResult) -> str | None:
    """Returns the protocol in which a call or a result has a form that only servers with its tool know; None if it has
    an ordinary form."""
    return next((name for name, fields in part.extra.items() if name not in COMMON and _is_own(fields)), None)


def _is_own(fields: Any) -> bool:
    return isinstance(fields, Mapping) and (ITEM_TYPE in fields or TOOLSET in fields)


# --- schemas --------------------------------------------------------------------------------------------------------


def schema(required: Mapping[str, Any], optional: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """Returns the schema of an object with these required and optional properties."""
    written: dict[str, Any] = {"type": "object", "properties": {**required, **optional}}
    return {**written, "required": list(required)} if required else written


def text(description: str) -> dict[str, Any]:
    """Returns the schema of a string."""
    return {"type": "string", "description": description}


def word(words: str, description: str) -> dict[str, Any]:
    """Returns the schema of a string that is one of these words, which are separated by spaces."""
    return {"type": "string", "enum": words.split(), "description": description}


def integer(description: str) -> dict[str, Any]:
    """Returns the schema of an integer."""
    return {"type": "integer", "description": description}


def integers(count: int, description: str) -> dict[str, Any]:
    """Returns the schema of a list of exactly `count` integers."""
    return {**several({"type": "integer"}, description), "minItems": count, "maxItems": count}


def several(items: Mapping[str, Any], description: str) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items, "description": description}
