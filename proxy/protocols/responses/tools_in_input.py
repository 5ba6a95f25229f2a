"""Tools inside the conversation of a Responses request (R28.1).

Codex with its own models sends an item `additional_tools` instead of `tools`; a client that searches for tools sends
the found ones in `tool_search_output`. All of them are on offer like those in `tools`. A later tool replaces an earlier
one of the same name. Tools with `defer_loading` are on offer once the client's search has found them.

The search that the client runs is one of the client-run tools (`client_tools.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ...model import ToolSpec, fields_of
from .client_tools import PROTOCOL, SEARCH
from .item_types import types_in

SEARCH_OUTPUT: Final = f"{SEARCH}_output"
ADDITIONAL: Final = "additional_tools"
_CARRIERS: Final = (ADDITIONAL, SEARCH_OUTPUT)


def carried_tools(items: Any) -> Iterator[tuple[str, bool, list[Mapping[str, Any]]]]:
    """Yields the lists of tools in the items of an input: the path of each, whether a search found it, and the list."""
    if types_in(items).isdisjoint(_CARRIERS):
        return
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind in _CARRIERS and isinstance(tools := item.get("tools"), list):
            yield f"input[{place}].tools", kind == SEARCH_OUTPUT, tools


def searches(tools: Iterable[ToolSpec]) -> bool:
    """True if the client's search is among the tools."""
    found = (tool for tool in tools if tool.name == SEARCH and tool.kind != "hosted")
    return any(fields_of(tool.extra, PROTOCOL).get("type") == SEARCH for tool in found)


def not_deferred(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Returns the tools without those that the client's search has to find first; all of them if there is no search."""
    tools = list(tools)
    if not searches(tools):
        return tools
    return [tool for tool in tools if fields_of(tool.extra, PROTOCOL).get("defer_loading") is not True]


def in_force(offered: Iterable[ToolSpec], found: Iterable[ToolSpec]) -> Iterator[ToolSpec]:
    """Returns the tools on offer from those that are `offered` and those that were `found`; a later tool replaces an
    earlier one of the same name."""
    tools = (*not_deferred(offered), *found)
    return iter({(tool.namespace, tool.name, tool.kind == "hosted"): tool for tool in tools}.values())
