"""Tools that stand in the conversation of a Responses request (R28.1).

Codex with its own models sends no `tools` but an item `additional_tools`; who searches for tools gets some in
`tool_search_output`. All of them are on offer, as if they stood in `tools`. What stands under one name later is meant;
tools with `defer_loading` are on offer once a search of the client has found them.

A `tool_search` that the client executes is a function of that name. Its calls and their outputs are items of their own:
here a `ToolUse` and a `ToolResult` with the `execution` in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ...model import EMPTY, ToolSpec, ToolUse, fields_of

PROTOCOL: Final = "responses"
SEARCH: Final = "tool_search"
"""The type of the tool, and its name."""
SEARCH_CALL: Final = "tool_search_call"
SEARCH_OUTPUT: Final = "tool_search_output"
ADDITIONAL: Final = "additional_tools"

_DESCRIPTION: Final = "Search for further tools. What is found can be called afterwards."
_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
}


def carried_tools(items: Any) -> Iterator[tuple[str, bool, list[Mapping[str, Any]]]]:
    """The lists of tools in the items of an input: where each stands, and whether a search has found it."""
    if not isinstance(items, list):
        return
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind in (ADDITIONAL, SEARCH_OUTPUT) and isinstance(tools := item.get("tools"), list):
            yield f"input[{place}].tools", kind == SEARCH_OUTPUT, tools


def is_client_search(tool: Mapping[str, Any]) -> bool:
    """Whether a tool, or an item of it, is a search that the client executes."""
    return tool.get("execution") == "client"


def search_tool(tool: Mapping[str, Any]) -> ToolSpec:
    """The search as a function."""
    about, parameters = tool.get("description"), tool.get("parameters")
    return ToolSpec(
        SEARCH,
        about if isinstance(about, str) and about else _DESCRIPTION,
        parameters if isinstance(parameters, Mapping) else _PARAMETERS,
        extra={PROTOCOL: tool},
    )


def searches(tools: Iterable[ToolSpec]) -> bool:
    """Whether the client's search is among the tools."""
    return any(tool.name == SEARCH and fields_of(tool.extra, PROTOCOL).get("type") == SEARCH for tool in tools)


def is_search(call: ToolUse) -> bool:
    """Whether a call is one of the search."""
    return call.name == SEARCH and "execution" in fields_of(call.extra, PROTOCOL)


def not_deferred(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools without those that the client's search is to find first; all of them if there is no search."""
    tools = list(tools)
    if not searches(tools):
        return tools
    return [tool for tool in tools if fields_of(tool.extra, PROTOCOL).get("defer_loading") is not True]


def in_force(offered: Iterable[ToolSpec], found: Iterable[ToolSpec]) -> Iterator[ToolSpec]:
    """The tools that are on offer of those that are `offered` and those that were `found`: each once, as it was said
    last."""
    tools = (*not_deferred(offered), *found)
    return iter({(tool.namespace, tool.name, tool.kind == "hosted"): tool for tool in tools}.values())


def found_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """The names of the tools that a search has found, for the model: what they are it sees where all are listed."""
    names = list(_names(tools, ""))
    return f"Found: {', '.join(names)}. They can be called now." if names else "No tool was found."


def _names(tools: Iterable[Mapping[str, Any]], group: str) -> Iterator[str]:
    for tool in tools:
        name = tool.get("name")
        if tool.get("type") == "namespace":
            yield from _names(tool.get("tools") or (), f"{name}__")
        elif isinstance(name, str) or isinstance(name := (tool.get("function") or EMPTY).get("name"), str):
            yield f"{group}{name}"
