"""Mending of odd Messages requests (`toolwire.protocols.shared.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tolerances import ARGUMENTS
from ..shared.mending import Mending, is_object, object_of, objects
from ..shared.wire import dump, load


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its messages repaired, so that the reader accepts them; notes each in
    `mending`."""
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


def _input(value: Any, mending: Mending) -> Any:
    """Returns the arguments of a call as an object; an object written as text is parsed."""
    if value is None or isinstance(value, dict):
        return value
    mending.note(ARGUMENTS)
    text = value if isinstance(value, str) else dump(value).decode()
    return load(text if is_object(text) else object_of(text))
