"""Tools that are found, added and removed in the course of a Messages conversation (R28.1).

A tool with `defer_loading` is on offer after a `tool_reference` in a result names it. A system message may add a tool
(`tool_addition`: one of `tools`, or a definition) and remove one (`tool_removal`). The tools at the end of the
conversation are offered. Tools that the server itself finds and adds (by its own search, or from MCP servers) are left
to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...formats.engine.rendering import prompt_name
from ...formats.engine.toolset import ToolSet
from ...known.past import Past, fold
from ...model import EMPTY, ToolSpec

ADDITION: Final = "tool_addition"
REMOVAL: Final = "tool_removal"
REFERENCE: Final = "tool_reference"
CHANGES: Final = (b"defer_loading", b"tool_addition", b"tool_removal")
"""A body that changes tools contains at least one of these."""
_SEARCHES: Final = "tool_search_tool"
"""Prefix of the types of the server's own searches."""


class Change(NamedTuple):
    """A change of the tools on offer."""

    name: str
    added: bool
    """True if the tool is on offer from here on, False if it is removed."""
    definition: Mapping[str, Any] | None = None
    """The tool's definition, if the change contains one."""
    found: bool = False
    """True if the change is in a tool result: a search found the tool."""


def in_force(
    tools: tuple[ToolSpec, ...],
    changes: Sequence[Change],
    read: Callable[[Mapping[str, Any]], tuple[ToolSpec, ...]],
) -> tuple[ToolSpec, ...]:
    """Returns the tools on offer after these changes; the same object if nothing changes. `read` reads a definition."""
    deferred = {prompt_name(tool) for tool in tools if tool.received.get("defer_loading") is True}
    if len(deferred) == len(tools) or any(_is_search(tool) for tool in tools if deferred):
        deferred = set()  # the server finds them, or no search tool could
    changes = [change for change in changes if deferred or not change.found]
    if not deferred and not changes:
        return tools
    known = {prompt_name(tool): tool for tool in tools}
    offered = {name: tool for name, tool in known.items() if name not in deferred}
    for name, added, definition, _ in changes:
        if definition is not None:
            known[name] = read(definition)[0]
        if not added:
            offered.pop(name, None)
        elif name in known:
            offered[name] = known[name]
    return ToolSet(offered.values())


def without_changes(message: Mapping[str, Any]) -> Any:
    """Returns the content of a message; that of a system message without its tool changes."""
    content = message["content"]
    if message["role"] != "system" or isinstance(content, str):
        return content
    return [block for block in content if block.get("type") not in (ADDITION, REMOVAL)]


def _is_search(tool: ToolSpec) -> bool:
    return tool.kind == "hosted" and str(tool.received.get("type")).startswith(_SEARCHES)


def changes_in(messages: Sequence[Mapping[str, Any]], past: Past | None) -> Sequence[Change]:
    """Returns the tool changes in these messages, in order."""
    return fold(past, "messages.tools", messages, 0, _more_changes)[0]


def _more_changes(_: int, messages: Sequence[Mapping[str, Any]], start: int, changes: list[Change]) -> int:
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            continue
        if message["role"] == "system":
            for block in content:
                changes += _system_changes(block)
        elif message["role"] == "user":
            for block in content:
                if block.get("type") == "tool_result":
                    changes += _result_changes(block.get("content"))
    return 0


def _system_changes(block: Mapping[str, Any]) -> Iterator[Change]:
    kind, tool = block.get("type"), block.get("tool")
    if kind not in (ADDITION, REMOVAL) or not isinstance(tool, Mapping):
        return
    definition = tool.get("definition") if kind == ADDITION and tool.get("type") == "tool_definition" else None
    defined = definition if isinstance(definition, Mapping) else EMPTY
    name = defined.get("name") if defined else tool.get("name") if tool.get("type") == REFERENCE else None
    if isinstance(name, str):
        yield Change(name, kind == ADDITION, defined or None)


def _result_changes(content: Any) -> Iterator[Change]:
    for part in content if isinstance(content, list) else ():
        if part.get("type") == REFERENCE and isinstance(name := part.get("tool_name"), str):
            yield Change(name, True, found=True)
