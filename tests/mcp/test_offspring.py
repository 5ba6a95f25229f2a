"""What an MCP server has started ends with its host, also outside of the host's group and session (R33.7)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from proxy.servertools.mcp.hosting import HostProcess
from proxy.servertools.mcp.server import McpServer
from tests.mcp.conftest import settings
from tests.waiting import GUARD_S, runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are listed by Linux alone")

SERVER = """
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


async def test_what_has_left_the_group_ends_too(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    config = settings(command=(sys.executable, "-c", SERVER, str(told)))
    async with asyncio.timeout(GUARD_S):
        host = await HostProcess.start(McpServer(config)._settings(False), lambda frame: None)
        await host.ended()
        pid = told.read_text()
        await host.close()
    assert not runs(pid)
