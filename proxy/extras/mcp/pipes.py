"""A server process and its pipes, as a transport for the SDK's client. Runs in the host.

It replaces the SDK's transport because a gateway needs this:

1. The process stays in the host's group. Killing the group ends every process that a launcher such as `npx` has
   started, also if the host was killed.
2. The length of a line is limited while it is read. A longer one ends the connection, because it may be the answer of
   any call.
3. Lines that are not JSON are dropped: many servers print something when they start.
4. The number of messages read per second is limited.
5. The standard error is read and forwarded line by line.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ...support.lines import LineSplitter, log_lines

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
GRACE_S: Final = 2.0
"""The time a server has to end after its input closes, and again after SIGTERM."""
MESSAGES_PER_S: Final = 2000
LINE_BYTES: Final = 8 * 1024
"""Maximum length of a line of standard error."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class ConnectionFailed(Exception):
    """The connection has failed; the text says why."""


@asynccontextmanager
async def piped(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    log: Callable[[bytes], object],
    log_left_out: Callable[[int], object],
    broken: Callable[[str], object],
) -> AsyncGenerator[Streams, None]:
    """Runs a server process while the context lasts, and yields its message streams. `log` and `log_left_out` get the
    lines of its standard error (`log_lines`); `broken` is called with the reason when the connection fails. Raises
    `ConnectionFailed` if the process cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            shutil.which(argv[0], path=env.get("PATH")) or argv[0],
            *argv[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConnectionFailed(f"its command cannot be run: {Path(argv[0]).name}: {why}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ending = False
    into, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    out, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(output: asyncio.StreamReader) -> None:
        why = "it has closed its output"
        splitter = LineSplitter(MAX_MESSAGE_BYTES)
        pace = Pace()
        async with into:
            while data := await output.read(READ_BYTES):
                for line in splitter.feed(data):
                    if not isinstance(line, bytes):
                        broken(f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes")
                        return
                    try:
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        continue
                    try:
                        await into.send(SessionMessage(message))
                    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                        return
                    await pace.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    status = await process.wait()
                    why = f"it has ended with status {status}" if status >= 0 else f"it was ended by signal {-status}"
            if not ending:
                broken(why)

    async def write(pipe: asyncio.StreamWriter) -> None:
        async with outgoing:
            async for message in outgoing:
                pipe.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                with suppress(ConnectionError):
                    await pipe.drain()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, process.stdout)
        tasks.start_soon(write, process.stdin)
        tasks.start_soon(log_lines, process.stderr, LINE_BYTES, log, log_left_out)
        try:
            yield messages, out
        finally:
            ending = True
            with anyio.CancelScope(shield=True):
                out.close()
                messages.close()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the process in the order of the MCP specification: closes its input, terminates it, kills it."""
    assert process.stdin is not None
    process.stdin.close()
    for act in (process.terminate, process.kill, lambda: None):
        for _ in range(int(GRACE_S / 0.01)):
            if process.returncode is not None:
                return
            await asyncio.sleep(0.01)
        with suppress(ProcessLookupError):
            act()


class Pace:
    """Limits messages to `MESSAGES_PER_S`."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0

    async def wait(self) -> None:
        """Counts a message; waits for the next second if the limit of this one is reached."""
        now = asyncio.get_running_loop().time()
        if now - self._began >= 1.0:
            self._began, self._count = now, 0
        self._count += 1
        if self._count >= MESSAGES_PER_S:
            await asyncio.sleep(max(0.0, self._began + 1.0 - now))
