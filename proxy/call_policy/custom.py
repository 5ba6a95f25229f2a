"""The free text of a `custom` tool, which is taught as a tool with one string `input` (R8.9)."""

from __future__ import annotations

import re
from typing import Final

from ..repair.repair import read_json
from .json_calls import read_nearly

_ATTEMPT: Final = re.compile(r"""\s*\{\s*["']?input["']?\s*:""")
"""The beginning of text that was meant to be the taught object."""


def custom_input(arguments: str) -> str:
    """Returns the text in a custom tool's `arguments`. Raises `ValueError` if there is no string `input`."""
    value = read_json(arguments)
    text = value.get("input") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError("its arguments hold no string `input`")
    return text


def free_text(raw: str) -> str | None:
    """Returns a custom tool's text if the model wrote it without the object around it, or None if the text is a
    (broken) object."""
    if not raw.strip() or _ATTEMPT.match(raw):
        return None
    try:
        value, *_ = read_nearly(raw, True)
    except ValueError:
        return raw
    return None if isinstance(value, dict) else raw
