"""A host's end, whatever it does meanwhile and whoever gives up waiting for it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from proxy.servertools.mcp import hosting
from proxy.servertools.mcp.frames import HEAD
from proxy.servertools.mcp.hosting import HostProcess
from proxy.servertools.mcp.server import McpServer
from tests.mcp.conftest import settings
from tests.waiting import GUARD_S

LOST = b'{"lost": "it is gone"}'
SCRIPT = f"""
import sys, time
sys.stdout.buffer.write({HEAD.pack(len(LOST)) + LOST!r} + b"x" * 1_000_000)
sys.stdout.buffer.flush()
time.sleep(600)
"""


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
