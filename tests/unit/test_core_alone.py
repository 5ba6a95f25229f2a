"""The gateway without its guests: `toolwire.extras` can be left out of an image (R35.3)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "toolwire.extras" or name.startswith("toolwire.extras."):
            raise ModuleNotFoundError(f"left out: {name}", name=name)

sys.meta_path.insert(0, Refusing())
"""
SERVING = """
import asyncio
from aiohttp.test_utils import TestClient, TestServer
from toolwire import create_app

async def main():
    backends = {"m": {"kind": "mock", "script": ['<tool_call>{"name":"f","arguments":{}}</tool_call>']}}
    app = create_app({"backends": backends, "routes": [{"model": "m", "backend": "m"}]})
    async with TestClient(TestServer(app)) as client:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
        answer = await (await client.post("/v1/chat/completions", json=body)).json()
        print(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"])

asyncio.run(main())
"""
SWITCHED_ON = """
from toolwire import create_app
from toolwire.support.conversion import ConfigError
try:
    create_app({"backends": {"m": {"kind": "mock"}}, "inspect": True})
except ConfigError as error:
    print(error)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", REFUSING + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_a_call_is_answered_without_any_guest() -> None:
    done = run(SERVING)
    assert done.stdout.strip() == "f", done.stderr


def test_a_guest_that_is_switched_on_and_not_there_is_named() -> None:
    done = run(SWITCHED_ON)
    assert "feature 'inspect'" in done.stdout, done.stderr
    assert "toolwire.extras" in done.stdout


def test_a_command_that_is_not_there_is_named() -> None:
    program = "from toolwire.cli import main\nmain()"
    done = run(program, "--help")
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
    assert "doctor" not in done.stdout
    done = run(program, "doctor")
    assert done.returncode == 2
    assert "'doctor' is not a part of this installation" in done.stderr
    assert "Traceback" not in done.stderr
