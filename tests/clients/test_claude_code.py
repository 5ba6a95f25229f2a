"""Claude Code, a coding agent that speaks only Messages: whole tasks by `claude -p`, with files at the end, set up by
the lines of its page.

It runs in a home of its own, and what it would fetch from elsewhere is turned off or sent to a port where nobody
listens.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.clients import setup_pages
from tests.clients.conftest import NOWHERE, execute
from tests.clients.npm import HEAVY, HERE, install
from tests.clients.task import LOST, MODES, Call, turn
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, serving, upstream_config
from tests.e2e.reasoning_servers import SERVERS, Anthropic, OpenAI, Server, before
from toolwire.testing import Say, Upstream

TASK = "Put the word of word.txt into greeting.txt."
WORD = 'pamplemousse-7 ü "quoted" </tool_call>'
DONE = "The greeting has its word."
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""A red dot, a PNG."""


@dataclass(frozen=True)
class Ran:
    """What `claude -p` left: what it reported, and the folder it worked in."""

    status: int
    report: dict[str, Any]
    errors: str
    files: dict[str, str]


Claude = Callable[..., Awaitable[Ran]]


@pytest.fixture(scope="session")
def programs(shared: Path) -> Path:
    return install("claude", shared) / "node_modules" / ".bin"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which it works."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "word.txt").write_text(WORD)
    (work / "greeting.txt").write_text("hello\n")
    return work


@pytest.fixture
def claude(programs: Path, tmp_path: Path, work: Path) -> Claude:
    """`await claude(server, task, *options)`."""

    async def run(server: TestServer, task: str, *options: str, **env: str) -> Ran:
        own = {
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HOME": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            **NOWHERE,
            **env,
        }
        options = ("--permission-mode", "acceptEdits", "--output-format", "json", *options)
        command = setup_pages.command("claude-code", server, "-p", task, *options)
        status, out, err = await execute(*command, cwd=work, env=own)
        return Ran(status, json.loads(out or "{}"), f"{out} {err}", files_in(work))

    return run


def files_in(work: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in work.iterdir() if path.suffix == ".txt"}


def steps(work: Path) -> list[tuple[str, list[Call], str | None]]:
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
    """With system messages in the middle, and two calls at once."""
    script = [turn(mode, text, *calls, when=when) for text, calls, when in steps(work)]
    server = await gateway(script=[*script, LOST], mode=mode)
    ran = await claude(server, TASK)
    assert ran.status == 0, ran.errors
    assert ran.files == {"word.txt": WORD, "greeting.txt": f"hello {WORD}\n"}
    assert (ran.report["result"], ran.report["num_turns"]) == (DONE, 4)
    assert list(ran.report["modelUsage"]) == ["my-model"]


async def test_it_asks_again_without_a_stream(claude: Claude, work: Path) -> None:
    """When a stream breaks off."""
    said = [Say("\n".join([text, *(block(*call) for call in calls)])) for text, calls, _ in steps(work)]
    first, *rest = said
    async with (
        Upstream([Say("I loo", cut=True), first, *rest]) as upstream,
        serving(upstream_config(upstream.url)) as server,
    ):
        ran = await claude(server, TASK)
    assert ran.status == 0, ran.errors
    assert ran.files["greeting.txt"] == f"hello {WORD}\n"
    assert [asked.json.get("stream", False) for asked in upstream.requests[:2]] == [True, False]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in (Anthropic, OpenAI) else HEAVY) for kind in SERVERS],
    ids=lambda kind: kind.__name__,
)
async def test_reasoning_comes_back(claude: Claude, work: Path, kind: type[Server]) -> None:
    """R28.3: its servers refuse a history without what they gave."""
    model = kind()
    model.calls = [call for _, calls, _ in steps(work) for call in calls]
    async with Upstream([model]) as up, serving(before(model, up)) as server:
        ran = await claude(server, TASK)
    assert (ran.status, model.faults) == (0, []), ran.errors
    assert ran.files["greeting.txt"] == f"hello {WORD}\n"


LIBRARY = {"mcpServers": {"library": {"command": sys.executable, "args": [str(HERE / "library_server.py")]}}}
WITH_LIBRARY = ("--mcp-config", json.dumps(LIBRARY), "--strict-mcp-config", "--allowedTools", "mcp__library")


@pytest.mark.parametrize("mode", ["prompt", pytest.param("native", marks=HEAVY)])
async def test_a_tool_that_is_searched_for(gateway: Gateway, claude: Claude, mode: str) -> None:
    """R28.1. Of 150 tools it sends the names, and the one that its search has found."""
    server = await gateway(
        script=[
            {"text": DONE, "when": "shelf 77 has the atlas"},
            turn(mode, "I search.", ("ToolSearch", {"query": "select:mcp__library__shelf_77"}), when="Find the atlas."),
            turn(mode, "I look.", ("mcp__library__shelf_77", {"book": "atlas"}), when="mcp__library__shelf_77"),
            LOST,
        ],
        mode=mode,
    )
    ran = await claude(server, "Find the atlas.", *WITH_LIBRARY, ENABLE_TOOL_SEARCH="true")
    assert ran.status == 0, ran.errors
    assert ran.report["result"] == DONE


@pytest.mark.parametrize("mode", ["prompt", pytest.param("native", marks=HEAVY)])
async def test_a_subagent(gateway: Gateway, claude: Claude, mode: str) -> None:
    """Also where the model wishes another model for it."""
    task = {"description": "count", "prompt": "Count the pineapples.", "subagent_type": "general-purpose"}
    server = await gateway(
        script=[
            {"text": "There are seven of them.", "when": "Count the pineapples."},
            {"text": DONE, "when": "There are seven of them."},
            turn(
                mode,
                "I delegate.",
                ("Agent", {**task, "model": "haiku", "run_in_background": False}),
                when="Let someone count.",
            ),
            LOST,
        ],
        mode=mode,
    )
    ran = await claude(server, "Let someone count.", "--allowedTools", "Agent")
    assert ran.status == 0, ran.errors
    assert ran.report["result"] == DONE
    assert list(ran.report["modelUsage"]) == ["my-model"]


async def test_an_image(claude: Claude, work: Path) -> None:
    """It stands in a result."""
    (work / "dot.png").write_bytes(DOT)
    look = block("Read", {"file_path": str(work / "dot.png")})
    async with (
        Upstream([Say(f"I look. {look}"), Say(DONE)]) as upstream,
        serving(upstream_config(upstream.url, backend={"images": True})) as server,
    ):
        ran = await claude(server, "Say what is on dot.png.")
    assert ran.status == 0, ran.errors
    assert ran.report["result"] == DONE
    assert "data:image/png;base64," in json.dumps(upstream.requests[-1].json)


TOO_LONG = (
    "This model's maximum context length is 32768 tokens. However, your request has 40000 input tokens. Please reduce the"
    " length of the input messages."
)


async def test_it_compacts(gateway: Gateway, claude: Claude, work: Path) -> None:
    """R28.6. When a model server says that the context is exceeded, in words of its own; `test_overflow.py` has all of
    them."""
    (work / "word.txt").write_text("PAMPLEMOUSSE")
    error = {"status": 400, "message": TOO_LONG}
    server = await gateway(
        script=[
            {"text": "<summary>The word was read.</summary>", "when": "an <analysis> block followed by a <summary>"},
            {"text": DONE, "when": "The word was read."},
            {"error": error, "when": "PAMPLEMOUSSE"},
            turn("prompt", "I look.", ("Read", {"file_path": str(work / "word.txt")}), when="Read word.txt."),
            LOST,
        ]
    )
    ran = await claude(server, "Read word.txt.")
    assert ran.status == 0, ran.errors
    assert ran.report["result"] == DONE
