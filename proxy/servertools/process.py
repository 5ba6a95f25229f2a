"""A worker process, as the gateway has it: started, spoken to, killed, and cleaned up after.

Rules:

1. It is a fresh interpreter, never a fork of the gateway, with a guardian in front of it (`worker.guardian`), which
   ends the worker and all that this has started when its line to the gateway (`control`) is cut.
2. It gets nothing that it is not given: an environment by a list of names, three descriptors, the folder's sources.
3. Its bytes are not trusted: frames are bounded, and what is no answer to the question costs the worker.
4. Whatever becomes of it, nothing of it runs on, its guardian is reaped, and its descriptors are closed.
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

from toolwire.config import ToolsConfig
from toolwire.servertools.printed import Printed, PrintedPipe
from toolwire.servertools.worker import frames, guardian
from toolwire.servertools.worker.sources import Snapshot, sent
from toolwire.support.environment import INHERITED, INTERPRETER

LOG: Final = logging.getLogger("toolwire.tools")

START_S: Final = 60.0
"""An interpreter that is not there by then does not come."""
BEGIN_S: Final = 10.0
"""Between a call's order and its handler's beginning nothing happens but what an earlier handler left behind."""
LAST_S: Final = 5.0
"""A worker that says nothing more ends within this time; a guardian that is to end does."""
MORE_CPU_S: Final = 10.0
"""By so much the default of `tools.cpu_s` is more than the time limit."""
MAX_WAITING: Final = 16
"""Frames. A worker never says more than two for one order."""

GIVEN: Final = frozenset([*INHERITED, *INTERPRETER, "PYTHONPATH"])
"""Variables of the gateway's environment that workers have too, besides `LC_*`. Everything else may be a secret."""


def environment(own: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """What a worker gets of the gateway's environment, and what the configuration gives it."""
    return {**{name: value for name, value in own.items() if name in GIVEN or name.startswith("LC_")}, **more}


class Ended(Exception):
    """A worker that is gone. `what` says what it did: a part of a sentence whose subject is its code."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class WorkerProcess:
    """One worker. Used by one at a time. `gone` is called once, when it has ended for whatever reason."""

    def __init__(self, snapshot: Snapshot, config: ToolsConfig, gone: Callable[[WorkerProcess], object]) -> None:
        self.loaded: set[str] = set()
        self.spent = False
        """It must not be used any more."""
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
        self._printed = Printed("a tool module", {})
        self._log = PrintedPipe(log, self._printed)
        self._reader = self._loop.create_task(self._read())
        self.watcher = self._loop.create_task(self._watch())

    # --- what it is asked -------------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, ...]:
        """Wait until it is there. Gives the options of the configuration that the system does not let it keep. Raises
        `Ended`, or `TimeoutError` if it does not come."""
        setup = {
            "snapshot": sent(self._snapshot),
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
        """Run the module in the file `name`, and give its answer: `declared` and `handler`, or `failed`. Raises
        `Ended`, or `TimeoutError`; then the worker must be killed."""
        self._printed.begin(name, {"module": name})
        async with asyncio.timeout(limit_s):
            answer = await self._asked({"load": name, "text": text.decode("latin-1"), "cpu": limit_s + MORE_CPU_S})
        self._log.drain()
        if "failed" not in answer:
            self.loaded.add(name)
        return answer

    async def call(
        self, name: str, tool: str, values: dict[str, Any], limit_s: float, begun: Callable[[], object]
    ) -> Any:
        """The answer of a tool of a module that was loaded: `text` and `failed`. `begun` is called when its handler
        begins, and from then on it has `limit_s`. Raises `Ended`, or `TimeoutError`; then the worker must be killed."""
        self._printed.begin(tool, {"tool": tool, "module": name})
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
        with suppress(OSError):  # it is gone: whoever waits for the answer is told
            await self._loop.sock_sendall(self._data, frames.packed(frame))

    async def _received(self) -> dict[str, Any]:
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise Ended(await asyncio.shield(self._ended))
        return frame

    def _nonsense(self) -> Ended:
        self._broken = "wrote into the descriptor of its worker"
        self.kill()
        return Ended(self._broken)

    # --- its life ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Nothing is known of its end."""
        return not self._ended.done() and not self._reader.done()

    def kill(self) -> None:
        """End it, with everything that it has started. The rest is done soon."""
        if self._killed or self._ended.done():
            return
        self._killed = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self._guardian.send_signal(signal.SIGCONT)  # it may be stopped
        self._loop.call_later(LAST_S, self._guardian.kill)  # it cannot: it is of no use then

    async def close(self) -> None:
        """Kill it, and wait until nothing of it is left."""
        self.kill()
        await asyncio.wait({self.watcher})

    async def _read(self) -> None:
        """Its frames, until there are no more."""
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
                    self._frames.put_nowait(frames.unpacked(bytes(buffer[frames.HEAD.size : end])))
                    del buffer[:end]
        except OSError:
            pass
        except frames.BadFrame:
            self._nonsense()
        finally:
            self._frames.put_nowait(None)
        self._guardian.send_signal(signal.SIGCONT)  # a handler may have stopped it, and then ended itself
        self._loop.call_later(LAST_S, self.kill)  # one that cannot answer is of no use

    async def _watch(self) -> None:
        """Until its guardian is gone; then nothing of it stays behind (rule 4)."""
        said = b""
        with suppress(OSError):
            while part := await self._loop.sock_recv(self._control, 100):
                said = (said + part)[:100]
        group, _, status = said.decode("ascii", "replace").partition("\n")
        if not status and (number := group.removeprefix("group ")).isdecimal():
            with suppress(OSError):
                os.killpg(int(number), signal.SIGKILL)  # the guardian was killed, and could not do it
        await asyncio.wait({self._reader}, timeout=LAST_S)  # what it said last
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
    """The guardian, and this end of its control, of the worker's frames, and of what is printed. Raises `OSError`."""
    with ExitStack() as ours, ExitStack() as theirs:

        def pair() -> tuple[socket.socket, socket.socket]:
            here, there = socket.socketpair()
            return ours.enter_context(here), theirs.enter_context(there)

        control, its_control = pair()
        data, its_data = pair()
        log, its_log = os.pipe()
        ours.callback(os.close, log)
        theirs.callback(os.close, its_log)
        passed = its_control.fileno(), its_data.fileno()
        process = subprocess.Popen(
            [sys.executable or "python3", "-P", str(Path(guardian.__file__)), *map(str, passed)],
            stdin=subprocess.DEVNULL,
            stdout=its_log,
            stderr=its_log,
            pass_fds=passed,
            env=environment(os.environ, config.env),
            start_new_session=True,
        )
        ours.pop_all()
    control.setblocking(False)
    data.setblocking(False)
    return process, control, data, log


def _what(status: str) -> str:
    """The guardian's word on a worker's end, for people."""
    kind, _, number = status.partition(" ")
    if kind == "exit" and number.isdecimal():
        return f"ended its process (exit status {number})"
    if kind == "signal" and number.isdecimal():
        if int(number) == signal.SIGXCPU:
            return "took more processor time than it may have"
        with suppress(ValueError):
            return f"ended its process ({signal.Signals(int(number)).name})"
    return "ended its process"
