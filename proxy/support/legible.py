"""JSON that a model is to read, without what no model can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

SHORTEST: Final = 2048
"""Fewer characters are left as they are."""

_FILE: Final = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\r\n-]+=*\s*")


def legible(value: Any) -> Any:
    """A JSON value with a note in the place of each text that is nothing but the base64 of a file."""
    if isinstance(value, str):
        is_file = len(value) >= SHORTEST and _FILE.fullmatch(value) is not None
        return f"[{len(value) * 3 // 4} bytes omitted]" if is_file else value
    if isinstance(value, Mapping):
        return {key: legible(item) for key, item in value.items()}
    return [legible(item) for item in value] if isinstance(value, list) else value
