"""A host's end, whatever it does meanwhile and whoever gives up waiting for it; and that of the processes that its
server has started (R33.7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.conftest import settings
from tests.waiting import GUARD_S, runs, until
from toolwire.extras.mcp import hosting
from toolwire.extras.mcp.frames import HEAD
from toolwire.extras.mcp.hosting import HostProcess
from toolwire.extras.mcp.server import McpServer

LOST = b'{"lost": "it is gone"}'
SCRIPT = f"""
import sys, time
sys.stdout.buffer.write({HEAD.pack(len(LOST)) + LOST!r} + b"x" * 1_000_000)
sys.stdout.buffer.flush()
time.sleep(600)
"""
LEAVING = """
import os, subprocess, sys
first = os.fork()
if first == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.execvp("sleep", ["sleep", "3600"])
    os._exit(0)
os.waitpid(first, 0)
while not os.path.exists(sys.argv[1]):
    pass
"""
"""A server whose child has left its group and session."""


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_who_gives_up_waiting_leaves_no_process(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Also if it says more than anybody reads, and does not end by itself."""
    monkeypatch.setattr(hosting, "_COMMAND", (sys.executable, "-c", SCRIPT))
    async with asyncio.timeout(GUARD_S):
        host = await HostProcess.start(McpServer(settings())._settings(False), lambda frame: None)
        assert await host.ended() == "it is gone"
        closing = asyncio.create_task(host.close())
        for _ in range(times):
            await asyncio.sleep(0)
            closing.cancel()
        await asyncio.wait({closing})
    assert closing.cancelled() == bool(times)
    assert host._process.returncode is not None


@pytest.mark.skipif(sys.platform != "linux", reason="children are listed by Linux alone")
async def test_what_has_left_the_group_ends_too(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    config = settings(command=(sys.executable, "-c", LEAVING, str(told)))
    async with asyncio.timeout(GUARD_S):
        host = await HostProcess.start(McpServer(config)._settings(False), lambda frame: None)
        await host.ended()
        pid = told.read_text()
        await host.close()
        await until(lambda: not runs(pid))  # it was sent a signal


def test_what_a_library_prints_is_no_frame() -> None:
    pytest.importorskip("mcp")
    code = (
        "from toolwire.extras.mcp.host import GatewayPipes; pipes = GatewayPipes.of_process(); "
        "print('noise', flush=True); pipes.send({'a': 1})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, b"noise" in done.stderr) == (HEAD.pack(7) + b'{"a":1}', True)
