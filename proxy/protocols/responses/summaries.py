"""Summaries of conversations in items of type `compaction`: sealed for the client, opened for the model."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from ...model import Message, Text
from ..wire import dump, load

KINDS: Final = ("compaction", "compaction_summary")
"""The types of such items; the second is what some clients call them."""
_MARK: Final = "toolwire1."
"""Items of other makers have other content."""
_INTRODUCTION: Final = "What came before was left out. This is a summary of it:\n\n"


def sealed(summary: str) -> str:
    """The summary as `encrypted_content`."""
    return _MARK + base64.urlsafe_b64encode(dump({"summary": summary})).decode()


def opened(content: object) -> str | None:
    """The summary in `encrypted_content`; None if it was not made here."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        held = load(base64.urlsafe_b64decode(content.removeprefix(_MARK)))
    except ValueError:
        return None
    summary = held.get("summary") if isinstance(held, dict) else None
    return summary if isinstance(summary, str) else None


def read_summary(item: Mapping[str, Any]) -> Message | None:
    """What an item of these types says to the model; None if it was not made here."""
    summary = opened(item.get("encrypted_content"))
    return None if summary is None else Message("user", (Text(_INTRODUCTION + summary),))


def is_summary(message: Message) -> bool:
    """Whether a message was read from such an item."""
    return message.text.startswith(_INTRODUCTION)
