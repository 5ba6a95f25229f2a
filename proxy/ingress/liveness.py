"""Monitors the running exchanges: detects clients that are gone, keeps silent streams alive, and ends exchanges when
the gateway stops (R17.5)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from ..errors import GatewayError

TICK_S: Final = 0.1
"""Interval of the checks of running exchanges (R10.7 requires one second)."""

PROBE_S: Final = 0.6
"""Wait after a client has closed its sending side, before probing whether it still reads."""

PROBE_AGAIN_S: Final = 10.0
"""Wait between further probes."""

INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""An interim response. Clients must accept it at any time before the final one (RFC 9110, 15.2)."""


class LivenessMonitor:
    """Monitors the exchange of the current task: cancels it when the client is gone, and calls back when its stream was
    silent for `silence_s`. `running` and `streams`: the sets of active monitors and of those of streams, which this one
    leaves at its `end`."""

    __slots__ = (
        "_beat",
        "_on_silence",
        "_on_stop",
        "_probed",
        "_reason",
        "_request",
        "_silence_s",
        "_streams",
        "_task",
        "last",
        "running",
    )

    def __init__(
        self, request: web.Request, silence_s: float, running: set[LivenessMonitor], streams: set[LivenessMonitor]
    ) -> None:
        self._request = request
        self._silence_s = silence_s
        self.running = running
        self._streams = streams
        self._task = asyncio.current_task()
        self._on_silence: Callable[[], None] | None = None
        self._on_stop: Callable[[GatewayError], None] | None = None
        self._beat = 0.0
        self._reason: GatewayError | None = None
        self._probed: float | None = None
        self.last = 0.0
        """Time of the last data sent; keep-alives do not count."""

    def attend(self, beat: Callable[[], None], stop: Callable[[GatewayError], None]) -> None:
        """Called when a stream begins. `beat` is called after each `silence_s` without data; `stop` if the stream has
        to end."""
        self._streams.add(self)
        self._on_silence = beat
        self._on_stop = stop
        self.last = time.monotonic()

    def tick(self) -> bool:
        """Checks the exchange. Returns False if the client is gone and the task was cancelled."""
        transport = self._request.transport
        now = time.monotonic()
        if transport is None or transport.is_closing() or self._is_gone(transport, now):
            if self._task is not None:
                self._task.cancel()
            return False
        if self._on_silence is not None and now - max(self.last, self._beat) >= self._silence_s:
            self._beat = now
            self._on_silence()
        return True

    def _is_gone(self, transport: asyncio.Transport, now: float) -> bool:
        """True if a client that has closed its sending side does not read either.

        A client that only closed its sending side and one that is gone look the same until data is sent: the latter
        answers with a TCP reset. So an interim response is sent before the answer, or a keep-alive within a stream.
        """
        ended_at: float | None = getattr(self._request.protocol, "ended_at", None)
        if ended_at is None:
            return False
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            transport.abort()  # the connection is no longer read, so only this check sees the reset
            return True
        if now >= (ended_at + PROBE_S if self._probed is None else self._probed + PROBE_AGAIN_S):
            self._probed = now
            if not self._request.writer.output_size:
                transport.write(INTERIM)
            elif self._on_silence is not None:
                self._on_silence()
        return False

    def stop(self, reason: GatewayError) -> None:
        """Ends the exchange with `reason`. A stream ends with an error in its protocol; otherwise the task is
        cancelled, and gets the reason from `stop_reason`."""
        if self._on_stop is not None:
            self._on_stop(reason)
        elif self._task is not None and not self._task.cancelling():
            self._reason = reason
            self._task.cancel()

    def end(self) -> None:
        """Called when the exchange is over. Drops all references to it, to avoid a reference cycle."""
        self.running.discard(self)
        self._streams.discard(self)
        self._task = self._on_silence = self._on_stop = None

    def stop_reason(self) -> GatewayError | None:
        """Called by the cancelled task. Returns the reason of `stop`, or None if something else cancelled the task;
        then the task must raise the cancellation."""
        reason, self._reason = self._reason, None
        if reason is None or self._task is None or self._task.uncancel() > 0:
            return None
        return reason

    def is_cancelled(self) -> bool:
        """True if somebody has cancelled the task. Otherwise a cancellation in it is that of another task, for which a
        middleware waited."""
        return self._task is None or self._task.cancelling() > 0


class LivenessMonitors:
    """The monitors of an application's running exchanges. One timer serves all; there is none while no exchange
    runs."""

    draining = False
    """The gateway is about to stop: connections close after their current answer."""
    replaced = False
    """Another application answers all further requests."""

    def __init__(self, silence_s: float) -> None:
        self.leaving: set[Callable[[], None]] = set()
        """Callbacks of connections that stay open between answers; called once when one of the two flags is set."""
        self._silence_s = silence_s
        self.running: set[LivenessMonitor] = set()
        self.streams: set[LivenessMonitor] = set()
        """The monitors of `running` whose answer is streamed and has begun."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, request: web.Request) -> LivenessMonitor:
        """Monitors the exchange of the current task until `LivenessMonitor.end` is called."""
        monitor = LivenessMonitor(request, self._silence_s, self.running, self.streams)
        self.running.add(monitor)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        return monitor

    def drain(self) -> None:
        """Called when the gateway is about to stop."""
        self.draining = True
        self._leave()

    def replace(self) -> None:
        """Called when another application replaces this one."""
        self.replaced = True
        self._leave()

    def _leave(self) -> None:
        while self.leaving:
            self.leaving.pop()()

    def stop(self, reason: GatewayError) -> int:
        """Ends all running exchanges with `reason`. Returns their number."""
        running = list(self.running)
        for monitor in running:
            monitor.stop(reason)
        return len(running)

    def _tick(self) -> None:
        self.running.difference_update([monitor for monitor in self.running if not monitor.tick()])
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._tick) if self.running else None


LIVENESS: Final = web.AppKey("toolwire.liveness", LivenessMonitors)
