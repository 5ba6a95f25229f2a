"""A worker process, as the gateway sees it: start, orders, kill, cleanup.

Rules:

1. A worker is a new interpreter, never a fork of the gateway. Its parent is a guardian (`worker.guardian`), which ends
   the worker and all processes it has started when the connection to the gateway (`control`) closes.
2. It gets only a listed set of environment variables, three descriptors and the folder's sources.
3. Its bytes are not trusted: frames are limited in size, and an invalid answer costs the worker.
4. However it ends, no process of it remains, its guardian is reaped, and its descriptors are closed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from ..config import ToolsConfig
from ..support.environment import INHERITED, INTERPRETER
from .output_log import OutputLog, OutputPipe
from .worker import frames, guardian
from .worker.sources import FolderSnapshot, encode_snapshot

LOG: Final = logging.getLogger("toolwire.tools")

START_S: Final = 60.0
"""The time limit for the start of an interpreter."""
BEGIN_S: Final = 10.0
"""Time that a worker has to start the handler after it was sent a call. Only processes left by an earlier handler delay
it."""
LAST_S: Final = 5.0
"""Time that a worker has to exit after it has closed its output, and then its guardian."""
MORE_CPU_S: Final = 10.0
"""Seconds added to the time limit of a call for the default of `tools.cpu_s`."""
MAX_WAITING: Final = 16
"""Maximum number of unread frames of a worker; beyond it the worker is ended. A worker never sends more than two per
order."""

GIVEN: Final = frozenset([*INHERITED, *INTERPRETER, "PYTHONPATH"])
"""Variables of the gateway's environment that workers get, besides `LC_*`. All others may be secrets."""


def environment(own: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Returns a worker's environment: the allowed variables of `own`, and those of the configuration."""
    return {**{name: value for name, value in own.items() if name in GIVEN or name.startswith("LC_")}, **more}


class WorkerEnded(Exception):
    """A worker has ended. `what` says how, as the predicate of a sentence whose subject is the tool's code."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class WorkerProcess:
    """One worker, for one user at a time. `gone` is called once, when it has ended for any reason."""

    def __init__(self, snapshot: FolderSnapshot, config: ToolsConfig, gone: Callable[[WorkerProcess], object]) -> None:
        self.loaded: set[str] = set()
        self.spent = False
        """True if it must not be used any more."""
        self._snapshot = snapshot
        self._config = config
        self._gone = gone
        self._numbers = itertools.count(1)
        self._frames: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._broken: str | None = None
        self._killed = False
        self._guardian, self._control, self._data, log = _launched(config)
        self._output = OutputLog("a tool module", {})
        self._log = OutputPipe(log, self._output)
        self._reader = self._loop.create_task(self._read())
        self.watcher = self._loop.create_task(self._watch())

    # --- orders ---------------------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, ...]:
        """Waits until the worker is ready. Returns the options of the configuration that the system cannot enforce.
        Raises `WorkerEnded`, or `TimeoutError` after `START_S`."""
        setup = {
            "snapshot": encode_snapshot(self._snapshot),
            "memory": self._config.memory_bytes,
            "path": [str(entry) for entry in sys.path if entry],
            "on_oversize": self._config.on_oversize,
        }
        async with asyncio.timeout(START_S):
            await self._send(setup)
            answer = await self._received()
        if "ready" not in answer:
            raise self._nonsense()
        return tuple(answer["unbound"])

    async def load(self, name: str, text: bytes, limit_s: float) -> dict[str, Any]:
        """Runs the module in the file `name` and returns its answer: `declared` and `handler`, or `failed`. Raises
        `WorkerEnded`, or `TimeoutError`; then the worker must be killed."""
        self._output.begin(name, {"module": name})
        async with asyncio.timeout(limit_s):
            answer = await self._asked({"load": name, "text": text.decode("latin-1"), "cpu": limit_s + MORE_CPU_S})
        self._log.drain()
        if "failed" not in answer:
            self.loaded.add(name)
        return answer

    async def call(
        self, name: str, tool: str, values: dict[str, Any], limit_s: float, begun: Callable[[], object]
    ) -> Any:
        """Runs a call of a loaded module and returns the answer: `text` and `failed`. `begun` is called when the
        handler begins; `limit_s` counts from then. Raises `WorkerEnded`, or `TimeoutError`; then the worker must be
        killed."""
        self._output.begin(tool, {"tool": tool, "module": name})
        cpu = self._config.cpu_s
        order = {"call": name, "tool": tool, "values": values, "cpu": limit_s + MORE_CPU_S if cpu is None else cpu}
        async with asyncio.timeout(BEGIN_S):
            if "begun" not in await self._asked(order):
                raise self._nonsense()
        begun()
        async with asyncio.timeout(limit_s):
            answer = await self._received()
        if not isinstance(answer.get("text"), str) or answer.get("n") != order["n"]:
            raise self._nonsense()
        self._log.drain()
        self.spent = self.spent or bool(answer.get("spent"))
        return answer

    async def _asked(self, order: dict[str, Any]) -> dict[str, Any]:
        order["n"] = next(self._numbers)
        await self._send(order)
        answer = await self._received()
        if answer.get("n") != order["n"]:
            raise self._nonsense()
        return answer

    async def _send(self, frame: dict[str, Any]) -> None:
        with suppress(OSError):  # it has ended: `_received` raises
            await self._loop.sock_sendall(self._data, frames.encode_frame(frame))

    async def _received(self) -> dict[str, Any]:
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise WorkerEnded(await asyncio.shield(self._ended))
        return frame

    def _nonsense(self) -> WorkerEnded:
        self._broken = "wrote into the descriptor of its worker"
        self.kill()
        return WorkerEnded(self._broken)

    # --- its life ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while no sign of its end is known."""
        return not self._ended.done() and not self._reader.done()

    def kill(self) -> None:
        """Starts to kill the worker and everything it has started."""
        if self._killed or self._ended.done():
            return
        self._killed = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self._guardian.send_signal(signal.SIGCONT)  # it may be stopped
        self._loop.call_later(LAST_S, self._guardian.kill)  # a guardian that does not end has failed

    async def close(self) -> None:
        """Kills the worker, and waits until it is cleaned up."""
        self.kill()
        await asyncio.wait({self.watcher})

    async def _read(self) -> None:
        """Queues its frames until the end of the connection."""
        buffer = bytearray()
        try:
            while part := await self._loop.sock_recv(self._data, 64 * 1024):
                buffer += part
                while len(buffer) >= frames.HEAD.size:
                    end = frames.HEAD.size + frames.HEAD.unpack_from(buffer)[0]
                    if end > frames.MAX_BYTES or self._frames.qsize() > MAX_WAITING:
                        raise frames.BadFrame("too much")
                    if len(buffer) < end:
                        break
                    self._frames.put_nowait(frames.decode_frame(bytes(buffer[frames.HEAD.size : end])))
                    del buffer[:end]
        except OSError:
            pass
        except frames.BadFrame:
            self._nonsense()
        finally:
            self._frames.put_nowait(None)
        self._guardian.send_signal(signal.SIGCONT)  # a handler may have stopped it before it ended
        self._loop.call_later(LAST_S, self.kill)  # a worker without a connection cannot answer

    async def _watch(self) -> None:
        """Waits for the end of the guardian, and cleans up (rule 4)."""
        status_lines = b""
        with suppress(OSError):
            while part := await self._loop.sock_recv(self._control, 100):
                status_lines = (status_lines + part)[:100]
        group, _, status = status_lines.decode("ascii", "replace").partition("\n")
        if not status and (number := group.removeprefix("group ")).isdecimal():
            with suppress(OSError):
                os.killpg(int(number), signal.SIGKILL)  # the guardian was killed before it could do this
        await asyncio.wait({self._reader}, timeout=LAST_S)  # its last frames
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._control.close()
        self._data.close()
        self._log.close()
        self._ended.set_result(self._broken or _what(status.strip()))
        self._gone(self)
        pause = 0.001
        while self._guardian.poll() is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)


def _launched(config: ToolsConfig) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket, int]:
    """Starts a guardian. Returns it, and this end of its control socket, of the worker's frames and of the output pipe.
    Raises `OSError`."""
    with ExitStack() as ours, ExitStack() as theirs:

        def pair() -> tuple[socket.socket, socket.socket]:
            here, there = socket.socketpair()
            return ours.enter_context(here), theirs.enter_context(there)

        control, its_control = pair()
        data, its_data = pair()
        log, its_log = os.pipe()
        ours.callback(os.close, log)
        theirs.callback(os.close, its_log)
        descriptors = its_control.fileno(), its_data.fileno()
        process = subprocess.Popen(
            [sys.executable or "python3", "-P", str(Path(guardian.__file__)), *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            stdout=its_log,
            stderr=its_log,
            pass_fds=descriptors,
            env=environment(os.environ, config.env),
            start_new_session=True,
        )
        ours.pop_all()
    control.setblocking(False)
    data.setblocking(False)
    return process, control, data, log


def _what(status: str) -> str:
    """Returns how a worker ended, from the guardian's status line, as the predicate of a sentence."""
    kind, _, number = status.partition(" ")
    if kind == "exit" and number.isdecimal():
        return f"ended its process (exit status {number})"
    if kind == "signal" and number.isdecimal():
        if int(number) == signal.SIGXCPU:
            return "took more processor time than it may have"
        with suppress(ValueError):
            return f"ended its process ({signal.Signals(int(number)).name})"
    return "ended its process"
