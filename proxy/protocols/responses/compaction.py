"""Compaction of a conversation (R8.15) for clients that request it at `PATH`. `summaries.py` has the request to the
model and the form of its summary.

Rules:

1. An item of type `compaction` contains its summary, so any gateway can read it at any time and none has to store
   anything. It is opaque to the client but not secret from it, and not trusted: the model gets it as a user message.
2. The user's own messages are kept word for word next to the summary, the latest first, up to `KEPT_BYTES`.
3. An item from another service is left unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model import Message, ModelReply, Text, Usage
from ..shared.wire import dump
from .ids import new_response_id
from .item_writer import write_items
from .items import own_items, whole_items
from .resource import write_usage
from .stored_items import listed_item
from .summaries import REQUEST, is_summary, summary_item

PATH: Final = "/responses/compact"
KEPT_BYTES: Final = 64 * 1024
"""Maximum size of the user's messages that are kept, as JSON."""
_TAKEN: Final = (
    *("model", "previous_response_id", "instructions", "reasoning", "prompt_cache_key", "service_tier"),
    "conversation",
)


def asking(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a request for a summary, from the valid body of a compaction request."""
    items = [*whole_items(own_items(body)), {"type": "message", "role": "user", "content": REQUEST}]
    taken = {name: body[name] for name in _TAKEN if body.get(name) is not None}
    return {**taken, "input": items, "tool_choice": "none", "store": False}


def write_compacted(reply: ModelReply, messages: Iterable[Message]) -> bytes:
    """Returns the body of the answer: the items in place of these messages, of which the last one asked for the
    summary. Raises `BackendFault` if the summary is empty."""
    parts = reply.choices[0].parts if reply.choices else ()
    item = summary_item("".join(part.text for part in parts if isinstance(part, Text)))
    ident = new_response_id()
    own = [listed_item(item, ident, place) for place, item in enumerate(_user_items(tuple(messages)[:-1]))]
    return dump(
        {
            "id": ident,
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [*own, item],
            "usage": write_usage(reply.usage or Usage()),
        }
    )


def _user_items(messages: tuple[Message, ...]) -> list[Mapping[str, Any]]:
    """Returns the latest user messages as items, up to `KEPT_BYTES`."""
    left = KEPT_BYTES
    latest: list[Mapping[str, Any]] = []
    for message in reversed(messages):
        if message.role != "user" or is_summary(message):
            continue
        items = write_items([message])
        left -= len(dump(items))
        if left < 0:
            break
        latest[:0] = items
    return latest
