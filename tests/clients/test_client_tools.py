"""Tools that clients run themselves and send by their types (R28.5): each kit that has them does its task with them, on
a model that only writes text and on a server that knows functions alone."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool
from anthropic.tools import BetaAsyncAbstractComputerToolset20260801
from anthropic.tools.memory import BetaAsyncLocalFilesystemMemoryTool

from tests.clients.conftest import Node, Task
from tests.clients.pip import run as run_python
from tests.clients.task import LOST, MODES, turn
from tests.e2e.conftest import Gateway, sdk
from tests.e2e.test_messages_sdk import sdk as messages_sdk

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
MODE = pytest.mark.parametrize("mode", MODES)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="session")
def agents() -> Any:
    """The package, which takes two seconds to import."""
    return pytest.importorskip("agents", reason="needs openai-agents")


def script(mode: str, *steps: tuple[str, dict[str, Any], str]) -> list[dict[str, Any]]:
    """A model that makes each call when it sees what the one before gave, and then says so."""
    turns, seen = [], None
    for name, arguments, gives in steps:
        turns.append(turn(mode, "", (name, arguments), when=seen))
        seen = gives
    return [*turns, {"text": "Done.", "when": seen}, {"text": LOST}]


async def run(agents: Any, server: Any, tool: Any, *, streamed: bool, model: str = "m", **settings: Any) -> str:
    """What an agent with this tool says at last."""
    async with sdk(server) as client:
        agent = agents.Agent(
            name="clerk",
            tools=[tool],
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


@MODE
@STREAMED
async def test_the_shell_of_openai_agents(agents: Any, gateway: Gateway, streamed: bool, mode: str) -> None:
    made = script(
        mode,
        ("shell", {"commands": ["echo one", "false"], "timeout_ms": 500}, "exit code 1"),
        ("shell", {"commands": ["echo two"]}, "two"),
    )
    seen: list[Any] = []

    async def execute(request: Any) -> Any:
        action = request.data.action
        seen.append((action.commands, action.timeout_ms))
        outputs = [
            agents.ShellCommandOutput(
                stdout=command.removeprefix("echo "),
                command=command,
                outcome=agents.ShellCallOutcome(type="exit", exit_code=int(command == "false")),
            )
            for command in action.commands
        ]
        return agents.ShellResult(output=outputs)

    server = await gateway(script=made, mode=mode)
    choice = "shell" if streamed else "auto"
    said = await run(agents, server, agents.ShellTool(executor=execute), streamed=streamed, tool_choice=choice)
    assert (said, seen) == ("Done.", [(["echo one", "false"], 500), (["echo two"], None)])


@MODE
@STREAMED
async def test_the_local_shell_of_openai_agents(agents: Any, gateway: Gateway, streamed: bool, mode: str) -> None:
    arguments = {"command": ["ls", "-l"], "working_directory": "/x", "env": {"A": "b"}}
    seen: list[Any] = []

    def execute(request: Any) -> str:
        action = request.data.action
        seen.append((action.type, action.command, action.working_directory, action.env))
        return "two files"

    server = await gateway(script=script(mode, ("local_shell", arguments, "two files")), mode=mode)
    said = await run(agents, server, agents.LocalShellTool(executor=execute), streamed=streamed)
    assert (said, seen) == ("Done.", [("exec", ["ls", "-l"], "/x", {"A": "b"})])


@MODE
@STREAMED
async def test_the_patches_of_openai_agents(agents: Any, gateway: Gateway, streamed: bool, mode: str) -> None:
    files = {"b.txt": "one\ntwo\nthree\n", "c.txt": "old"}
    made = script(
        mode,
        ("apply_patch", {"type": "create_file", "path": "a.txt", "diff": "+new\n+file"}, "made a.txt"),
        ("apply_patch", {"type": "update_file", "path": "b.txt", "diff": "@@\n one\n-two\n+2\n three"}, "made b.txt"),
        ("apply_patch", {"type": "delete_file", "path": "c.txt"}, "made c.txt"),
        ("apply_patch", {"type": "update_file", "path": "none", "diff": "@@\n-x\n+y"}, "no such file"),
    )

    class Editor:
        def create_file(self, operation: Any) -> Any:
            files[operation.path] = agents.apply_diff("", operation.diff, mode="create")
            return agents.ApplyPatchResult(output=f"made {operation.path}")

        def update_file(self, operation: Any) -> Any:
            if operation.path not in files:
                raise RuntimeError("no such file")
            files[operation.path] = agents.apply_diff(files[operation.path], operation.diff)
            return agents.ApplyPatchResult(output=f"made {operation.path}")

        def delete_file(self, operation: Any) -> Any:
            del files[operation.path]
            return agents.ApplyPatchResult(output=f"made {operation.path}")

    server = await gateway(script=made, mode=mode)
    said = await run(agents, server, agents.ApplyPatchTool(editor=Editor()), streamed=streamed)
    assert (said, files) == ("Done.", {"a.txt": "new\nfile", "b.txt": "one\n2\nthree\n"})


@MODE
@STREAMED
@pytest.mark.parametrize("preview", [False, True], ids=["computer", "preview"])
async def test_the_computer_of_openai_agents(
    agents: Any, gateway: Gateway, streamed: bool, mode: str, preview: bool
) -> None:
    seen: list[Any] = []

    def noted(name: str) -> Any:
        async def act(self: Any, *given: Any) -> Any:
            seen.append((name, *given))
            return PNG if name == "screenshot" else None

        return act

    names = ("screenshot", "click", "double_click", "scroll", "type", "wait", "move", "keypress", "drag")
    body = {name: noted(name) for name in names}
    body |= {"environment": property(lambda self: "linux"), "dimensions": property(lambda self: (800, 600))}
    computer = type("Screen", (agents.AsyncComputer,), body)()
    actions = [{"type": "click", "x": 3, "y": 4, "button": "left"}, {"type": "type", "text": "hi"}]
    given = [("computer_use_preview", one) for one in actions] if preview else [("computer", {"actions": actions})]
    calls = [turn(mode, "", call) for call in given]
    server = await gateway(script=[*calls, {"text": "Done."}], mode=mode)
    tool = agents.ComputerTool(computer=computer)
    model, choice = ("computer-use-preview", "computer_use_preview") if preview else ("m", "computer")
    said = await run(agents, server, tool, streamed=streamed, model=model, tool_choice=choice)
    assert said == "Done."
    done = [one for one in seen if one[0] != "screenshot"]
    assert done == [("click", 3, 4, "left"), ("type", "hi")]
    assert ("screenshot",) in seen


# --- anthropic's tool runner ----------------------------------------------------------------------------------------


async def runner(server: Any, tools: list[Any], *, streamed: bool) -> str:
    """What the model says at last."""
    async with messages_sdk(server) as client:
        asked: list[Any] = [{"role": "user", "content": "Do it."}]
        steps = client.beta.messages.tool_runner(
            model="m", max_tokens=500, max_iterations=9, messages=asked, tools=tools, stream=streamed
        )
        async for step in steps:
            last = await step.get_final_message() if streamed else step
    return "".join(block.text for block in last.content if block.type == "text")


@MODE
@STREAMED
async def test_the_memory_of_the_tool_runner(gateway: Gateway, tmp_path: Path, streamed: bool, mode: str) -> None:
    note, kept = "/memories/note.md", "/memories/kept.md"
    made = script(
        mode,
        ("memory", {"command": "view", "path": "/memories"}, "levels deep"),
        ("memory", {"command": "create", "path": note, "file_text": "one\ntwo\n"}, "created successfully"),
        ("memory", {"command": "insert", "path": note, "insert_line": 2, "insert_text": "three\n"}, "note.md has been"),
        ("memory", {"command": "rename", "old_path": note, "new_path": kept}, "Successfully renamed"),
        ("memory", {"command": "str_replace", "path": kept, "old_str": "two", "new_str": "2"}, "The memory file"),
        ("memory", {"command": "view", "path": kept, "view_range": [1, 3]}, "kept.md with line"),
        ("memory", {"command": "delete", "path": "/memories/none"}, "none does not exist"),
    )
    server = await gateway(script=made, mode=mode)
    said = await runner(server, [BetaAsyncLocalFilesystemMemoryTool(str(tmp_path))], streamed=streamed)
    assert said.strip() == "Done."
    assert (tmp_path / "memories/kept.md").read_text() == "one\n2\nthree\n"


@MODE
@STREAMED
async def test_a_bash_and_an_editor_for_the_tool_runner(gateway: Gateway, streamed: bool, mode: str) -> None:
    seen: list[Any] = []

    class Own(BetaAsyncBuiltinFunctionTool):
        def __init__(self, tool: Any) -> None:
            self.tool = tool

        def to_dict(self) -> Any:
            return self.tool

        async def call(self, input: object) -> str:
            seen.append((self.tool["name"], input))
            return f"result {len(seen)}"

    editing = {"command": "view", "path": "/a", "view_range": [1, -1]}
    made = script(
        mode,
        ("bash", {"command": "ls"}, "result 1"),
        ("str_replace_based_edit_tool", editing, "result 2"),
        ("bash", {"restart": True}, "result 3"),
    )
    editor = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9}
    server = await gateway(script=made, mode=mode)
    tools: list[Any] = [Own({"type": "bash_20250124", "name": "bash"}), Own(editor)]
    assert (await runner(server, tools, streamed=streamed)).strip() == "Done."
    assert seen == [("bash", {"command": "ls"}), (editor["name"], editing), ("bash", {"restart": True})]


@MODE
@STREAMED
async def test_the_computer_of_the_tool_runner(gateway: Gateway, streamed: bool, mode: str) -> None:
    seen: list[Any] = []

    class Screen(BetaAsyncAbstractComputerToolset20260801):
        async def left_click(self, context: Any, input: Any) -> str:
            seen.append(("left_click", input.coordinate))
            return "clicked"

        async def screenshot(self, context: Any, input: Any) -> Any:
            seen.append(("screenshot",))
            return {"data": PNG, "media_type": "image/png"}

    made = [
        turn(mode, "", ("computer__left_click", {"coordinate": [3, 4]})),
        turn(mode, "", ("computer__screenshot", {}), when="clicked"),
        {"text": "Done."},
    ]
    server = await gateway(script=made, mode=mode)
    assert (await runner(server, [Screen()], streamed=streamed)).strip() == "Done."
    assert seen == [("left_click", [3, 4]), ("screenshot",)]


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


# --- LangChain ------------------------------------------------------------------------------------------------------

IN_LANGCHAIN: list[tuple[str, dict[str, Any]]] = [
    ("apply_patch", OF_OPENAI[2][1]),
    ("computer", {"actions": [{"type": "click", "x": 3, "y": 4, "button": "left"}, {"type": "screenshot"}]}),
]


async def test_the_tools_of_both_in_langchain(gateway: Gateway, shared: Path) -> None:
    """By one process: to import such a library takes seconds."""
    ways = [(api, mode, streamed) for api in ("openai", "anthropic") for mode in MODES for streamed in (False, True)]
    tasks = []
    for api, mode, streamed in ways:
        calls = IN_LANGCHAIN if api == "openai" else OF_ANTHROPIC[:3]
        made = [turn(mode, "", call) for call in calls]
        server = await gateway(script=[*made, {"text": "Done."}], mode=mode)
        tasks.append({"url": str(server.make_url("/")).rstrip("/"), "api": api, "streamed": streamed})
    status, out, err = await run_python("langchain_tools/own_tools.py", json.dumps(tasks), shared)
    assert status == 0, f"{out}{err}"
    for (api, _, _), line in zip(ways, out.splitlines(), strict=True):
        report = json.loads(line)
        assert report["text"].strip() == "Done."
        if api == "anthropic":
            assert report["calls"] == [list(call) for call in OF_ANTHROPIC[:3]]
        else:
            (_, patch), (_, computer) = IN_LANGCHAIN
            assert report["calls"] == [["apply_patch_call", patch], ["computer_call", computer["actions"]]]
