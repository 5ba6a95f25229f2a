"""Writer of streamed Responses answers, event for event in the order and with the fields of R8.7 to R8.12.

Rules:

1. Only this class assigns `sequence_number`, `output_index` and the ids of items.
2. Items never interleave. A block that opens while another is open waits until that one has closed.
3. An item begins with its first content. A message ends when another item begins or the answer ends, because only then
   it is known whether more text follows and whether the item is complete. Complete calls end at once.
4. There is exactly one terminal event, and nothing after it except `[DONE]` if that is configured (C38).
5. The terminal event holds what `reply.finished` writes for the same events.
6. The work per delta is: look up the block, escape the text, join it with bytes made when the item began.

A stream of this protocol cannot express, besides the losses of `reply`: `Close.status` of blocks other than calls, and
`Delta.extra`. Unmodelled frames that belong to an item are left out, unless the item is unmodelled too and was
announced with its id: then they stand between its first and its last event, with its position here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from ...errors import Cancelled, GatewayError
from ...events import BlockKind, Finish, Opaque, Open, Start
from ...model import EMPTY, Extra, OpaquePart, Usage, fields_of, merged
from ..shared.block_queue import QueuedBlock, QueueingWriter
from ..shared.text_sinks import InlineReasoning, TextSink
from ..shared.wire import dump
from ..streams import KEEPALIVE, TextFrame, WriteOptions
from .ids import derived_id
from .items import PROTOCOL
from .output import (
    QUEUED,
    CallItem,
    ClientToolItem,
    OutputItem,
    ReasoningItem,
    RefusalItem,
    TextItem,
    head_of,
    new_head,
)
from .reply import CallNames, as_shown, end_time, is_item, opaque_item, outcome, written_as
from .resource import resource, response_id, take_begun, write_resource
from .tool_server_items import CALL, as_announced, closing_event, is_own, opening_frames

DONE: Final = b"data: [DONE]\n\n"


class ResponsesWriter(QueueingWriter):
    """A `StreamWriter` of Responses events."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__()
        self._options = options
        self._sequence = 0
        self._ident = ""
        self._extra: Extra = EMPTY
        self._foreign: dict[str, _UnmodelledItem] = {}  # unmodelled items that are not done, by id
        self._served: deque[_UnmodelledItem] = deque()  # announced calls of tool servers
        self._last: OutputItem | None = None  # the item that has begun and not ended
        self._message: TextItem | None = None  # the message for further text, whether it has begun or not
        self._called = self._has_content = False
        self.items: list[dict[str, Any]] = []

    def keepalive(self) -> bytes:
        """Returns a comment; under `keepalive: event` the event `response.in_progress` again (R6.14)."""
        if self._options.responses.keepalive == "comment" or self._ended or not self._ident:
            return KEEPALIVE
        self.frame(head_of("response.in_progress"), self._begun())
        return self._out.pop()

    def text_frame(self, block: int) -> TextFrame | None:
        """Returns the frame around plain text of `block`, or None; see `TextWriter`."""
        known = self._blocks.get(block)
        item = known.sink if known is not None and not self._ended else None
        return item.text_frame(self._sequence) if isinstance(item, OutputItem) else None

    def wrote(self, block: int, frames: int, text: str) -> None:
        """Notes text written with `text_frame`; see `TextWriter`."""
        item = self._blocks[block].sink
        assert isinstance(item, OutputItem)
        item.wrote(text)
        self._sequence += frames

    def close(self) -> None:
        super().close()
        self._last = self._message = None

    # --- the response -----------------------------------------------------------------------------------------------

    def _begin(self, start: Start) -> None:
        self._ident = response_id(start.response_id)
        self._extra = start.extra
        self._names = CallNames(self._options, self._ident)
        begun = self._begun()
        if self._options.body.get("background") is True:
            self._sequence = len(QUEUED)  # they were sent when the response was queued
        else:
            self.frame(head_of("response.created"), begun)
        self.frame(head_of("response.in_progress"), begun)

    def _begun(self) -> bytes:
        """Returns the end of a frame with the response in progress. Not cached: it holds all tools, and a stream may
        last long."""
        fields = fields_of(self._extra, PROTOCOL)
        if fields:
            written = write_resource(resource(self._options, self._ident, "in_progress", fields=fields), self._options)
        else:
            written = take_begun(self._options, self._ident)
        return b',"response":%b}' % written

    def _finish(self, finish: Finish) -> None:
        if not self._ident:
            self._begin(Start("", "", 0))
        self._foreign.clear()
        self._served.clear()
        self._close_queued()
        status, reason = outcome(finish.reason, self._called, self._options)
        if self._message is not None and not self._has_content:
            self._message.show_blank()
        if self._last is not None:
            self._last.end(status)
        extra = merged(self._extra, finish.extra)
        shown = resource(
            self._options,
            self._ident,
            status,
            self.items,
            usage=finish.usage or Usage(),
            reason=reason,
            completed_at=end_time(extra) if status == "completed" else None,
            fields=fields_of(extra, PROTOCOL),
        )
        self._end(f"response.{status}", shown)

    def _fail(self, error: GatewayError) -> None:
        """Sends the in-band error (C33). Unfinished prose is part of the response object; an unfinished call is not,
        because it must not be run. A cancelled answer is not an error: it ends as incomplete with the status
        `cancelled` (docs/adr/0034)."""
        if not self._ident:
            self._begin(Start("", "", 0))
        if self._last is not None and not isinstance(self._last, CallItem):
            self.items.append(self._last.finished("incomplete"))
        if isinstance(error, Cancelled):
            self._end("response.incomplete", resource(self._options, self._ident, "cancelled", self.items))
            return
        if self._options.responses.error_event:
            detail = error.envelope()["error"]
            flat = {
                key: detail[key] for key in ("code", "message", "param")
            }  # as it is published; nested as it is sent
            self.send("error", **flat, error={"type": detail["type"], **flat})
        self._end("response.failed", resource(self._options, self._ident, "failed", self.items, error=error))

    def _end(self, kind: str, shown: Mapping[str, Any]) -> None:
        self._last = self._message = None  # they refer to the writer: a reference cycle
        self._ended = True
        self.frame(head_of(kind), b',"response":%b}' % written_as(shown, self._options))
        if self._options.responses.done_marker:
            self._out.append(DONE)

    # --- blocks, one after the other --------------------------------------------------------------------------------

    def _advance(self) -> None:
        while self._waiting:
            block = self._waiting[0]
            if isinstance(block, _UnmodelledItem):
                if not self._go_on(block):
                    return
            elif isinstance(block.opened, Opaque):
                self._whole_item(block.opened)
            else:
                if block.sink is None:
                    block.write_to(self._item(block.opened))
                if block.closed is None:
                    return
                assert block.sink is not None
                if block.late:
                    block.sink.learn(block.late)
                block.sink.close(block.closed)
                if block.opened.kind is BlockKind.TEXT and (_has_fields(block.late) or _has_fields(block.opened.extra)):
                    self._message = None  # another text is another message
                if block.opened.kind is BlockKind.TOOL_CALL and block.closed == "complete":
                    self._called = True
            self._waiting.popleft()

    def _item(self, opened: Open) -> TextSink:
        """Returns the object that writes a block: a new item, or the message that has not ended yet."""
        field = self._options.reasoning_field
        match opened.kind:
            case BlockKind.TOOL_CALL:
                kind = ClientToolItem if self._names.is_own_item(opened.name, opened.extra) else CallItem
                return kind(self, opened, self._names)
            case BlockKind.REFUSAL:
                return RefusalItem(self, opened.extra)
            case BlockKind.REASONING if field == "drop":
                return TextSink()
            case BlockKind.REASONING if field != "inline":
                return ReasoningItem(self, as_shown(opened.extra, self._options))
        if self._message is None or (opened.kind is BlockKind.TEXT and _has_fields(opened.extra)):
            self._message = TextItem(self, opened.extra if opened.kind is BlockKind.TEXT else EMPTY)
        inline = opened.kind is BlockKind.REASONING
        return InlineReasoning(self._message, self._options.reasoning_tags) if inline else self._message

    def _unmodelled(self, event: Opaque) -> None:
        """Handles an unmodelled frame or item; those of other protocols are left out."""
        payload = event.payload
        if event.protocol != PROTOCOL or not isinstance(payload, dict):
            return
        item = payload.get("item")
        kind, ident = payload.get("type"), payload.get("item_id", payload.get("id"))
        if kind == "response.output_item.added" and isinstance(item, dict) and isinstance(item.get("id"), str):
            block = self._foreign[item["id"]] = _UnmodelledItem(event, item)
            self._queue(block)
        elif kind == "response.output_item.added" and isinstance(item, dict) and is_own(item):
            self._served.append(block := _UnmodelledItem(event, item))
            self._queue(block)
        elif is_own(payload) and payload["type"] == CALL and self._served:
            block = self._served.popleft()
            block.wire, block.closed = payload, "complete"
            self._advance()
        elif isinstance(ident, str) and (known := self._foreign.get(ident)) is not None:
            if is_item(OpaquePart(PROTOCOL, payload)):
                del self._foreign[ident]
                known.wire, known.closed = payload, "complete"
            else:
                known.frames.append(payload)
            self._advance()
        else:
            self._queue(QueuedBlock(event))

    def _go_on(self, block: _UnmodelledItem) -> bool:
        """Writes everything known of an unmodelled item. Returns True if the item is done."""
        if block.index < 0:
            block.index = self.begin(None)
            if is_own(block.begun):
                self._open_own(block.begun, block.index)
            else:
                self.send("response.output_item.added", output_index=block.index, item=block.begun)
        for frame in block.frames:
            fields = {key: value for key, value in frame.items() if key not in ("type", "sequence_number")}
            self._relay(frame["type"], {**fields, "output_index": block.index})
        block.frames.clear()
        if block.closed is None:
            return False
        if is_own(block.wire):
            self._close_own(block.wire, block.index)
        else:
            self.done(block.index, dict(block.wire))
        return True

    def _open_own(self, item: Mapping[str, Any], index: int) -> None:
        """Sends the first events of an item that the gateway made for a tool server."""
        shown = opaque_item(as_announced(item), self._ident, index)
        self.send("response.output_item.added", output_index=index, item=shown)
        for kind, fields in opening_frames(item):
            self.send(kind, output_index=index, item_id=shown["id"], **fields)

    def _close_own(self, item: Mapping[str, Any], index: int) -> None:
        """Sends the last events of such an item."""
        shown = opaque_item(item, self._ident, index)
        self.send(closing_event(item), output_index=index, item_id=shown["id"])
        self.done(index, shown)

    def _whole_item(self, opened: Opaque) -> None:
        payload = opened.payload
        if is_item(OpaquePart(opened.protocol, payload)):
            index = self.begin(None)
            if is_own(payload):
                self._open_own(payload, index)
                self._close_own(payload, index)
                return
            item = opaque_item(self._names.result(payload), self._ident, index)
            self.send("response.output_item.added", output_index=index, item=item)
            self.done(index, item)
        elif opened.protocol == PROTOCOL and isinstance(payload, dict) and "output_index" not in payload:
            kind = payload.get("type")
            if isinstance(kind, str) and kind.startswith("response."):
                fields = {key: value for key, value in payload.items() if key not in ("type", "sequence_number")}
                self._relay(kind, fields)

    def _relay(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Sends an unmodelled event."""
        self.frame(new_head(kind), b"," + dump(fields)[1:])

    # --- for items --------------------------------------------------------------------------------------------------

    def begin(self, item: OutputItem | None) -> int:
        """Ends the previous item and returns the next `output_index`, for `item` or for an item that is complete
        (None)."""
        if self._last is not None:
            self._last.end("completed")
        if item is not self._message:
            self._message = None
        self._has_content = self._has_content or not isinstance(item, ReasoningItem)
        self._last = item
        return len(self.items)

    def done(self, index: int, item: dict[str, Any]) -> None:
        """Sends the last event of an item."""
        self._last = None
        self.items.append(item)
        self.send("response.output_item.done", output_index=index, item=item)

    def item_id(self, kind: str, index: int) -> str:
        """Returns the id of the item at `index`."""
        return derived_id(kind, self._ident, index)

    def send(self, kind: str, **fields: Any) -> None:
        """Sends an event."""
        self.frame(head_of(kind), b"," + dump(fields)[1:])

    def frame(self, head: bytes, fields: bytes) -> None:
        """Sends an event from its bytes before and after the sequence number."""
        self._out.append(b"%b%d%b\n\n" % (head, self._sequence, fields))
        self._sequence += 1


class _UnmodelledItem(QueuedBlock):
    """An unmodelled item that was announced and is not done: its waiting frames, and its final form."""

    __slots__ = ("begun", "frames", "index", "wire")

    def __init__(self, opened: Opaque, item: Mapping[str, Any]) -> None:
        super().__init__(opened)
        self.closed = None
        self.frames: list[dict[str, Any]] = []
        self.index = -1
        self.wire = self.begun = item


def _has_fields(extra: Extra) -> bool:
    """True if an `extra` has fields of this protocol."""
    return bool(extra) and PROTOCOL in extra
