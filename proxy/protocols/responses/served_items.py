"""Items of tool servers that the client names (`mcp` in `tools`): how they are made and read, and the events by which
each comes into a stream (R26.2).

Rules:

1. The gateway's own items have no id: the writer of the answer names them by their place, as all that it writes.
2. An item is one `Opaque` event, when it is whole. A call may be announced before, by a frame that says it has begun;
   the first call that follows is that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolwire.events import Opaque
from toolwire.model import Text, ToolResult, ToolUse
from toolwire.protocols.responses.items import PROTOCOL
from toolwire.protocols.shared.served import ServedTool
from toolwire.protocols.shared.wire import dump, whole

CALL: Final = "mcp_call"
LISTING: Final = "mcp_list_tools"
REQUEST: Final = "mcp_approval_request"
RESPONSE: Final = "mcp_approval_response"

NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}

Frame = tuple[str, Mapping[str, Any]]
"""The type of an event and its fields, without those that say which item it is about."""


# --- made -----------------------------------------------------------------------------------------------------------


def listing(label: str, tools: Sequence[ServedTool], error: str | None) -> Opaque:
    """The tools of a server, or why it lists none."""
    item: dict[str, Any] = {
        "type": LISTING,
        "server_label": whole(label),
        "tools": [
            {
                "annotations": {"read_only": tool.reads},
                "description": tool.spec.description,
                "input_schema": NO_PARAMETERS if tool.spec.parameters is None else tool.spec.parameters,
                "name": whole(tool.name),
            }
            for tool in tools
        ],
    }
    return Opaque(PROTOCOL, item if error is None else {**item, "error": whole(error)})


def begun_call(use: ToolUse, request_id: str | None) -> Opaque:
    """Announces a call."""
    return Opaque(PROTOCOL, {"type": "response.output_item.added", "item": _call(use, request_id, "in_progress")})


def finished_call(use: ToolUse, text: str, failed: bool, request_id: str | None) -> Opaque:
    """A call with its result."""
    item = _call(use, request_id, "failed" if failed else "completed")
    if failed:
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": whole(text)}]}
        return Opaque(PROTOCOL, {**item, "error": error})
    return Opaque(PROTOCOL, {**item, "output": whole(text)})


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
    """Asks for the approval of a call."""
    named = {"name": use.name, "server_label": use.namespace or ""}
    return Opaque(PROTOCOL, {"type": REQUEST, "arguments": _arguments(use), **named})


def _arguments(use: ToolUse) -> str:
    return whole(use.arguments) if use.arguments.strip() else "{}"


# --- read -----------------------------------------------------------------------------------------------------------


def is_call(item: Any) -> bool:
    """Whether it is a call, or asks for the approval of one, of which everything is said that a model has to know."""
    return (
        isinstance(item, Mapping)
        and item.get("type") in (CALL, REQUEST)
        and all(isinstance(item.get(key), str) for key in ("server_label", "name", "arguments"))
    )


def read_use(item: Mapping[str, Any], call_id: str) -> ToolUse:
    """The call in an item."""
    return ToolUse(call_id, item["name"], item["arguments"], namespace=item["server_label"] or None)


def read_result(item: Mapping[str, Any], use: ToolUse) -> ToolResult:
    """What became of a call."""
    error, output = item.get("error"), item.get("output")
    failed = error is not None or item.get("status") == "failed"
    text = _error_text(error) if error is not None else output if isinstance(output, str) else ""
    return told(use, text, failed=failed)


def told(use: ToolUse, text: str, *, failed: bool) -> ToolResult:
    """A result that says `text`."""
    return ToolResult(use.call_id, (Text(text),) if text else (), use.name, is_error=failed)


def _error_text(error: Any) -> str:
    """The words in an error: a text, or an object with a message or with content of a tool."""
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
    """Whether it is an item of the gateway's own (rule 1) that comes with events of its own."""
    return item.get("type") in (CALL, LISTING) and "id" not in item


def as_begun(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item before anything is known."""
    if item["type"] == LISTING:
        return {"type": LISTING, "server_label": item["server_label"], "tools": []}
    return {**item, "status": "in_progress", "arguments": "", "error": None, "output": None}


def opening_frames(item: Mapping[str, Any]) -> Iterator[Frame]:
    """What is sent when an item has begun, behind the event that adds it."""
    yield f"response.{item['type']}.in_progress", {}
    if item["type"] == CALL:
        yield "response.mcp_call_arguments.delta", {"delta": item["arguments"]}
        yield "response.mcp_call_arguments.done", {"arguments": item["arguments"]}


def closing_frame(item: Mapping[str, Any]) -> Frame:
    """What is sent when an item is whole, before the event that says it is done."""
    return f"response.{item['type']}.{'completed' if item.get('error') is None else 'failed'}", {}
