"""Several worker processes on one port: starts, replaces, reloads and stops them (R17.6).

Rules of this module:

1. The parent process never accepts connections and runs no event loop: it only supervises.
2. Each worker has a slot with its own sockets on the shared port (SO_REUSEPORT; the operating system distributes
   connections). The parent also keeps these sockets, so connections queued for a dead worker are accepted by its
   successor. See docs/adr/0014.
3. A worker that was serving and died is replaced within a second. A failed start is retried. After `MAX_FAILED_STARTS`
   failures in a row without any serving worker, the gateway exits with status 1.
4. Workers end when the parent ends, even if it was killed, because their pipe to it closes.
5. A new configuration is read by the parent and tried by one worker. The others get it only if that one could start it.
   A worker that hangs does not hold up a reload: after `TRY_S` the next one tries, unless it hangs because of this
   configuration. No worker gets another configuration before it has answered about the last one, so that its pipe
   cannot fill up and block the parent.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FrameType
from typing import Final, Literal

from ..config import GatewayConfig
from ..observability.logs import number_lines
from ..observability.metrics import CELLS, SharedCounters
from ..observability.telemetry import Metrics
from .hosting import AppFactory, apply_logging, log_refusal, reread
from .notify import READY, STOPPING, notify, reloading
from .process import LAST_S, Reload, run
from .sockets import bind_shared, close

LOG: Final = logging.getLogger("toolwire.workers")

MAX_FAILED_STARTS: Final = 5
RESTART_DELAY_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Delay before the next attempt, by the number of failures in a row."""
KILL_AFTER_S: Final = 5.0 + LAST_S
"""A worker that has not ended this long after delay and grace of `server` is killed."""
TRY_S: Final = 30.0
"""A worker that has not said within this time whether it can load a new configuration is not waited for. Plug-ins may
take long to start."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


Word = Literal["serves", "loads", "reloaded", "refused", "leaves"]
"""Messages of a worker to the parent. For each configuration that it is sent: `loads`, then `reloaded` or `refused`.
`leaves`: something other than the parent told it to stop."""


@dataclass(slots=True)
class _Worker:
    """A worker process. Its `pipe` delivers `Word`s."""

    process: ForkProcess
    pipe: Connection
    config: GatewayConfig
    """The configuration that it has, or was sent last."""
    loading: bool = False
    """It has not answered yet about the configuration that it was sent last."""
    has_begun: bool = False
    """It has begun to load that configuration."""
    serves: bool = False
    leaves: bool = False
    ended: bool = False
    """No more messages will come."""
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class _Slot:
    """The slot of one worker."""

    number: int
    """From 1; shown in log lines. A successor in this slot continues its counters."""
    sockets: list[socket.socket] = field(default_factory=list)
    worker: _Worker | None = None
    due: float = 0.0
    """When the next worker is to be started if there is none, by the monotonic clock."""


class Supervisor:
    """Runs `config.server.workers` workers. `sockets` reserve the port. `ready` is called when all workers serve for
    the first time. `load` reloads the configuration."""

    def __init__(
        self,
        config: GatewayConfig,
        create: AppFactory,
        sockets: Sequence[socket.socket],
        ready: Callable[[], None],
        load: Callable[[], GatewayConfig] | None = None,
    ) -> None:
        self._config = config
        self._create = create
        self._sockets = sockets
        self._ready = ready
        self._load = load
        self._slots = [_Slot(number + 1) for number in range(config.server.workers)]
        self._failures = 0
        self._announced = False
        self._signals = 0
        self._hung_up = False
        self._candidate = config
        """The configuration that was read last, until it is refused."""
        self._trying: _Worker | None = None
        """The worker that is trying a new configuration."""
        self._late_at = 0.0
        """When it is not waited for any longer, by the monotonic clock."""
        self._folder: Path
        """A private folder of these workers, for their counters."""

    def run(self) -> int:
        """Supervises the workers until a signal comes. Returns the exit status. Must be called in the main thread."""
        try:
            self._folder = Path(mkdtemp(prefix="toolwire-"))
        except OSError as error:
            LOG.error(
                "cannot start: workers need a folder for their counters: %s. Set TMPDIR to a writable one",
                error.strerror,
            )
            return 1
        wake, waker = socket.socketpair()
        wake.setblocking(False)
        waker.setblocking(False)
        before = [(number, signal.signal(number, self._on_signal)) for number in _SIGNALS]
        wakeup = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        gave_up = True
        try:
            gave_up = not self._watch(wake)
        finally:
            cut = self._stop(wake)
            signal.set_wakeup_fd(wakeup)
            for number, handler in before:
                signal.signal(number, handler)
            wake.close()
            waker.close()
            rmtree(self._folder, ignore_errors=True)
        return 1 if gave_up or cut else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._hung_up = True
        else:
            self._signals += 1

    def _stop_requested(self) -> bool:
        """True if a signal to stop came. A method, because the value changes between two lines."""
        return self._signals > 0

    def _workers(self) -> list[_Worker]:
        return [slot.worker for slot in self._slots if slot.worker is not None]

    def _serving(self) -> list[_Worker]:
        return [
            worker
            for worker in self._workers()
            if worker.serves and not worker.leaves and worker.process.exitcode is None
        ]

    # --- watching ---------------------------------------------------------------------------------------------------

    def _watch(self, wake: socket.socket) -> bool:
        """Keeps the workers running. Returns True after a signal, False if starting workers keeps failing."""
        while not self._stop_requested():
            now = time.monotonic()
            missing = [slot for slot in self._slots if slot.worker is None]
            for slot in missing:
                if slot.due <= now:
                    self._try_start(slot)
            due = [slot.due for slot in missing if slot.worker is None]
            if self._trying is not None:
                due.append(self._late_at)
            self._wait(wake, min(due) - time.monotonic() if due else None)
            for slot in self._slots:
                if slot.worker is not None:
                    self._receive(slot, slot.worker)
            if not self._announced and len(self._serving()) == len(self._slots):
                self._announced = True
                self._ready()
            if self._stop_requested():
                break  # workers that ended just now got the same signal
            for slot in self._slots:
                if slot.worker is not None and slot.worker.process.exitcode is not None:
                    self._remove_dead(slot, slot.worker)
            if self._failures >= MAX_FAILED_STARTS and not self._serving():
                LOG.error("giving up: %d attempts to start a worker failed", self._failures)
                return False
            if self._trying is not None and self._late_at <= time.monotonic():
                self._give_up_waiting(self._trying)
            if self._hung_up and self._announced and self._trying is None:
                self._reload()
        return True

    def _wait(self, wake: socket.socket, timeout: float | None) -> None:
        """Waits for a signal, the end of a worker, a message of a worker, or the timeout."""
        watched: list[Connection | socket.socket | int] = [wake]
        for worker in self._workers():
            watched.append(worker.process.sentinel)
            if not worker.ended:
                watched.append(worker.pipe)
        wait(watched, None if timeout is None else max(0.0, timeout))
        with suppress(BlockingIOError):
            wake.recv(4096)

    def _receive(self, slot: _Slot, worker: _Worker) -> None:
        while not worker.ended and worker.pipe.poll():
            try:
                word: Word = worker.pipe.recv()
            except (EOFError, OSError):
                worker.ended = True
                return
            if word == "serves":
                worker.serves = True
                self._failures = 0
                if self._trying is None and worker.config is not self._config:
                    self._send(worker, self._config)  # the configuration changed while this worker started
            elif word == "leaves":
                worker.leaves = True
                _give_up_queue(slot)
            elif word == "loads":
                worker.has_begun = True
            else:
                worker.loading = False
                self._answered(worker, word)

    # --- starting and replacing -------------------------------------------------------------------------------------

    def _try_start(self, slot: _Slot) -> None:
        try:
            self._start(slot)
        except OSError as error:  # no memory or no process available, possibly temporarily
            LOG.error("cannot start a worker: %s", error)
            self._failures += 1
            slot.due = time.monotonic() + RESTART_DELAY_S[-1]

    def _start(self, slot: _Slot) -> None:
        if not slot.sockets:
            server = self._config.server
            slot.sockets = bind_shared(server.host, self._sockets[0].getsockname()[1])
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=self._work, args=(slot, ours, theirs))
        # Signals are blocked meanwhile: one that comes while the child has the parent's handlers would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            theirs.close()
        slot.worker = _Worker(process, ours, self._config)

    def _work(self, slot: _Slot, ours: Connection, theirs: Connection) -> None:
        """Runs a worker; called in the child process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent passes it on
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # Closes inherited sockets and pipes: they stay open as long as any process has them.
        ours.close()
        close(self._sockets)
        for other in self._slots:
            if other is not slot:
                close(other.sockets)
            if other.worker is not None:
                other.worker.pipe.close()
        number_lines(slot.number)
        raise SystemExit(
            run(
                self._config,
                self._create,
                slot.sockets,
                Metrics(SharedCounters(self._folder / f"{slot.number}{CELLS}")),
                ready=lambda: _send_word(theirs, "serves"),
                listen=partial(_listen_to_parent, theirs),
                looks=slot.number == 1,  # one worker is enough
            )
        )

    def _remove_dead(self, slot: _Slot, worker: _Worker) -> None:
        """Handles the end of a worker, and schedules its successor."""
        slot.worker = None
        worker.pipe.close()
        code, pid = worker.process.exitcode, worker.process.pid
        worker.process.close()
        if worker.leaves:
            LOG.warning("worker %d was told to stop, and has; starting another", pid)
        elif worker.serves:
            LOG.error("worker %d died with status %s; starting another", pid, code)
        else:
            self._failures += 1
            LOG.error("worker %d could not start (status %s)", pid, code)
            _give_up_queue(slot)
        delay = RESTART_DELAY_S[min(self._failures, len(RESTART_DELAY_S) - 1)]
        # A worker that repeatedly dies right after its start must not keep a core busy with restarts.
        next_start = worker.started + RESTART_DELAY_S[-1] if worker.serves else 0.0
        slot.due = max(time.monotonic() + delay, next_start)
        if worker is self._trying:
            LOG.error(
                "cannot reload, the configuration stays as it was: worker %d died when it loaded the new one", pid
            )
            self._tried(worked=False)

    # --- reloading --------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Reloads the configuration and has the first worker try it."""
        self._hung_up = False
        if self._load is None:
            LOG.warning("SIGHUP is ignored: there is no configuration to read again")
            return
        notify(reloading())
        try:
            config = reread(self._load, self._config)
            pickle.dumps(config)  # checks that it can be sent
        except Exception as error:
            log_refusal(error)
            notify(READY)
            return
        self._candidate = config
        self._try_next()

    def _try_next(self) -> None:
        """Has the next worker try the new configuration."""
        serving = self._serving()
        for worker in serving:
            if self._send(worker, self._candidate):
                self._trying = worker
                self._late_at = time.monotonic() + TRY_S
                return
        hang = any(worker.loading for worker in serving)
        if hang:
            LOG.error("cannot reload, the configuration stays as it was: no worker has answered")
        self._tried(worked=not hang)  # no worker serves: new workers start with it

    def _give_up_waiting(self, worker: _Worker) -> None:
        """Has another worker try the configuration, unless it could make that one hang too."""
        pid = worker.process.pid
        if worker.has_begun:
            LOG.error(
                "worker %d has not loaded the new configuration for %g s; the others get it when it has", pid, TRY_S
            )
            self._trying = None
            notify(READY)
            return
        LOG.error("worker %d has not answered for %g s; another one tries the configuration", pid, TRY_S)
        self._try_next()

    def _answered(self, worker: _Worker, word: Word) -> None:
        """Called when a worker has loaded or refused the configuration that it was sent last."""
        if worker.config is self._candidate is not self._config:
            if word == "refused":
                worker.config = self._config  # which it has kept
            if word == "reloaded" or worker is self._trying:
                self._tried(worked=word == "reloaded")
        elif worker.config is not self._config:
            if self._trying is None:
                self._send(worker, self._config)  # the configuration changed while this worker loaded another one
        elif word == "refused":
            LOG.error("worker %d keeps its configuration until it is replaced", worker.process.pid)

    def _tried(self, *, worked: bool) -> None:
        """Called when a worker has tried the new configuration. If it worked, it is now that of all workers. Sends the
        current one to those that have another; a late worker may have loaded one that was not taken."""
        self._trying = None
        if worked:
            apply_logging(self._config, self._candidate)
            self._config = self._candidate
        self._candidate = self._config
        for worker in self._serving():
            if worker.config is not self._config:
                self._send(worker, self._config)
        notify(READY)

    def _send(self, worker: _Worker, config: GatewayConfig) -> bool:
        """Returns False if the worker is dying, or has not answered about an earlier configuration."""
        if worker.loading:
            return False
        try:
            worker.pipe.send(config)
        except OSError:
            return False
        worker.config, worker.loading, worker.has_begun = config, True, False
        return True

    # --- stopping ---------------------------------------------------------------------------------------------------

    def _stop(self, wake: socket.socket) -> bool:
        """Ends all workers. Returns True if one had to be killed."""
        seen = self._signals
        notify(STOPPING)
        for worker in self._workers():
            worker.process.terminate()
        for slot in self._slots:
            close(slot.sockets)  # from here on the workers decide how long connections are accepted
        server = self._config.server
        deadline = time.monotonic() + server.shutdown_delay_s + server.shutdown_grace_s + KILL_AFTER_S
        while True:
            running = [worker for worker in self._workers() if worker.process.exitcode is None]
            left = deadline - time.monotonic()
            if not running or left <= 0 or self._signals > max(seen, 1):
                break
            wait([wake, *(worker.process.sentinel for worker in running)], left)
            with suppress(BlockingIOError):
                wake.recv(4096)
        for worker in running:
            LOG.error("worker %d has not ended and is killed", worker.process.pid)
            worker.process.kill()
            worker.process.join()
        return bool(running)


def _listen_to_parent(parent: Connection, stop: Callable[[], None], reload: Callable[[Reload], bool]) -> None:
    """In a worker: stops on a signal or when the parent has ended, and reloads when the parent sends a
    configuration."""
    loop = asyncio.get_running_loop()

    def leave() -> None:
        _send_word(parent, "leaves")
        stop()

    def hear() -> None:
        try:
            config: GatewayConfig = parent.recv()
        except (EOFError, OSError):
            loop.remove_reader(parent.fileno())
            stop()
            return
        _send_word(parent, "loads")
        reload(Reload(lambda: config, lambda problem: _send_word(parent, "refused" if problem else "reloaded")))

    loop.add_reader(parent.fileno(), hear)
    os.set_blocking(parent.fileno(), True)  # uvloop has changed it, and a large configuration comes in pieces
    loop.add_signal_handler(signal.SIGTERM, leave)


def _send_word(parent: Connection, word: Word) -> None:
    with suppress(OSError):  # the parent has ended, which `_listen_to_parent` notices
        parent.send(word)


def _give_up_queue(slot: _Slot) -> None:
    """Closes the sockets of a slot that may stay without a worker, so that new connections go to the other slots."""
    close(slot.sockets)
    slot.sockets = []
