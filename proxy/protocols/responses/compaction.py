"""A conversation made short (R8.15), for a client that asks at `PATH`: what takes its place. How the model is asked and
what becomes of its summary stands in `summaries.py`.

Rules:

1. An item of type `compaction` holds its summary itself, so any gateway can read it at any time and none keeps anything
   for it. To the client it is opaque. It is no secret from whom it was made for, and nothing is believed because of it:
   to the model it is what its user says.
2. What the user said stays word for word beside the summary, the latest first, up to `KEPT_BYTES`.
3. An item that somebody else made is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolwire.model import Message, ModelReply, Text, Usage
from toolwire.protocols.responses.ids import new_response_id
from toolwire.protocols.responses.items import own_items, whole_items, write_items
from toolwire.protocols.responses.kept_items import listed
from toolwire.protocols.responses.resource import write_usage
from toolwire.protocols.responses.summaries import REQUEST, is_summary, summary_item
from toolwire.protocols.shared.wire import dump

PATH: Final = "/responses/compact"
KEPT_BYTES: Final = 64 * 1024
"""So much of what the user said stays as it was, as JSON."""
_TAKEN: Final = (
    "model",
    "previous_response_id",
    "instructions",
    "reasoning",
    "prompt_cache_key",
    "service_tier",
    "conversation",
)


def asking(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request for the summary of what a client wants to have made short, whose shape is right."""
    items = [*whole_items(own_items(body)), {"type": "message", "role": "user", "content": REQUEST}]
    taken = {name: body[name] for name in _TAKEN if body.get(name) is not None}
    return {**taken, "input": items, "tool_choice": "none", "store": False}


def write_compacted(reply: ModelReply, messages: Iterable[Message]) -> bytes:
    """The body of the answer: what takes the place of these messages, the last of which asked for the summary. Raises
    `BackendFault` if there is none."""
    parts = reply.choices[0].parts if reply.choices else ()
    item = summary_item("".join(part.text for part in parts if isinstance(part, Text)))
    ident = new_response_id()
    said = [listed(item, ident, place) for place, item in enumerate(_said(tuple(messages)[:-1]))]
    return dump(
        {
            "id": ident,
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [*said, item],
            "usage": write_usage(reply.usage or Usage()),
        }
    )


def _said(messages: tuple[Message, ...]) -> list[Mapping[str, Any]]:
    """What the user said last, as items."""
    left = KEPT_BYTES
    kept: list[Mapping[str, Any]] = []
    for message in reversed(messages):
        if message.role != "user" or is_summary(message):
            continue
        items = write_items([message])
        left -= len(dump(items))
        if left < 0:
            break
        kept[:0] = items
    return kept
