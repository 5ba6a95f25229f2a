"""Codex, a coding agent that speaks only Responses: whole tasks by `codex exec`, with files at the end.

It runs in a home of its own, and what it would fetch from elsewhere is turned off or sent to a port where nobody
listens. With a model name that it does not know it edits by shell commands; for one that it knows it offers
`apply_patch` as a tool with free text (R8.9).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.clients.conftest import NOWHERE, execute
from tests.clients.recorder import RECORDER
from tests.clients.task import MODES, turn
from tests.e2e.conftest import Gateway, serving
from tests.e2e.reasoning_servers import DeepSeek, OpenAI, Server, before
from toolwire.testing import Upstream

TASK = "Put the word of word.txt into greeting.txt and make a note.\n"
WORD = "pamplemousse-7 ü\n"
NOTE = 'the "note" </tool_call> \\n 🚀\n' + "a line of a long note\n" * 40
DONE = "The greeting has its word."

CONFIG = """
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
apps = false
plugins = false

[model_providers.gateway]
name = "gateway"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

CLOCK_CONFIG = f"""
{CONFIG}
[mcp_servers.clock]
command = {json.dumps(sys.executable)}
args = ["-m", "mcp_server_time"]
startup_timeout_sec = 300
required = true
"""

CLOCK = ("mcp__clock__get_current_time", {"timezone": "Etc/UTC"})

PLAIN_CONFIG = """
openai_base_url = "{url}"
"""
"""No more than where the gateway is."""

ADDED = "".join(f"+{line}\n" for line in NOTE.splitlines())
PATCH = f"""*** Begin Patch
*** Update File: greeting.txt
@@
-hello
+hello {WORD.strip()}
*** Add File: note.txt
{ADDED}*** End Patch
"""


@dataclass(frozen=True)
class Ran:
    """What `codex exec` left: `items` are the finished ones of its log, `files` the folder it worked in."""

    status: int
    items: list[dict[str, Any]]
    errors: str
    files: dict[str, str]

    def kinds(self, *, but: str = "error") -> list[str]:
        """Types of the items. Codex reports a model name that it does not know as an `error`, and goes on."""
        return [item["type"] for item in self.items if item["type"] != but]


Codex = Callable[..., Awaitable[Ran]]


@pytest.fixture
def codex(codex_program: Path, tmp_path: Path) -> Codex:
    """`await codex(server, model)`: do `TASK` in a folder with the files it speaks of."""

    async def run(server: TestServer, model: str | None, config: str = CONFIG) -> Ran:
        home, work = tmp_path / "home", tmp_path / "work"
        (home / ".codex").mkdir(parents=True)
        work.mkdir()
        (home / ".codex" / "config.toml").write_text(config.format(url=server.make_url("/v1")))
        (work / "word.txt").write_text(WORD)
        (work / "greeting.txt").write_text("hello\n")
        own = {"HOME": str(home), "CODEX_HOME": str(home / ".codex"), "CODEX_API_KEY": "sk-none"}
        env = {"PATH": os.environ["PATH"], **NOWHERE, **own}
        chosen = ("--model", model) if model else ()
        free = ("--strict-config", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        command = (str(codex_program), "exec", *free, "--json", *chosen, TASK)
        status, out, err = await execute(*command, cwd=work, env=env)
        log = [json.loads(line) for line in out.splitlines()]
        items = [entry["item"] for entry in log if entry["type"] == "item.completed"]
        problems = [entry for entry in log if entry["type"] in ("error", "turn.failed")]
        files = {path.name: path.read_text() for path in work.iterdir()}
        return Ran(status, items, f"{problems} {err}", files)

    return run


def shell(command: str) -> tuple[str, dict[str, str]]:
    return "exec_command", {"cmd": command}


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_with_free_text(gateway: Gateway, codex: Codex, mode: str) -> None:
    server = await gateway(
        script=[
            turn(mode, "I look first.", shell("cat word.txt")),
            turn(mode, "Now the patch.", ("apply_patch", {"input": PATCH}), when=WORD.strip()),
            turn(mode, DONE, when="Success. Updated"),
            "I never saw a result.",
        ],
        mode=mode,
    )
    ran = await codex(server, "gpt-5.5")
    assert ran.status == 0, ran.errors
    assert ran.files == {"word.txt": WORD, "greeting.txt": f"hello {WORD}", "note.txt": NOTE}
    assert ran.kinds() == ["agent_message", "command_execution", "agent_message", "file_change", "agent_message"]
    assert ran.items[-1]["text"] == DONE
    deltas = [body.count(b"event: response.custom_tool_call_input.delta") for *_, body in server.app[RECORDER].answers]
    assert (max(deltas) > 100) == (mode == "prompt"), "R6.13: a long text is streamed where the gateway reads it"


@pytest.mark.parametrize(
    ("model", "config", "mode"),
    [("gpt-6.2-sol", CONFIG, "native"), (None, PLAIN_CONFIG, "prompt")],
    ids=["named", "default"],
)
async def test_a_task_with_a_model_of_its_own(
    gateway: Gateway, codex: Codex, mode: str, model: str | None, config: str
) -> None:
    """Its default models get their tools in an item of the input, and run scripts that call others (R28.1). Where it is
    told no more than the address, it would rather have a WebSocket (R28.2)."""

    def script(code: str) -> tuple[str, dict[str, str]]:
        return "functions__exec", {"input": code}

    patch = f'await tools.apply_patch({json.dumps(PATCH)});\ntext("It is patched.");'
    server = await gateway(
        script=[
            turn(mode, "I look.", script('text((await tools.exec_command({cmd: "cat word.txt"})).output);')),
            turn(mode, "Now the patch.", script(patch), when=WORD.strip()),
            turn(mode, DONE, when="It is patched."),
            "I never saw a result.",
        ],
        mode=mode,
    )
    ran = await codex(server, model, config)
    assert ran.status == 0, ran.errors
    assert ran.files == {"word.txt": WORD, "greeting.txt": f"hello {WORD}", "note.txt": NOTE}
    assert ran.items[-1]["text"] == DONE
    recorder = server.app[RECORDER]
    if model is None:
        answered = [event["response"] for event in recorder.events[0] if event["type"] == "response.completed"]
        assert (len(recorder.events), len(answered)) == (1, len(recorder.messages))  # all on one connection
        assert [response["id"] for response in answered][:-1] == [
            message["previous_response_id"] for message in recorder.messages[1:]
        ]
        assert all(message["store"] is False for message in recorder.messages)
        assert not [request for request in recorder.requests if request]  # and none over HTTP
        assert recorder.messages[0]["generate"] is False
    else:
        assert recorder.events == []


async def test_half_a_script_is_not_run(gateway: Gateway, codex: Codex) -> None:
    """R6.13: a limit of length cuts the answer, and the half that was streamed is a script by itself."""
    code = 'await tools.exec_command({cmd: "rm word.txt"});\n' + "// and so on\n" * 200
    cut = turn("prompt", "I tidy up.", ("functions__exec", {"input": code}))
    server = await gateway(script=[{**cut, "text": cut["text"][:-500], "finish": "length"}])
    ran = await codex(server, "gpt-6.2-sol")
    assert (ran.status == 0, "was cut off" in ran.errors) == (False, True), ran.errors
    assert ran.files["word.txt"] == WORD
    assert b"event: response.custom_tool_call_input.delta" in server.app[RECORDER].answers[-1][2]


async def test_a_delegated_agent_gets_its_task(gateway: Gateway, codex: Codex) -> None:
    """R28.1. What it is to do and what it has done are items of their own."""
    task = {"task_name": "counter", "message": "Count the pineapples.", "fork_turns": "none"}
    server = await gateway(
        script=[
            {"text": "There are seven of them.", "when": "Count the pineapples."},
            {"text": DONE, "when": "There are seven of them."},
            turn("prompt", "I wait.", ("collaboration__wait_agent", {"timeout_ms": "10000"}), when="/root/counter"),
            turn("prompt", "I delegate.", ("collaboration__spawn_agent", task), when="greeting.txt"),
            "I never saw a result.",
        ]
    )
    ran = await codex(server, "gpt-6.2-sol")
    assert ran.status == 0, ran.errors
    assert ran.items[-1]["text"] == DONE


async def test_a_tool_of_a_server_that_is_searched_for(gateway: Gateway, codex: Codex) -> None:
    """R28.1. The search is a call of Codex's own, and what it finds can be called afterwards."""
    server = await gateway(
        script=[
            turn("native", "I ask the clock.", CLOCK, when="Found: mcp__"),
            {"text": DONE, "when": "day_of_week"},
            turn("native", "I search.", ("tool_search", {"query": "current time"}), when="greeting.txt"),
            "I never saw a result.",
        ],
        mode="native",
    )
    ran = await codex(server, "gpt-5.5", CLOCK_CONFIG)
    assert ran.status == 0, ran.errors
    assert ran.kinds() == ["agent_message", "agent_message", "mcp_tool_call", "agent_message"]
    assert ran.items[-1]["text"] == DONE


async def test_a_failure_is_shown(gateway: Gateway, codex: Codex) -> None:
    """Codex takes the message of an error only from `response.failed`."""
    server = await gateway(script=[{"text": "I begin, and", "error": {"message": "the model fell over", "after": 8}}])
    ran = await codex(server, "some-model")
    assert ran.status != 0
    assert "the model fell over" in ran.errors


@pytest.mark.parametrize("kind", [DeepSeek, OpenAI], ids=lambda kind: kind.__name__)
async def test_reasoning_comes_back(codex: Codex, kind: type[Server]) -> None:
    """R28.3: its servers refuse a history without what they gave. It brings back `encrypted_content` only. With every
    server: `test_reasoning_returns.py`."""
    model = kind()
    write = f"sed -i s/hello/'hello {WORD.strip()}'/ greeting.txt"
    model.calls = [shell("cat word.txt"), shell("cat greeting.txt"), shell(write)]
    async with Upstream([model]) as up, serving(before(model, up)) as server:
        ran = await codex(server, "some-model")
    assert (ran.status, model.faults) == (0, []), ran.errors
    assert ran.files["greeting.txt"] == f"hello {WORD}"
    assert ran.kinds(but="reasoning").count("command_execution") == len(model.calls)
