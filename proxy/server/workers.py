"""Several processes on one port: starts them, replaces those that die, has them reload, stops them all (R17.6).

Rules of this module:

1. The parent never accepts a connection and never runs an event loop: it only watches.
2. Each worker has a place with sockets of its own on the shared port (SO_REUSEPORT; the system spreads the
   connections). The parent holds them as well, so connections that wait in the queue of a dead worker are taken by the
   one that follows it. See docs/adr/0014.
3. A worker that served and died is replaced within a second. One that cannot even start is tried again, and when
   `MAX_FAILED_STARTS` attempts in a row failed while no worker serves, the gateway gives up with status 1.
4. Workers end when the parent does, even if it was killed: the pipes to it are closed then.
5. A new configuration is read by the parent and tried by one worker; only if that could start it, the others get it
   too.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
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

from toolwire.config import GatewayConfig
from toolwire.observability.logs import number_lines
from toolwire.observability.metrics import CELLS, SharedCounters
from toolwire.observability.telemetry import Metrics
from toolwire.server.hosting import AppFactory, apply_logging, log_refusal, reread
from toolwire.server.notify import READY, STOPPING, notify, reloading
from toolwire.server.serving import LAST_S, Order, bind, close, run

LOG: Final = logging.getLogger("toolwire.workers")

MAX_FAILED_STARTS: Final = 5
RESTART_DELAY_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Before the next attempt, by the number of failures in a row."""
KILL_AFTER_S: Final = 5.0 + LAST_S
"""A worker that did not end so long after the delay and the grace of `server` is killed."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


Word = Literal["serves", "reloaded", "refused", "leaves"]
"""What a worker says to the parent. After each configuration that it is sent: whether it could start it. `leaves`:
somebody told it, and not the parent, to stop."""


@dataclass(slots=True)
class _Worker:
    """A process. What its `pipe` gives is a `Word`."""

    process: ForkProcess
    pipe: Connection
    config: GatewayConfig
    """Which it has, or was sent last."""
    serves: bool = False
    leaves: bool = False
    ended: bool = False
    """It says nothing more."""
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class _Place:
    """Of one worker."""

    number: int
    """From 1; log lines carry it. Whoever takes the place goes on with what was counted there."""
    sockets: list[socket.socket] = field(default_factory=list)
    worker: _Worker | None = None
    due: float = 0.0
    """Without a worker: when one is to be started, on the monotonic clock."""


class Supervisor:
    """Runs `config.server.workers` workers. `sockets` hold the port; `ready` is called when all serve for the first
    time; `load` reads the configuration anew."""

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
        self._places = [_Place(number + 1) for number in range(config.server.workers)]
        self._failures = 0
        self._announced = False
        self._signals = 0
        self._hung_up = False
        self._trying: _Worker | None = None
        """Who tries a new configuration."""
        self._folder: Path
        """Of these workers alone: what they count."""

    def run(self) -> int:
        """Watch the workers until a signal comes; the exit status. Must be called in the main thread."""
        self._folder = Path(mkdtemp(prefix="toolwire-"))
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

    def _told(self) -> bool:
        """A signal to stop came. A method, because it changes between two lines."""
        return self._signals > 0

    def _workers(self) -> list[_Worker]:
        return [place.worker for place in self._places if place.worker is not None]

    def _serving(self) -> list[_Worker]:
        return [
            worker
            for worker in self._workers()
            if worker.serves and not worker.leaves and worker.process.exitcode is None
        ]

    # --- watching ---------------------------------------------------------------------------------------------------

    def _watch(self, wake: socket.socket) -> bool:
        """Keep the workers running until a signal (True) or until there is no use in it (False)."""
        while not self._told():
            now = time.monotonic()
            missing = [place for place in self._places if place.worker is None]
            for place in missing:
                if place.due <= now:
                    self._try_start(place)
            due = [place.due for place in missing if place.worker is None]
            self._wait(wake, min(due) - time.monotonic() if due else None)
            for place in self._places:
                if place.worker is not None:
                    self._hear(place, place.worker)
            if not self._announced and len(self._serving()) == len(self._places):
                self._announced = True
                self._ready()
            if self._told():
                break  # whoever ended just now was told to, as we were
            for place in self._places:
                if place.worker is not None and place.worker.process.exitcode is not None:
                    self._bury(place, place.worker)
            if self._failures >= MAX_FAILED_STARTS and not self._serving():
                LOG.error("giving up: %d attempts to start a worker failed", self._failures)
                return False
            if self._hung_up and self._announced and self._trying is None:
                self._reload()
        return True

    def _wait(self, wake: socket.socket, timeout: float | None) -> None:
        """Until a signal, a death, a word from a worker, or the time is over."""
        watched: list[Connection | socket.socket | int] = [wake]
        for worker in self._workers():
            watched.append(worker.process.sentinel)
            if not worker.ended:
                watched.append(worker.pipe)
        wait(watched, None if timeout is None else max(0.0, timeout))
        with suppress(BlockingIOError):
            wake.recv(4096)

    def _hear(self, place: _Place, worker: _Worker) -> None:
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
                    self._send(worker, self._config)  # it was taken over while this one started
            elif word == "leaves":
                worker.leaves = True
                _give_up_queue(place)
            elif worker is self._trying:
                self._tried(worked=word == "reloaded")
            elif word == "refused":
                LOG.error("worker %d keeps its configuration until it is replaced", worker.process.pid)

    # --- starting and replacing -------------------------------------------------------------------------------------

    def _try_start(self, place: _Place) -> None:
        try:
            self._start(place)
        except OSError as error:  # no memory or process to be had, which may pass
            LOG.error("cannot start a worker: %s", error)
            self._failures += 1
            place.due = time.monotonic() + RESTART_DELAY_S[-1]

    def _start(self, place: _Place) -> None:
        if not place.sockets:
            server = self._config.server
            place.sockets = bind(server.host, self._sockets[0].getsockname()[1], share=True)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=self._work, args=(place, ours, theirs))
        # A signal that comes while the child still has the parent's handlers would be lost: it waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            theirs.close()
        place.worker = _Worker(process, ours, self._config)

    def _work(self, place: _Place, ours: Connection, theirs: Connection) -> None:
        """In the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent passes it on
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # What another process holds open is not closed when its owner closes it.
        ours.close()
        close(self._sockets)
        for other in self._places:
            if other is not place:
                close(other.sockets)
            if other.worker is not None:
                other.worker.pipe.close()
        number_lines(place.number)
        raise SystemExit(
            run(
                self._config,
                self._create,
                place.sockets,
                Metrics(SharedCounters(self._folder / f"{place.number}{CELLS}")),
                ready=lambda: _say(theirs, "serves"),
                listen=partial(_obey, theirs),
                looks=place.number == 1,  # once is enough
            )
        )

    def _bury(self, place: _Place, worker: _Worker) -> None:
        """Note a death and when the next worker is due."""
        place.worker = None
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
            _give_up_queue(place)
        delay = RESTART_DELAY_S[min(self._failures, len(RESTART_DELAY_S) - 1)]
        # One that dies again and again right after its start must not keep a core busy with starting.
        next_start = worker.started + RESTART_DELAY_S[-1] if worker.serves else 0.0
        place.due = max(time.monotonic() + delay, next_start)
        if worker is self._trying:
            LOG.error("cannot reload, the configuration stays as it was: worker %d died of the new one", pid)
            self._tried(worked=False)

    # --- reloading --------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Read the configuration anew and have the first worker try it."""
        self._hung_up = False
        if self._load is None:
            LOG.warning("SIGHUP is ignored: there is no configuration that could be read anew")
            return
        notify(reloading())
        try:
            config = reread(self._load, self._config)
            pickle.dumps(config)  # as it is sent
        except Exception as error:
            log_refusal(error)
            notify(READY)
            return
        self._candidate = config
        for worker in self._serving():
            if self._send(worker, config):
                self._trying = worker
                return
        self._tried(worked=True)  # nobody is there to ask: those that start will see

    def _tried(self, *, worked: bool) -> None:
        """The first worker has it, or the log says why not."""
        self._trying = None
        if worked:
            apply_logging(self._config, self._candidate)
            self._config = self._candidate
            for worker in self._serving():
                if worker.config is not self._config:
                    self._send(worker, self._config)
        notify(READY)

    def _send(self, worker: _Worker, config: GatewayConfig) -> bool:
        try:
            worker.pipe.send(config)
        except OSError:
            return False  # it is dying
        worker.config = config
        return True

    # --- stopping ---------------------------------------------------------------------------------------------------

    def _stop(self, wake: socket.socket) -> bool:
        """End all workers; whether one had to be killed."""
        seen = self._signals
        notify(STOPPING)
        for worker in self._workers():
            worker.process.terminate()
        for place in self._places:
            close(place.sockets)  # from here on the workers alone decide how long connections are taken
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
            worker.process.kill()
            worker.process.join()
        return bool(running)


def _obey(parent: Connection, stop: Callable[[], None], order: Callable[[Order], bool]) -> None:
    """In a worker: stop when told to or when the parent is gone, and reload when it sends a configuration."""
    loop = asyncio.get_running_loop()

    def leave() -> None:
        _say(parent, "leaves")
        stop()

    def hear() -> None:
        try:
            config: GatewayConfig = parent.recv()
        except (EOFError, OSError):
            loop.remove_reader(parent.fileno())
            stop()
            return
        order(Order(lambda: config, lambda problem: _say(parent, "refused" if problem else "reloaded")))

    loop.add_reader(parent.fileno(), hear)
    loop.add_signal_handler(signal.SIGTERM, leave)


def _say(parent: Connection, word: Word) -> None:
    with suppress(OSError):  # it is gone, which `_obey` notices
        parent.send(word)


def _give_up_queue(place: _Place) -> None:
    """Nobody shall wait in a queue that may stay without a worker: other places get the connections meanwhile."""
    close(place.sockets)
    place.sockets = []
