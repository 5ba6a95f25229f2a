"""The pipes of a server's process, as the transport that the SDK's client talks over. Runs in the host.

The SDK has one too, and this one differs in what a gateway needs:

1. The process stays in the host's group, so that whoever ends the group ends every process that a launcher such as
   `npx` has started, also where the host was killed itself.
2. A line is bounded before it is kept. One that is too large ends the connection: it may be the answer of any call.
3. What is no JSON is dropped: many servers print something when they start.
4. A server that never stops talking is read only so fast.
5. Its standard error is read, and given away in lines.
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

from toolwire.support.lines import LineSplitter

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
GRACE_S: Final = 2.0
"""So long a server has to end when its input closes, and again when it is told to end."""
MESSAGES_PER_S: Final = 2000
LINE_BYTES: Final = 8 * 1024
"""Of its standard error."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Broken(Exception):
    """The connection is no good any more; the text says why."""


@asynccontextmanager
async def piped(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    say: Callable[[str], object],
    broken: Callable[[str], object],
) -> AsyncGenerator[Streams, None]:
    """Run a server. `say` gets the lines of its standard error; `broken` is told when it ends. Raises `Broken` if it
    cannot be run."""
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
        raise Broken(f"its command cannot be run: {Path(argv[0]).name}: {why}") from None
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
                    await pace.keep()
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

    async def complain(errors: asyncio.StreamReader) -> None:
        splitter = LineSplitter(LINE_BYTES)
        while data := await errors.read(READ_BYTES):
            for line in splitter.feed(data):
                text = (line if isinstance(line, bytes) else line.head).decode(errors="replace").strip()
                if text:
                    say(text)
            await asyncio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, process.stdout)
        tasks.start_soon(write, process.stdin)
        tasks.start_soon(complain, process.stderr)
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
    """As the specification wants it: its input closes, then it is told, then it is killed."""
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
    """So many messages in a second, and no more."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0

    async def keep(self) -> None:
        """Wait for the next second, if this one has had its share."""
        now = asyncio.get_running_loop().time()
        if now - self._began >= 1.0:
            self._began, self._count = now, 0
        self._count += 1
        if self._count >= MESSAGES_PER_S:
            await asyncio.sleep(max(0.0, self._began + 1.0 - now))
