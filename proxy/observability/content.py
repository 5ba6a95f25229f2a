"""Prompts and answers as attributes of the semantic conventions for generative AI, in JSON texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from ..model import Image, ModelReply, ModelRequest, Part, Reasoning, Refusal, Text, ToolResult, ToolUse


def input_messages(request: ModelRequest) -> dict[str, str]:
    """Returns `gen_ai.system_instructions` and `gen_ai.input.messages`, as they are sent to the backend."""
    system = [part for message in request.messages if message.role in ("system", "developer") for part in message.parts]
    others = [message for message in request.messages if message.role not in ("system", "developer")]
    attributes = {
        "gen_ai.input.messages": _json(
            [{"role": message.role, "parts": list(_parts(message.parts))} for message in others]
        )
    }
    if system:
        attributes["gen_ai.system_instructions"] = _json(list(_parts(system)))
    return attributes


def tool_definitions(request: ModelRequest) -> dict[str, str]:
    """Returns `gen_ai.tool.definitions`, of the tools that are sent to the backend as such; empty if there are none."""
    tools = [
        {"type": tool.kind, "name": tool.name, "description": tool.description, "parameters": _plain(tool.parameters)}
        for tool in request.tools
    ]
    return {"gen_ai.tool.definitions": _json(tools)} if tools else {}


def output_messages(reply: ModelReply) -> dict[str, str]:
    """Returns `gen_ai.output.messages`, as they came from the backend."""
    messages = [
        {"role": "assistant", "parts": list(_parts(choice.parts)), "finish_reason": choice.reason}
        for choice in reply.choices
    ]
    return {"gen_ai.output.messages": _json(messages)}


def _parts(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        match part:
            case Text() | Refusal():
                yield {"type": "text", "content": part.text}
            case Reasoning():
                yield {"type": "reasoning", "content": part.text}
            case Image():
                yield {"type": "uri", "modality": "image", "uri": part.url}
            case ToolUse():
                yield {"type": "tool_call", "id": part.call_id, "name": part.name, "arguments": part.arguments}
            case ToolResult():
                yield {"type": "tool_call_response", "id": part.call_id, "response": list(_parts(part.parts))}
            case _:
                yield {"type": "other"}


def _plain(value: Any) -> Any:
    return None if value is None else dict(value)


def _json(value: Any) -> str:
    return orjson.dumps(value, default=dict).decode()
