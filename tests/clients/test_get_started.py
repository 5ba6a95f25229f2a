"""The page that gets users started, followed as it is printed: the installed command in front of each of its model
servers, which are scripted, and each of its coding agents in front of that."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import NOWHERE
from tests.clients.npm import install, recent_node
from tests.clients.task import Call
from tests.docs.pages import Block, blocks
from tests.docs.steps import ADDRESS, walking
from tests.e2e.agent import block
from tests.e2e.engines import Engine, llamacpp, ollama, vllm
from toolwire.extras.demo.show import client_lines
from toolwire.testing import Answer, Asked, Say, Upstream

PAGE = Path("docs/tutorial/get-started.md")
SERVER = "http://127.0.0.1:8000"
TASK = "Say what word.txt holds."
WORD = "pamplemousse-7"
DONE = "It holds a fruit."


@dataclass(frozen=True)
class Agent:
    """A coding agent: `package` brings it, `arguments` stand before the task, `read` is a call that reads the file."""

    package: str
    arguments: str
    read: Callable[[str], Call]


AGENTS = {
    "claude": Agent("claude", "-p", lambda path: ("Read", {"file_path": path})),
    "codex": Agent(
        "codex",
        "exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox",
        lambda path: ("exec_command", {"cmd": f"cat {path}"}),
    ),
    "opencode": Agent("agents", "run", lambda path: ("read", {"filePath": path})),
}
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    **NOWHERE,
}


def commands(word: str) -> Block:
    """The block of commands that has this word."""
    [found] = [block for block in blocks(PAGE) if block.info == ["sh"] and word in block.text.split()]
    return found


class Model:
    """A model that writes text: it reads the file, and then says that it has."""

    def __init__(self, engine: Engine, call: Call) -> None:
        self.engine = engine
        self.call = block(*call)
        self.seen = False

    def __call__(self, asked: Asked) -> Answer:
        """The next turn; requests that are not about the task, such as those for a title, get a word."""
        if asked.method == "GET":
            return self.engine(asked)
        messages = asked.json.get("messages", [])
        if TASK not in json.dumps(messages):
            return Say("Fine.")(asked)
        self.seen |= WORD in json.dumps(messages)
        return Say(DONE if self.seen else f"I look.\n{self.call}")(asked)


@pytest.mark.parametrize(
    ("start", "engine", "shown", "agent"),
    [
        ("llama-server", llamacpp(), "llama.cpp", "claude"),
        ("ollama", ollama("qwen3:8b"), "Ollama", "opencode"),
        ("vllm", vllm(), "vLLM", "codex"),
    ],
)
async def test_it_works_as_printed(
    shared: Path, tmp_path: Path, start: str, engine: Engine, shown: str, agent: str
) -> None:
    """R35.2."""
    one = AGENTS[agent]
    assert SERVER.rpartition(":")[2] in commands(start).text.replace(":", " ").split()
    programs = (install(one.package, shared) / "node_modules" / ".bin", recent_node(shared))
    with walking(tmp_path, **QUIET) as walk:
        walk.env["PATH"] = os.pathsep.join([*map(str, programs), walk.env["PATH"]])
        word = walk.home / "word.txt"
        word.write_text(WORD)
        model = Model(engine, one.read(str(word)))
        async with Upstream([model]) as server:
            server.listing = model

            async def step(block: Block, **words: Any) -> str:
                return await asyncio.to_thread(walk.step, block, **words) or ""

            await step(commands("pip"))
            await step(commands("--backend"), instead={SERVER: server.url})
            await asyncio.to_thread(walk.logged, f"is {shown}")
            for written in filter(lambda block: block.file, blocks(PAGE)):
                await step(written)
            line = commands(agent)
            said = await step(line._replace(text=f'{line.text.rstrip()} {one.arguments} "{TASK}"\n'))
            page = await asyncio.to_thread(walk.run, f"curl -sf {walk.address}/inspect")
    assert model.seen
    assert DONE in said
    assert "<html" in page


def test_the_demo_prints_the_lines_of_the_page() -> None:
    """R35.1."""
    printed = client_lines(f"{ADDRESS}/v1")
    assert {f"{line}\n" for line in printed.values()} == {commands("claude").text, commands("codex").text}
