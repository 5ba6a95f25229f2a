"""Hosts of MCP servers that start in milliseconds: forks of a process that has imported the SDK, which takes a second.

`python -m tests.mcp.forking FD` forks for each order at the socket `FD`. A host has the environment and the pipes of
its order and leads its own session, as `hosting` starts one. Its parent only waits for it and reports its exit status.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from tests.e2e.forking import MOST_BYTES, orders_to
from toolwire.extras.mcp import hosting

COMMAND: Final = hosting._COMMAND


class ForkedHost:
    """A host, used like an `asyncio.subprocess.Process` with pipes."""

    returncode: int | None = None

    @classmethod
    async def start(cls, env: Mapping[str, str]) -> ForkedHost:
        """Fork one."""
        pipes = [os.pipe() for _ in range(3)]
        (their_input, ours), (output, their_output), (status, reported) = pipes
        theirs = [their_input, their_output, reported]
        try:
            socket.send_fds(orders_to("tests.mcp.forking"), [json.dumps(dict(env)).encode()], theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        host = cls()
        host.stdin = await _writer(ours)
        host.stdout = await _reader(output)
        host._status = await _reader(status)
        host.pid = int(await host._status.readline())
        return host

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    _status: asyncio.StreamReader

    async def wait(self) -> int:
        """Wait for its end; the exit status."""
        if self.returncode is None:
            self.returncode = int(await self._status.readline())
            await self._status.read()
        return self.returncode


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(descriptor, "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


@contextmanager
def hosts_are_forked() -> Iterator[None]:
    """Where a host would be started, one is forked, in this block."""
    plain = asyncio.create_subprocess_exec

    async def start(*command: Any, **options: Any) -> Any:
        if command == COMMAND == hosting._COMMAND:
            return await ForkedHost.start(options["env"])
        return await plain(*command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", start)
        yield


# --- the process that is forked -------------------------------------------------------------------------------------


def serve_orders(orders: socket.socket) -> None:
    """Fork for each order until the other end is closed."""
    from toolwire.extras.mcp import host

    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, *_ = socket.recv_fds(orders, MOST_BYTES, 3)
        if not data:
            return
        if os.fork() == 0:
            orders.close()
            _watch(host.main, json.loads(data), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(main: Any, env: Mapping[str, str], source: int, target: int, status: int) -> None:
    """Fork once more, and report the process id and the exit status."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        os.setsid()
        for descriptor, wanted in ((source, 0), (target, 1)):
            os.dup2(descriptor, wanted)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(env)
        main()
        os._exit(0)
    os.close(source)
    os.close(target)
    with suppress(BrokenPipeError):
        os.write(status, b"%d\n" % pid)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


if __name__ == "__main__":
    serve_orders(socket.socket(fileno=int(sys.argv[1])))
