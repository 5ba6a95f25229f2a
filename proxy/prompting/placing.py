"""Where the gateway's own words stand in a conversation: the segment that teaches tools, the reminder, and the user's
word at the end. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ..known.past import Past, once
from ..model import Message, OpaquePart, Part, Reasoning, Role, Text, ToolResult, replace

Placement = Literal["append", "prepend", "separate", "user"]

GO_ON: Final = "Continue."
"""Said by the user where a transcript would not end with a user message (R5.8a)."""


SYSTEM: Final = frozenset({"system", "developer"})
"""Roles in which nobody but the application speaks."""


def is_silent(message: Message, wire: str | None) -> bool:
    """Whether nothing that a message holds can be said to a model that only reads text, behind a backend of the
    protocol `wire` (`toolwire.upstream.servers.fit_messages.fit_parts`)."""
    for part in message.parts:
        foreign = isinstance(part, OpaquePart) and part.protocol != wire
        if not (foreign or (isinstance(part, Reasoning) and not part.text)):
            return False
    return bool(message.parts)


def last_said(messages: Sequence[Message], wire: str | None) -> Message | None:
    """The last message that is not silent."""
    for message in reversed(messages):
        if not is_silent(message, wire):
            return message
    return None


def user_speaks_last(messages: Sequence[Message], wire: str | None) -> bool:
    """Whether the last message that says anything is the user's, and more than a tool's result."""
    last = last_said(messages, wire)
    return last is not None and last.role == "user" and not all(isinstance(part, ToolResult) for part in last.parts)


def reminded(messages: Sequence[Message], reminder: str, wire: str | None) -> list[Message]:
    """The messages with a line at the end of the last one that says anything."""
    out = list(messages)
    at = next(index for index in reversed(range(len(out))) if not is_silent(out[index], wire))
    out[at] = replace(out[at], parts=_joined(out[at].parts, reminder, at_end=True))
    return out


def completed(
    messages: Sequence[Message],
    said: Sequence[Message],
    segment: str,
    placement: Placement,
    reminder: str,
    wire: str | None,
    past: Past | None = None,
) -> Sequence[Message]:
    """The messages of a prompt with `segment` and `reminder` in their places, as far as there are some, and at the end
    one of the user if nobody else speaks last (R5.8a). `said` are the messages of the client, `wire` is the name of the
    server's protocol."""
    if segment:
        messages = placed(messages, segment, placement, past)
    if reminder and user_speaks_last(said, wire):
        messages = reminded(messages, reminder, wire)
    last = last_said(messages, wire)
    if last is None or last.role not in ("user", "tool"):
        messages = [*messages, Message("user", (Text(GO_ON),))]
    return messages


def placed(messages: Sequence[Message], segment: str, placement: Placement, past: Past | None = None) -> list[Message]:
    """The messages with the segment in its place (R5.1).

    `append`, `prepend`: at the end or the head of the first system message, if it stands before what the user says;
    `separate`: a system message behind those at the beginning; `user`: at the head of the first user message. Where
    there is no such message a new one is made.
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
        new = once(past, key, (), lambda: Message(role, (Text(segment),)))
        out.insert(_behind_systems(out) if placement in ("separate", "user") else 0, new)
    else:
        old, at_end = out[found], placement == "append"
        out[found] = once(
            past,
            key,
            (old,),
            lambda: Message(old.role, _joined(old.parts, segment, at_end=at_end), old.name, old.extra),
        )
    return out


def _behind_systems(messages: Sequence[Message]) -> int:
    """The place behind the system messages at the beginning."""
    for at, message in enumerate(messages):
        if message.role not in SYSTEM:
            return at
    return len(messages)


def _joined(parts: tuple[Part, ...], segment: str, *, at_end: bool) -> tuple[Part, ...]:
    """Into the neighbouring text if there is one: many backends take only a plain string."""
    edge = parts[-1 if at_end else 0] if parts else None
    if not isinstance(edge, Text):
        return (*parts, Text(segment)) if at_end else (Text(segment), *parts)
    first, second = (edge.text, segment) if at_end else (segment, edge.text)
    joined = Text(f"{first}\n\n{second}" if first and second else first or second)
    return (*parts[:-1], joined) if at_end else (joined, *parts[1:])
