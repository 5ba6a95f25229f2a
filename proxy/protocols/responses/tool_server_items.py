"""Items of tool servers that the client names (`mcp` in `tools`): how they are made and read, and their events in a
stream (R26.2).

Rules:

1. The gateway's own items have no id: the writer of the answer assigns it by position.
2. An item is one `Opaque` event when it is complete. A call may be announced before by a frame; the first call that
   follows is that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...events import Opaque
from ...model import Text, ToolResult, ToolUse
from ...repair.characters import valid_text
from ..shared.tool_servers import Definitions, ToolServerTool
from ..shared.wire import dump
from .items import PROTOCOL

CALL: Final = "mcp_call"
LISTING: Final = "mcp_list_tools"
REQUEST: Final = "mcp_approval_request"
RESPONSE: Final = "mcp_approval_response"

NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}

Frame = tuple[str, Mapping[str, Any]]
"""The type of an event and its fields, without those that name the item."""


# --- made -----------------------------------------------------------------------------------------------------------


def listing(label: str, tools: Sequence[ToolServerTool], error: str | None) -> Opaque:
    """Returns an item with the tools of a server, or with the error why it lists none."""
    item: dict[str, Any] = {
        "type": LISTING,
        "server_label": valid_text(label),
        "tools": [
            {
                "annotations": {"read_only": tool.read_only},
                "description": tool.spec.description,
                "input_schema": NO_PARAMETERS if tool.spec.parameters is None else tool.spec.parameters,
                "name": valid_text(tool.name),
            }
            for tool in tools
        ],
    }
    return Opaque(PROTOCOL, item if error is None else {**item, "error": valid_text(error)})


def begun_call(use: ToolUse, request_id: str | None) -> Opaque:
    """Returns a frame that announces a call."""
    return Opaque(PROTOCOL, {"type": "response.output_item.added", "item": _call(use, request_id, "in_progress")})


def finished_call(use: ToolUse, text: str, failed: bool, request_id: str | None) -> Opaque:
    """Returns a call with its result."""
    item = _call(use, request_id, "failed" if failed else "completed")
    if failed:
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": valid_text(text)}]}
        return Opaque(PROTOCOL, {**item, "error": error})
    return Opaque(PROTOCOL, {**item, "output": valid_text(text)})


def _call(use: ToolUse, request_id: str | None, status: str) -> dict[str, Any]:
    return {
        "type": CALL,
        "status": status,
        "approval_request_id": request_id,
        "arguments": _arguments(use),
        "error": None,
        "name": use.name,
        "output": None,
        "server_label": use.namespace or "",
    }


def approval_request(use: ToolUse) -> Opaque:
    """Returns an item that requests approval of a call."""
    named = {"name": use.name, "server_label": use.namespace or ""}
    return Opaque(PROTOCOL, {"type": REQUEST, "arguments": _arguments(use), **named})


def _arguments(use: ToolUse) -> str:
    return valid_text(use.arguments) if use.arguments.strip() else "{}"


# --- read -----------------------------------------------------------------------------------------------------------


def is_call(item: Any) -> bool:
    """True if the item is a call, or requests approval of one, and has all fields that the model needs."""
    return (
        isinstance(item, Mapping)
        and item.get("type") in (CALL, REQUEST)
        and all(isinstance(item.get(key), str) for key in ("server_label", "name", "arguments"))
    )


def read_listing(item: Mapping[str, Any]) -> Definitions:
    """Returns the definitions of the tools in a list that the client sent back."""
    tools = item.get("tools")
    return [
        (tool.get("name"), tool.get("description"), tool.get("input_schema"))
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, Mapping)
    ]


def read_use(item: Mapping[str, Any], call_id: str) -> ToolUse:
    """Returns the call in an item."""
    return ToolUse(call_id, item["name"], item["arguments"], namespace=item["server_label"] or None)


def read_result(item: Mapping[str, Any], use: ToolUse) -> ToolResult:
    """Returns the result of a call in an item."""
    error, output = item.get("error"), item.get("output")
    failed = error is not None or item.get("status") == "failed"
    text = _error_text(error) if error is not None else output if isinstance(output, str) else ""
    return tool_result(use, text, failed=failed)


def tool_result(use: ToolUse, text: str, *, failed: bool) -> ToolResult:
    """Returns a result with this text."""
    return ToolResult(use.call_id, (Text(text),) if text else (), use.name, is_error=failed)


def _error_text(error: Any) -> str:
    """Returns the text of an error: a string, or an object with a message or with a tool's content."""
    if isinstance(error, str):
        return error
    if isinstance(error, Mapping):
        if isinstance(error.get("message"), str):
            return str(error["message"])
        content = error.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, Mapping)]
            if texts and all(isinstance(text, str) for text in texts):
                return "\n".join(map(str, texts))
    return dump(error).decode()


# --- streamed -------------------------------------------------------------------------------------------------------


def is_own(item: Mapping[str, Any]) -> bool:
    """True for an item that the gateway made itself (rule 1) and that has its own kinds of events."""
    return item.get("type") in (CALL, LISTING) and "id" not in item


def as_announced(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the item as its first event shows it: in progress, without tools, arguments and output."""
    if item["type"] == LISTING:
        return {"type": LISTING, "server_label": item["server_label"], "tools": []}
    return {**item, "status": "in_progress", "arguments": "", "error": None, "output": None}


def opening_frames(item: Mapping[str, Any]) -> Iterator[Frame]:
    """Yields the frames after the event that adds an item."""
    yield f"response.{item['type']}.in_progress", {}
    if item["type"] == CALL:
        yield "response.mcp_call_arguments.delta", {"delta": item["arguments"]}
        yield "response.mcp_call_arguments.done", {"arguments": item["arguments"]}


def closing_event(item: Mapping[str, Any]) -> str:
    """Returns the type of the frame before the event that ends an item."""
    return f"response.{item['type']}.{'completed' if item.get('error') is None else 'failed'}"
