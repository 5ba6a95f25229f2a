"""Tools that the client itself runs and of which it sends only a type: their descriptions and parameters are published,
not sent (R28.5, docs/adr/0056). `messages/client_tools.py` and `responses/client_tools.py` have the tables.

Inside of the gateway each is a function. Its `extra` holds the tool as it was received, by whose type it is known. A
server that has the tool itself gets it as it was written; every other one gets a function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire.model import COMMON, EMPTY, ToolResult, ToolSpec, ToolUse, replace

_SENT_WHOLE: Final = frozenset({None, "function", "custom"})
"""Types of tools that come with a description and parameters."""
ITEM_TYPE: Final = "item_type"
"""In the `extra` of a call or a result of Responses: the type of the item, where it has one of its own."""
TOOLSET: Final = "toolset_name"
"""In the `extra` of a call of Messages: the set that its tool belongs to."""


@dataclass(frozen=True, slots=True)
class Published:
    """Published description and parameters of a tool, in our own words."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def is_client_tool(tool: ToolSpec) -> bool:
    """Whether only the type of a function was sent."""
    return tool.kind == "function" and tool.received.get("type") not in _SENT_WHOLE


def told_apart(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools, of which no two that can be called have one name because the client sent a type: a tool with a schema
    of its own counts, then the first. The other is left as a hosted one."""
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
    """The tool for a server that does not know its type."""
    return replace(tool, extra=EMPTY)


def form_of(part: ToolUse | ToolResult) -> str | None:
    """The protocol in which a call or a result has a form that only a server with its tool knows; None if it has
    none."""
    return next((name for name, fields in part.extra.items() if name not in COMMON and _is_own(fields)), None)


def _is_own(fields: Any) -> bool:
    return isinstance(fields, Mapping) and (ITEM_TYPE in fields or TOOLSET in fields)


# --- schemas --------------------------------------------------------------------------------------------------------


def schema(required: Mapping[str, Any], optional: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """An object with these properties."""
    written: dict[str, Any] = {"type": "object", "properties": {**required, **optional}}
    return {**written, "required": list(required)} if required else written


def text(description: str) -> dict[str, Any]:
    """A string."""
    return {"type": "string", "description": description}


def word(words: str, description: str) -> dict[str, Any]:
    """One of some words."""
    return {"type": "string", "enum": words.split(), "description": description}


def integer(description: str) -> dict[str, Any]:
    """An integer."""
    return {"type": "integer", "description": description}


def integers(count: int, description: str) -> dict[str, Any]:
    """A list of so many integers."""
    return {**several({"type": "integer"}, description), "minItems": count, "maxItems": count}


def several(items: Mapping[str, Any], description: str) -> dict[str, Any]:
    """A list."""
    return {"type": "array", "items": items, "description": description}
