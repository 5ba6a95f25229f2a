"""The gateway without its guests: `toolwire.extras` can be left out of an image (R35.3)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "toolwire.extras" or name.startswith("toolwire.extras."):
            raise ModuleNotFoundError(f"left out: {name}", name=name)

sys.meta_path.insert(0, Refusing())

from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner
from toolwire import create_app
from toolwire.cli import main
from toolwire.support.conversion import ConfigError

async def served():
    backends = {"m": {"kind": "mock", "script": ['<tool_call>{"name":"f","arguments":{}}</tool_call>']}}
    app = create_app({"backends": backends, "routes": [{"model": "m", "backend": "m"}]})
    async with TestClient(TestServer(app)) as client:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
        answer = await (await client.post("/v1/chat/completions", json=body)).json()
        print(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"])

asyncio.run(served())
try:
    create_app({"backends": {"m": {"kind": "mock"}}, "inspect": True})
except ConfigError as error:
    print(str(error).replace("\\n", " "))
for command in ("--help", "doctor"):
    said = CliRunner().invoke(main, [command])
    print(said.exit_code, said.output.replace("\\n", " "))
"""


def test_what_is_left_out_is_named_and_the_rest_works() -> None:
    """A call is answered; a guest that is switched on and a command of one are named."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    called, switched_on, listed, missing = done.stdout.splitlines()
    assert called == "f"
    assert "feature 'inspect'" in switched_on
    assert "toolwire.extras" in switched_on
    assert listed.startswith("0 Usage: ")
    assert "serve" in listed
    assert "doctor" not in listed
    assert missing.startswith("2 ")
    assert "'doctor' is not a part of this installation" in missing
