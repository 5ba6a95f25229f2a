"""Tools that clients run themselves and send by their types (R28.5): each kit that has them does its task with them, on
a model that only writes text and on a server that knows functions alone."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool
from anthropic.tools import BetaAsyncAbstractComputerToolset20260801
from anthropic.tools.memory import BetaAsyncLocalFilesystemMemoryTool

from tests.clients.conftest import Node, Task
from tests.clients.task import LOST, MODES, turn
from tests.e2e.conftest import Gateway, sdk
from tests.e2e.test_messages_sdk import sdk as messages_sdk

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def script(mode: str, *steps: tuple[str, dict[str, Any], str]) -> list[dict[str, Any]]:
    """A model that makes each call when it sees what the one before gave, and then says so."""
    turns, seen = [], None
    for name, arguments, gives in steps:
        turns.append(turn(mode, "", (name, arguments), when=seen))
        seen = gives
    return [*turns, {"text": "Done.", "when": seen}, {"text": LOST}]


async def run(agents: Any, server: Any, tools: Any, *, streamed: bool, model: str = "m", **settings: Any) -> str:
    """Returns the last text of an agent with these tools."""
    async with sdk(server) as client:
        agent = agents.Agent(
            name="clerk",
            tools=tools,
            model=agents.OpenAIResponsesModel(model=model, openai_client=client),
            model_settings=agents.ModelSettings(**settings),
        )
        quiet = agents.RunConfig(tracing_disabled=True)
        if not streamed:
            return str((await agents.Runner.run(agent, "Do it.", run_config=quiet)).final_output)
        result = agents.Runner.run_streamed(agent, "Do it.", run_config=quiet)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


WAYS = pytest.mark.parametrize(("mode", "streamed"), [("prompt", False), ("native", True)])


@WAYS
@pytest.mark.parametrize("preview", [False, True], ids=["computer", "preview"])
async def test_the_tools_of_openai_agents(
    agents: Any, gateway: Gateway, tmp_path: Path, streamed: bool, mode: str, preview: bool
) -> None:
    """Shells, patches and a computer; a model with the name of the preview gets the older computer."""
    seen: list[Any] = []

    def run_local(request: Any) -> str:
        action = request.data.action
        seen.append((action.type, action.command, action.working_directory, action.env))
        return "two files"

    async def run_shell(request: Any) -> Any:
        action = request.data.action
        seen.append((action.commands, action.timeout_ms))
        outcome = agents.ShellCallOutcome(type="exit", exit_code=1)
        done = [agents.ShellCommandOutput(stdout="", command=one, outcome=outcome) for one in action.commands]
        return agents.ShellResult(output=done)

    class Editor:
        def create_file(self, operation: Any) -> Any:
            return self.wrote(operation, agents.apply_diff("", operation.diff, mode="create"))

        def update_file(self, operation: Any) -> Any:
            if not (tmp_path / operation.path).exists():
                raise RuntimeError("no such file")
            return self.wrote(operation, agents.apply_diff((tmp_path / operation.path).read_text(), operation.diff))

        def delete_file(self, operation: Any) -> Any:
            (tmp_path / operation.path).unlink()
            return agents.ApplyPatchResult(output=f"deleted {operation.path}")

        def wrote(self, operation: Any, text: str) -> Any:
            (tmp_path / operation.path).write_text(text)
            return agents.ApplyPatchResult(output=f"wrote {operation.path}")

    def noted(name: str) -> Any:
        async def act(self: Any, *given: Any) -> Any:
            if name != "screenshot":
                seen.append((name, *given))
            return PNG if name == "screenshot" else None

        return act

    names = ("screenshot", "click", "double_click", "scroll", "type", "wait", "move", "keypress", "drag")
    body = {name: noted(name) for name in names}
    body |= {"environment": property(lambda self: "linux"), "dimensions": property(lambda self: (800, 600))}
    tools = [
        agents.ShellTool(executor=run_shell),
        agents.LocalShellTool(executor=run_local),
        agents.ApplyPatchTool(editor=Editor()),
        agents.ComputerTool(computer=type("Screen", (agents.AsyncComputer,), body)()),
    ]
    (tmp_path / "b.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "c.txt").write_text("old")
    click = {"type": "click", "x": 3, "y": 4, "button": "left"}
    *made, done, _ = script(
        mode,
        ("shell", {"commands": ["false"], "timeout_ms": 500}, "exit code 1"),
        ("local_shell", {"command": ["ls"], "working_directory": "/x", "env": {"A": "b"}}, "two files"),
        ("apply_patch", {"type": "create_file", "path": "a.txt", "diff": "+new\n+file"}, "wrote a.txt"),
        ("apply_patch", {"type": "update_file", "path": "b.txt", "diff": "@@\n one\n-two\n+2\n three"}, "wrote b.txt"),
        ("apply_patch", {"type": "delete_file", "path": "c.txt"}, "deleted c.txt"),
        ("apply_patch", {"type": "update_file", "path": "none", "diff": "@@\n-x\n+y"}, "no such file"),
        ("computer_use_preview", click, "") if preview else ("computer", {"actions": [click]}, ""),
    )
    server = await gateway(script=[*made, {"text": done["text"]}], mode=mode)
    model = "computer-use-preview" if preview else "m"
    said = await run(agents, server, tools, streamed=streamed, model=model, tool_choice="shell")
    assert said == "Done."
    assert seen == [(["false"], 500), ("exec", ["ls"], "/x", {"A": "b"}), ("click", 3, 4, "left")]
    assert (tmp_path / "a.txt").read_text() == "new\nfile"
    assert (tmp_path / "b.txt").read_text() == "one\n2\nthree\n"
    assert not (tmp_path / "c.txt").exists()


# --- anthropic's tool runner ----------------------------------------------------------------------------------------


async def runner(server: Any, tools: list[Any], *, streamed: bool) -> str:
    """What the model says at last."""
    async with messages_sdk(server) as client:
        asked: list[Any] = [{"role": "user", "content": "Do it."}]
        steps = client.beta.messages.tool_runner(
            model="m", max_tokens=500, max_iterations=15, messages=asked, tools=tools, stream=streamed
        )
        async for step in steps:
            last = await step.get_final_message() if streamed else step
    return "".join(block.text for block in last.content if block.type == "text")


class Own(BetaAsyncBuiltinFunctionTool):
    """A tool that notes what it is given in `seen`."""

    def __init__(self, seen: list[Any], **tool: Any) -> None:
        self.seen = seen
        self.tool: Any = tool

    def to_dict(self) -> Any:
        return self.tool

    async def call(self, input: object) -> str:
        self.seen.append((self.tool["name"], input))
        return f"result {len(self.seen)}"


class Screen(BetaAsyncAbstractComputerToolset20260801):
    """A computer that notes what it is told in `seen`."""

    seen: list[Any]

    async def left_click(self, context: Any, input: Any) -> str:
        self.seen.append(("left_click", input.coordinate))
        return "clicked"

    async def screenshot(self, context: Any, input: Any) -> Any:
        self.seen.append(("screenshot",))
        return {"data": PNG, "media_type": "image/png"}


@WAYS
async def test_the_tools_of_the_tool_runner(gateway: Gateway, tmp_path: Path, streamed: bool, mode: str) -> None:
    """A memory, a shell, an editor and a computer."""
    seen: list[Any] = []
    note, kept = "/memories/note.md", "/memories/kept.md"
    editing = {"command": "view", "path": "/a", "view_range": [1, -1]}
    *made, done, _ = script(
        mode,
        ("memory", {"command": "view", "path": "/memories"}, "levels deep"),
        ("memory", {"command": "create", "path": note, "file_text": "one\ntwo\n"}, "created successfully"),
        ("memory", {"command": "insert", "path": note, "insert_line": 2, "insert_text": "three\n"}, "note.md has been"),
        ("memory", {"command": "rename", "old_path": note, "new_path": kept}, "Successfully renamed"),
        ("memory", {"command": "str_replace", "path": kept, "old_str": "two", "new_str": "2"}, "The memory file"),
        ("memory", {"command": "delete", "path": "/memories/none"}, "none does not exist"),
        ("bash", {"command": "ls"}, "result 1"),
        ("str_replace_based_edit_tool", editing, "result 2"),
        ("bash", {"restart": True}, "result 3"),
        ("computer__left_click", {"coordinate": [3, 4]}, "clicked"),
        ("computer__screenshot", {}, ""),
    )
    server = await gateway(script=[*made, {"text": done["text"]}], mode=mode)
    screen = Screen()
    screen.seen = seen
    editor = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9}
    shell = {"type": "bash_20250124", "name": "bash"}
    memory = BetaAsyncLocalFilesystemMemoryTool(str(tmp_path))
    tools = [memory, Own(seen, **shell), Own(seen, **editor), screen]
    assert (await runner(server, tools, streamed=streamed)).strip() == "Done."
    assert (tmp_path / "memories/kept.md").read_text() == "one\n2\nthree\n"
    used = [("bash", {"command": "ls"}), (editor["name"], editing), ("bash", {"restart": True})]
    assert seen == [*used, ("left_click", [3, 4]), ("screenshot",)]


# --- Vercel ai ------------------------------------------------------------------------------------------------------

DIFF = "@@\n one\n-two\n+2\n"
OF_OPENAI: list[tuple[str, dict[str, Any], str | None]] = [
    ("shell", {"commands": ["ls"], "timeout_ms": 9}, None),
    ("local_shell", {"command": ["ls", "-l"]}, "of the shell"),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": DIFF}, "of the local shell"),
]
OF_ANTHROPIC: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "ls"}),
    ("str_replace_based_edit_tool", {"command": "view", "path": "/a"}),
    ("memory", {"command": "view", "path": "/memories"}),
    ("computer", {"action": "left_click", "coordinate": [3, 4]}),
]


async def test_the_tools_of_both_in_ai(gateway: Gateway, node: Node) -> None:
    """Where the gateway keeps the answers, `@ai-sdk/openai` sends the ids of the calls in their place."""
    tasks: list[Task] = []
    for mode, way in product(MODES, ("generate", "stream")):
        made = [turn(mode, "", (name, given), when=seen) for name, given, seen in OF_OPENAI]
        done = [{"text": "Done.", "when": "of the patch"}, {"text": LOST}]
        for store in (True, False):
            server = await gateway(script=[*made, *done], mode=mode)
            tasks.append((server, str(server.make_url("/v1")), "openai", way, {"openai": {"store": store}}))
        server = await gateway(script=[*(turn(mode, "", call) for call in OF_ANTHROPIC), {"text": "Done."}], mode=mode)
        tasks.append((server, str(server.make_url("/v1")), "anthropic", way, {}))
    names = ("bash", "editor", "memory", "computer")
    for (_, _, api, *how), got in zip(tasks, await node("vercel_own_tools.mjs", tasks), strict=True):
        assert got["text"].strip() == "Done.", (api, how)
        if api == "anthropic":
            assert got["calls"] == [[name, given] for name, (_, given) in zip(names, OF_ANTHROPIC, strict=True)], how
        else:
            (shell, local, patch) = (given for _, given in got["calls"])
            assert (shell["action"]["commands"], local["action"]["command"]) == (["ls"], ["ls", "-l"]), how
            assert patch["operation"] == OF_OPENAI[2][1], how
