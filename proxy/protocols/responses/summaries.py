"""Summaries of conversations in items of type `compaction`: the request to the model, sealing for the client, opening
for the model."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from ...errors import BackendFault
from ...model import Message, Text
from ..shared.wire import dump, load
from .item_types import types_in

KINDS: Final = ("compaction", "compaction_summary")
"""Types of items with a summary; some clients use the second one."""
TRIGGER: Final = "compaction_trigger"
"""Type of the item at the end of an input that requests a summary instead of an answer (R28.1)."""
REQUEST: Final = (
    "Summarise this conversation, so that somebody who has not seen it can go on with it from your summary alone. Say what the user wants, with every"
    " condition that was named; what was done and decided, and why; what failed; what is left to do, and what comes next. Keep names, paths, values, code and"
    " results of tools that are still needed exactly as they are. Write the summary and nothing else: do not answer the user, do not call tools, do not go on with"
    " the work."
)
_MARK: Final = "toolwire1."
"""Prefix of the gateway's own items."""
_INTRODUCTION: Final = "What came before was left out. This is a summary of it:\n\n"


def asks_summary(body: Mapping[str, Any]) -> bool:
    """Returns True if the input of a request holds a `compaction_trigger`."""
    return TRIGGER in types_in(body.get("input"))


def sealed(summary: str) -> str:
    """Returns the summary as `encrypted_content`."""
    return _MARK + base64.urlsafe_b64encode(dump({"summary": summary})).decode()


def summary_item(summary: str) -> dict[str, Any]:
    """Returns the item for the model's answer to `REQUEST`. Raises `BackendFault` if the answer is empty."""
    if not summary.strip():
        raise BackendFault("The model returned no summary of the conversation.", code="upstream_invalid_response")
    return {"id": f"cmp_{uuid4().hex}", "type": "compaction", "encrypted_content": sealed(summary.strip())}


def opened(content: object) -> str | None:
    """Returns the summary in `encrypted_content`; None if another service made the content."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        held = load(base64.urlsafe_b64decode(content.removeprefix(_MARK)))
    except ValueError:
        return None
    summary = held.get("summary") if isinstance(held, dict) else None
    return summary if isinstance(summary, str) else None


def read_summary(item: Mapping[str, Any]) -> Message | None:
    """Returns the user message with an item's summary; None if another service made the item."""
    summary = opened(item.get("encrypted_content"))
    return None if summary is None else Message("user", (Text(_INTRODUCTION + summary),))


def is_summary(message: Message) -> bool:
    """True if a message was read from a `compaction` item of the gateway."""
    return message.text.startswith(_INTRODUCTION)
