"""Messages made fit for one backend: parts, roles and turns that its template or its API takes.

Rules: those of `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Final

from toolwire.formats.engine.results import mark_failed
from toolwire.known.past import Past, each
from toolwire.model import Message, Opaque, Part, Reasoning, Text, ToolResult, fields_of, merged, replace
from toolwire.protocols.base import ServerSide
from toolwire.protocols.shared.wire import dump
from toolwire.support.legible import legible
from toolwire.upstream.servers.base import Capabilities

CONTINUE: Final = "Continue."
"""What the user says when a transcript has no user turn where the backend's template needs one (R5.8a)."""


_BREAK: Final = "\n\n"

_INSTRUCTS: Final = ("system", "developer")


def fit_parts(messages: tuple[Message, ...], wire: ServerSide | None, past: Past | None = None) -> tuple[Message, ...]:
    """Neighbouring texts of a message, or of a result, as one, since many servers take only a plain string (R5.9).
    Parts that the protocol `wire` has no form for are left out (R8.2), and a message that holds nothing else; in a
    result they are text: their JSON, without what is no text (a PDF, say). A failed result says so in its text where
    the protocol has no field for it."""
    return each(past, ("parts", wire), messages, lambda message: _fit_parts(message, wire))


def _fit_parts(message: Message, wire: ServerSide | None) -> Message | None:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            part = _fit_result(part, wire)
        if _can_be_said(part, wire):
            _add(parts, part)
    if message.parts and (message.role == "assistant" or not parts) and _is_only_reasoning(parts):
        return None
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else replace(message, parts=tuple(parts))


def _is_only_reasoning(parts: Iterable[Part]) -> bool:
    """Whether nothing was said or called: no server takes such a turn of the assistant (R28.3)."""
    return all(isinstance(part, Reasoning) for part in parts)


def fit_reasoning(messages: tuple[Message, ...], wire: ServerSide | None) -> tuple[Message, ...]:
    """The messages for a server that refuses the text of reasoning: what it has signed or encrypted stays."""

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
        result = _said_as_failed(result)
    parts: list[Part] = []
    for part in result.parts:
        foreign = isinstance(part, Opaque) and (wire is None or part.protocol != wire.name)
        _add(parts, Text(dump(legible(part.payload)).decode()) if foreign and isinstance(part, Opaque) else part)
    same = len(parts) == len(result.parts) and all(map(is_, parts, result.parts))
    return result if same else replace(result, parts=tuple(parts))


def _said_as_failed(result: ToolResult) -> ToolResult:
    """A failed result whose first text says so (R28.6)."""
    first = result.parts[0] if result.parts else None
    said, others = (first.text, result.parts[1:]) if isinstance(first, Text) else ("", result.parts)
    return replace(result, parts=(Text(mark_failed(said)), *others), is_error=False)


def merged_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts, neighbouring texts as one if there is nothing more to say of them. Texts of nothing are left out."""
    out: list[Part] = []
    for part in parts:
        if type(part) is not Text or part.text or part.extra:
            _add(out, part)
    return tuple(out)


def _add(parts: list[Part], part: Part) -> None:
    """Put a part behind others; a text into the text before it."""
    last = parts[-1] if parts else None
    if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
        parts[-1] = Text(last.text + part.text)
    else:
        parts.append(part)


def _can_be_said(part: Part, wire: ServerSide | None) -> bool:
    if isinstance(part, Opaque):
        return wire is not None and part.protocol == wire.name
    if not isinstance(part, Reasoning) or part.text:
        return True
    return wire is not None and (wire.bare_reasoning or bool(fields_of(part.extra, wire.name)))


def fit_roles(messages: tuple[Message, ...], takes: Capabilities, *, late_system: bool = True) -> tuple[Message, ...]:
    """`developer` becomes `system` (C13). Without a system role such a message goes to the head of the next user
    message, or behind the last one when an answer follows or nothing (R5.1); and so does one behind other messages
    where the server refuses it there. `late_system`: whether it takes it, where nobody knows."""
    roles = [message.role for message in messages]
    if not takes.developer_role and "developer" in roles:
        messages = tuple(replace(m, role="system") if m.role == "developer" else m for m in messages)
    if takes.system_role and (late_system if takes.late_system is None else takes.late_system):
        return messages
    head = 0
    if takes.system_role:
        head = next((at for at, role in enumerate(roles) if role not in _INSTRUCTS), len(roles))
    if "system" not in roles[head:] and "developer" not in roles[head:]:
        return messages
    out: list[Message] = list(messages[:head])
    held: list[Message] = []
    for message in messages[head:]:
        if message.role in _INSTRUCTS:
            held.append(message)
            continue
        if message.role == "user" and held:
            message = replace(message, parts=_joined([*(m.parts for m in held), message.parts]))
            held = []
        elif message.role == "assistant":
            _let_go(held, out)
        out.append(message)
    _let_go(held, out)
    return tuple(out)


def _let_go(held: list[Message], out: list[Message]) -> None:
    """Put what no user message follows behind the one before, or in one of its own."""
    if not held:
        return
    parts = _joined([message.parts for message in held])
    held.clear()
    if out and out[-1].role == "user":
        out[-1] = replace(out[-1], parts=_joined([out[-1].parts, parts]))
    else:
        out.append(Message("user", parts))


def fit_turns(messages: tuple[Message, ...], takes: Capabilities) -> tuple[Message, ...]:
    """At least one user message, and a user or tool message at the end (R5.8a), unless the backend continues a last
    assistant message."""
    if messages and messages[-1].role == "user":
        return messages  # nearly always
    if not any(m.role == "user" for m in messages):
        head = next((i for i, m in enumerate(messages) if m.role not in _INSTRUCTS), len(messages))
        messages = (*messages[:head], Message("user", (Text(CONTINUE),)), *messages[head:])
    if messages[-1].role in ("user", "tool") or (messages[-1].role == "assistant" and takes.continuation):
        return messages
    return (*messages, Message("user", (Text(CONTINUE),)))


def merge_neighbours(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Neighbouring messages of one role joined (R5.10). Tool messages stay apart: each answers one call."""
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        if last is None or last.role != message.role or message.role == "tool":
            out.append(message)
            continue
        name = last.name if last.name == message.name else None
        out[-1] = replace(
            last, parts=_joined([last.parts, message.parts]), name=name, extra=merged(last.extra, message.extra)
        )
    return tuple(out)


def _joined(several: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Parts of several messages in one, texts with a blank line between."""
    out: list[Part] = []
    for parts in several:
        if out and parts and isinstance(out[-1], Text) and isinstance(parts[0], Text):
            out[-1] = Text(out[-1].text + _BREAK + parts[0].text, merged(out[-1].extra, parts[0].extra))
            out += parts[1:]
        else:
            out += parts
    return tuple(out)
