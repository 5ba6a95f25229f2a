"""Odd Chat Completions requests, mended (`proxy.protocols.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tolerances import CONTENT, TOOL
from ..mending import Mending, objects


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """The body with the fields of its messages and tools as the reader takes them."""
    body = dict(body)
    if isinstance(body.get("messages"), list):
        body["messages"] = list(body["messages"])
        for at, message in objects(body["messages"]):
            body["messages"][at] = _message(message, mending)
    if isinstance(body.get("tools"), list):
        body["tools"] = [_tool(tool, mending) for tool in body["tools"]]
    if body.get("stop") == []:
        del body["stop"]
    return body


def _message(message: dict[str, Any], mending: Mending) -> dict[str, Any]:
    message = mending.fields(message, {"name": str, "refusal": str}, CONTENT)
    role = message.get("role")
    if role == "tool":
        message["tool_call_id"] = mending.result_id(message.get("tool_call_id"))
    if role == "tool" and message.get("content") is None:
        return message  # which is refused (C15)
    if message.get("content") is not None:
        message["content"] = mending.parts(message["content"], lambda part: _part(part, mending), "text")
    elif role != "assistant" or not (message.get("tool_calls") or message.get("function_call")):
        message["content"] = mending.text(None)
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [
            _call(call, mending) if isinstance(call, dict) else call for call in message["tool_calls"]
        ]
    called = message.get("function_call")
    if isinstance(called, dict):
        message["function_call"] = {**called, "arguments": mending.arguments(called.get("arguments"))}
    return message


def _part(part: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match part:
        case {"type": ("text" | "refusal") as kind} if not isinstance(part.get(kind), str):
            return {**part, kind: mending.text(part.get(kind))}
        case {"type": "image_url"}:
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            if not isinstance(url, str):
                mending.tell(CONTENT)
                return {"type": "text", "text": "[image omitted: it has no URL]"}
            if isinstance(image, dict):
                return {**part, "image_url": mending.fields(image, {"detail": str}, CONTENT)}
    return part


def _call(call: dict[str, Any], mending: Mending) -> dict[str, Any]:
    kind = call.get("type")
    if kind not in ("function", "custom"):
        kind = "custom" if "custom" in call and "function" not in call else "function"
    inner = call.get(kind)
    inner = dict(inner) if isinstance(inner, dict) else {}
    if isinstance(call.get("name"), str) and "name" not in inner:  # a flat one
        inner = {"name": call["name"], "arguments": call.get("arguments"), "input": call.get("input")}
    field = "input" if kind == "custom" else "arguments"
    inner[field] = mending.text(inner.get(field)) if kind == "custom" else mending.arguments(inner.get(field))
    return {**call, "id": mending.call_id(call.get("id")), "type": kind, kind: inner}


def _tool(tool: Any, mending: Mending) -> Any:
    if isinstance(tool, dict) and not isinstance(tool.get("type"), str) and ("function" in tool or "name" in tool):
        mending.tell(TOOL)
        tool = {**tool, "type": "function"}
    return mending.tool(tool, ("function", "custom"))
