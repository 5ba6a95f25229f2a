"""Stored items as clients get them again: the items of a request as they are listed, and the output items made from
stored messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...model import Message, ModelRequest, OpaquePart, Part, ToolResult, ToolUse, merged
from ..shared.wire import dump
from ..streams import WriteOptions
from .ids import PREFIXES, derived_id
from .item_writer import write_result
from .items import PROTOCOL, MessageCollector, read_call
from .reply import Origins, output_items

Items = Sequence[Mapping[str, Any]]

_WITH_STATUS: Final = PREFIXES.keys() - {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}
"""Types of items that are shown with a `status`."""
_PLAIN: Final = WriteOptions(request=ModelRequest("", ()), created=0)
"""Options of an ordinary request; stored output is shown the same for all."""


# --- items of a request ---------------------------------------------------------------------------------------------


def listed_item(item: Mapping[str, Any], response_id: str, index: int) -> Mapping[str, Any]:
    """Returns an item, which has a `type`, as `GET /v1/responses/{id}/input_items` lists it at this position: with `id`
    and `status`, and content as parts. The client's own ids stay; the others are derived. Idempotent."""
    kind = item["type"]
    shown = {key: value for key, value in item.items() if value is not None}
    if kind == "item_reference":
        return shown
    shown["id"] = item.get("id") or derived_id(kind, response_id, index, of_input=True)
    if kind == "message":
        shown["content"] = _listed_content(item.get("content"), item["role"])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item["output"]
        if not isinstance(output, str | list):
            shown["output"] = dump(output).decode()
    elif kind == "reasoning":
        shown.setdefault("summary", [])
        return shown
    if kind in _WITH_STATUS:
        shown.setdefault("status", "completed")
    return shown


def _listed_content(content: str | Iterable[Mapping[str, Any]] | None, role: str) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return [
        {"annotations": [], "logprobs": [], **part}
        if part["type"] == "output_text"
        else {"detail": "auto", **part}
        if part["type"] == "input_image"
        else part
        for part in content or ()
    ]


# --- messages of an answer ------------------------------------------------------------------------------------------


def messages_of_output(shown: Items, origins: Origins) -> tuple[Message, ...]:
    """Returns the messages that an answer's output amounts to. `origins` are the parts that each item was made from;
    they hold fields of other protocols, which the item does not. An item without parts is read from itself."""
    reading = MessageCollector()
    for item, parts in zip(shown, origins, strict=True):
        match parts:
            case [ToolUse(extra=extra)]:  # with the name and id that the client knows
                use = read_call(item, item["id"])
                reading.call(replace(use, extra=merged(use.extra, extra)))
            case [] | [OpaquePart()]:
                reading.take(item)
            case _:
                reading.add_parts(parts)
    return reading.end()


# --- items of messages ----------------------------------------------------------------------------------------------


def output_of_messages(messages: Sequence[Message], ident: str) -> list[dict[str, Any]]:
    """Returns the output items of an answer's messages."""
    return output_items(_flat(messages), _PLAIN, ident, reason="stop") if messages else []


def _flat(messages: Sequence[Message]) -> Iterator[Part]:
    """Yields the parts of an answer; a result becomes an unmodelled item."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield OpaquePart(PROTOCOL, {**write_result(part), "status": "completed"})
            else:
                yield part
