"""The types of message parts in a conversation, so that later code need not search all messages for a type that does
not occur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..model import Message, Text, ToolResult, ToolUse
from .past import Past, fold_items

_HISTORY: Final = (ToolUse, ToolResult)


def kinds_of(messages: Sequence[Message], past: Past | None) -> frozenset[type]:
    """Returns the types of all parts, including those inside tool results. Contains `Message` if the messages are not
    plain (see `plain_in`)."""
    return fold_items(past, "kinds", messages, frozenset[type](), _more)[1]


def _more(before: frozenset[type], messages: Sequence[Message], start: int, made: list[None]) -> frozenset[type]:
    kinds: set[type] = set()
    for message in messages:
        for part in message.parts:
            kinds.add(type(part))
            if isinstance(part, ToolResult):
                kinds.update(map(type, part.parts))
    if not plain_in(messages):
        kinds.add(Message)
    return before | kinds


def plain_in(messages: Sequence[Message], past: Past | None = None) -> bool:
    """Returns True if each message holds at most one part, which is a text without further fields. With `past` the
    result of the earlier messages is reused."""
    if past is not None:
        return Message not in kinds_of(messages, past)
    for message in messages:
        parts = message.parts
        if parts and (len(parts) > 1 or type(part := parts[0]) is not Text or part.extra):
            return False
    return True


def history_in(messages: Sequence[Message], past: Past | None) -> bool:
    """Returns True if a message contains a tool call or a tool result."""
    if past is not None:
        return not kinds_of(messages, past).isdisjoint(_HISTORY)
    for message in messages:
        for part in message.parts:
            if type(part) in _HISTORY:
                return True
    return False
