"""Small things that the Responses tests share: options, frames, what a stream adds up to, and the published schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.protocols.corners import read_by
from tests.protocols.published import validator
from toolwire.config import ResponsesConfig
from toolwire.events import Event
from toolwire.model import ModelRequest
from toolwire.protocols.responses.items import own_items, whole_items
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.responses.stored_items import listed_item
from toolwire.protocols.streams import WriteOptions

RESPONSES = ResponsesProtocol()
OPEN_RESPONSES = "openresponses-2026-04-24-openapi"


def request(body: Mapping[str, Any]) -> ModelRequest:
    return RESPONSES.read_request(body, b"")


def options(body: Mapping[str, Any] | None = None, **kwargs: Any) -> WriteOptions:
    body = {"model": "m", "input": "hi", **(body or {})}
    written = ResponsesConfig(**{k: kwargs.pop(k) for k in list(kwargs) if k in ResponsesConfig.__dataclass_fields__})
    return WriteOptions(request=request(body), created=1, body=body, responses=written, **kwargs)


def input_items(body: Mapping[str, Any], response_id: str) -> tuple[Mapping[str, Any], ...]:
    """The items of a request's `input` as they are listed."""
    return tuple(listed_item(item, response_id, place) for place, item in enumerate(whole_items(own_items(body))))


def write(events: Iterable[Event], opts: WriteOptions | None = None) -> bytes:
    return RESPONSES.writer(opts or options()).feed(events)


def read(data: bytes) -> list[Event]:
    return read_by(RESPONSES.reader(frame_bytes=1 << 20), data)


def frame(value: Mapping[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\ndata: " + json.dumps(value).encode() + b"\n\n"


def payloads(data: bytes) -> list[Any]:
    """The parsed events. Checks the framing: `event` equals `type`, numbers run from 0 (R8.7, R8.10, C27)."""
    out: list[Any] = []
    assert data.endswith(b"\n\n")
    for raw in data.decode().split("\n\n")[:-1]:
        name, text = raw.split("\n")
        assert text.startswith("data: ")
        value = json.loads(text.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        assert list(value)[:2] == ["type", "sequence_number"]
        assert value["sequence_number"] == len(out)
        out.append(value)
    return out


def accumulate(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The output items that a careful client adds up. Asserts the order of R8.7 on the way."""
    done: list[dict[str, Any]] = []
    item: dict[str, Any] | None = None
    text = ""
    open_part = False
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert item is None, "items do not interleave"
                assert event["output_index"] == len(done)
                item, text = event["item"], ""
                continue
            case "content_part.added" | "reasoning_summary_part.added":
                assert not open_part
                open_part, text = True, ""
            case "content_part.done" | "reasoning_summary_part.done":
                assert open_part
                open_part = False
                part = event["part"]
                assert part.get("text", part.get("refusal")) == text
            case "output_item.done":
                assert item is not None
                assert not open_part
                assert event["output_index"] == len(done)
                whole = event["item"]
                assert {k: whole[k] for k in ("id", "type", "call_id", "name", "role") if k in whole} == {
                    k: item[k] for k in ("id", "type", "call_id", "name", "role") if k in item
                }
                assert text_of(whole) == text
                if item["type"] == "shell_call" and whole["status"] == "completed":
                    assert item["action"] == whole["action"]
                done.append(whole)
                item = None
                continue
            case "shell_call_command.added":
                assert item is not None
                commands = item["action"]["commands"]
                assert event["command_index"] == len(commands)
                assert event["command"] == ""
                commands.append("")
            case "shell_call_command.delta":
                assert item is not None
                item["action"]["commands"][event["command_index"]] += event["delta"]
            case "shell_call_command.done":
                assert item is not None
                assert item["action"]["commands"][event["command_index"]] == event["command"]
            case kind if kind.endswith(".delta"):
                text += event["delta"]
            case kind if kind.endswith(".done"):
                keys = ("text", "refusal", "arguments", "input")
                assert [event[key] for key in keys if key in event] == [text]
            case "created" | "in_progress" | "completed" | "incomplete" | "failed":
                continue
            case kind if kind.startswith(("mcp_call.", "mcp_list_tools.")):
                assert item is not None
                assert kind.partition(".")[0] == item["type"]
        if "item_id" in event:
            assert item is not None
            assert event["item_id"] == item["id"]
            assert event["output_index"] == len(done)
    return done


def text_of(item: Mapping[str, Any]) -> str:
    """All text of an output item."""
    if item["type"] in ("function_call", "mcp_call"):
        return str(item["arguments"])
    if item["type"] == "custom_tool_call":
        return str(item["input"])
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part.get("text", part.get("refusal")) for part in parts)


# --- published schemas ----------------------------------------------------------------------------------------------


def check_event(event: Mapping[str, Any]) -> None:
    """Against the published schema of this kind of event."""
    kind = event["type"]
    if kind == "error":
        validator("ErrorStreamingEvent", OPEN_RESPONSES).validate(event)
    elif "response" in event:
        assert set(event) == {"type", "sequence_number", "response"}
        check_resource(event["response"])
    else:
        validator("ResponseStreamEvent").validate(event)
        if "item" in event:
            validator("OutputItem").validate(event["item"])


def check_resource(value: Mapping[str, Any]) -> None:
    """A whole resource against Open Responses; tools, choices, formats and items that only OpenAI's document knows
    against that one."""
    known = dict(value)
    for item in value["output"]:
        validator("OutputItem").validate(item)
    for tool in value["tools"]:
        validator("Tool").validate(tool)
    known["output"] = [item for item in value["output"] if item["type"] in ("message", "function_call", "reasoning")]
    known["tools"] = [tool for tool in value["tools"] if tool["type"] == "function"]
    choice = value["tool_choice"]
    if isinstance(choice, dict):
        validator("ToolChoiceParam").validate(choice)
        functions = all(tool["type"] == "function" for tool in choice.get("tools", ()))
        if choice["type"] not in ("function", "allowed_tools") or not functions:
            known["tool_choice"] = "auto"
    if value["text"]["format"]["type"] == "json_schema":
        validator("TextResponseFormatJsonSchema").validate(
            {k: v for k, v in value["text"]["format"].items() if v is not None}
        )
        # That document allows no schema but null.
        known["text"] = {**value["text"], "format": {**value["text"]["format"], "schema": None}}
    validator("ResponseResource", OPEN_RESPONSES).validate(known)
    if value["usage"] is not None:
        validator("ResponseUsage").validate(value["usage"])
