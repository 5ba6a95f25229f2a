"""The free text of a `custom` tool, which is taught as a tool with one string `input` (R8.9)."""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_policy.json_calls import read_nearly
from toolwire.repair.repair import read_json

_ATTEMPT: Final = re.compile(r"""\s*\{\s*["']?input["']?\s*:""")
"""It was meant to be the object that is taught."""


def custom_input(arguments: str) -> str:
    """The text in a custom tool's `arguments`. Raises `ValueError`."""
    value = read_json(arguments)
    text = value.get("input") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError("its arguments hold no string `input`")
    return text


def free_text(raw: str) -> str | None:
    """The text that a model wrote as a custom tool's arguments without the object around it; None if it was to be
    one."""
    if not raw.strip() or _ATTEMPT.match(raw):
        return None
    try:
        value, *_ = read_nearly(raw, True)
    except ValueError:
        return raw
    return None if isinstance(value, dict) else raw
