"""Gateways in processes of their own that start in milliseconds: forks of a process that has imported everything.

`python -m tests.e2e.forking FD` forks for each order at the socket `FD`. A gateway has the environment, the folder and
the outputs of its order, leads its own session and runs `toolwire serve` without the rehearsal, which has tests of its
own (`tests/unit/test_rehearsal.py`). Its parent only waits for it and reports its exit status.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.waiting import GUARD_S

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_BYTES: Final = 1 << 17
"""The limit of one order."""


class Forked:
    """A running `toolwire serve` with the configuration `file`, or that program if its name ends with `.py`; used like
    a `subprocess.Popen`; `stdout` is a pipe."""

    def __init__(self, file: Path, *, env: Mapping[str, str], folder: Path, log: BinaryIO) -> None:
        out, theirs = os.pipe()
        status, reported = os.pipe()
        order = {"file": str(file), "env": {**os.environ, **env}, "folder": str(folder)}
        try:
            orders = orders_to("tests.e2e.forking")
            socket.send_fds(orders, [json.dumps(order).encode()], [theirs, log.fileno(), reported])
        finally:
            os.close(theirs)
            os.close(reported)
        self.stdout = os.fdopen(out, "rb", buffering=0)  # so that a line that has come can be waited for
        self._status = os.fdopen(status, "rb")
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; the exit status as of `subprocess`."""
        if self.returncode is None:
            self.returncode = int(self._status.readline())
        return self.returncode

    async def ended(self) -> int:
        """The same in an event loop."""
        async with asyncio.timeout(GUARD_S):
            await readable(self._status.fileno())
        return self.wait()

    async def line(self) -> bytes:
        """The next line of its output, in an event loop."""
        async with asyncio.timeout(GUARD_S):
            await readable(self.stdout.fileno())
        return self.stdout.readline()

    def close(self) -> None:
        """Kill it and its children, and close the pipes."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self.stdout.close()
        self._status.close()


async def readable(descriptor: int) -> None:
    """Wait until something can be read, or the other end is closed."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


@cache
def orders_to(module: str) -> socket.socket:
    """The socket for orders of a process that runs `module` and forks for each; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- the process that is forked -------------------------------------------------------------------------------------


def serve_orders(orders: socket.socket) -> None:
    """Fork for each order until the other end is closed."""
    from toolwire.app import create_app
    from toolwire.server import rehearsal, serving, workers  # noqa: F401

    async def nothing(*_: Any) -> None:
        """In the place of `rehearse`."""

    rehearsal.rehearse = nothing
    for backend in ({"kind": "mock"}, {"url": "http://127.0.0.1:9"}):
        create_app({"backends": {"m": backend}, "store": {"kind": "memory"}})  # imports what it needs
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, *_ = socket.recv_fds(orders, MOST_BYTES, 3)
        if not data:
            return
        if os.fork() == 0:
            orders.close()
            _watch(json.loads(data), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(order: Mapping[str, Any], out: int, log: int, status: int) -> None:
    """Fork once more, and report the process id and the exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become_gateway(order, out, log)
    os.close(out)
    os.close(log)
    with suppress(BrokenPipeError):
        os.write(status, b"%d\n" % pid)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, b"%d\n" % ended)
    os._exit(0)


def _become_gateway(order: Mapping[str, Any], out: int, log: int) -> None:
    """Run the command; ends with `SystemExit`."""
    from toolwire.cli import main

    os.setsid()
    for descriptor, target in ((out, 1), (log, 2)):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None
    gc.unfreeze()
    if order["file"].endswith(".py"):
        runpy.run_path(order["file"], run_name="__main__")
    else:
        main(["serve", "--config", order["file"]], prog_name="toolwire")


if __name__ == "__main__":
    serve_orders(socket.socket(fileno=int(sys.argv[1])))
