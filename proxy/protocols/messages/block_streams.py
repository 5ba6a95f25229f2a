"""Streamed content blocks of Messages: the events of each kind of block.

Rules:

1. A block does not choose its index: its stream assigns one when the block begins, and ends the previous block at that
   moment.
2. The sum of a block's deltas is the block that `write_reply` writes.
3. Half a character (a high surrogate) is held back until the other half has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson

from ...events import BlockStatus, Open, extra_of
from ...model import EMPTY, Extra, fields_of, merged
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.text_sinks import TextSink
from ..shared.wire import dump
from ..streams import TextFrame
from .blocks import PROTOCOL, as_object, begins_as_object, call_fields
from .ids import Signing, wire_id


def frame(kind: str, **fields: Any) -> bytes:
    """Returns an event as bytes. The event name is sent too, because some clients read only that."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dump({"type": kind, **fields}))


class BlockStream(Protocol):
    """The interface between a block and the stream that it is part of."""

    def begin(self, content: ContentBlock) -> int:
        """Ends the previous block and returns the index of `content`."""

    def finished(self, content: ContentBlock, *, called: bool = False) -> None:
        """Marks `content` as finished; `called`: it was a complete call."""

    @property
    def send(self) -> Callable[[bytes], None]:
        """Function that takes a frame."""


class ContentBlock(TextSink):
    """A content block that is being written."""

    __slots__ = ("_half", "_head", "begun", "extra", "index", "stream")

    delta = ("text_delta", "text")
    """The type of its deltas, and the key of their text."""
    is_content = True
    """True if the block counts as content of the answer."""

    def __init__(self, stream: BlockStream, extra: Extra = EMPTY) -> None:
        self.stream = stream
        self.extra = extra
        self.index = -1
        self.begun = False
        """True once its first event was sent."""
        self._half = ""
        self._head = b""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The unmodelled fields of the block."""
        return fields_of(self.extra, PROTOCOL)

    def begin(self, block: Mapping[str, Any]) -> None:
        """Sends the first event."""
        self.index = self.stream.begin(self)
        self.begun = True
        self.stream.send(frame("content_block_start", index=self.index, content_block=block))
        kind, key = self.delta
        start = {"type": "content_block_delta", "index": self.index, "delta": {"type": kind, key: ""}}
        self._head = b"event: content_block_delta\ndata: " + dump(start)[: -len('""}}')]

    def write(self, text: str) -> None:
        """Sends text; half a character at its end is held back."""
        if self._half:
            text = self._half + text
            self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        if text:
            self.put(valid_text(text))

    def put(self, text: str) -> None:
        """Sends text that has whole characters only."""
        self.show(text)

    def show(self, text: str) -> None:
        """Sends a delta, after the first event if that was not sent yet."""
        if not self.begun:
            self.begin(self.first())
        self.stream.send(b"%b%b}}\n\n" % (self._head, orjson.dumps(text)))

    def first(self) -> Mapping[str, Any]:
        """Returns the block in its first event."""
        raise NotImplementedError  # each kind has its own form

    def text_frame(self) -> TextFrame | None:
        """Returns the bytes around a delta of plain text; None if writing it needs other work."""
        return TextFrame(self._head + b'"', b'"}}\n\n') if self.begun and not self._half else None

    def wrote(self, text: str) -> None:
        """Tells the block that `text` was written with `text_frame` by other code."""

    def learn(self, extra: Extra) -> None:
        """Stores the `extra` from the end of the block."""
        self.extra = merged(self.extra, extra)

    def flush(self) -> None:
        """Replaces a half character that was held back by U+FFFD."""
        if self._half:
            self._half = ""
            self.put("\ufffd")

    def close(self, status: BlockStatus) -> None:
        """Ends the block. A block with fields is sent even if it has no text."""
        self.flush()
        if not self.begun and self.fields:
            self.begin(self.first())
        self.stream.finished(self)

    def end(self) -> None:
        """Sends the last events."""
        if self._half:
            self.flush()
        if self.begun:
            self.late()
            self.stream.send(frame("content_block_stop", index=self.index))

    def late(self) -> None:
        """Sends deltas that are known only at the end."""

    def add(self, **delta: Any) -> None:
        """Sends a delta of another kind."""
        self.stream.send(frame("content_block_delta", index=self.index, delta=delta))


class TextBlock(ContentBlock):
    """A block of text. Several text blocks of the answer may be joined in it. It is held back until it has content."""

    __slots__ = ("_cited", "held")

    def __init__(self, stream: BlockStream, extra: Extra) -> None:
        super().__init__(stream, extra)
        self.held = ""
        self._cited: list[Any] = []

    def put(self, text: str) -> None:
        """Sends text; whitespace at the beginning is held back until other text follows."""
        if not self.begun:
            text = self.held + text
            self.held = ""
            if not (text.strip(SPACE) or self.fields):
                self.held = text
                return
        self.show(text)

    def first(self) -> Mapping[str, Any]:
        fields = self.fields
        if "citations" in fields:  # citations are sent as deltas
            self._cited = [*fields["citations"]] if isinstance(fields["citations"], list) else []
            fields = {**fields, "citations": []}
        return {**fields, "type": "text", "text": ""}

    def learn(self, extra: Extra) -> None:
        """Stores the `extra` from the end of the block. A block with fields is sent even if it has no text."""
        super().learn(extra)
        if fields := fields_of(extra, PROTOCOL):
            if not self.begun:
                text, self.held = self.held, ""
                self.begin(self.first())
                if text:
                    self.show(text)
            if isinstance(cited := fields.get("citations"), list):
                self._cited = cited

    def close(self, status: BlockStatus) -> None:
        """Ends the part of the text that came from one block; the next text block continues it, unless this one has
        fields."""
        if self.fields:
            super().close(status)

    def late(self) -> None:
        for citation in self._cited:
            self.add(type="citations_delta", citation=citation)


class RefusalBlock(ContentBlock):
    """A block of text with which the model declined."""

    __slots__ = ()

    def first(self) -> Mapping[str, Any]:
        return {**self.fields, "type": "text", "text": ""}


class ReasoningBlock(ContentBlock):
    """A block of reasoning, with its server's signature or the gateway's, or a redacted block. `shown`: its text is
    sent."""

    __slots__ = ("_redacted", "_shown", "_signing")

    delta = ("thinking_delta", "thinking")
    is_content = False

    def __init__(self, stream: BlockStream, extra: Extra, *, shown: bool) -> None:
        super().__init__(stream, extra)
        self._shown = shown
        self._signing = Signing()
        self._redacted = False

    def put(self, text: str) -> None:
        """Sends text and adds it to the signature; hidden text only begins the block."""
        if self._shown:
            self.show(text)
            self._signing.take(text)
        elif not self.begun:
            self.begin(self.first())

    def text_frame(self) -> TextFrame | None:
        return super().text_frame() if self._shown else None

    def wrote(self, text: str) -> None:
        self._signing.take(text)

    def first(self) -> Mapping[str, Any]:
        if self._redacted:
            return {**self.fields, "type": "redacted_thinking"}
        return {**self.fields, "type": "thinking", "thinking": "", "signature": ""}

    def close(self, status: BlockStatus) -> None:
        self.flush()
        self._redacted = not self.begun and "data" in self.fields
        super().close(status)

    def late(self) -> None:
        if not self._redacted:
            self.add(type="signature_delta", signature=self.fields.get("signature", self._signing.signature))


class CallBlock(ContentBlock):
    """A block of a call, which begins at once. Arguments that do not begin like an object are held until all are there,
    and then put into one."""

    __slots__ = ("_custom", "_held", "_is_object")

    delta = ("input_json_delta", "partial_json")

    def __init__(self, stream: BlockStream, opened: Open) -> None:
        super().__init__(stream, extra_of(opened))
        self._custom = opened.call_kind == "custom"
        self._held: list[str] = []
        self._is_object: bool | None = False if self._custom else None
        call_id = wire_id(opened.call_id or "")
        fields = call_fields(opened.namespace, opened.extra)
        self.begin({**fields, "type": "tool_use", "id": call_id, "name": opened.name or "", "input": {}})

    def put(self, text: str) -> None:
        if self._is_object is None and text.strip(SPACE):
            self._is_object = begins_as_object(text)
            text = "".join(self._held) + text
            self._held.clear()
        if self._is_object:
            self.show(text)
        else:
            self._held.append(text)

    def close(self, status: BlockStatus) -> None:
        """Ends the call. Held arguments of a complete call are sent as an object."""
        if self._half:
            self.flush()
        is_whole = status == "complete"
        if is_whole and not self._is_object:
            self.show(as_object("".join(self._held), self._custom))
        self.stream.finished(self, called=is_whole)


class OpaqueBlock(ContentBlock):
    """An unmodelled block, which is complete."""

    __slots__ = ("_block",)

    delta = ("input_json_delta", "partial_json")

    def __init__(self, stream: BlockStream, block: Mapping[str, Any]) -> None:
        super().__init__(stream)
        self._block = block

    def close(self, status: BlockStatus) -> None:
        """Sends the whole block; a non-empty `input` is sent as a delta."""
        arguments = self._block.get("input")
        if isinstance(arguments, Mapping) and arguments:
            self.begin({**self._block, "input": {}})
            self.show(dump(arguments).decode())
        else:
            self.begin(self._block)
        self.stream.finished(self)
