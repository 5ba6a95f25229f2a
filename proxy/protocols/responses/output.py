"""Streamed output items of Responses: the events of each kind of item (R8.7 to R8.9).

Rules:

1. An item does not choose its `output_index`: its stream assigns one when the item begins, and gets the complete item
   when it ends.
2. An item's last events hold the sum of its deltas.
3. The bytes around a delta are made once, when the item begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, Protocol

import orjson

from ...events import BlockStatus, Open
from ...model import EMPTY, Extra, Reasoning, Refusal, Text, ToolUse, fields_of, merged
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.text_sinks import TextSink
from ..shared.wire import dump
from ..streams import TextFrame
from .client_tools import FORMS
from .item_writer import write_call, write_reasoning
from .items import PROTOCOL
from .reply import CallNames, content_part, item_fields, message_item

QUEUED: Final = ("response.created", "response.queued")
"""First events of a stream that is made in the background."""


@cache
def head_of(kind: str) -> bytes:
    """Returns the bytes of an event up to its sequence number. Cached, for the few events that the gateway writes
    itself."""
    return new_head(kind)


def new_head(kind: str) -> bytes:
    """Returns the bytes of an event of any name up to its sequence number."""
    return b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind.encode(), kind.encode())


class ItemStream(Protocol):
    """The interface between an item and the stream that it is part of."""

    def begin(self, item: OutputItem) -> int:
        """Ends the previous item and returns the `output_index` of `item`."""

    def done(self, index: int, item: dict[str, Any]) -> None:
        """Sends the last event of an item."""

    def item_id(self, kind: str, index: int) -> str:
        """Returns the id of the item at `index`."""

    def send(self, kind: str, **fields: Any) -> None:
        """Sends an event."""

    def frame(self, head: bytes, fields: bytes) -> None:
        """Sends an event from its bytes before and after the sequence number."""


class OutputItem(TextSink):
    """An output item that is being written. Its text is held back until it has content, and half a character (a high
    surrogate) until the other half has come. Its last events hold exactly the text that was sent."""

    __slots__ = ("_half", "_head", "_held", "_middle", "_pieces", "_tail", "extra", "index", "item_id", "stream")

    def __init__(self, stream: ItemStream, extra: Extra = EMPTY) -> None:
        self.stream = stream
        self.extra = extra
        self.index = -1
        self.item_id = ""
        self._half = ""
        self._held: str | None = ""
        self._pieces: list[str] = []

    @property
    def begun(self) -> bool:
        """True once the first event was sent."""
        return self.index >= 0

    @property
    def text(self) -> str:
        """The text sent so far."""
        return "".join(self._pieces)

    def learn(self, extra: Extra) -> None:
        """Stores the `extra` from the end of the block."""
        self.extra = merged(self.extra, extra)

    def text_frame(self, number: int) -> TextFrame | None:
        """Returns the bytes around a delta of plain text; None if writing it needs other work."""
        if self._held is not None or self._half:
            return None
        return TextFrame(self._head, b'"%b\n\n' % self._tail, number, self._middle + b'"')

    def wrote(self, text: str) -> None:
        """Notes that `text` was written with `text_frame` by other code."""
        self._pieces.append(text)

    def write(self, text: str) -> None:
        """Sends text; half a character, and text that is not enough to begin the item, are held back."""
        if self._held is None and not self._half and text:
            try:
                escaped = orjson.dumps(text)
            except orjson.JSONEncodeError:
                self._write(text)
                return
            self._pieces.append(text)
            self.stream.frame(self._head, b"%b%b%b" % (self._middle, escaped, self._tail))
        else:
            self._write(text)

    def _write(self, text: str) -> None:
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        if self._held is not None:
            text = self._held + text
            if not self._half and not self.begins_with(text):
                self._held = text
                return
            self.show()
        if text:
            text = valid_text(text)
            self._pieces.append(text)
            self.stream.frame(self._head, b"%b%b%b" % (self._middle, orjson.dumps(text), self._tail))

    def show(self) -> None:
        """Sends the first events if necessary. The caller has to write held-back text."""
        self._held = None
        if not self.begun:
            self.index = self.stream.begin(self)
            self.begin()

    def flush(self) -> None:
        """Replaces a half character that was held back by U+FFFD."""
        if self._half:
            self._half = ""
            self._write("\ufffd")

    def _deltas(self, kind: str, tail: bytes = b"}", **where: Any) -> None:
        """Prepares the bytes around each delta."""
        place = {"item_id": self.item_id, "output_index": self.index, **where}
        self._head = head_of(kind)
        self._middle = b"," + dump(place)[1:-1] + b',"delta":'
        self._tail = tail

    def send(self, kind: str, **fields: Any) -> None:
        """Sends an event of this item."""
        self.stream.send(kind, item_id=self.item_id, output_index=self.index, **fields)

    def begins_with(self, text: str) -> bool:
        """True if this text is enough to begin the item."""
        return bool(text)

    def begin(self) -> None:
        """Sends the first events."""
        raise NotImplementedError  # each kind of item has its own events

    def end(self, status: str) -> None:
        """Sends the last events."""
        raise NotImplementedError  # each kind of item has its own events

    def finished(self, status: str) -> dict[str, Any]:
        """Returns the item as its last event shows it."""
        raise NotImplementedError  # each kind of item has its own events


class MessageItem(OutputItem):
    """A message with one content part."""

    __slots__ = ()

    part: type[Text | Refusal]
    kind: str
    """The type of its part, in the names of its events."""
    key: str
    """The key of the text in its last event."""
    rest: Mapping[str, Any] = EMPTY
    """Further fields of the events with its text."""

    def begin(self) -> None:
        self.item_id = self.stream.item_id("message", self.index)
        item = message_item(self.item_id, [], "in_progress", item_fields(self.extra))
        self.stream.send("response.output_item.added", output_index=self.index, item=item)
        self.send("response.content_part.added", content_index=0, part=content_part(self.part("")))
        tail = b"," + dump(self.rest)[1:] if self.rest else b"}"
        self._deltas(f"response.{self.kind}.delta", tail, content_index=0)

    def end(self, status: str) -> None:
        self.flush()
        text = self.text
        self.send(f"response.{self.kind}.done", content_index=0, **{self.key: text}, **self.rest)
        part = content_part(self.part(text, self.extra))
        self.send("response.content_part.done", content_index=0, part=part)
        self.stream.done(self.index, self.finished(status))

    def finished(self, status: str) -> dict[str, Any]:
        content = content_part(self.part(self.text, self.extra))
        return message_item(self.item_id, [content], status, item_fields(self.extra))


class TextItem(MessageItem):
    """A message with text. Several text blocks may be joined in one."""

    __slots__ = ()

    part = Text
    kind, key = "output_text", "text"
    rest: Mapping[str, Any] = {"logprobs": []}

    def begins_with(self, text: str) -> bool:
        """True for text that is not only whitespace, and for any text if the item has fields."""
        return bool(text.strip(SPACE)) or (bool(text) and bool(fields_of(self.extra, PROTOCOL)))

    def learn(self, extra: Extra) -> None:
        super().learn(extra)
        self.show_blank()  # the item has fields, so it is sent even if it is blank

    def show_blank(self) -> None:
        """Sends whitespace that was held back, if the answer has nothing else."""
        if self._held:
            text = self._held
            self.show()
            self._write(text)


class RefusalItem(MessageItem):
    """A message with which the model declined."""

    __slots__ = ()

    part = Refusal
    kind = key = "refusal"


class ReasoningItem(OutputItem):
    """Reasoning: its text, or the summary that another server made, or only opaque fields for its server."""

    __slots__ = ("_silent", "_summary")

    def __init__(self, stream: ItemStream, extra: Extra) -> None:
        super().__init__(stream, extra)
        self._summary = fields_of(extra, PROTOCOL).get("summary") is True
        self._silent = False

    def learn(self, extra: Extra) -> None:
        super().learn(extra)
        if self.begun and (fields := fields_of(self.extra, PROTOCOL)).get("id", self.item_id) != self.item_id:
            self.extra = {**self.extra, PROTOCOL: {**fields, "id": self.item_id}}  # the client already got this id

    def begin(self) -> None:
        self.item_id = fields_of(self.extra, PROTOCOL).get("id") or self.stream.item_id("reasoning", self.index)
        item = write_reasoning(Reasoning("", self.extra), self.item_id)
        if not self._summary and not self._silent:
            # no event adds this part (R8.7), and the npm package refuses text for a part that it has not seen
            item["content"] = [{"type": "reasoning_text", "text": ""}]
        self.stream.send("response.output_item.added", output_index=self.index, item=item)
        if self._silent:
            return
        if self._summary:
            part = {"type": "summary_text", "text": ""}
            self.send("response.reasoning_summary_part.added", summary_index=0, part=part)
            self._deltas("response.reasoning_summary_text.delta", summary_index=0)
        else:
            self._deltas("response.reasoning_text.delta", content_index=0)

    def close(self, status: BlockStatus) -> None:
        """Begins an item without text if it has opaque fields."""
        if fields_of(self.extra, PROTOCOL) and not self.begun:
            self._silent = True
            self.show()

    def end(self, status: str) -> None:
        self.flush()
        text = self.text
        if self._summary and text:
            self.send("response.reasoning_summary_text.done", summary_index=0, text=text)
            part = {"type": "summary_text", "text": text}
            self.send("response.reasoning_summary_part.done", summary_index=0, part=part)
        elif text:
            self.send("response.reasoning_text.done", content_index=0, text=text)
        self.stream.done(self.index, self.finished(status))

    def finished(self, status: str) -> dict[str, Any]:
        # the live service sends reasoning without a status; only cut-off reasoning must have one
        shown = None if status == "completed" else status
        return write_reasoning(Reasoning(self.text, self.extra), self.item_id, shown)


class CallItem(OutputItem):
    """A call. It begins at once and ends with its block. A call that was cut off ends with the answer; if the answer
    fails, it does not end."""

    __slots__ = ("_custom", "_cut", "_use")

    def __init__(self, stream: ItemStream, opened: Open, names: CallNames) -> None:
        super().__init__(stream, opened.extra)
        self._custom = opened.call_kind == "custom"
        self._cut = False
        name, call_id = opened.name or "", opened.call_id or ""
        use = ToolUse(call_id, name, "", opened.call_kind, opened.namespace, extra=opened.extra)
        self.index = stream.begin(self)
        self._use, self.item_id = names.place(use, self.index)
        self.begin()

    def begins_with(self, text: str) -> bool:
        """True for any text of a custom tool; for arguments that are not only whitespace."""
        return self._custom or bool(text.strip(SPACE))

    def begin(self) -> None:
        item = write_call(self._use, self.item_id, "in_progress")
        self.stream.send("response.output_item.added", output_index=self.index, item=item)
        kind = "custom_tool_call_input" if self._custom else "function_call_arguments"
        self._deltas(f"response.{kind}.delta")

    def close(self, status: BlockStatus) -> None:
        """Ends the call, with `{}` if it has no arguments. A call that was cut off ends with the answer."""
        self.flush()
        if status == "truncated":
            self._cut = True
            return
        if not self._pieces:
            # always at least one delta (R8.7)
            self._pieces.append("" if self._custom else "{}")
            self.stream.frame(self._head, self._middle + dump(self._pieces[0]) + self._tail)
        self.end("completed")

    def end(self, status: str) -> None:
        text = self.text
        if self._custom:
            self.send("response.custom_tool_call_input.done", input=text)
        else:
            self.send("response.function_call_arguments.done", name=self._use.name, arguments=text)
        self.stream.done(self.index, self.finished("incomplete" if self._cut else status))

    def finished(self, status: str) -> dict[str, Any]:
        use = self._use
        whole_use = ToolUse(use.call_id, use.name, self.text, use.kind, use.namespace, extra=self.extra)
        return write_call(whole_use, self.item_id, status)


class ClientToolItem(CallItem):
    """A call of a client-run tool whose item has a type of its own (`client_tools.py`). No event holds a piece of its
    arguments, so it begins when all are there: clients want an item that fits their types."""

    __slots__ = ("_names",)

    def __init__(self, stream: ItemStream, opened: Open, names: CallNames) -> None:
        OutputItem.__init__(self, stream, opened.extra)
        self._names = names
        self._cut = False
        name, call_id = opened.name or "", opened.call_id or ""
        self._use = ToolUse(call_id, name, "", namespace=opened.namespace, extra=opened.extra)

    def text_frame(self, number: int) -> None:
        return None

    def write(self, text: str) -> None:
        self._pieces.append(text)

    def begin(self) -> None:
        self._use, self.item_id = self._names.place(self._use, self.index)
        item = self.finished("in_progress")
        fields = {key: item[key] for key in FORMS[item["type"]].fields if key in item}
        shown = {**item, **FORMS[item["type"]].blank(fields)}
        self.stream.send("response.output_item.added", output_index=self.index, item=shown)
        for kind, event_fields in FORMS[item["type"]].stream(fields):
            self.stream.send(kind, output_index=self.index, **event_fields)

    def close(self, status: BlockStatus) -> None:
        """Sends the item, which is complete now; a cut-off one ends with the answer."""
        self._cut = status == "truncated"
        self.show()
        if not self._cut:
            self.end("completed")

    def end(self, status: str) -> None:
        self.stream.done(self.index, self.finished("incomplete" if self._cut else status))

    def finished(self, status: str) -> dict[str, Any]:
        use = replace(self._use, arguments=valid_text(self.text), extra=merged(self.extra, self._use.extra))
        return write_call(use, self.item_id, status)
