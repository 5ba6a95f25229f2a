"""Odd Messages requests, mended (`toolwire.protocols.shared.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwire.protocols.shared.mending import Mending, is_object, object_of, objects
from toolwire.protocols.shared.wire import dump, load
from toolwire.tolerances import ARGUMENTS


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """The body with the fields of its messages as the reader takes them."""
    messages: Any = body.get("messages")
    messages = list(messages) if isinstance(messages, list) else messages
    for at, message in objects(messages):
        content = mending.content(message.get("content"))
        content = list(content) if isinstance(content, list) else content
        for place, block in objects(content):
            content[place] = _block(block, mending)
        messages[at] = {**message, "content": content}
    return {**body, "messages": messages}


def _block(block: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match block.get("type"):
        case "tool_use":
            return {**block, "input": _input(block.get("input"), mending)}
        case "tool_result":
            return {**block, "tool_use_id": mending.result_id(block.get("tool_use_id"))}
    return block


def _input(given: Any, mending: Mending) -> Any:
    """The arguments of a call, which are an object here: one that was written as text is that object."""
    if given is None or isinstance(given, dict):
        return given
    mending.tell(ARGUMENTS)
    text = given if isinstance(given, str) else dump(given).decode()
    return load(text if is_object(text) else object_of(text))
