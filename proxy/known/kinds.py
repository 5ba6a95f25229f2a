"""The types of message parts in a conversation, so that later code need not search all messages for a type that does
not occur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..model import Message, Text, ToolResult, ToolUse
from .past import Past, fold_items

HISTORY: Final[frozenset[type]] = frozenset({ToolUse, ToolResult})
"""The types of earlier tool calls and their results."""

_PLAIN: Final[frozenset[type]] = frozenset({Text})


def kinds_of(messages: Sequence[Message], past: Past | None = None) -> frozenset[type]:
    """Returns the types of all parts, including those inside tool results. Contains `Message` unless the messages are
    plain: each of them has at most one part, which is a text without further fields. With `past` the result of the
    earlier messages is reused."""
    if past is not None:
        return fold_items(past, "kinds", messages, _PLAIN, _more)[1]
    for message in messages:
        parts = message.parts
        if parts and (len(parts) > 1 or type(part := parts[0]) is not Text or part.extra):
            break
    else:
        return _PLAIN
    kinds: set[type] = {Message}
    for message in messages:
        for part in message.parts:
            kinds.add(type(part))
            if isinstance(part, ToolResult):
                kinds.update(map(type, part.parts))
    return frozenset(kinds)


def _more(before: frozenset[type], messages: Sequence[Message], start: int, made: list[None]) -> frozenset[type]:
    return before | kinds_of(messages)
