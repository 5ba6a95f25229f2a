"""The kinds of parts that occur in a conversation, so that a stage need not search all messages for one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..model import Message, PlainMessages, Text, ToolResult, ToolUse, are_plain
from .past import Past, fold

_PLAIN: Final[frozenset[type]] = frozenset({Text})
_HISTORY: Final = (ToolUse, ToolResult)


def kinds_of(messages: Sequence[Message], past: Past | None) -> frozenset[type]:
    """The types of all parts, also of those in results; and `Message` if one of the messages is not plain
    (`are_plain`)."""
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
    """As `are_plain`, of messages that come again."""
    return are_plain(messages) if past is None else Message not in kinds_of(messages, past)


def history_in(messages: Sequence[Message], past: Past | None) -> bool:
    """Whether one of the messages holds a call, or the result of one."""
    if past is not None:
        return not kinds_of(messages, past).isdisjoint(_HISTORY)
    if type(messages) is PlainMessages:
        return False
    for message in messages:
        for part in message.parts:
            if type(part) in _HISTORY:
                return True
    return False
