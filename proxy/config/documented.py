"""Dataclass fields with a description."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def doc(text: str, **kwargs: Any) -> Any:
    """Returns a dataclass field with the description `text`. Takes the arguments of `dataclasses.field`."""
    return field(metadata={"doc": text}, **kwargs)
