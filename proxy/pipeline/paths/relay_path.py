"""Relay: the stream path of an answer that no stage changes. Its bytes are sent as they came. For watching
stages they are also read into events.

Rules:

1. Events are read from the sent bytes: whole frames, up to an error, a secret or the end
   (`toolwire.pipeline.paths.relay`).
2. The frames of the end wait until the watching stages have processed the last event.
3. A watching stage may end the answer with an exception. The client gets the error and nothing else of that read.
4. A large frame is read in a thread.
5. An answer whose end was seen is complete, however its connection ended.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import GatewayError
from ...events import Event, Fault, Finish, Start
from ...model import Usage
from ...protocols.streams import StreamReader, StreamWriter
from ...support.offload import in_thread
from ...upstream.client.connections import is_cut
from ..answers.stage_chain import StageChain
from .relay import Relay
from .stream_path import StreamPath


class SideReader:
    """Reads events from bytes that are sent unchanged, for stages that change nothing. Unreadable frames are ignored.
    `ended`: the end was read. `broke`: a stage ended the answer before that."""

    def __init__(self, reader: StreamReader, chain: StageChain) -> None:
        self.ended = self.broke = False
        self.reader = reader
        self._chain = chain
        self._fault: Fault | None = None

    async def settle(self, fault: Event | None) -> Fault | None:
        """Passes the end of the answer to the stages before it is sent: the end that was read, or `fault` if the answer
        broke off. Returns the `Fault` with which a stage ends the answer instead, or None."""
        if fault is not None and not (self.ended or self.broke):
            self._feed([fault])
        self._note(await self._chain.settle())
        return self._fault

    def take(self, events: list[Event]) -> None:
        """Shows events to the watching stages."""
        if events and isinstance(events[-1], Fault):
            events = events[:-1]  # the relay finds errors
        if not events or self.ended or self.broke:
            return
        self.ended = isinstance(events[-1], Finish)
        self._feed(events)
        self.broke = not self.ended and (self._chain.waits or self._fault is not None)

    def _feed(self, events: list[Event]) -> None:
        self._note(self._chain.feed(events))

    def _note(self, events: list[Event]) -> None:
        if events and isinstance(events[-1], Fault):
            self._fault = events[-1]


class RelayPath(StreamPath):
    """Sends bytes unread; `toolwire.pipeline.paths.relay` tells what is checked. `note` is called with the server's
    token counts, if there are any."""

    def __init__(
        self,
        relay: Relay,
        writer: StreamWriter,
        side: SideReader | None = None,
        note: Callable[[Usage | None], None] = lambda usage: None,
    ) -> None:
        super().__init__(writer)
        self._relay = relay
        self._side = side
        self._note_usage = note
        self._held = b""  # the frames of the end, while the watching stages process it
        self._deferred: list[bytes] = []  # bytes that may end a large frame, and all bytes after them
        self._ends = False  # True if the end has to be read in a thread

    @property
    def feed(self) -> Callable[[bytes], bytes]:
        return self._take

    def _take(self, data: bytes, seen: tuple[bytes, list[Event]] | None = None) -> bytes:
        if self.over:
            return b""
        relay, side = self._relay, self._side
        if seen is not None:
            out, events = seen
        elif self.works or relay.large:
            self._deferred.append(data)
            self.works = True
            return b""
        else:
            out = relay.feed(data)
            events = side.reader.feed(out) if side is not None and out else []
        if side is not None and out:
            side.take(events)
            if side.broke:
                self.over = True
                return b""
        self.has_sent = relay.has_sent
        if relay.fault is not None:
            self.over = True
            self.last = Fault(relay.fault)
        elif relay.ended:
            self.over = self.drained = True
            if side is not None:
                if not side.ended:
                    side.take(side.reader.finish())
                self._held, out = out, b""
        return out

    async def work_off(self) -> bytes:
        out = b""
        while self._deferred and not self.over:
            data = b"".join(self._deferred)
            self._deferred.clear()
            out += self._take(data, await in_thread(self._read, data))
        self._deferred.clear()
        self.works = False
        return out

    def _read(self, data: bytes) -> tuple[bytes, list[Event]]:
        """Returns the bytes of `data` that can be sent, and the events in them. Called in a thread."""
        out = self._relay.feed(data)
        return out, self._side.reader.feed(out) if self._side is not None and out else []

    def finish(self, error: GatewayError | None = None) -> bytes:
        if error is None and self._relay.large:
            self._ends = self.over = True
            return b""
        return self._conclude(error, *self._read_end(error))

    def _read_end(self, error: GatewayError | None) -> tuple[bytes, list[Event], list[Event]]:
        """Returns the remaining bytes to send, the events in them, and the events of the end. May be called in a
        thread."""
        out = self._relay.finish() if error is None or is_cut(error) else b""
        side = self._side
        if side is None:
            return out, [], []
        events = side.reader.feed(out) if out else []
        faulty = (error or self._relay.fault) is not None and not self._relay.ended
        return out, events, [] if faulty else side.reader.finish()

    def _conclude(self, error: GatewayError | None, out: bytes, events: list[Event], last: list[Event]) -> bytes:
        self.over = self.drained = True
        self.has_sent = self._relay.has_sent
        fault = error or self._relay.fault
        if fault is not None and not self._relay.ended:
            self.last = Fault(fault)
        if self._side is not None:
            self._side.take(events)
            if self.last is None and not self._side.ended:
                self._side.take(last)
            self._held, out = out, b""
        return out

    async def settle(self) -> bytes:
        shown = b""
        if self._ends:
            self._ends = False
            shown = self._conclude(None, *await in_thread(self._read_end, None))
        held = self._held
        if self._side is not None:
            fault = await self._side.settle(self.last)
            if fault is not None and self.last is None:
                self.last, held = fault, b""
        if self.last is None and self._relay.counts:
            self._note_usage(await self._relay.usage())
        return shown + held + (self._error_bytes(self.last) if self.last is not None else b"")

    def fail(self, error: GatewayError) -> bytes:
        # Errors after the end marker do not concern the client.
        return b"" if self._relay.ended else self._error_bytes(Fault(error))

    def _error_bytes(self, last: Event) -> bytes:
        """Returns the error that ends the answer, in the client's protocol. The beginning of an answer is written
        before it only if the server's was not sent."""
        if self._relay.has_sent:
            self._writer.feed([Start("", "", 0)])
        return self._writer.feed([last])
