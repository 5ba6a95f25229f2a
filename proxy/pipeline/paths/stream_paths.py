"""Three paths from the bytes of a server's stream to the bytes for the client. One is chosen for each answer.

- **relay**: the client speaks the server's protocol and no middleware changes anything. The bytes are sent
  unchanged; for watching middlewares they are also read into events (`toolwire.pipeline.paths.relay_path`).
- **fast path**: the server sends text in chunks of Chat and no middleware reads text. Like **transcode**, but the text
  of a frame that holds nothing else goes from the frame's bytes to the scanner. If no call can begin in it, it is
  copied into a frame for the client. Law: the output equals that of transcode, byte for byte.
- **transcode**: everything else. Bytes are read into events, run through the stages of the reply, and written in the
  client's protocol. Answers that come as events, or that have stages which wait, enter here as events.

Rules for all: a path never waits, so that it can run inside the read callback. It returns one piece of output for each
piece of input. A stream never just stops: it ends with the protocol's end or with an error in its form (R7.9). Only the
last event may have to wait (`settle`), and another answer may replace it (`go_on`).
`toolwire.pipeline.sending.stream_sender` moves the bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Final, cast

from ...errors import BackendFault, GatewayError
from ...events import BlockKind, Delta, Event, Fault, Finish, Opaque, Open, StreamGrammarError
from ...fastparse import CallScanner, ChunkGate
from ...protocols.shared.numbers import choices_of
from ...protocols.streams import ProseReader, StreamReader, StreamWriter, TextWriter
from ...support.offload import OFFLOAD_BYTES, in_thread
from ...upstream.client.connections import is_cut
from ...upstream.servers.base import WireSource
from ...upstream.servers.leak_detection import leak_detector
from ...upstream.servers.private_data import NOTHING, PrivateData
from ...upstream.servers.upstream_errors import clean_error
from ..answers.reply import Reply
from ..answers.stage_chain import StageChain
from ..answers.stages import Stage, Watcher
from ..exchange.request_state import Exchange
from ..scanning.scan_stage import ScanStage
from .relay import Relay
from .relay_path import RelayPath, SideReader
from .stream_path import StreamPath
from .whole import note_usage

_VISIBLE: Final = (Delta, Open, Opaque, Finish)


def choose(exchange: Exchange, reply: Reply) -> tuple[StreamPath, WireSource | None]:
    """Returns the path for `reply`, and the source of the bytes to feed it. Without a source, `Transcode.take` gets the
    reply's events."""
    source, protocol = reply.wire, exchange.protocol
    writer = protocol.writer(exchange.write_options())
    relays = reply.streamed and reply.unchanged_source(protocol.name) is not None
    chain = reply.chain() if reply.streamed and source is not None else None
    if chain is None or source is None:
        return Transcode(None, StageChain(()), writer), None
    frame_bytes = exchange.route.limits.frame_bytes
    choices = choices_of(exchange.request.sampling.n)
    if relays:
        relay = Relay(source.protocol, frame_bytes, source.private, reply.renaming, source.note, choices)
        side = None
        if chain.stages:
            side = SideReader(source.protocol.reader(frame_bytes=frame_bytes, choices=choices), chain)
        return RelayPath(relay, writer, side, lambda usage: note_usage(exchange, usage, None)), source
    reader = source.protocol.reader(frame_bytes=frame_bytes, choices=choices, note=source.note)
    if _copies_text(type(reader), type(writer)) and allows_fast_path(chain):
        fast = cast("ProseReader", reader), chain, cast("TextWriter", writer)
        return FastPath(*fast, source.private, frame_bytes), source
    return Transcode(reader, chain, writer, source.private), source


@cache
def _copies_text(reader: type[StreamReader], writer: type[StreamWriter]) -> bool:
    """Returns True if the classes are a `ProseReader` and a `TextWriter`. Cached for each pair of classes, because a
    check against a protocol looks at every attribute."""
    return hasattr(reader, "open_prose") and issubclass(writer, TextWriter)


def allows_fast_path(chain: StageChain) -> bool:
    """Returns True if no stage changes plain text or has to see it at once."""
    reading = [stage for stage in chain.stages if not stage.ignores_text]
    return not reading or (len(reading) == 1 and isinstance(reading[0], ScanStage))


class Transcode(StreamPath):
    """Reads bytes into events, runs them through the stages, and writes bytes."""

    def __init__(
        self, reader: StreamReader | None, chain: StageChain, writer: StreamWriter, private: PrivateData = NOTHING
    ) -> None:
        super().__init__(writer)
        self._reader = reader
        self._chain = chain
        self._private = private
        self._leaks = None if reader is None else leak_detector(private)
        self._unread = 0  # bytes since the last event: roughly the size of the incomplete frame
        self._deferred: list[bytes] = []  # bytes to read in a thread
        self._behind = False  # True while bytes are deferred
        self._ends = False  # the end is deferred too

    @property
    def feed(self) -> Callable[[bytes], bytes]:
        return self._read

    def _read(self, data: bytes) -> bytes:
        assert self._reader is not None
        if self.over or self._defers(data):
            return b""
        events = self._reader.feed(data)
        self._unread = 0 if events else self._unread + len(data)
        return self.take(events)

    def _defers(self, data: bytes) -> bool:
        """Defers `data` for `work_off` if it may end a large frame or follows deferred data. Returns True if it was
        deferred."""
        if self._unread <= OFFLOAD_BYTES and not self._behind:
            return False
        self._deferred.append(data)
        self._behind = self.works = True
        return True

    async def _read_deferred(self) -> bytes:
        """Reads the deferred bytes in a thread."""
        out = b""
        reader = self._reader
        while self._deferred and not self.over:
            assert reader is not None
            data = b"".join(self._deferred)
            self._deferred.clear()
            events = await in_thread(reader.feed, data)
            self._unread = 0 if events else self._unread + len(data)
            out += self.take(events)
        self._deferred.clear()
        self._behind = False
        if self._ends and not self.over:
            assert reader is not None
            out += self._ended(await in_thread(reader.finish))
        return out

    def take(self, events: list[Event]) -> bytes:
        """Takes the next events of the server and returns the bytes to send."""
        if not events:
            return b""
        if self._leaks is not None:
            events = self._leaks.events(events)
        last = events[-1]
        if isinstance(last, Finish | Fault):
            self.drained = True
            if isinstance(last, Fault):
                events[-1] = Fault(clean_error(last.error, private=self._private))
        shown = self._chain.feed(events)
        self.works = self._chain.works or self._behind
        return self._write(shown) if shown or self._chain.waits else b""

    async def work_off(self) -> bytes:
        out = await self._read_deferred()
        if self._chain.works:
            out += self._write(await self._chain.work_off())
        self.works = self._behind
        return out

    def finish(self, error: GatewayError | None = None) -> bytes:
        if error is None and self._unread > OFFLOAD_BYTES:
            self._ends = True
            return b""
        events: list[Event] = []
        if self._reader is not None and (error is None or is_cut(error)):
            events = self._reader.finish()
        if error is None or (events and isinstance(events[-1], Finish)):
            return self._ended(events)
        return self.take([Fault(error)])

    def _ended(self, events: list[Event]) -> bytes:
        """Takes the last events of the server and returns the bytes to send. A missing end becomes an error."""
        out = self.take(events)
        if not (self.over or self.drained):
            fault = BackendFault(
                "The model server's stream ended without its last event.", code="upstream_disconnected"
            )
            out += self.take([Fault(fault)])
        return out

    def go_on(self) -> AsyncGenerator[bytes, None]:
        self.over = False
        return self._rest()

    async def _rest(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._chain.rest()) as batches:
            async for events in batches:
                yield self._write(events)
        self._write([])

    def give_up(self, error: GatewayError) -> bytes:
        return self._write(self._chain.give_up(Fault(clean_error(error, private=self._private))))

    async def settle(self) -> bytes:
        out = await self._read_deferred() if self._ends else b""
        events = await self._chain.settle()
        self.works = self._ends = False
        self.continues = self._chain.continues
        out += self._write(events) if events or self.continues else b""
        if self.last is None and not self.continues:
            raise StreamGrammarError("a middleware has dropped the last event of the answer")
        return out

    def fail(self, error: GatewayError) -> bytes:
        return self._writer.feed([Fault(error)])

    def close(self) -> None:
        if not isinstance(self.last, Finish):
            self._writer.close()

    def _write(self, events: list[Event]) -> bytes:
        if self._chain.waits:
            self.over = True
        if not events:
            return b""
        self.has_sent = self.has_sent or any(isinstance(event, _VISIBLE) for event in events)
        last = events[-1]
        if isinstance(last, Finish | Fault):
            self.last = last
            self.over = True
        return self._writer.feed(events)


class FastPath(Transcode):
    """The fast path: transcodes, but copies text from the server's frames directly into the client's, and shows it to
    watching stages in larger pieces."""

    def __init__(
        self, reader: ProseReader, chain: StageChain, writer: TextWriter, private: PrivateData, frame_bytes: int
    ) -> None:
        super().__init__(reader, chain, writer, private)
        self._prose = reader
        self._texts = writer
        self._gate = ChunkGate(self._slow, self._found, frame_bytes)
        if self._leaks is not None:
            self._gate.watch(self._leaks.prose)
        self._scan: ScanStage | None = None
        self._after = 0  # the number of the stage after the scanner
        self._watching: list[Watcher] = []  # watching stages before the scanner
        self._watching_shown: list[Watcher] = []  # and after it, or all if there is no scanner
        self._waiting: list[Stage] = []
        for number, stage in enumerate(chain.stages, 1):
            if isinstance(stage, ScanStage):
                self._scan, self._after = stage, number
                self._watching, self._watching_shown = self._watching_shown, []
            elif isinstance(stage, Watcher):
                self._watching_shown.append(stage)
            elif isinstance(stage, Stage) and type(stage).waits_in is not Stage.waits_in:
                self._waiting.append(stage)
        self._block = self._shown = -1  # the block of passing text, before and after the scanner
        self._scans = False  # True if passing text goes through the scanner

    @property
    def feed(self) -> Callable[[bytes], bytes]:
        return self._gate.feed  # the gate is shut at the end

    async def work_off(self) -> bytes:
        out = await super().work_off()
        self._set()
        return out

    def finish(self, error: GatewayError | None = None) -> bytes:
        self._catch_up()
        return super().finish(error)

    def fail(self, error: GatewayError) -> bytes:
        self._catch_up()
        return super().fail(error)

    def keepalive(self) -> bytes:
        self._catch_up()
        try:
            return super().keepalive()
        finally:
            self._set()

    def close(self) -> None:
        super().close()
        del self._gate

    def _slow(self, data: bytes) -> bytes:
        if self.over:
            return b""
        if self._defers(data):
            self._catch_up()
            self._set()
            return b""
        prose = self._prose.open_prose
        events = self._prose.feed(data)
        self._unread = 0 if events else self._unread + len(data)
        if not events and self._prose.open_prose is prose:
            return b""  # an incomplete frame leaves the gate as it is
        if self._gate.passed:
            self._catch_up()
        out = self.take(events)
        self._set()
        return out

    def _found(self, events: list[Event]) -> bytes:
        """Processes events that the scanner found in text that was fed to it directly. Returns the bytes to send."""
        assert self._scan is not None
        self._catch_up()
        out = self._write(self._chain.feed(self._scan.found(events), self._after))
        self._set()
        return out

    def _set(self) -> None:
        """Opens the gate for text if the resulting frames are known; otherwise shuts it."""
        prose = None if self.over or self.works else self._prose.open_prose
        if prose is None or prose[1] is BlockKind.REFUSAL:
            self._gate.shut()
            return
        block, kind = prose
        scanner: CallScanner | None = None
        shown: int | None = block
        self._scans = self._scan is not None and kind is BlockKind.TEXT
        if self._scan is not None and self._scans:
            scanner = self._scan.scanner_of(block)
            shown = None if scanner is None else scanner.block
        if shown is not None and any(stage.waits_in(shown) for stage in self._waiting):
            self._gate.shut()
            return
        frame = None if shown is None else self._texts.text_frame(shown)
        self._block = block
        if shown is not None and frame is not None:
            self._shown = shown
            thinks = kind is BlockKind.REASONING
            self._gate.open(scanner, frame.head, frame.tail, frame.number, frame.middle, reasoning=thinks)
        elif scanner is not None:
            self._gate.open(scanner, None, b"")
        else:
            self._gate.shut()

    def _catch_up(self) -> None:
        """Reports the text that bypassed events to the writer and the watching stages."""
        if not self._gate.passed:
            return
        frames, fed, given = self._gate.take()
        if self._scans and self._scan is not None:
            self._scan.note_text(self._block, fed)
            _show(self._watching, self._block, fed)
        elif frames:
            _show(self._watching, self._shown, given)
        if frames:
            _show(self._watching_shown, self._shown, given)
            self._texts.wrote(self._shown, frames, given)


def _show(watching: Sequence[Watcher], block: int, text: str) -> None:
    """Shows text that bypassed events to these stages. Raises the `GatewayError` with which a stage ends the answer."""
    for stage in watching:
        last = stage.feed([Delta(block, text)])[-1]
        if isinstance(last, Fault):
            raise last.error
