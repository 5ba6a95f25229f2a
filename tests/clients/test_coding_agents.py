"""opencode and pi, coding agents that speak Messages where they are told to: a whole task, with a file at the end.

Each runs in a home of its own, and what it would fetch from elsewhere it looks for where nobody listens.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.clients.conftest import execute
from tests.clients.npm import install
from tests.clients.task import MODES, turn
from tests.e2e.conftest import Gateway

TASK = "Put the word of word.txt into greeting.txt."
WORD = 'pamplemousse-7 ü "quoted" </tool_call>'
DONE = "The greeting has its word."
NOWHERE = "http://127.0.0.1:9"
PATHS = {"opencode": "filePath", "pi": "path"}


async def opencode(server: TestServer, bin: Path, home: Path, work: Path) -> tuple[int, str, str]:
    options = {"baseURL": str(server.make_url("/v1")), "apiKey": "k"}
    model = {"name": "some", "tool_call": True, "limit": {"context": 100_000, "output": 4000}}
    provider = {"npm": "@ai-sdk/anthropic", "name": "toolwire", "options": options, "models": {"m": model}}
    config: dict[str, Any] = {"model": "toolwire/m", "small_model": "toolwire/m", "provider": {"toolwire": provider}}
    work.joinpath("opencode.json").write_text(json.dumps(config))
    env = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return await execute(str(bin / "opencode"), "run", TASK, cwd=work, env=environment(home, **env))


async def pi(server: TestServer, bin: Path, home: Path, work: Path) -> tuple[int, str, str]:
    model = {"id": "m", "name": "some", "reasoning": False, "input": ["text"], "contextWindow": 100_000}
    prices = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    models = [{**model, "maxTokens": 4000, "cost": prices}]
    url = str(server.make_url("/")).rstrip("/")
    provider = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "k", "models": models}
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    folder.joinpath("models.json").write_text(json.dumps({"providers": {"toolwire": provider}}))
    command = [str(bin / "pi"), "-p", "--provider", "toolwire", "--model", "m", TASK]
    return await execute(*command, cwd=work, env=environment(home, PI_OFFLINE="1"))


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **more}


AGENTS = {"opencode": opencode, "pi": pi}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", AGENTS)
async def test_a_task(gateway: Gateway, shared: Path, tmp_path: Path, name: str, mode: str) -> None:
    bin = install("agents", shared) / "node_modules" / ".bin"
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "word.txt").write_text(WORD)
    key = PATHS[name]
    read = ("read", {key: str(work / "word.txt")})
    write = ("write", {key: str(work / "greeting.txt"), "content": f"hello {WORD}"})
    script = [
        turn(mode, "I look.", read, when="Put the word of word.txt"),
        turn(mode, "I write.", write, when="pamplemousse-7"),
        turn(mode, DONE, when="uccessfully"),  # as each says in words of its own
    ]
    server = await gateway(script=script, mode=mode)
    status, out, err = await AGENTS[name](server, bin, home, work)
    assert status == 0, f"{out} {err}"
    assert DONE in out
    assert (work / "greeting.txt").read_text() == f"hello {WORD}"
