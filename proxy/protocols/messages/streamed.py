"""Content blocks while they are streamed: what each block of an answer becomes, event by event.

Rules:

1. A block counts nothing: it asks its stream for its index when it begins, and ends the one before by that.
2. What a block's deltas add up to is the block that `write_reply` writes.
3. Half a character is held back until the other half has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson

from toolwire.events import BlockStatus, Open, extra_of
from toolwire.model import EMPTY, Extra, fields_of, merged
from toolwire.protocols.base import TextFrame
from toolwire.protocols.messages.blocks import PROTOCOL, as_object, call_fields, is_object
from toolwire.protocols.messages.ids import Signing, wire_id
from toolwire.protocols.shared.wire import dump, whole
from toolwire.scan._grammar import SPACE


def frame(kind: str, **fields: Any) -> bytes:
    """An event. Its name stands before it as well: some clients look nowhere else."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dump({"type": kind, **fields}))


class Stream(Protocol):
    """What a block needs of the stream it stands in."""

    def begin(self, content: Content) -> int:
        """End the block before; the index of `content`."""

    def over(self, content: Content, *, called: bool = False) -> None:
        """Nothing is to come of it any more; `called`: it was a whole call."""

    @property
    def send(self) -> Callable[[bytes], None]:
        """Takes a frame."""


class Sink:
    """Takes the text of a block. This one drops it."""

    __slots__ = ()

    def write(self, text: str) -> None:
        """More of the block."""

    def learn(self, extra: Extra) -> None:
        """What is said of the block at its end."""

    def close(self, status: BlockStatus) -> None:
        """The block is over."""


class Content(Sink):
    """A content block while it is written."""

    __slots__ = ("_half", "_head", "begun", "extra", "index", "stream")

    delta = ("text_delta", "text")
    """The type of its deltas, and where their text stands."""
    speaks = True
    """Whether it is something of an answer."""

    def __init__(self, stream: Stream, extra: Extra = EMPTY) -> None:
        self.stream = stream
        self.extra = extra
        self.index = -1
        self.begun = False
        """The client has seen it."""
        self._half = ""
        self._head = b""

    @property
    def fields(self) -> Mapping[str, Any]:
        """What is said beside."""
        return fields_of(self.extra, PROTOCOL)

    def begin(self, block: Mapping[str, Any]) -> None:
        """Write the first event."""
        self.index = self.stream.begin(self)
        self.begun = True
        self.stream.send(frame("content_block_start", index=self.index, content_block=block))
        kind, key = self.delta
        start = {"type": "content_block_delta", "index": self.index, "delta": {"type": kind, key: ""}}
        self._head = b"event: content_block_delta\ndata: " + dump(start)[: -len('""}}')]

    def write(self, text: str) -> None:
        if self._half:
            text = self._half + text
            self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        if text:
            self.put(whole(text))

    def put(self, text: str) -> None:
        """Write text that has whole characters only."""
        self.show(text)

    def show(self, text: str) -> None:
        """Write a delta; begin, if that has not been done."""
        if not self.begun:
            self.begin(self.first())
        self.stream.send(b"%b%b}}\n\n" % (self._head, orjson.dumps(text)))

    def first(self) -> Mapping[str, Any]:
        """The block as it begins."""
        raise NotImplementedError  # each kind has its own form

    def text_frame(self) -> TextFrame | None:
        """The bytes around a delta, if nothing is to be done but to write it."""
        return TextFrame(self._head + b'"', b'"}}\n\n') if self.begun and not self._half else None

    def wrote(self, text: str) -> None:
        """`text` is written by somebody else, who asked for the `text_frame`."""

    def learn(self, extra: Extra) -> None:
        self.extra = merged(self.extra, extra)

    def flush(self) -> None:
        """Half a character is none."""
        if self._half:
            self._half = ""
            self.put("\ufffd")

    def close(self, status: BlockStatus) -> None:
        self.flush()
        self.stream.over(self)

    def end(self) -> None:
        """Write the last events."""
        if self._half:
            self.flush()
        if self.begun:
            self.late()
            self.stream.send(frame("content_block_stop", index=self.index))

    def late(self) -> None:
        """Write what is known at the end only."""

    def add(self, **delta: Any) -> None:
        """A delta of another kind."""
        self.stream.send(frame("content_block_delta", index=self.index, delta=delta))


class TextBlock(Content):
    """Text. Several blocks of the answer may make up one; it is held back until it says something."""

    __slots__ = ("_cited", "held")

    def __init__(self, stream: Stream, extra: Extra) -> None:
        super().__init__(stream, extra)
        self.held = ""
        self._cited: list[Any] = []

    def put(self, text: str) -> None:
        if not self.begun:
            text = self.held + text
            self.held = ""
            if not (text.strip(SPACE) or self.fields):
                self.held = text
                return
        self.show(text)

    def first(self) -> Mapping[str, Any]:
        fields = self.fields
        if "citations" in fields:  # they come as deltas
            self._cited = [*fields["citations"]] if isinstance(fields["citations"], list) else []
            fields = {**fields, "citations": []}
        return {**fields, "type": "text", "text": ""}

    def learn(self, extra: Extra) -> None:
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
        if self.fields:
            self.flush()
            if not self.begun:
                self.begin(self.first())
            self.stream.over(self)

    def late(self) -> None:
        for citation in self._cited:
            self.add(type="citations_delta", citation=citation)


class InlineThought(Sink):
    """A thought inside a text, between tags."""

    __slots__ = ("_opened", "_tags", "_text")

    def __init__(self, text: TextBlock, tags: tuple[str, str]) -> None:
        self._text = text
        self._tags = tags
        self._opened = False

    def write(self, text: str) -> None:
        if text and not self._opened:
            self._opened = True
            text = self._tags[0] + text
        self._text.write(text)

    def close(self, status: BlockStatus) -> None:
        if self._opened:
            self._text.flush()
            self._text.write(self._tags[1])


class RefusalBlock(Content):
    """A text with which the model declined."""

    __slots__ = ()

    def first(self) -> Mapping[str, Any]:
        return {**self.fields, "type": "text", "text": ""}

    def close(self, status: BlockStatus) -> None:
        self.flush()
        if not self.begun and self.fields:
            self.begin(self.first())
        self.stream.over(self)


class ThoughtBlock(Content):
    """A thought, with its server's signature or the gateway's; or one of which only its server knows what it says.
    `shown`: its text is."""

    __slots__ = ("_redacted", "_shown", "_signing")

    delta = ("thinking_delta", "thinking")
    speaks = False

    def __init__(self, stream: Stream, extra: Extra, *, shown: bool) -> None:
        super().__init__(stream, extra)
        self._shown = shown
        self._signing = Signing()
        self._redacted = False

    def put(self, text: str) -> None:
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
        if not self.begun and self.fields:
            self._redacted = "data" in self.fields
            self.begin(self.first())
        self.stream.over(self)

    def late(self) -> None:
        if not self._redacted:
            self.add(type="signature_delta", signature=self.fields.get("signature", self._signing.signature))


class CallBlock(Content):
    """A call. Begun at once. Arguments that do not begin as an object are held until all are there to be put into
    one."""

    __slots__ = ("_custom", "_held", "_is_object")

    delta = ("input_json_delta", "partial_json")

    def __init__(self, stream: Stream, opened: Open) -> None:
        super().__init__(stream, extra_of(opened))
        self._custom = opened.call_kind == "custom"
        self._held: list[str] = []
        self._is_object: bool | None = False if self._custom else None
        call_id = wire_id(opened.call_id or "")
        fields = call_fields(opened.namespace, opened.extra)
        self.begin({**fields, "type": "tool_use", "id": call_id, "name": opened.name or "", "input": {}})

    def put(self, text: str) -> None:
        if self._is_object is None and text.strip(SPACE):
            self._is_object = is_object(text)
            text = "".join(self._held) + text
            self._held.clear()
        if self._is_object:
            self.show(text)
        else:
            self._held.append(text)

    def close(self, status: BlockStatus) -> None:
        if self._half:
            self.flush()
        is_whole = status == "complete"
        if is_whole and not self._is_object:
            self.show(as_object("".join(self._held), self._custom))
        self.stream.over(self, called=is_whole)


class OpaqueBlock(Content):
    """A block that is not modelled, and is whole."""

    __slots__ = ("_block",)

    delta = ("input_json_delta", "partial_json")

    def __init__(self, stream: Stream, block: Mapping[str, Any]) -> None:
        super().__init__(stream)
        self._block = block

    def close(self, status: BlockStatus) -> None:
        given = self._block.get("input")
        if isinstance(given, Mapping) and given:
            self.begin({**self._block, "input": {}})
            self.show(dump(given).decode())
        else:
            self.begin(self._block)
        self.stream.over(self)
