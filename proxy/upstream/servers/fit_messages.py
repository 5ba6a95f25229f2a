"""Adapts messages to one backend: their parts, roles and turns.

Rules: see `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter, is_
from typing import Final

from ...folding import add_part
from ...formats.engine.results import mark_failed
from ...known.past import Past, map_items
from ...model import (
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    fields_of,
    merged,
    replace,
)
from ...protocols.base import ServerSide
from ...protocols.shared.call_ids import in_nine_signs
from ...protocols.shared.wire import dump
from ...support.legible import without_files
from .base import Capabilities

CONTINUE: Final = "Continue."
"""Text of the user message that is added where the backend's template needs one (R5.8a)."""


SEEN: Final = "OK."
"""Text of the assistant message that is added between a result and a user message where the server demands one."""


_BREAK: Final = "\n\n"

_SYSTEM_ROLES: Final = ("system", "developer")
_ROLE: Final = attrgetter("role")


def fit_parts(messages: tuple[Message, ...], wire: ServerSide | None, past: Past | None) -> tuple[Message, ...]:
    """Returns the messages with parts that the backend takes.

    Adjacent texts of a message or a result are joined, since many servers take only a plain string (R5.9). Parts that
    the protocol `wire` cannot express are dropped (R8.2), and so are messages that become empty. In a result such parts
    become their JSON as text, without embedded files. If the protocol has no field for a failed result, its text says
    so.
    """
    return map_items(past, ("parts", wire), messages, lambda message: _fit_parts(message, wire))


def _fit_parts(message: Message, wire: ServerSide | None) -> Message | None:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            part = _fit_result(part, wire)
        elif isinstance(part, Refusal) and wire is not None and not wire.shows_refusals:
            part = Text(part.text)
        if _is_expressible(part, wire):
            add_part(parts, part)
    if message.parts and (message.role == "assistant" or not parts) and _is_only_reasoning(parts):
        return None
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else replace(message, parts=tuple(parts))


def _is_only_reasoning(parts: Iterable[Part]) -> bool:
    """True if there is no part but reasoning. No server takes such an assistant message (R28.3)."""
    return all(isinstance(part, Reasoning) for part in parts)


def fit_reasoning(messages: tuple[Message, ...], wire: ServerSide | None) -> tuple[Message, ...]:
    """Returns the messages without the plain text of reasoning, for a server that refuses it. Reasoning with fields of
    the server's own protocol (signed or encrypted) stays."""

    def takes(part: Part) -> bool:
        if not isinstance(part, Reasoning):
            return True
        return wire is not None and not wire.opaque_fields.isdisjoint(fields_of(part.extra, wire.name))

    return tuple(
        message if all(map(takes, message.parts)) else replace(message, parts=tuple(filter(takes, message.parts)))
        for message in messages
    )


def _fit_result(result: ToolResult, wire: ServerSide | None) -> ToolResult:
    if result.is_error and not (wire is not None and wire.marks_failed_results):
        result = _marked_as_failed(result)
    parts: list[Part] = []
    for part in result.parts:
        foreign = isinstance(part, OpaquePart) and (wire is None or part.protocol != wire.name)
        add_part(
            parts,
            Text(dump(without_files(part.payload)).decode()) if foreign and isinstance(part, OpaquePart) else part,
        )
    same = len(parts) == len(result.parts) and all(map(is_, parts, result.parts))
    return result if same else replace(result, parts=tuple(parts))


def _marked_as_failed(result: ToolResult) -> ToolResult:
    """Returns a failed result whose first text says that it failed (R28.6)."""
    first = result.parts[0] if result.parts else None
    text, others = (first.text, result.parts[1:]) if isinstance(first, Text) else ("", result.parts)
    return replace(result, parts=(Text(mark_failed(text)), *others), is_error=False)


def merged_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Returns the parts with adjacent texts joined, unless one of them has extra fields. Empty texts without extra
    fields are dropped."""
    out: list[Part] = []
    for part in parts:
        if type(part) is not Text or part.text or part.extra:
            add_part(out, part)
    return tuple(out)


def _is_expressible(part: Part, wire: ServerSide | None) -> bool:
    if isinstance(part, OpaquePart):
        return wire is not None and part.protocol == wire.name
    if not isinstance(part, Reasoning) or part.text:
        return True
    return wire is not None and (wire.bare_reasoning or bool(fields_of(part.extra, wire.name)))


def fit_roles(messages: tuple[Message, ...], takes: Capabilities, *, late_system: bool) -> tuple[Message, ...]:
    """Returns the messages with roles that the server takes.

    `developer` becomes `system` (C13). Without a system role such a message is put before the next user message, or
    after the last one if an assistant message or nothing follows (R5.1). The same happens to a system message after
    other messages if the server refuses it there; `late_system` is used where that is not known.
    """
    roles = list(map(_ROLE, messages))
    if not takes.developer_role and "developer" in roles:
        messages = tuple(replace(m, role="system") if m.role == "developer" else m for m in messages)
    if takes.system_role and (late_system if takes.late_system is None else takes.late_system):
        return messages
    head = 0
    if takes.system_role:
        head = next((at for at, role in enumerate(roles) if role not in _SYSTEM_ROLES), len(roles))
    if "system" not in roles[head:] and "developer" not in roles[head:]:
        return messages
    out: list[Message] = list(messages[:head])
    pending: list[Message] = []
    for message in messages[head:]:
        if message.role in _SYSTEM_ROLES:
            pending.append(message)
            continue
        if message.role == "user" and pending:
            message = replace(message, parts=joined([*(m.parts for m in pending), message.parts]))
            pending = []
        elif message.role == "assistant":
            _flush(pending, out)
        out.append(message)
    _flush(pending, out)
    return tuple(out)


def _flush(pending: list[Message], out: list[Message]) -> None:
    """Appends pending system messages that no user message follows: to the user message before them, or as a new
    one."""
    if not pending:
        return
    parts = joined([message.parts for message in pending])
    pending.clear()
    if out and out[-1].role == "user":
        out[-1] = replace(out[-1], parts=joined([out[-1].parts, parts]))
    else:
        out.append(Message("user", parts))


def fit_turns(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    """Returns messages with at least one user message and a user or tool message at the end (R5.8a), unless the backend
    continues a final assistant message. System messages behind these stay if the server is known to take them there,
    and become the user's otherwise."""
    if messages and messages[-1].role == "user":
        return messages  # nearly always
    spoken = next((at for at in range(len(messages), 0, -1) if messages[at - 1].role not in _SYSTEM_ROLES), 0)
    late = 0 < spoken < len(messages) and messages[spoken - 1].role != "assistant"
    if late and not takes.late_system:
        out = list(messages[:spoken])
        _flush(list(messages[spoken:]), out)
        messages = tuple(out)
    if not any(m.role == "user" for m in messages):
        head = next((i for i, m in enumerate(messages) if m.role not in _SYSTEM_ROLES), len(messages))
        messages = (*messages[:head], Message("user", (Text(CONTINUE),)), *messages[head:])
    last = messages[-1].role if messages else None
    if late or last in ("user", "tool") or (last == "assistant" and takes.continuation):
        return messages
    return (*messages, Message("user", (Text(CONTINUE),)))


def separate_results(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns the messages with an assistant message between each result and a user message right after it."""
    between = Message("assistant", (Text(SEEN),))
    out: list[Message] = []
    for message in messages:
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        if results and len(results) < len(message.parts):
            out.append(Message("tool", results))
            message = replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ToolResult)))
        if message.role == "user" and out and out[-1].role == "tool":
            out.append(between)
        out.append(message)
    return tuple(out)


def fit_call_ids(messages: tuple[Message, ...], past: Past | None) -> tuple[Message, ...]:
    """Returns the messages with ids of calls as Mistral takes them."""

    def fit(message: Message) -> Message:
        parts = tuple(
            replace(part, call_id=in_nine_signs(part.call_id)) if isinstance(part, ToolUse | ToolResult) else part
            for part in message.parts
        )
        return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)

    return map_items(past, "short ids", messages, fit)


def merge_neighbours(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Joins adjacent messages of one role (R5.10). Tool messages stay separate, because each answers one call."""
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        if last is None or last.role != message.role or message.role == "tool":
            out.append(message)
            continue
        name = last.name if last.name == message.name else None
        out[-1] = replace(
            last, parts=joined([last.parts, message.parts]), name=name, extra=merged(last.extra, message.extra)
        )
    return tuple(out)


def joined(several: Iterable[Sequence[Part]]) -> tuple[Part, ...]:
    """Returns several groups of parts as one; a blank line separates their texts."""
    out: list[Part] = []
    for parts in several:
        if out and parts and isinstance(last := out[-1], Text) and isinstance(first := parts[0], Text):
            between = _BREAK if last.text and first.text else ""
            out[-1] = Text(last.text + between + first.text, merged(last.extra, first.extra))
            out += parts[1:]
        else:
            out += parts
    return tuple(out)
