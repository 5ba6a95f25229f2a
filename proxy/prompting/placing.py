"""Puts the gateway's own texts into a conversation: the prompt segment that describes the tools, the reminder of how to
call them, and a final user message. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from ..known.past import Past, make_once
from ..model import Message, OpaquePart, Part, Reasoning, Role, Text, ToolResult, replace

Placement = Literal["append", "prepend", "separate", "user"]

GO_ON: Final = "Continue."
"""Text of the user message that is added if a transcript would not end with one (R5.8a)."""

SYSTEM: Final = frozenset({"system", "developer"})
"""Roles of messages with instructions, which the client's application writes."""


def is_silent(message: Message, wire: str | None) -> bool:
    """Returns True if a message contains nothing that can be shown as text to a model behind a backend of the protocol
    `wire` (`toolwire.upstream.servers.fit_messages.fit_parts`)."""
    for part in message.parts:
        foreign = isinstance(part, OpaquePart) and part.protocol != wire
        if not (foreign or (isinstance(part, Reasoning) and not part.text)):
            return False
    return bool(message.parts)


def first_visible(messages: Iterable[Message], wire: str | None) -> Message | None:
    """Returns the first message that is not silent, or None."""
    return next((message for message in messages if not is_silent(message, wire)), None)


def user_speaks_last(messages: Sequence[Message], wire: str | None) -> bool:
    """Returns True if the last message with content is the user's and not only tool results."""
    last = first_visible(reversed(messages), wire)
    return last is not None and last.role == "user" and not all(isinstance(part, ToolResult) for part in last.parts)


def reminded(messages: Sequence[Message], reminder: str, wire: str | None) -> list[Message]:
    """Returns the messages with the text `reminder` added to the end of the last message that is not silent."""
    out = list(messages)
    at = next(index for index in reversed(range(len(out))) if not is_silent(out[index], wire))
    out[at] = replace(out[at], parts=_joined(out[at].parts, reminder, at_end=True))
    return out


def place_segment(
    messages: Sequence[Message],
    received: Sequence[Message],
    segment: str,
    placement: Placement,
    reminder: str,
    wire: str | None,
    past: Past | None = None,
) -> Sequence[Message]:
    """Returns the messages of a prompt with `segment` and `reminder` in their places (if not empty), ending with a user
    message (R5.8a), which only system messages may follow: the adaptation to the server places those. `received` are
    the messages of the client. `wire` is the name of the server's protocol."""
    if segment:
        messages = placed(messages, segment, placement, past)
    if reminder and user_speaks_last(received, wire):
        messages = reminded(messages, reminder, wire)
    last = first_visible((message for message in reversed(messages) if message.role not in SYSTEM), wire)
    if last is None or last.role not in ("user", "tool"):
        messages = [*messages, Message("user", (Text(GO_ON),))]
    return messages


def placed(messages: Sequence[Message], segment: str, placement: Placement, past: Past | None = None) -> list[Message]:
    """Returns the messages with the segment in its place (R5.1).

    `append`, `prepend`: at the end or start of the first system message, if it precedes all user messages. `separate`:
    as a system message after those at the beginning. `user`: at the start of the first user message. If there is no
    such message, a new one is added.
    """
    out = list(messages)
    found = None
    for at, message in enumerate(out):
        if message.role == "user":
            found = at if placement == "user" else None
            break
        if message.role in SYSTEM and placement in ("append", "prepend"):
            found = at
            break
    key = "placed", segment, placement
    if found is None:
        role: Role = "user" if placement == "user" else "system"
        new = make_once(past, key, (), lambda: Message(role, (Text(segment),)))
        out.insert(_after_systems(out) if placement in ("separate", "user") else 0, new)
    else:
        old, at_end = out[found], placement == "append"
        out[found] = make_once(
            past,
            key,
            (old,),
            lambda: Message(old.role, _joined(old.parts, segment, at_end=at_end), old.name, old.extra),
        )
    return out


def _after_systems(messages: Sequence[Message]) -> int:
    """Returns the position after the system messages at the beginning."""
    for at, message in enumerate(messages):
        if message.role not in SYSTEM:
            return at
    return len(messages)


def _joined(parts: tuple[Part, ...], segment: str, *, at_end: bool) -> tuple[Part, ...]:
    """Returns the parts with the segment merged into the neighbouring text, because many backends accept only a plain
    string."""
    edge = parts[-1 if at_end else 0] if parts else None
    if not isinstance(edge, Text):
        return (*parts, Text(segment)) if at_end else (Text(segment), *parts)
    first, second = (edge.text, segment) if at_end else (segment, edge.text)
    joined = Text(f"{first}\n\n{second}" if first and second else first or second)
    return (*parts[:-1], joined) if at_end else (joined, *parts[1:])
