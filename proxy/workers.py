"""Several processes on one port: starts them, replaces those that die, stops them all (R17.6).

Rules of this module:

1. The parent never accepts a connection and never runs an event loop: it only watches. Its own sockets are bound but do not
   listen; they keep the port.
2. Workers share the port by SO_REUSEPORT; the system spreads the connections.
3. A worker that served and died is replaced within a second. One that cannot even start is tried again, and when
   `MAX_FAILED_STARTS` attempts in a row failed while no worker serves, the gateway gives up with status 1.
4. Workers end when the parent does, even if it was killed: they watch a pipe whose other end only it holds.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FrameType
from typing import Final

from .config import GatewayConfig
from .metrics import CELLS, Cells
from .serving import AppFactory, bind, close, run
from .telemetry import Metrics

LOG: Final = logging.getLogger("toolwire.workers")

MAX_FAILED_STARTS: Final = 5
RESTART_DELAY_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Before the next attempt, by the number of failures in a row."""
KILL_AFTER_S: Final = 5.0
"""Beyond the grace of `server.shutdown_grace_s`, a worker that did not end is killed."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class _Worker:
    process: ForkProcess
    pipe: Connection
    """Gives one byte when the worker serves."""
    place: int
    """Its number among the workers; whoever replaces it gets the same, and goes on with what it counted."""
    serves: bool = False
    started: float = field(default_factory=time.monotonic)


class Supervisor:
    """Runs `config.server.workers` workers. `sockets` hold the port, `ready` is called when all serve for the first time."""

    def __init__(
        self, config: GatewayConfig, create: AppFactory, sockets: Sequence[socket.socket], ready: Callable[[], None]
    ) -> None:
        self._config = config
        self._create = create
        self._sockets = sockets
        self._ready = ready
        self._workers: list[_Worker] = []
        self._restarts: list[float] = []
        """When the missing workers are due, on the monotonic clock."""
        self._failures = 0
        self._announced = False
        self._signals = 0
        self._life: tuple[int, int] = (-1, -1)
        self._folder: Path
        """Of these workers alone: what they count."""

    def run(self) -> int:
        """Watch the workers until a signal comes; the exit status. Must be called in the main thread."""
        self._folder = Path(mkdtemp(prefix="toolwire-"))
        wake, waker = socket.socketpair()
        wake.setblocking(False)
        waker.setblocking(False)
        self._life = os.pipe()
        before = [(number, signal.signal(number, self._on_signal)) for number in _SIGNALS]
        wakeup = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        gave_up = True
        try:
            self._restarts = [0.0] * self._config.server.workers
            gave_up = not self._watch(wake)
        finally:
            cut = self._stop(wake)
            signal.set_wakeup_fd(wakeup)
            for number, handler in before:
                signal.signal(number, handler)
            for end in self._life:
                os.close(end)
            wake.close()
            waker.close()
            rmtree(self._folder, ignore_errors=True)
        return 1 if gave_up or cut else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _told(self) -> bool:
        """A signal came. A method, because it changes between two lines."""
        return self._signals > 0

    def _watch(self, wake: socket.socket) -> bool:
        """Keep the workers running until a signal (True) or until there is no use in it (False)."""
        while not self._told():
            now = time.monotonic()
            due = [at for at in self._restarts if at <= now]
            self._restarts = [at for at in self._restarts if at > now]
            for _ in due:
                self._start()
            self._wait(wake, min(self._restarts) - time.monotonic() if self._restarts else None)
            for worker in self._workers:
                if not worker.serves and worker.pipe.poll():
                    with suppress(EOFError):
                        worker.pipe.recv_bytes()
                        worker.serves = True
                        self._failures = 0
            if not self._announced and len(self._serving()) == self._config.server.workers:
                self._announced = True
                self._ready()
            if self._told():
                break  # whoever ended just now was told to, as we were
            for worker in [worker for worker in self._workers if worker.process.exitcode is not None]:
                self._bury(worker)
            if self._failures >= MAX_FAILED_STARTS and not self._serving():
                LOG.error("giving up: %d attempts to start a worker failed", self._failures)
                return False
        return True

    def _serving(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.serves and worker.process.exitcode is None]

    def _wait(self, wake: socket.socket, timeout: float | None) -> None:
        """Until a signal, a death, a first sign of life, or the time is over."""
        watched: list[Connection | socket.socket | int] = [wake]
        for worker in self._workers:
            watched.append(worker.process.sentinel)
            if not worker.serves:
                watched.append(worker.pipe)
        wait(watched, None if timeout is None else max(0.0, timeout))
        with suppress(BlockingIOError):
            wake.recv(4096)

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        taken = {worker.place for worker in self._workers}
        place = next(number for number in count() if number not in taken)
        process = multiprocessing.get_context("fork").Process(target=self._work, args=(theirs, place))
        # A signal that comes while the child still has the parent's handlers would be lost: it waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        theirs.close()
        self._workers.append(_Worker(process, ours, place))

    def _work(self, pipe: Connection, place: int) -> None:
        """In the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(self._life[1])
        server = self._config.server
        sockets = bind(server.host, self._sockets[0].getsockname()[1], share=True)
        close(self._sockets)

        def ready() -> None:
            pipe.send_bytes(b"1")
            pipe.close()

        metrics = Metrics(Cells(self._folder / f"{place}{CELLS}"))
        raise SystemExit(run(self._config, self._create, sockets, metrics, ready=ready, parent=self._life[0]))

    def _bury(self, worker: _Worker) -> None:
        """Note a death and when the next worker is due."""
        self._workers.remove(worker)
        worker.pipe.close()
        code, pid = worker.process.exitcode, worker.process.pid
        worker.process.close()
        if worker.serves:
            LOG.error("worker %d died with status %s; starting another", pid, code)
        else:
            self._failures += 1
            LOG.error("worker %d could not start (status %s)", pid, code)
        delay = RESTART_DELAY_S[min(self._failures, len(RESTART_DELAY_S) - 1)]
        # One that dies again and again right after its start must not keep a core busy with starting.
        next_start = worker.started + RESTART_DELAY_S[-1] if worker.serves else 0.0
        self._restarts.append(max(time.monotonic() + delay, next_start))

    def _stop(self, wake: socket.socket) -> bool:
        """End all workers; whether one had to be killed."""
        seen = self._signals
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + self._config.server.shutdown_grace_s + KILL_AFTER_S
        while any(worker.process.exitcode is None for worker in self._workers):
            left = deadline - time.monotonic()
            if left <= 0 or self._signals > max(seen, 1):
                break
            for worker in self._workers:
                worker.serves = True  # nobody waits for a first sign of life any more
            self._wait(wake, left)
            self._workers = [worker for worker in self._workers if worker.process.exitcode is None]
        running = [worker for worker in self._workers if worker.process.exitcode is None]
        for worker in running:
            worker.process.kill()
            worker.process.join()
        return bool(running)
