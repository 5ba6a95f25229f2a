"""MCP servers for tests: doubles that are run, and where the published ones are."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import optional
from tests.mcp import forking
from tests.mcp.forking import hosts_are_forked
from tests.waiting import GUARD_S
from toolwire.config import McpServerConfig
from toolwire.extras.mcp.server import McpServer
from toolwire.model import ToolUse
from toolwire.servertools.source import CallState, Result

HERE = Path(__file__).parent
RAW = HERE / "raw_server.py"
SDK = HERE / "sdk_server.py"

PUBLISHED = Path(os.environ.get("TOOLWIRE_MCP_SERVERS", HERE.parents[1] / "build" / "mcp-servers"))
"""Where `tests/mcp/servers.sh` puts the servers that npm has."""


@pytest.fixture(scope="package", autouse=True)
def hosts() -> Iterator[None]:
    """Hosts are forked (`forking`): to start one takes more than most tests. `real_hosts` are started."""
    with hosts_are_forked():
        yield


@pytest.fixture
def real_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are started as a gateway starts them."""
    monkeypatch.setattr(forking, "COMMAND", ())


def raw(**options: Any) -> tuple[str, ...]:
    """The command of the double that knows no SDK."""
    return (sys.executable, str(RAW), json.dumps(options))


def settings(command: Any = None, **more: Any) -> McpServerConfig:
    """A server of the raw double, or of `command`; with `url` one that has an address."""
    way: dict[str, Any] = {} if "url" in more else {"command": raw() if command is None else command}
    return McpServerConfig(**{"name": "test", "timeout_s": GUARD_S, "connect_timeout_s": GUARD_S, **way, **more})


@asynccontextmanager
async def connected(config: McpServerConfig, *, on_oversize: Any = "cut") -> AsyncIterator[McpServer]:
    """A server that has listed its tools."""
    server = McpServer(config, on_oversize)
    async with server.running():
        await listed(server)
        yield server


async def listed(server: McpServer) -> None:
    """Wait for the list of tools."""
    async with asyncio.timeout(GUARD_S):
        await server.listed.wait()


async def call(source: Any, name: str, _states: list[CallState] | None = None, **arguments: Any) -> Result:
    """The result of a call."""
    use = ToolUse("call_1", name, json.dumps(arguments))
    enter = (lambda state: None) if _states is None else _states.append
    result: Result = await source.tools.run(use, GUARD_S, enter)
    return result


def npm_server(name: str) -> tuple[str, ...]:
    """The command of a published server of npm; skips where it is not installed."""
    program = PUBLISHED / "node_modules" / ".bin" / name
    if not program.exists():
        pytest.skip(f"{program} is not there; tests/mcp/servers.sh installs it, with node and npm")
    optional.program(optional.NODE)
    return (str(program),)


def python_server(module: str) -> tuple[str, ...]:
    """The command of a published server in Python."""
    pytest.importorskip(module)
    return (sys.executable, "-m", module)
