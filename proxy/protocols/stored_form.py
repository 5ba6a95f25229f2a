"""The form in which messages are kept by whoever stores some: JSON that comes back as the same messages, in every
version that follows.

It is that of Responses items, which the store holds in any case; what these cannot say is lost (`responses/items.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..model import Message
from .responses.items import read_items, write_items


def write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as JSON objects."""
    return write_items(messages)


def read_messages(kept: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages that `write_messages` wrote."""
    return read_items(kept)
