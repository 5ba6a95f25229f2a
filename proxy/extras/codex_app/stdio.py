"""An app-server as a subprocess of the gateway: one line of JSON per frame, over its pipes.

Rules:

1. It ends with the gateway. It exits when its input closes, which also works if the gateway is killed. Otherwise it is
   terminated, then killed, with all processes of its group: npm's `codex` is a launcher of another process.
2. Of the gateway's environment it gets only what `toolwire.support.environment` lists and what is configured.
3. Its standard error is logged, in lines of bounded length and number, without secrets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ...errors import BackendFault
from ...support.lines import LineSplitter, OversizedLine, log_lines
from ...upstream.servers.private_data import HIDDEN, PrivateData
from ...upstream.servers.upstream_errors import MOST_READ_CHARS, clean_text
from .transport import MOST_UNSENT, READ_BYTES, Transport, TransportBroken

LOG: Final = logging.getLogger("toolwire.backends")

GRACE_S: Final = 2.0
"""Time that it has to exit after its input is closed, and again after SIGTERM."""

WATCH_S: Final = 0.25
"""Interval of checks whether it still runs. Its child processes may hold the pipes open after it has ended."""

_NAMED: Final = re.compile(
    r"((?:key|token|secret|passw|credential|authorization|cookie)[\w-]{0,20}[\"']?\s*[=:]\s*[\"']?(?:(?:basic|bearer)\s+)?)[^\s\"',;]{6,}",
    re.IGNORECASE,
)
"""Matches a value after a name that marks it as secret."""
_TOKEN: Final = re.compile(r"\beyJ[\w-]{10,}(?:\.[\w-]*){0,2}")
"""Matches a JSON Web Token."""


class ProcessTransport(Transport):
    """The pipes of a process. `name` is the backend's."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, frame_bytes: int, private: PrivateData) -> None:
        self._name = name
        self._process = process
        self._frame_bytes = frame_bytes
        self._private = private
        self._complaints = asyncio.create_task(self._log_errors())
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: str,
        frame_bytes: int,
        private: PrivateData,
    ) -> ProcessTransport:
        """Runs `command` in `folder`. Raises `BackendFault` if it cannot be run."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(env),
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            LOG.warning("backend %r: cannot run %r: %s", name, command[0], getattr(error, "strerror", None) or error)
            raise BackendFault(
                "The model server's process cannot be started.",
                code="upstream_disconnected",
                hint="See the backend's `command`.",
                transient=True,
            ) from None
        LOG.info("backend %r: process %d runs %r", name, process.pid, command[0])
        return cls(name, process, frame_bytes, private)

    def send(self, frame: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.is_closing():
            raise TransportBroken("its input is closed")
        if pipe.transport.get_write_buffer_size() > MOST_UNSENT:
            raise TransportBroken("it does not read what it is sent")
        pipe.write(frame + b"\n")

    async def frames(self) -> AsyncIterator[bytes | OversizedLine]:
        output = self._process.stdout
        assert output is not None
        splitter = LineSplitter(self._frame_bytes)
        while data := await output.read(READ_BYTES):
            for line in splitter.feed(data):
                if not isinstance(line, bytes) or line.strip():
                    yield line
            await asyncio.sleep(0)

    async def wait_ended(self) -> None:
        while self._process.returncode is None:  # noqa: ASYNC110  # `Process.wait` may wait for its pipes as well
            await asyncio.sleep(WATCH_S)
        await asyncio.sleep(WATCH_S)

    async def close(self) -> None:
        """Ends the process and its child processes."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        if not await self._ends():
            self._signal(kill=False)
            if not await self._ends():
                self._signal(kill=True)
                await self._ends()
        self._signal(kill=True)  # ends processes that a launcher left behind
        LOG.info("backend %r: process %d has ended (%s)", self._name, process.pid, _ending(process.returncode))
        await asyncio.wait([self._complaints], timeout=GRACE_S)
        self._complaints.cancel()

    async def _ends(self) -> bool:
        """Returns True if the process ends within `GRACE_S`."""
        given_up = time.monotonic() + GRACE_S
        while self._process.returncode is None and time.monotonic() < given_up:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)
        return self._process.returncode is not None

    def _signal(self, *, kill: bool) -> None:
        """Sends SIGKILL or SIGTERM to the process and its group (where groups exist)."""
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)

    async def _log_errors(self) -> None:
        """Logs the standard error (rule 3)."""
        errors = self._process.stderr
        assert errors is not None
        await log_lines(
            errors,
            READ_BYTES,
            lambda line: LOG.warning("backend %r says: %s", self._name, _shown(line, self._private)),
            lambda lines: LOG.warning("backend %r says %d more lines, which are left out", self._name, lines),
        )


def _shown(line: bytes, private: PrivateData) -> str:
    """Returns a line for the log, without secrets and control characters."""
    text = line[:MOST_READ_CHARS].decode(errors="replace")
    text = _TOKEN.sub(HIDDEN, _NAMED.sub(rf"\1{HIDDEN}", text))
    return clean_text("".join(c if c.isprintable() else " " for c in text), private=private)


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
