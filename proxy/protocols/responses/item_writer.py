"""Writes messages as items of a Responses conversation. `items.py` is the other direction.

Only `write_call` writes call items, for all paths.

Written in another form: an input that is a string, parts without a message, items without `type`, a single text in a
list, Chat's images, results that are other JSON (as its text), empty annotations and probabilities (left out), parts of
a summary (joined), summaries that the gateway made (`summaries.py`: as a user message), the parts of reasoning, and
unmodelled parts of the assistant (each becomes a message). Left out: `status`, and ids, except those of calls and of
reasoning with encrypted content: the gateway makes its own item ids, and servers have not stored the others. Not
written: `Message.name`, `ToolResult.is_error`, `Message.extra` of a message without content, parts of other protocols
outside results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...model import EMPTY, Image, Message, OpaquePart, Part, Reasoning, Refusal, Text, ToolResult, ToolUse, fields_of
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.client_tools import ITEM_TYPE
from ..shared.wire import dump
from .client_tools import call_fields, item_type, status_of, write_output
from .items import PROTOCOL


def write_items(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Returns the `input` array of these messages."""
    return [item for message in messages for item in _message_items(message)]


def _message_items(message: Message) -> Iterator[dict[str, Any]]:
    role = "user" if message.role == "tool" else message.role
    content: list[Mapping[str, Any]] = []
    fields = fields_of(message.extra, PROTOCOL) if message.extra else EMPTY
    last: dict[str, Any] = {}
    for part in message.parts:
        item: dict[str, Any] | None = None
        match part:
            case ToolResult():
                item = write_result(part)
            case ToolUse():
                item = write_call(part, part.item_id)
            case Reasoning():
                if fields_of(part.extra, PROTOCOL).get("continues") and last.get("type") == "reasoning":
                    last["content"] = write_reasoning(part)["content"]
                    continue
                item = write_reasoning(part)
            case OpaquePart(protocol="responses") if role == "assistant":
                item = part.payload
            case Text() | Refusal() if part.extra and "item" in (own := fields_of(part.extra, PROTOCOL)):
                if content:
                    yield _write_message(role, content, fields)
                written = _write_part(part, role)
                content, fields = [] if written is None else [written], own["item"]
                last = {}
                continue
            case _:
                written = _write_part(part, role)
                if written is not None:
                    content.append(written)
                continue
        if content:
            yield _write_message(role, content, fields)
            content, fields = [], EMPTY
        last = item
        yield item
    if content or not message.parts:
        yield _write_message(role, content, fields)


def _write_message(role: str, content: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any]:
    plain = len(content) == 1 and content[0].keys() == {"type", "text"}
    shown = content[0]["text"] if plain else content
    return {**fields, "type": "message", "role": role, "content": shown if content else ""}


def part_fields(part: Text | Refusal | Image) -> Mapping[str, Any]:
    """Returns the additional fields of a content part, without those of its item."""
    fields = fields_of(part.extra, PROTOCOL)
    return {key: value for key, value in fields.items() if key != "item"} if "item" in fields else fields


def _write_part(part: Part, role: str, *, json_text: bool = False) -> Mapping[str, Any] | None:
    """Returns a content part; None if the protocol cannot express it. `json_text`: parts of other protocols are written
    as compact JSON."""
    match part:
        case Text():
            kind = "output_text" if role == "assistant" else "input_text"
            written = {"type": kind, "text": valid_text(part.text)}
        case Refusal():
            written = {"type": "refusal", "refusal": valid_text(part.text)}
        case Image():
            written = {"type": "input_image", "image_url": part.url, **({"detail": part.detail} if part.detail else {})}
        case OpaquePart(protocol="responses"):
            payload: Mapping[str, Any] = part.payload
            return payload
        case OpaquePart() if json_text:
            return {"type": "input_text", "text": dump(part.payload).decode()}
        case _:
            return None
    return {**part_fields(part), **written} if part.extra else written


def write_result(result: ToolResult) -> dict[str, Any]:
    """Returns the item of a tool result."""
    if (own := item_type(result)) is not None:
        return write_output(result, own)
    parts = [_write_part(part, "tool", json_text=True) for part in result.parts]
    content = [part for part in parts if part is not None]
    plain = len(content) == 1 and content[0].keys() == {"type", "text"}
    kind = "custom_tool_call_output" if result.kind == "custom" else "function_call_output"
    output: Any = content[0]["text"] if plain else content or ""
    written = {"type": kind, "call_id": result.call_id, "output": output}
    return {**fields_of(result.extra, PROTOCOL), **written} if result.extra else written


def write_call(use: ToolUse, item_id: str | None, status: str | None = None) -> dict[str, Any]:
    """Returns a call item for requests, answers and events (R8.5, R8.9, R8.16). Empty arguments become `{}`."""
    item: dict[str, Any] = {**fields_of(use.extra, PROTOCOL)} if use.extra else {}
    if item.pop(ITEM_TYPE, None) is not None and (kind := item_type(use)) is not None:
        named = {"id": item_id} if item_id is not None else EMPTY
        fields = call_fields(use, kind)
        return {**fields, **item, **named, "type": kind, "status": status_of(kind, status), "call_id": use.call_id}
    if item_id is not None:
        item["id"] = item_id
    item["type"] = call_type(use)
    if status is not None:
        item["status"] = status
    if use.kind == "custom":
        item |= {"call_id": use.call_id, "input": valid_text(use.arguments), "name": use.name}
    else:
        # an item that has just begun, or was cut off, has no arguments
        blank = "" if status in ("in_progress", "incomplete") else "{}"
        arguments = valid_text(use.arguments) if use.arguments.strip(SPACE) else blank
        item |= {"arguments": arguments, "call_id": use.call_id, "name": use.name}
    if use.namespace is not None:
        item["namespace"] = use.namespace
    return item


def call_type(use: ToolUse) -> str:
    """Returns the type of a call's item."""
    if use.kind == "custom":
        return "custom_tool_call"
    return item_type(use) or "function_call"


_MARKS: Final = frozenset({"summary", "continues"})
"""Keys in the `extra` of reasoning that mark its place in an item."""


def write_reasoning(part: Reasoning, item_id: str | None = None, status: str | None = None) -> dict[str, Any]:
    """Returns a reasoning item; its text is the summary if it was read from one. `status` is given only for reasoning
    that was cut off."""
    fields = fields_of(part.extra, PROTOCOL)
    item: dict[str, Any] = {key: value for key, value in fields.items() if key not in _MARKS}
    if item_id is not None:
        item.setdefault("id", item_id)
    item |= {"type": "reasoning", "summary": []}
    text = valid_text(part.text)
    if text and fields.get("summary") is True:
        item["summary"] = [{"type": "summary_text", "text": text}]
    elif text:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    if status is not None:
        item["status"] = status
    return item
