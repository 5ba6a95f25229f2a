"""The exchanges that run: whether their clients are still there, how long their streams were silent, and how they are
ended when the gateway stops (R17.5)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from toolwire.errors import GatewayError

TICK_S: Final = 0.1
"""How often a running exchange looks whether its client is still there (R10.7 asks for one second)."""

PROBE_S: Final = 0.6
"""When a client has ended its side of the connection, so long is waited before it is asked whether it listens."""

PROBE_AGAIN_S: Final = 10.0
"""And so long before it is asked again."""

INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Says nothing: a client has to be ready for it at any time before its answer (RFC 9110, 15.2)."""


class LivenessMonitor:
    """Watches the exchange of the current task while it waits: cancels it when the client is gone, and says when a
    stream was silent for long.

    `silence_s` is how long a stream may be silent before its `beat` is called. `running` are those that are asked to
    `tick`; one that has come to its `end` is none of them.
    """

    __slots__ = (
        "_beat",
        "_on_silence",
        "_on_stop",
        "_probed",
        "_reason",
        "_request",
        "_silence_s",
        "_task",
        "last",
        "running",
    )

    def __init__(self, request: web.Request, silence_s: float, running: set[LivenessMonitor]) -> None:
        self._request = request
        self._silence_s = silence_s
        self.running = running
        self._task = asyncio.current_task()
        self._on_silence: Callable[[], None] | None = None
        self._on_stop: Callable[[GatewayError], None] | None = None
        self._beat = 0.0
        self._reason: GatewayError | None = None
        self._probed: float | None = None
        self.last = 0.0
        """When something was said last; signs of life do not count."""

    def attend(self, beat: Callable[[], None], stop: Callable[[GatewayError], None]) -> None:
        """A stream begins: from now on call `beat` after each `silence_s` in which nothing is written, and
        `stop` if it has to end."""
        self._on_silence = beat
        self._on_stop = stop
        self.last = time.monotonic()

    def tick(self) -> bool:
        """Look after the exchange; False if there is no more to do, because the client is gone."""
        transport = self._request.transport
        now = time.monotonic()
        if transport is None or transport.is_closing() or self._has_left(transport, now):
            if self._task is not None:
                self._task.cancel()
            return False
        if self._on_silence is not None and now - max(self.last, self._beat) >= self._silence_s:
            self._beat = now
            self._on_silence()
        return True

    def _has_left(self, transport: asyncio.Transport, now: float) -> bool:
        """Whether a client that will say no more does not listen either.

        A client that has ended its side of the connection and one that has gone look the same, until something is sent
        to it: who has gone answers with a reset. So before the answer an interim one is sent, and in a stream a sign of
        life.
        """
        ended_at: float | None = getattr(self._request.protocol, "ended_at", None)
        if ended_at is None:
            return False
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            transport.abort()  # nothing is read any more, so nobody else sees the reset
            return True
        if now >= (ended_at + PROBE_S if self._probed is None else self._probed + PROBE_AGAIN_S):
            self._probed = now
            if not self._request.writer.output_size:
                transport.write(INTERIM)
            elif self._on_silence is not None:
                self._on_silence()
        return False

    def stop(self, reason: GatewayError) -> None:
        """End the exchange with `reason`: a stream in its protocol's own form. Else its task is cancelled, which finds
        the reason in `stopped`."""
        if self._on_stop is not None:
            self._on_stop(reason)
        elif self._task is not None and not self._task.cancelling():
            self._reason = reason
            self._task.cancel()

    def end(self) -> None:
        """The exchange is over. Lets go of it, which knows this monitor: only the collector could free a circle."""
        self.running.discard(self)
        self._task = self._on_silence = self._on_stop = None

    def stopped(self) -> GatewayError | None:
        """For the task, when it was cancelled: why it was stopped. None if somebody else cancelled it, who must
        prevail."""
        reason, self._reason = self._reason, None
        if reason is None or self._task is None or self._task.uncancel() > 0:
            return None
        return reason


class LivenessMonitors:
    """The running exchanges of an application: one timer looks after all, and there is none while nothing runs. No
    task."""

    draining = False
    """The gateway is about to stop: connections end with their current answer."""
    replaced = False
    """Another application answers what comes from now on."""

    def __init__(self, silence_s: float) -> None:
        self.leaving: set[Callable[[], None]] = set()
        """Called once when one of the two comes true: by connections that stay open between answers."""
        self._silence_s = silence_s
        self.running: set[LivenessMonitor] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, request: web.Request) -> LivenessMonitor:
        """Watch the exchange of the current task, until `LivenessMonitor.end` is called."""
        monitor = LivenessMonitor(request, self._silence_s, self.running)
        self.running.add(monitor)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        return monitor

    def drain(self) -> None:
        """The gateway is about to stop."""
        self.draining = True
        self._leave()

    def replace(self) -> None:
        """Another application takes the place of this one."""
        self.replaced = True
        self._leave()

    def _leave(self) -> None:
        while self.leaving:
            self.leaving.pop()()

    def stop(self, reason: GatewayError) -> int:
        """End all that run with `reason`; how many these are."""
        running = list(self.running)
        for monitor in running:
            monitor.stop(reason)
        return len(running)

    def _tick(self) -> None:
        self.running.difference_update([monitor for monitor in self.running if not monitor.tick()])
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._tick) if self.running else None


LIVENESS: Final = web.AppKey("toolwire.liveness", LivenessMonitors)
