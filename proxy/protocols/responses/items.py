"""Reads items of a Responses conversation as messages, for the `input` of a request and the `output` of an answer.
`item_writer.py` is the other direction.

Rules:

1. Neighbouring items of the assistant (messages, calls, reasoning, unknown ones) become one `Message`, in their order:
   a chat backend expects text and calls of a turn in one message, and nothing between a call and its result.
2. An unmodelled item or content part becomes `OpaquePart` and is written back unchanged. In an assistant message an
   `OpaquePart` holds an item, in others a content part.
3. All fields that are read are written back (`tests/protocols/test_nothing_is_lost.py`). The `extra` of a part holds
   the fields of the object that it was read from. The first part of an assistant message has the fields of its item
   under `item`, even empty ones if another message stands before it: this marks where the next message begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ...known.past import KnownItems, Past, fold_items
from ...model import (
    EMPTY,
    CallKind,
    Extra,
    Image,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    merged,
    scoped,
)
from ..shared.client_tools import ITEM_TYPE
from ..shared.wire import dump, rest_of, typed_parts
from .client_tools import KEPT_FIELDS, read_client_call, read_output
from .summaries import KINDS as SUMMARIES
from .summaries import REQUEST, TRIGGER, read_summary
from .tools_in_input import ADDITIONAL

PROTOCOL: Final = "responses"

MESSAGE_FIELDS: Final = frozenset({"type", "role", "content", "id", "status"})
_TEXT_FIELDS: Final = frozenset({"type", "text"})
_REFUSAL_FIELDS: Final = frozenset({"type", "refusal"})
_IMAGE_FIELDS: Final = frozenset({"type", "image_url", "detail"})
_CALL_FIELDS: Final = frozenset({"type", "id", "status", "call_id", "name", "arguments", "input", "namespace"})
_RESULT_FIELDS: Final = frozenset({"type", "id", "status", "call_id", "output"})
_REASONING_FIELDS: Final = frozenset({"type", "id", "status", "summary", "content", "encrypted_content"})
_KNOWN_FIELDS: Final = frozenset(
    {"annotations", "logprobs", "prompt_cache_breakpoint", "caller", "name", "namespace", "phase"}
)
"""Unmodelled fields of items and of their parts in the published API."""
_EMPTY_LISTS: Final = frozenset({"annotations", "logprobs"})
"""Fields of a text that are left out when they are empty."""
_BARE: Final = frozenset({"input_text", "input_image", "input_file", "input_audio"})
"""Content parts that may stand in place of an item (R8.2)."""
_SUMMARY_BREAK: Final = "\n\n"
_ENCRYPTED: Final = re.compile(r"gAAAA[\w-]{64,}={0,2}")
"""Pattern of a text that OpenAI's service has encrypted (a Fernet token)."""


def read_items(items: str | Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Returns the messages of these items, which must be valid by `schemas/responses_request.json`."""
    if isinstance(items, str):
        items = list(whole_items(items))
    if not isinstance(items, KnownItems):
        reading = MessageCollector()
        for item in whole_items(items):
            reading.take(item)
        return reading.end()
    messages, end = fold_items(items.past, "responses.read", items, _Read(), _read_more)
    return tuple(messages) if end.turn is None else (*messages, Message("assistant", end.turn))


class _Read(NamedTuple):
    """The state after reading some items: the parts of an assistant turn that may continue, the calls by id, and
    whether the last item was a bare content part."""

    turn: tuple[Part, ...] | None = None
    called: Mapping[str, ToolUse] = EMPTY
    bare: bool = False


def _read_more(before: _Read, items: Sequence[Mapping[str, Any]], start: int, messages: list[Message]) -> _Read | None:
    """Reads the next items. Returns None if the first one is a bare content part that belongs to the message of the
    item before, which is already read."""
    if before.bare and items[0].get("type") in _BARE:
        return None
    reading = MessageCollector(messages, before.turn, before.called)
    for item in whole_items(items):
        reading.take(item)
    turn, called = reading.state()
    return _Read(turn, called, bool(items) and items[-1].get("type") in _BARE)


def own_items(body: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
    """Returns the `input` of a request; an empty list if it has none."""
    items: str | list[Mapping[str, Any]] | None = body.get("input")
    return [] if items is None else items


def whole_items(items: str | Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the items, each with a `type`: a string becomes a user message, and neighbouring bare parts together
    too."""
    if isinstance(items, str):
        yield {"type": "message", "role": "user", "content": items}
        return
    bare: list[Mapping[str, Any]] = []
    for item in items:
        named = item.get("type")
        kind = "message" if named is None else named
        if kind in _BARE:
            bare.append(item)
            continue
        if bare:
            yield {"type": "message", "role": "user", "content": bare}
            bare = []
        yield item if named is not None else {**item, "type": kind}
    if bare:
        yield {"type": "message", "role": "user", "content": bare}


def join_messages(messages: Sequence[Message], past: Past | None) -> tuple[Message, ...]:
    """Returns the messages of several requests and answers as if all had been read from one list of items. `past` holds
    the results of the conversation's earlier requests."""
    made, end = fold_items(past, "responses.join", messages, _Read(), _join_more)
    return tuple(made) if end.turn is None else (*made, Message("assistant", end.turn))


def _join_more(before: _Read, several: Sequence[Message], start: int, messages: list[Message]) -> _Read:
    reading = MessageCollector(messages, before.turn, before.called)
    for message in several:
        reading.take_message(message)
    return _Read(*reading.state())


class MessageCollector:
    """Collects messages from items, and holds the assistant's current turn."""

    def __init__(
        self,
        messages: list[Message] | None = None,
        turn: Sequence[Part] | None = None,
        called: Mapping[str, ToolUse] = EMPTY,
    ) -> None:
        self._messages: list[Message] = [] if messages is None else messages
        self._turn: list[Part] | None = None if turn is None else list(turn)
        self._called: dict[str, ToolUse] = dict(called)

    def take(self, item: Mapping[str, Any]) -> None:
        """Adds an item."""
        match item["type"]:
            case "message":
                self._message(item)
            case "function_call" | "custom_tool_call":
                self.call(read_call(item, item.get("id")))
            case "function_call_output" | "custom_tool_call_output":
                self._end_turn()
                self._messages.append(Message("tool", (self._result(item),)))
            case kind if kind == TRIGGER:
                self._end_turn()
                self._messages.append(Message("user", (Text(REQUEST),)))
            case kind if kind == ADDITIONAL and isinstance(item.get("tools"), list):
                self._end_turn()  # its tools are already on offer
            case "agent_message" if text := _agent_text(item):
                self._end_turn()
                self._messages.append(Message("user", (Text(text),)))
            case "reasoning":
                if parts := read_reasoning(item):
                    self._add(parts)
            case kind if kind in SUMMARIES and (summary := read_summary(item)) is not None:
                self._end_turn()
                self._messages.append(summary)
            case _ if (use := read_client_call(item, _text_or_none(item.get("id")) or None)) is not None:
                self.call(use)
            case _ if (result := read_output(item, self._call_of)) is not None:
                self._end_turn()
                self._messages.append(Message("tool", (result,)))
            case _:
                self._add([OpaquePart(PROTOCOL, item)])

    def _call_of(self, ident: str) -> ToolUse | None:
        """Returns the call with this id, or with this item id; None if there is none."""
        by_item = (use for use in self._called.values() if use.item_id == ident)
        return self._called.get(ident) or next(by_item, None)

    def take_message(self, message: Message) -> None:
        """Adds a message that was read before."""
        if message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolUse):
                    self._called[part.call_id] = part
            if message.name is None and not message.extra:
                self.add_parts(message.parts)
                return
        self._end_turn()
        if message.role == "tool":
            message = replace(message, parts=tuple([self._named(part) for part in message.parts]))
        self._messages.append(message)

    def call(self, use: ToolUse) -> None:
        """Adds a call."""
        self._called[use.call_id] = use
        self._add([use])

    def add_parts(self, parts: Iterable[Part]) -> None:
        """Adds parts that were read from one or more message items, with the mark that the first one begins an item
        (rule 3)."""
        parts = list(parts)
        if self._follows_text() and isinstance(first := parts[0] if parts else None, Text | Refusal):
            extra = merged({PROTOCOL: {"item": EMPTY}}, first.extra)
            parts[0] = replace(first, extra=extra)
        self._add(parts)

    def end(self) -> tuple[Message, ...]:
        """Returns all messages."""
        self._end_turn()
        return tuple(self._messages)

    def state(self) -> tuple[tuple[Part, ...] | None, Mapping[str, ToolUse]]:
        """Returns the parts of the current assistant turn (None if there is none) and the calls by id. A new collector
        can continue from these."""
        return None if self._turn is None else tuple(self._turn), self._called

    def _message(self, item: Mapping[str, Any]) -> None:
        role = item["role"]
        if role == "assistant":
            self._add(read_assistant_message(item, follows=self._follows_text()))
        else:
            if self._turn is not None:
                self._end_turn()
            content = tuple(read_content(item.get("content")))
            self._messages.append(Message(role, content, None, extra_of(item, MESSAGE_FIELDS)))

    def _follows_text(self) -> bool:
        """True if the previous part is text of the assistant."""
        return self._turn is not None and bool(self._turn) and isinstance(self._turn[-1], Text | Refusal)

    def _add(self, parts: list[Part]) -> None:
        if self._turn is None:
            self._turn = []
        self._turn += parts

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._messages.append(Message("assistant", tuple(self._turn)))
            self._turn = None

    def _result(self, item: Mapping[str, Any]) -> ToolResult:
        kind: CallKind = "custom" if item["type"] == "custom_tool_call_output" else "function"
        call = self._called.get(item["call_id"])
        extra = extra_of(item, _RESULT_FIELDS)
        name = call.name if call else None
        return ToolResult(item["call_id"], _output_parts(item["output"]), name, kind=kind, extra=extra)

    def _named(self, part: Part) -> Part:
        """Returns a part; a result gets the name of its call's tool."""
        if not isinstance(part, ToolResult) or part.name is not None or part.call_id not in self._called:
            return part
        return replace(part, name=self._called[part.call_id].name)


def extra_of(value: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """Returns the unmodelled fields as an `extra`."""
    if value.keys() <= known:
        return EMPTY
    return scoped(PROTOCOL, rest_of(value, known))


def read_assistant_message(item: Mapping[str, Any], *, follows: bool) -> list[Part]:
    """Returns the parts of an assistant message (rules 2 and 3). `follows`: another message of the assistant stands
    before it."""
    rest = rest_of(item, MESSAGE_FIELDS)
    parts = read_content(item.get("content"))
    if not parts and rest:
        parts = [Text("")]
    for number, part in enumerate(parts):
        fields = rest if number == 0 else EMPTY
        if isinstance(part, OpaquePart):
            parts[number] = OpaquePart(PROTOCOL, message_of(part.payload, fields))
        elif number == 0 and isinstance(part, Text | Refusal) and (fields or follows):
            parts[number] = replace(part, extra=merged(part.extra, {PROTOCOL: {"item": fields}}))
    return parts


def message_of(part: Any, fields: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """Returns an assistant message item around an unmodelled content part."""
    return {**fields, "type": "message", "role": "assistant", "content": [part]}


def read_content(content: str | Iterable[Mapping[str, Any]] | None) -> list[Part]:
    """Returns the parts of a message's content; empty text is left out."""
    if not content:
        return []
    if isinstance(content, str):
        return [Text(content)]
    parts: list[Part] = []
    for item in content:
        match item:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                extra = text_extra(item)
                if text or extra:
                    parts.append(Text(text, extra))
            case {"type": "refusal", "refusal": str(text)}:
                extra = extra_of(item, _REFUSAL_FIELDS)
                if text or extra:
                    parts.append(Refusal(text, extra))
            case {"type": "input_image", "image_url": str(url)}:
                parts.append(Image(url, item.get("detail"), extra_of(item, _IMAGE_FIELDS)))
            case {"type": "input_image" | "image_url", "image_url": {"url": str(url)} as inner}:
                detail = item.get("detail") or _text_or_none(inner.get("detail"))
                both = {**rest_of(inner, _IMAGE_FIELDS | {"url"}), **rest_of(item, _IMAGE_FIELDS)}
                parts.append(Image(url, detail, scoped(PROTOCOL, both)))
            case _:
                parts.append(OpaquePart(PROTOCOL, item))
    return parts


def text_extra(part: Mapping[str, Any]) -> Extra:
    """Returns the additional fields of a text part."""
    rest = rest_of(part, _TEXT_FIELDS)
    if rest and not _EMPTY_LISTS.isdisjoint(rest):
        rest = {key: value for key, value in rest.items() if value or key not in _EMPTY_LISTS}
    return scoped(PROTOCOL, rest)


def known_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns those of a part's additional fields that every server of this protocol knows, and `item`, the mark of a
    new message item (rule 3)."""
    names = KEPT_FIELDS if ITEM_TYPE in fields else _KNOWN_FIELDS
    known = {key: value for key, value in fields.items() if key in names}
    if "item" in fields:
        known["item"] = known_fields(fields["item"])
    return known


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def read_call(item: Mapping[str, Any], item_id: str | None = None) -> ToolUse:
    """Returns the call in a call item of a request."""
    if (use := read_client_call(item)) is not None:
        return use if item_id is None else replace(use, item_id=item_id)
    namespace, extra = item.get("namespace"), call_extra(item)
    if item["type"] == "custom_tool_call":
        return ToolUse(item["call_id"], item["name"], item["input"], "custom", namespace, item_id, extra)
    return ToolUse(item["call_id"], item["name"], item["arguments"], "function", namespace, item_id, extra)


def _agent_text(item: Mapping[str, Any]) -> str:
    """Returns the text of a message from another agent, which the model gets as a user message; empty if it is
    encrypted. The text includes a task that was an argument of a call; OpenAI encrypts it, this gateway does not."""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or ()
    texts = [part.get("text") or part.get("encrypted_content") for part in parts if isinstance(part, Mapping)]
    text = "".join(one for one in texts if isinstance(one, str) and _ENCRYPTED.fullmatch(one) is None)
    author = item.get("author")
    named = not isinstance(author, str) or author in text
    return text if named or not text else f"Message from {author}:\n{text}"


def call_extra(item: Mapping[str, Any]) -> Extra:
    """Returns the additional fields of a call item."""
    return extra_of(item, _CALL_FIELDS)


def read_reasoning(item: Mapping[str, Any]) -> list[Part]:
    """Returns the parts of a reasoning item: its summary, marked by `summary` in `extra`, then its text, marked by
    `continues`. The first part's `extra` has the item's other fields. Empty for an empty item."""
    fields = reasoning_fields(item)
    summary = _SUMMARY_BREAK.join(_texts(item.get("summary")))
    text = "".join(_texts(item.get("content")))
    parts: list[Part] = []
    if summary:
        parts.append(Reasoning(summary, {PROTOCOL: {**fields, "summary": True}}))
        fields = {"continues": True}
    if text or (fields and not summary):
        parts.append(Reasoning(text, scoped(PROTOCOL, fields)))
    return parts


def reasoning_fields(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of a reasoning item that its server needs back."""
    fields = dict(rest_of(item, _REASONING_FIELDS))
    encrypted, ident = item.get("encrypted_content"), item.get("id")
    if isinstance(encrypted, str) and encrypted:
        fields["encrypted_content"] = encrypted
        if isinstance(ident, str):
            fields["id"] = ident
    return fields


def _texts(parts: Any) -> Iterator[str]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]


def _output_parts(output: Any) -> tuple[Part, ...]:
    """Returns the parts of a tool's output: a text, content parts, or any other JSON as compact text (R8.4)."""
    if isinstance(output, str):
        return (Text(output),) if output else ()
    if isinstance(output, list) and all(isinstance(p, Mapping) and isinstance(p.get("type"), str) for p in output):
        return tuple(read_content(output))
    return (Text(dump(output).decode()),)


def usual_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an output item of a server; a message gets its type and parts with types if the server left them out."""
    if item.get("type", "message" if "role" in item else None) != "message":
        return item
    content = typed_parts(item.get("content"), "output_text")
    return (
        item if "type" in item and content is item.get("content") else {**item, "type": "message", "content": content}
    )
