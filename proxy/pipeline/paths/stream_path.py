"""The interface of a stream path, with what all paths share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from ...errors import GatewayError
from ...events import Event
from ...protocols.streams import StreamWriter


class StreamPath:
    """One streamed answer, written by `writer` in the client's protocol where it is not sent as it came.

    `has_sent`: the client has seen something, or will with the output so far, so errors are sent in-band. `over`: the
    path accepts no more input. `drained`: the server has sent everything. `continues`: `over`, but `go_on` has more
    output. `works`: there is deferred work for `work_off`; input that arrives meanwhile is queued behind it. `last`:
    the `Finish` or `Fault` that was written, if events were.
    """

    def __init__(self, writer: StreamWriter) -> None:
        self.has_sent = self.over = self.drained = self.continues = self.works = False
        self.last: Event | None = None
        self._writer = writer

    @property
    def feed(self) -> Callable[[bytes], bytes]:
        """A function that takes the next bytes of the server, cut anywhere, and returns the bytes to send. Looked up
        once, called for each read."""
        raise NotImplementedError

    async def work_off(self) -> bytes:
        """Runs the deferred work in a thread and returns the resulting bytes to send."""
        raise NotImplementedError

    def finish(self, error: GatewayError | None = None) -> bytes:
        """Ends the input, normally or with `error`, and returns the remaining bytes to send."""
        raise NotImplementedError

    async def go_on(self) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of the answer that replaces the end. Called after `over` and `settle` if the path
        `continues`. The path is not `over` meanwhile."""
        for _ in ():
            yield b""

    def give_up(self, error: GatewayError) -> bytes:
        """Ends `go_on` early and returns the remaining bytes to send."""
        return b""

    async def settle(self) -> bytes:
        """Does the work that must precede the last event, and returns the remaining bytes to send. Called once the path
        is `over`. Sets `continues` if another answer follows."""
        raise NotImplementedError

    def fail(self, error: GatewayError) -> bytes:
        """Returns the in-band form of an error that ends the stream; empty if the stream has already ended."""
        raise NotImplementedError

    def keepalive(self) -> bytes:
        """Returns a frame that keeps the connection alive."""
        return self._writer.keepalive()

    def close(self) -> None:
        """Drops reference cycles. Nothing is called afterwards."""
