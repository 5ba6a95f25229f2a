"""Writer of streamed Messages answers (R14.3).

Rules:

1. This class assigns the indices of blocks. Only one block is open at a time: a block that opens meanwhile waits until
   that one has closed.
2. A text block begins with its first content and ends when another block begins or the answer ends, so neighbouring
   texts are one block. All other blocks end where the event stream closes them.
3. The whole stream equals what `write_reply` writes for the same events.
4. There is exactly one end, `message_stop` or `error`, and nothing after it.
5. The work per delta is: look up the block, escape the text, join it with bytes made when the block began.

A stream of this protocol cannot express, besides the losses of `reply`: fields at the end of a block other than
citations and signatures, and `Delta.extra`. A call that was cut off has already begun, so its partial input was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...errors import GatewayError
from ...events import BlockKind, Finish, Opaque, Open, Start
from ...model import EMPTY, Extra, Usage, fields_of
from ..shared.block_queue import QueuedBlock, QueueingWriter
from ..shared.text_sinks import InlineReasoning, TextSink
from ..streams import KEEPALIVE, TextFrame, WriteOptions
from .block_streams import CallBlock, ContentBlock, OpaqueBlock, ReasoningBlock, RefusalBlock, TextBlock, frame
from .blocks import PROTOCOL
from .errors import error_object
from .ids import message_id
from .reply import first_usage, reasoning_placement, stop_fields, write_usage

PING: Final = frame("ping")
STOP: Final = frame("message_stop")


class MessagesWriter(QueueingWriter):
    """A `StreamWriter` of Messages events."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__()
        self._options = options
        self._reasoning = reasoning_placement(options)
        self.send: Callable[[bytes], None] = self._out.append
        """Takes a frame; see `block_streams.BlockStream`."""
        self._open: ContentBlock | None = None  # the block that has begun and not ended
        self._text: TextBlock | None = None  # the block for further text, whether it has begun or not
        self._count = 0
        self._blank = ""  # texts that were only whitespace
        self._usage: Usage | None = None
        self._begun = self._has_content = self._called = self._refused = False

    def keepalive(self) -> bytes:
        """Returns a ping; a comment before the answer has begun, where no event is allowed."""
        return PING if self._begun and not self._ended else KEEPALIVE

    def text_frame(self, block: int) -> TextFrame | None:
        """Returns the frame around plain text of `block`, or None; see `TextWriter`."""
        known = self._blocks.get(block)
        sink = known.sink if known is not None and not self._ended else None
        return sink.text_frame() if isinstance(sink, ContentBlock) else None

    def wrote(self, block: int, frames: int, text: str) -> None:
        """Notes text written with `text_frame`; see `TextWriter`."""
        sink = self._blocks[block].sink
        assert isinstance(sink, ContentBlock)
        sink.wrote(text)

    def close(self) -> None:
        super().close()
        self._open = self._text = None

    # --- the message ------------------------------------------------------------------------------------------------

    def _begin(self, start: Start) -> None:
        self._begun, self._usage = True, start.usage
        message = {
            **fields_of(start.extra, PROTOCOL),
            "id": message_id(start.response_id),
            "type": "message",
            "role": "assistant",
            "model": self._options.request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": first_usage(self._options, start.usage),
        }
        self.send(frame("message_start", message=message))

    def _finish(self, finish: Finish) -> None:
        if not self._begun:
            self._begin(Start("", "", 0))
        self._close_queued()
        self._end_open()
        if self._blank and not self._has_content:
            text = TextBlock(self, EMPTY)
            text.show(self._blank)
            self._end_open()
        stop = stop_fields(finish.reason, finish.ending(0), called=self._called, refused=self._refused)
        usage = write_usage(finish.usage or self._usage or Usage())
        self.send(frame("message_delta", delta={**fields_of(finish.extra, PROTOCOL), **stop}, usage=usage))
        self.send(STOP)
        self._ended = True

    def _fail(self, error: GatewayError) -> None:
        self._ended = True
        self.send(frame("error", error=error_object(error)))

    # --- blocks, one after the other --------------------------------------------------------------------------------

    def _unmodelled(self, event: Opaque) -> None:
        match event:
            case Opaque(protocol="messages", payload=Mapping() as payload) if "type" in payload:
                self._queue(QueuedBlock(event))

    def _advance(self) -> None:
        while self._waiting:
            block = self._waiting[0]
            if block.sink is None:
                block.write_to(self._sink(block.opened))
            if block.closed is None:
                return
            assert block.sink is not None
            if block.late:
                block.sink.learn(block.late)
            block.sink.close(block.closed)
            self._waiting.popleft()

    def _sink(self, opened: Open | Opaque) -> TextSink:
        if isinstance(opened, Opaque):
            return OpaqueBlock(self, opened.payload)
        match opened.kind:
            case BlockKind.TOOL_CALL:
                return CallBlock(self, opened)
            case BlockKind.REFUSAL:
                return RefusalBlock(self, opened.extra)
            case BlockKind.REASONING:
                match self._reasoning:
                    case "inline":
                        return InlineReasoning(self._text_for(EMPTY), self._options.reasoning_tags)
                    case "drop":
                        return TextSink()
                return ReasoningBlock(self, opened.extra, shown=self._reasoning == "block")
            case BlockKind.TEXT:
                return self._text_for(opened.extra)

    def _text_for(self, extra: Extra) -> TextBlock:
        """Returns the block for text: the current one, or a new one if there is none or the text has fields of its
        own."""
        if self._text is None or fields_of(extra, PROTOCOL):
            self._leave_text()
            self._text = TextBlock(self, extra)
        return self._text

    def _leave_text(self) -> None:
        """Ends the current text block."""
        if self._text is not None:
            self._text.flush()
            self._blank += self._text.held
            self._text = None

    def _end_open(self) -> None:
        self._leave_text()
        if self._open is not None:
            self._open.end()
            self._open = None

    # --- for blocks -------------------------------------------------------------------------------------------------

    def begin(self, content: ContentBlock) -> int:
        """Ends the previous block and returns the index of `content`; see `block_streams.BlockStream`."""
        if self._text is not None and content is not self._text:
            self._leave_text()
        if self._open is not None:
            self._open.end()
        self._open = content
        self._has_content = self._has_content or content.is_content
        self._refused = self._refused or isinstance(content, RefusalBlock)
        self._count += 1
        return self._count - 1

    def finished(self, content: ContentBlock, *, called: bool = False) -> None:
        """Ends `content` if it is open; see `block_streams.BlockStream`."""
        self._called = self._called or called
        if self._open is content:
            self._open = None
            content.end()
        if self._text is content:
            self._leave_text()
