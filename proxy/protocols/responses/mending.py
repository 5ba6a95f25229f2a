"""Odd Responses requests, mended (`proxy.protocols.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...tolerances import CONTENT, TOOL
from ..mending import Mending, objects

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """The body with the fields of its items and tools as the reader takes them."""
    body = dict(body)
    if isinstance(body.get("input"), list):
        body["input"] = list(body["input"])
        for at, item in objects(body["input"]):
            body["input"][at] = _item(item, mending)
    if isinstance(body.get("tools"), list):
        body["tools"] = [_tool(tool, mending) for tool in body["tools"]]
    return body


def _item(item: dict[str, Any], mending: Mending) -> dict[str, Any]:
    item = mending.fields(item, {"id": str}, CONTENT)
    kind = item.get("type")
    if kind == "function_call":
        item["call_id"] = mending.call_id(item.get("call_id") or item.get("id"))
        item["arguments"] = mending.arguments(item.get("arguments"))
    elif kind == "custom_tool_call":
        item["call_id"] = mending.call_id(item.get("call_id") or item.get("id"))
        item["input"] = mending.text(item.get("input"))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        item["call_id"] = mending.result_id(item.get("call_id"))
        if item.get("output") is None:
            item["output"] = mending.text(None)
        elif isinstance(item["output"], list):
            item["output"] = [_part(part, mending) if isinstance(part, dict) else part for part in item["output"]]
    elif kind in (None, "message") and item.get("role") == "tool":  # as in Chat
        mending.tell(CONTENT)
        output = item.pop("content", None)
        item |= {"type": "function_call_output", "output": "" if output is None else output}
        item["call_id"] = mending.result_id(item.pop("tool_call_id", None))
        del item["role"]
    elif kind in (None, "message") and "role" in item:
        item["content"] = mending.parts(item.get("content"), lambda part: _part(part, mending), "input_text")
    elif isinstance(kind, str):
        return _part(item, mending)
    return item


def _part(part: dict[str, Any], mending: Mending) -> dict[str, Any]:
    kind = part.get("type")
    if kind in _TEXTS and not isinstance(part.get("text"), str):
        return {**part, "text": mending.text(part.get("text"))}
    if kind == "refusal" and not isinstance(part.get("refusal"), str):
        return {**part, "refusal": mending.text(part.get("refusal"))}
    if kind == "input_image":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if (url is not None and not isinstance(url, str)) or (isinstance(image, dict) and url is None):
            mending.tell(CONTENT)
            return {"type": "input_text", "text": "[image omitted: it has no URL]"}
        return mending.fields(part, {"detail": str, "file_id": str}, CONTENT)
    return part


def _tool(tool: Any, mending: Mending) -> Any:
    if not isinstance(tool, dict):
        return tool
    if not isinstance(tool.get("type"), str) and ("function" in tool or "name" in tool):
        mending.tell(TOOL)
        tool = {**tool, "type": "function"}
    if tool.get("type") == "namespace" and isinstance(tool.get("tools"), list):
        return {**tool, "tools": [_tool(inner, mending) for inner in tool["tools"]]}
    return mending.tool(tool, ("function", "custom"))
