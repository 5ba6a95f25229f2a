"""Claude Code, a coding agent that speaks only Messages: whole tasks by `claude -p`, with files at the end.

It runs in a home of its own, and what it would fetch from elsewhere is turned off or sent to a port where nobody
listens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from proxy.testing import Say, Upstream
from tests.clients.conftest import execute
from tests.clients.npm import install
from tests.clients.task import MODES, turn
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, serving, upstream_config
from tests.e2e.reasoning_servers import SERVERS, Server, before

TASK = "Put the word of word.txt into greeting.txt."
WORD = 'pamplemousse-7 ü "quoted" </tool_call>'
DONE = "The greeting has its word."


@dataclass(frozen=True)
class Ran:
    """What `claude -p` left: what it reported, and the folder it worked in."""

    status: int
    report: dict[str, Any]
    errors: str
    files: dict[str, str]


Claude = Callable[[TestServer], Awaitable[Ran]]


@pytest.fixture(scope="session")
def program(shared: Path) -> Path:
    return install("claude", shared) / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which it works."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "word.txt").write_text(WORD)
    (work / "greeting.txt").write_text("hello\n")
    return work


@pytest.fixture
def claude(program: Path, tmp_path: Path, work: Path) -> Claude:
    """`await claude(server)`: do `TASK`."""

    async def run(server: TestServer) -> Ran:
        nowhere = "http://127.0.0.1:9"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1",
            "ANTHROPIC_BASE_URL": str(server.make_url("/")).rstrip("/"),
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        options = ("--model", "some-model", "--permission-mode", "acceptEdits", "--output-format", "json")
        status, out, err = await execute("node", str(program), "-p", TASK, *options, cwd=work, env=env)
        return Ran(status, json.loads(out or "{}"), f"{out} {err}", files_in(work))

    return run


def files_in(work: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in work.iterdir() if path.is_file()}


def steps(work: Path) -> list[tuple[str, list[tuple[str, dict[str, str]]], str | None]]:
    """What the model says, the calls that it makes, and what it must have seen by then."""
    word, greeting = str(work / "word.txt"), str(work / "greeting.txt")
    edit = {"file_path": greeting, "old_string": "hello", "new_string": f"hello {WORD}"}
    return [
        ("I look at both.", [("Read", {"file_path": word}), ("Read", {"file_path": greeting})], None),
        ("Now the edit.", [("Edit", edit)], "pamplemousse-7"),
        (DONE, [], "greeting.txt has been updated"),
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_a_task(gateway: Gateway, claude: Claude, work: Path, mode: str) -> None:
    """With 26 tools of 80 KB, system messages in the middle, and two calls at once."""
    script = [turn(mode, text, *calls, when=when) for text, calls, when in steps(work)]
    server = await gateway(script=[*script, "I never saw a result."], mode=mode)
    ran = await claude(server)
    assert ran.status == 0, ran.errors
    assert ran.files == {"word.txt": WORD, "greeting.txt": f"hello {WORD}\n"}
    assert (ran.report["result"], ran.report["num_turns"]) == (DONE, 4)


async def test_it_asks_again_without_a_stream(claude: Claude, work: Path) -> None:
    """When a stream breaks off."""
    said = [Say("\n".join([text, *(block(*call) for call in calls)])) for text, calls, _ in steps(work)]
    first, *rest = said
    async with (
        Upstream([Say("I loo", cut=True), first, *rest]) as upstream,
        serving(upstream_config(upstream.url)) as server,
    ):
        ran = await claude(server)
    assert ran.status == 0, ran.errors
    assert ran.files["greeting.txt"] == f"hello {WORD}\n"
    assert [asked.json.get("stream", False) for asked in upstream.requests[:2]] == [True, False]


@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.__name__)
async def test_reasoning_comes_back(claude: Claude, work: Path, kind: type[Server]) -> None:
    """R28.3: its servers refuse a history without what they gave."""
    model = kind()
    model.calls = [call for _, calls, _ in steps(work) for call in calls]
    async with Upstream([model]) as up, serving(before(model, up)) as server:
        ran = await claude(server)
    assert (ran.status, model.faults) == (0, []), ran.errors
    assert ran.files["greeting.txt"] == f"hello {WORD}\n"
