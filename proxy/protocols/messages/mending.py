"""Odd Messages requests, mended (`proxy.protocols.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tolerances import ARGUMENTS, CONTENT
from ..mending import Mending, is_object, object_of, objects
from ..wire import dump, load


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """The body with the fields of its messages and tools as the reader takes them."""
    body = dict(body)
    if isinstance(body.get("messages"), list):
        body["messages"] = list(body["messages"])
        for at, message in objects(body["messages"]):
            content = mending.parts(message.get("content"), lambda block: _block(block, mending), "text")
            body["messages"][at] = {**message, "content": content}
    if body.get("system") is not None:
        body["system"] = mending.parts(body["system"], lambda block: _instruction(block, mending), "text")
    if isinstance(body.get("tools"), list):
        body["tools"] = [mending.tool(tool) for tool in body["tools"]]
    return body


def _instruction(block: dict[str, Any], mending: Mending) -> dict[str, Any]:
    if block["type"] == "text" and isinstance(block.get("text"), str):
        return block
    return {**block, "type": "text", "text": mending.text(block.get("text"))}


def _block(block: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match block["type"]:
        case ("text" | "thinking") as kind if not isinstance(block.get(kind), str):
            return {**block, kind: mending.text(block.get(kind))}
        case "tool_use":
            return {**block, "id": mending.call_id(block.get("id")), "input": _input(block.get("input"), mending)}
        case "tool_result":
            block = mending.fields(block, {"is_error": bool}, CONTENT)
            block["tool_use_id"] = mending.result_id(block.get("tool_use_id"))
            if block.get("content") is not None:
                block["content"] = mending.parts(block["content"], lambda part: _block(part, mending), "text")
            return block
        case "image" if not _is_image(block.get("source")):
            mending.tell(CONTENT)
            return {"type": "text", "text": "[image omitted: it has no source]"}
    return block


def _is_image(source: Any) -> bool:
    match source:
        case {"type": "base64", "media_type": str(), "data": str()} | {"type": "url", "url": str()}:
            return True
        case {"type": str(kind)}:
            return kind not in ("base64", "url")
        case _:
            return False


def _input(given: Any, mending: Mending) -> Any:
    """The arguments of a call, which are an object here: one that was written as text is that object."""
    if given is None or isinstance(given, dict):
        return given
    mending.tell(ARGUMENTS)
    text = given if isinstance(given, str) else dump(given).decode()
    return load(text if is_object(text) else object_of(text))
