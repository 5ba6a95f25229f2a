"""A host process and its pipes, seen from the gateway (`frames` describes the messages, `host` is the other side).

1. The host gets only those environment variables of the gateway that every program and a Python interpreter need,
   because the others may hold keys. The settings of its server are sent through the pipe.
2. The host leads a process group. It is ended with its group, so no process that the server has started remains.
3. A host that does not confirm the cancellation of a call, or does not read its input, is stuck and is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from ...protocols.shared.wire import BOUNDS
from ...support.bounded_json import loads
from ...support.environment import INTERPRETER, environment
from ...support.offload import OFFLOAD_BYTES, offload
from .frames import HEAD, MAX_FRAME_BYTES, Frame, HostSettings

LOG: Final = logging.getLogger("toolwire.tools")

GRACE_S: Final = 5.0
"""The time a host has to end; longer than the time it gives its server."""
CONFIRM_S: Final = 10.0
"""The time a host has to confirm that a call was cancelled."""
MOST_UNSENT: Final = 16 * 1024 * 1024
READ_BYTES: Final = 64 * 1024

_COMMAND: Final = (sys.executable, "-P", "-m", "toolwire.extras.mcp.host")


def _packages() -> list[str]:
    """Returns the folders in which the host finds this package and the SDK, however the gateway was installed."""
    sdk = find_spec("mcp")
    places = [] if sdk is None else [Path(place).parent for place in sdk.submodule_search_locations or ()]
    return list(map(str, dict.fromkeys([Path(__file__).parents[3], *places])))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end; a cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


class HostEnded(Exception):
    """The host process has ended. The text says why."""


class HostProcess:
    """One host process, from its start to its end. `hear` is called with every frame except results."""

    def __init__(self, process: asyncio.subprocess.Process, hear: Callable[[Frame], object]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._hear = hear
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Frame]] = {}
        self._given_up: dict[int, asyncio.TimerHandle] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, settings: HostSettings, hear: Callable[[Frame], object]) -> HostProcess:
        """Starts a host. Raises `HostEnded` if the system cannot start a process."""
        own = {"PYTHONPATH": os.pathsep.join(_packages())}
        try:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment(own, INTERPRETER, proxies=settings.trust_env),
                start_new_session=True,
            )
        except OSError as error:
            raise HostEnded(f"no process can be started: {error.strerror}") from None
        host = cls(process, hear)
        host._send({"settings": asdict(settings)})
        return host

    @property
    def running(self) -> int:
        """The number of calls without a result."""
        return len(self._calls)

    async def ended(self) -> str:
        """Waits until the host has closed its output. Returns the reason."""
        return await asyncio.shield(self._reading)

    async def call(self, name: str, arguments: str) -> Frame:
        """Returns the `result` frame of a call. Raises `HostEnded` if the host ends first. A cancellation cancels
        the call."""
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        if self._reading.done():
            del self._calls[number]
            raise HostEnded(self._reading.result())
        self._send({"call": number, "name": name, "arguments": arguments})
        try:
            result: Frame = await future
            return result
        except asyncio.CancelledError:
            if not self._reading.done():
                self._send({"cancel": number})
                loop = asyncio.get_running_loop()
                self._given_up[number] = loop.call_later(CONFIRM_S, self._stuck)
            raise
        finally:
            self._calls.pop(number, None)

    async def close(self) -> None:
        """Asks the host to end, and kills it with its group after `GRACE_S`."""
        self._input.close()
        try:
            async with asyncio.timeout(GRACE_S):
                await self.ended()
        except TimeoutError:
            pass
        finally:
            self.kill()
            await _to_its_end(self._reaped())

    async def _reaped(self) -> None:
        await asyncio.wait({self._reading})
        while await self._output.read(READ_BYTES):  # `Process.wait` may wait for its pipes as well
            pass
        await self._process.wait()

    def kill(self) -> None:
        """Kills the host's process group; where there are no groups, only the host."""
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32" and hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _stuck(self) -> None:
        LOG.warning("an MCP host does not answer and is killed")
        self.kill()

    def _send(self, frame: Frame) -> None:
        body = orjson.dumps(frame)
        if self._input.is_closing():
            return  # `_read` returns the reason
        if self._input.transport.get_write_buffer_size() > MOST_UNSENT:
            self._stuck()
            return
        self._input.write(HEAD.pack(len(body)) + body)

    async def _read(self) -> str:
        """Reads frames until the end of the output. Returns the reason for the end."""
        why = "its host has ended"
        try:
            while True:
                (size,) = HEAD.unpack(await self._output.readexactly(HEAD.size))
                if size > MAX_FRAME_BYTES:
                    why = "its host sent a message that is too large"
                    break
                body = await self._output.readexactly(size)
                frame: dict[str, Any] = await offload(size > OFFLOAD_BYTES, loads, body, BOUNDS)
                if "lost" in frame:
                    why = frame["lost"]
                    break
                elif "result" in frame:
                    self._settle(frame)
                else:
                    self._hear(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, LookupError, TypeError):
            LOG.exception("an MCP host sent an invalid message")
            why = "its host sent an invalid message"
        finally:
            self.kill()
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(HostEnded(why))
            for timer in self._given_up.values():
                timer.cancel()
            self._given_up.clear()
        return why

    def _settle(self, frame: Frame) -> None:
        timer = self._given_up.pop(frame["result"], None)
        if timer is not None:
            timer.cancel()
        future = self._calls.get(frame["result"])
        if future is not None and not future.done():
            future.set_result(frame)
