"""Mending of odd Responses requests (`toolwire.protocols.shared.mending`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shared.mending import Mending, objects


def mended(body: Mapping[str, Any], mending: Mending) -> dict[str, Any]:
    """Returns the body with the odd fields of its items repaired, so that the reader accepts them; notes each in
    `mending`."""
    items: Any = body.get("input")
    items = list(items) if isinstance(items, list) else items
    for at, item in objects(items):
        items[at] = _item(item, mending)
    return {**body, "input": items}


def _item(item: dict[str, Any], mending: Mending) -> dict[str, Any]:
    match item.get("type"):
        case "function_call":
            return {**item, "arguments": mending.arguments(item.get("arguments"))}
        case "function_call_output" | "custom_tool_call_output":
            return {**item, "call_id": mending.result_id(item.get("call_id"))}
        case None | "message" if "role" in item:
            return {**item, "content": mending.content(item.get("content"))}
    return item
