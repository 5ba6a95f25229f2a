"""Mending of odd Chat Completions requests (`toolwire.protocols.shared.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shared.mending import Mending, objects


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its messages repaired, so that the reader accepts them; notes each in
    `mending`."""
    messages: Any = body.get("messages")
    messages = list(messages) if isinstance(messages, list) else messages
    for at, message in objects(messages):
        messages[at] = _message(message, mending)
    return {**body, "messages": messages}


def _message(message: dict[str, Any], mending: Mending) -> dict[str, Any]:
    message = dict(message)
    called, calls = message.get("function_call"), message.get("tool_calls")
    if message.get("role") == "tool":  # null content is refused (C15)
        message["tool_call_id"] = mending.result_id(message.get("tool_call_id"))
    elif not (calls or called):
        message["content"] = mending.content(message.get("content"))
    if isinstance(calls, list):
        message["tool_calls"] = [_call(call, mending) for call in calls]
    if isinstance(called, dict):
        message["function_call"] = {**called, "arguments": mending.arguments(called.get("arguments"))}
    return message


def _call(call: Any, mending: Mending) -> Any:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        return call
    return {**call, "function": {**inner, "arguments": mending.arguments(inner.get("arguments"))}}
