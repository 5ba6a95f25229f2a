"""Coding agents, whole tasks with files at the end, each set up by the lines of its page.

Each runs in a home of its own, and what it would fetch from elsewhere it looks for where nobody listens.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.clients import setup_pages
from tests.clients.conftest import NOWHERE, execute
from tests.clients.npm import HEAVY, HERE, install, recent_node
from tests.clients.task import MODES, Call, turn
from tests.e2e.conftest import Gateway

TASK = "Put the word of word.txt into greeting.txt."
WORD = 'pamplemousse-7 ü "quoted" </tool_call>'
DONE = "The greeting has its word."


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A coding agent. `arguments` stand before the task, `read` and `edit` make calls of its tools, `edited` stands in
    the result of an edit. `files` of its home and `env` keep it from the web and from leaving processes behind."""

    arguments: tuple[str, ...] = ()
    read: Callable[[list[str]], list[Call]]
    edit: Callable[[str, str, str], Call]
    edited: str
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    package: str = "agents"


def each(name: str, key: str) -> Callable[[list[str]], list[Call]]:
    """A call for each file that is read."""
    return lambda paths: [(name, {key: path}) for path in paths]


AGENTS = {
    "cline": Agent(
        read=lambda paths: [("read_files", {"files": [{"path": path} for path in paths]})],
        edit=lambda path, old, new: ("editor", {"path": path, "old_text": old, "new_text": new}),
        edited="Edited ",
        env={"CLINE_SESSION_BACKEND_MODE": "local"},  # else a process stays behind
        files={".cline/data/settings/global-settings.json": '{"telemetryOptOut": true, "autoUpdateEnabled": false}'},
    ),
    "codex": Agent(
        arguments=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        read=lambda paths: [("exec_command", {"cmd": f"cat {path}"}) for path in paths],
        edit=lambda path, old, new: (
            "exec_command",
            {"cmd": f"sed -i {shlex.quote(f's|{old}|{new}|')} {path} && echo It is 'ed'ited."},
        ),
        edited="It is edited.",
        package="codex",
    ),
    "copilot": Agent(
        arguments=("--allow-all", "-p"),
        read=each("view", "path"),
        edit=lambda path, old, new: ("edit", {"path": path, "old_str": old, "new_str": new}),
        edited="updated with changes",
        package="copilot",
    ),
    "opencode": Agent(
        arguments=("run",),
        read=each("read", "filePath"),
        edit=lambda path, old, new: ("edit", {"filePath": path, "oldString": old, "newString": new}),
        edited="uccessfully",
        env={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    ),
    "pi": Agent(
        arguments=("-p",),
        read=each("read", "path"),
        edit=lambda path, old, new: ("edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}),
        edited="uccessfully",
        env={"PI_OFFLINE": "1"},
    ),
    "qwen-code": Agent(
        arguments=("--yolo",),
        read=each("read_file", "file_path"),
        edit=lambda path, old, new: ("edit", {"file_path": path, "old_string": old, "new_string": new}),
        edited="has been updated",
        env={"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
    ),
}

OTHER_APIS = {
    "copilot": [
        ("responses", {"=my-model": "=my-model COPILOT_PROVIDER_WIRE_API=responses"}),
        (
            "websocket",
            {"=my-model": "=my-model COPILOT_PROVIDER_WIRE_API=responses COPILOT_PROVIDER_TRANSPORT=websockets"},
        ),
        ("messages", {"=my-model": "=my-model COPILOT_PROVIDER_TYPE=anthropic", "/v1": ""}),
    ],
    "opencode": [
        ("openai", {"@ai-sdk/openai-compatible": "@ai-sdk/openai"}),
        ("anthropic", {"@ai-sdk/openai-compatible": "@ai-sdk/anthropic"}),
    ],
    "pi": [
        ("responses", {"openai-completions": "openai-responses"}),
        ("messages", {"openai-completions": "anthropic-messages", "/v1": ""}),
    ],
}
"""Other APIs of an agent: a label, and words of its page's lines with what to write instead."""


def way(name: str, words: Mapping[str, str], mode: str, label: str, *, heavy: bool) -> Any:
    return pytest.param(name, words, mode, id=f"{name} {label}", marks=[HEAVY] if heavy else [])


RARE = ("copilot", "opencode", "qwen-code")
"""With `TOOLWIRE_HEAVY_CLIENTS` only: copilot is an installation of 190 MB, the others have another task in every run:
that of `test_get_started.py`, and a deferred tool."""

WAYS = [  # each agent in one mode, in turn
    way(name, setup_pages.NO_WORDS, mode, mode, heavy=(row + column) % 2 == 1 or name in RARE)
    for row, name in enumerate(AGENTS)
    for column, mode in enumerate(MODES)
] + [
    way(name, words, "prompt", api, heavy=name in RARE) for name, others in OTHER_APIS.items() for api, words in others
]


@pytest.mark.parametrize(("name", "words", "mode"), WAYS)
async def test_a_task(
    gateway: Gateway, shared: Path, tmp_path: Path, name: str, words: Mapping[str, str], mode: str
) -> None:
    agent = AGENTS[name]
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "word.txt").write_text(WORD)
    (work / "greeting.txt").write_text("hello\n")
    reads = agent.read([str(work / "word.txt"), str(work / "greeting.txt")])
    edit = agent.edit(str(work / "greeting.txt"), "hello", f"hello {WORD}")
    server = await gateway(
        script=[
            turn(mode, DONE, when=agent.edited),
            turn(mode, "I look at both.", *reads, when="Put the word of word.txt"),
            turn(mode, "Now the edit.", edit, when="pamplemousse-7"),
            "I never saw a result.",
        ],
        mode=mode,
    )
    status, out, err = await run(name, TASK, server, shared, home, work, words)
    assert status == 0, f"{out} {err}"
    assert DONE in out, f"{out} {err}"
    assert (work / "greeting.txt").read_text() == f"hello {WORD}\n"


async def run(
    name: str,
    task: str,
    server: TestServer,
    shared: Path,
    home: Path,
    work: Path,
    words: Mapping[str, str] = setup_pages.NO_WORDS,
) -> tuple[int, str, str]:
    """Set an agent up by its page, with some words of its lines replaced, and give it a task."""
    agent = AGENTS[name]
    setup_pages.write(name, home, server, words)
    for file, text in agent.files.items():
        home.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
        home.joinpath(file).write_text(text)
    programs = (install(agent.package, shared) / "node_modules" / ".bin", recent_node(shared))
    env = {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "HOME": str(home),
        **NOWHERE,
        **agent.env,
    }
    return await execute(*setup_pages.command(name, server, *agent.arguments, task, words=words), cwd=work, env=env)


@pytest.mark.parametrize("mode", ["prompt", pytest.param("native", marks=HEAVY)])
async def test_a_deferred_tool_of_qwen_code(gateway: Gateway, shared: Path, tmp_path: Path, mode: str) -> None:
    """Of 150 tools it sends the names. What it has found is called through a tool whose name is `tool_call`, like the
    tag of a call. This is its task in every run."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    (home / ".qwen").mkdir(parents=True)
    library = {"command": sys.executable, "args": [str(HERE / "library_server.py")], "trust": True}
    (home / ".qwen" / "settings.json").write_text(json.dumps({"mcpServers": {"library": library}}))
    found = {"name": "mcp__library__shelf_77", "arguments": {"book": "atlas"}}
    server = await gateway(
        script=[
            {"text": DONE, "when": "shelf 77 has the atlas"},
            turn(
                mode, "I search.", ("tool_search", {"query": "select:mcp__library__shelf_77"}), when="Find the atlas."
            ),
            turn(mode, "I look.", ("tool_call", found), when="mcp__library__shelf_77"),
            "I never saw a result.",
        ],
        mode=mode,
    )
    status, out, err = await run("qwen-code", "Find the atlas.", server, shared, home, work)
    assert status == 0, f"{out} {err}"
    assert DONE in out, f"{out} {err}"
