"""Completion of missing namespaces of earlier calls. Some clients send a call back without its `namespace`, or with the
namespace in its name. The model should see the name that it was taught, and a Responses server refuses a call of an
unknown tool (R28.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import is_

from ...known.past import Past, fold
from ...model import EMPTY, Message, Part, ToolResult, ToolSpec, ToolUse, replace


def with_namespaces(
    messages: tuple[Message, ...], tools: Iterable[ToolSpec], past: Past | None = None
) -> tuple[Message, ...]:
    """Returns the messages with the missing namespace of each call added if only one tool fits; the same object if no
    tool has a namespace."""
    grouped = [tool for tool in tools if tool.namespace is not None]
    if not grouped:
        return messages
    plain = {tool.name for tool in tools if tool.namespace is None}
    times = Counter(name for tool in grouped for name in _names(tool))
    by_name = {name: tool for tool in grouped for name in _names(tool) if times[name] == 1 and name not in plain}

    def step(
        before: Mapping[str, str], messages: Sequence[Message], start: int, made: list[Message]
    ) -> Mapping[str, str]:
        renamed = dict(before)
        made += [_named(message, by_name, renamed) for message in messages]
        return renamed

    key = "namespaces", tuple(sorted((name, tool.name, tool.namespace) for name, tool in by_name.items()))
    return tuple(fold(past, key, messages, EMPTY, step)[0])


def _names(tool: ToolSpec) -> set[str]:
    """Returns the names that clients may use for a tool with a namespace when they omit the `namespace` field."""
    return {tool.name, *(f"{tool.namespace}{mark}{tool.name}" for mark in ("__", ".", "_", "/"))}


def _named(message: Message, by_name: Mapping[str, ToolSpec], renamed: dict[str, str]) -> Message:
    parts = tuple([_part(part, by_name, renamed) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _part(part: Part, by_name: Mapping[str, ToolSpec], renamed: dict[str, str]) -> Part:
    """Returns a call with its namespace, a result with the name of its call's tool. `renamed` collects the tool names
    of renamed calls by call id."""
    if isinstance(part, ToolUse) and part.namespace is None and (tool := by_name.get(part.name)) is not None:
        renamed[part.call_id] = tool.name
        return replace(part, name=tool.name, namespace=tool.namespace)
    if isinstance(part, ToolResult) and (name := renamed.get(part.call_id)) is not None:
        return replace(part, name=name)
    return part
