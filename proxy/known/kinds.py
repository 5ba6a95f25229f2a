"""The types of parts in a conversation. Later code need not search all messages for a type that does not occur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..model import Message, PlainMessages, Text, ToolResult, ToolUse, are_plain
from .past import Past, fold

_PLAIN: Final[frozenset[type]] = frozenset({Text})
_HISTORY: Final = (ToolUse, ToolResult)


def kinds_of(messages: Sequence[Message], past: Past | None) -> frozenset[type]:
    """Returns the types of all parts, including those inside tool results. Contains `Message` if the messages are not
    plain (see `are_plain`)."""
    if type(messages) is PlainMessages:
        return _PLAIN
    return fold(past, "kinds", messages, frozenset[type](), _more)[1]


def _more(before: frozenset[type], messages: Sequence[Message], start: int, made: list[None]) -> frozenset[type]:
    kinds: set[type] = set()
    for message in messages:
        for part in message.parts:
            kinds.add(type(part))
            if isinstance(part, ToolResult):
                kinds.update(map(type, part.parts))
    if not are_plain(messages):
        kinds.add(Message)
    return before | kinds


def plain_in(messages: Sequence[Message], past: Past | None) -> bool:
    """Returns the result of `are_plain`, reusing that of the earlier messages."""
    return are_plain(messages) if past is None else Message not in kinds_of(messages, past)


def history_in(messages: Sequence[Message], past: Past | None) -> bool:
    """Returns True if a message contains a tool call or a tool result."""
    if past is not None:
        return not kinds_of(messages, past).isdisjoint(_HISTORY)
    if type(messages) is PlainMessages:
        return False
    for message in messages:
        for part in message.parts:
            if type(part) in _HISTORY:
                return True
    return False
