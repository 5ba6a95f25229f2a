"""Worker processes behind a whole gateway: it answers while a tool does its worst, and nothing of them outlives it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import CHAT, USER, gateway_before, post
from tests.e2e.processes import running
from tests.waiting import GUARD_S, runs, until
from toolwire.testing import Say, Upstream

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals")

MODULE = """
import os, re, signal, time
from pathlib import Path
import _helper

HERE = Path(__file__).parent
NAMES = ["hold", "allocate", "leave", "shoot", "secret", "fine"]
TOOLS = [{"type": "function", "function": {"name": name, "description": name}} for name in NAMES]

def handle_tool_call(tool_name, tool_input):
    print("here is", tool_name, flush=True)
    (HERE / "begun.tmp").write_text(f"{os.getpid()} {os.getppid()}")
    (HERE / "begun.tmp").rename(HERE / "begun")
    if tool_name == "hold":
        re.match(r"(a+)+$", "a" * 100 + "b")  # holds the interpreter lock for ever
    if tool_name == "allocate":
        return str(len(bytearray(2 * 1024**3)))
    if tool_name == "leave":
        os._exit(7)
    if tool_name == "shoot":
        os.kill(os.getppid(), signal.SIGTERM)
    if tool_name == "secret":
        return " ".join(sorted(os.environ))
    return _helper.NAME
"""


def block(name: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': '{}'})}</tool_call>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "worst.py").write_text(MODULE)
    (folder / "_helper.py").write_text("NAME = 'helped'")
    return folder


async def begun(folder: Path) -> list[int]:
    """The worker that runs a handler, and its guardian."""
    file = folder / "begun"
    await until(file.exists)
    numbers = [int(number) for number in file.read_text().split()]
    file.unlink()
    return numbers


def told(upstream: Upstream) -> str:
    """What the model server was sent last."""
    return json.dumps(upstream.requests[-1].json["messages"])


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("hold", "Error: Tool execution timed out"),
        ("allocate", "Error: Tool needs more memory than it may have"),
        ("leave", "Error: Tool ended its process (exit status 7)"),
        ("shoot", "helped"),
    ],
)
async def test_the_worst_costs_its_own_call(folder: Path, name: str, result: str) -> None:
    tools = {
        "folder": str(folder),
        "timeout_s": 1.0 if name == "hold" else 60.0,
        "load_timeout_s": GUARD_S,
        "watch_s": 0,
    }
    both = block(name) + block("fine") if name != "hold" else block(name)
    async with gateway_before([Say(both), Say("So.")], tools=tools) as (server, upstream):
        answer = await post(server, {"messages": USER})
    assert answer.json()["choices"][0]["message"]["content"] == "So."
    assert f"\\n{result}\\n</tool_response>" in told(upstream)
    if name != "hold":
        assert "\\nhelped\\n</tool_response>" in told(upstream)


def config(upstream: Upstream, folder: Path, **tools: Any) -> dict[str, Any]:
    return {
        "server": {"port": 0, "shutdown_grace_s": 0.1},
        "backends": {"up": {"url": upstream.url, "api_key": "${MODEL_KEY}"}},
        "store": {"kind": "memory"},
        "tools": {"folder": str(folder), "timeout_s": 3600, "load_timeout_s": GUARD_S, **tools},
        "defaults": {"tool_loop": {"max_seconds": 3600}},
    }


async def test_prints_are_in_the_log_and_secrets_are_not_in_the_environment(tmp_path: Path, folder: Path) -> None:
    async with (
        Upstream([Say(block("secret")), Say("So.")]) as upstream,
        running(
            tmp_path, config(upstream, folder, env={"OWN": "${TOOL_KEY}"}), MODEL_KEY="sk-model", TOOL_KEY="sk-tool"
        ) as gateway,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{gateway.url}{CHAT}", json={"model": "m", "messages": USER}) as response:
            assert response.status == 200
        worker, guardian = await begun(folder)
        await gateway.logged("secret: here is secret")
        for pid in (worker, guardian):
            environment = Path(f"/proc/{pid}/environ").read_bytes()  # noqa: ASYNC240
            assert (b"sk-model" in environment, b"OWN=sk-tool" in environment) == (False, True)
        assert "OWN" in told(upstream)
        assert "MODEL_KEY" not in told(upstream)
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
        await until(lambda: not runs(worker) and not runs(guardian))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_worker_outlives_the_gateway(tmp_path: Path, folder: Path, number: signal.Signals) -> None:
    """Not even one that is busy, when the gateway is killed and can say nothing."""
    async with (
        Upstream([Say(block("fine")), Say("So."), Say(block("hold"))]) as upstream,
        running(tmp_path, config(upstream, folder), MODEL_KEY="k") as gateway,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "messages": USER}
        async with session.post(f"{gateway.url}{CHAT}", json=body) as response:
            await response.read()
        first = await begun(folder)
        asking = asyncio.ensure_future(session.post(f"{gateway.url}{CHAT}", json=body))
        second = await begun(folder)
        gateway.signal(number)
        await gateway.end()
        await until(lambda: not any(map(runs, {*first, *second})))
        await asyncio.wait({asking})
        asking.exception()
