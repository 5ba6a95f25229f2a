"""A field of a section with its meaning."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def doc(text: str, **kwargs: Any) -> Any:
    """A dataclass field with its documentation. Takes what `dataclasses.field` takes."""
    return field(metadata={"doc": text}, **kwargs)
