"""Base of the writers of protocols in which only one block of a streamed answer is open at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...errors import GatewayError
from ...events import BlockStatus, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from ...model import EMPTY, Extra
from .text_sinks import TextSink


class QueuedBlock:
    """A queued block: the object that writes it, or its texts while it waits."""

    __slots__ = ("closed", "late", "opened", "sink", "texts")

    def __init__(self, opened: Open | Opaque) -> None:
        self.opened = opened
        self.texts: list[str] = []
        self.sink: TextSink | None = None
        self.closed: BlockStatus | None = "complete" if isinstance(opened, Opaque) else None
        self.late: Extra = EMPTY

    def write_to(self, sink: TextSink) -> None:
        """Writes the texts so far, and all further ones, to `sink`."""
        self.sink = sink
        for text in self.texts:
            sink.write(text)


class QueueingWriter:
    """A `StreamWriter` that writes one block after the other: a block that opens while another is open waits until that
    one has closed. Subclasses append frames to `_out`."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._blocks: dict[int, QueuedBlock] = {}
        self._waiting: deque[QueuedBlock] = deque()
        self._ended = False

    def feed(self, events: Iterable[Event]) -> bytes:
        """Returns the frames for these events, possibly none."""
        for event in events:
            if self._ended:
                break
            match event:
                case Delta():
                    block = self._blocks[event.block]
                    if block.sink is not None:
                        block.sink.write(event.text)
                    else:
                        block.texts.append(event.text)
                case Open():
                    block = self._blocks[event.block] = QueuedBlock(event)
                    if event.choice == 0:
                        self._queue(block)
                case Close():
                    block = self._blocks.pop(event.block)
                    block.closed, block.late = event.status, event.extra
                    self._advance()
                case Start():
                    self._begin(event)
                case Opaque():
                    self._unmodelled(event)
                case Finish():
                    self._finish(event)
                case Fault():
                    self._fail(event.error)
                case _:
                    pass
        data = b"".join(self._out)
        self._out.clear()
        return data

    def close(self) -> None:
        """Drops the reference cycles of an answer that did not finish: blocks refer to their writer."""
        self._blocks.clear()
        self._waiting.clear()

    def _queue(self, block: QueuedBlock) -> None:
        self._waiting.append(block)
        if len(self._waiting) == 1:
            self._advance()

    def _close_queued(self) -> None:
        """Ends all queued blocks, at the end of the answer."""
        for block in self._waiting:
            block.closed = block.closed or "complete"
        self._advance()

    # Each protocol has its own frames.

    def _advance(self) -> None:
        """Writes the first queued block as far as it has arrived, and the blocks behind it once it has closed."""
        raise NotImplementedError

    def _begin(self, start: Start) -> None:
        raise NotImplementedError

    def _unmodelled(self, event: Opaque) -> None:
        raise NotImplementedError

    def _finish(self, finish: Finish) -> None:
        raise NotImplementedError

    def _fail(self, error: GatewayError) -> None:
        raise NotImplementedError
