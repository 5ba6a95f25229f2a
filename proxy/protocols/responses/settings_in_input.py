"""Settings inside the conversation of a Responses request: items `configuration_update` change the reasoning effort and
the format of the text. Each setting is in force until a later item changes it."""

from __future__ import annotations

from typing import Any, Final

from .item_types import types_in

UPDATE: Final = "configuration_update"


def settings_in(items: Any) -> dict[str, Any]:
    """Returns the settings that the items of an input make: `effort`, `format`, or none."""
    settings: dict[str, Any] = {}
    if UPDATE not in types_in(items):
        return settings
    for item in items:
        if item.get("type") == UPDATE:
            reasoning, text = item.get("reasoning") or {}, item.get("text") or {}
            if "effort" in reasoning:
                settings["effort"] = reasoning["effort"]
            if text.get("format") is not None:
                settings["format"] = text["format"]
    return settings
