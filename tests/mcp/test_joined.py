"""The folder and MCP servers as one source."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conftest import call, settings
from tests.waiting import GUARD_S
from toolwire.config import ToolsConfig
from toolwire.formats.engine.toolset import ToolSet
from toolwire.model import ToolSpec, ToolUse
from toolwire.servertools.folder import ToolFolder
from toolwire.servertools.joined import JoinedTools, source_of
from toolwire.servertools.source import Enter, Result, Tools


class Fake:
    """A server whose list is set."""

    def __init__(self, name: str, *names: str) -> None:
        self.name = name
        self.settled = asyncio.Event()
        self.settled.set()
        self.left_out: list[dict[str, str]] = []
        self.offer(*names)

    def offer(self, *names: str) -> None:
        self.names = names
        self.tools = Tools(ToolSet(ToolSpec(name, server=True) for name in names), self._run)

    async def _run(self, use: ToolUse, limit_s: float, enter: Enter) -> Result:
        return Result(f"{self.name} ran {use.name}")

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def shown(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tools": [{"name": name, "tool": name} for name in self.names],
            "left_out": self.left_out,
        }


def joined(*servers: Any, folder: ToolFolder | None = None) -> JoinedTools:
    return JoinedTools(folder, servers, 0.0)


def test_what_a_configuration_has(tmp_path: Path) -> None:
    assert source_of(ToolsConfig()) is None
    assert isinstance(source_of(ToolsConfig(folder=str(tmp_path))), ToolFolder)
    both = source_of(ToolsConfig(folder=str(tmp_path), mcp=(settings(),)))
    assert isinstance(both, JoinedTools)
    assert both.folder is not None
    assert [server.name for server in both.servers] == ["test"]


async def test_the_first_who_has_a_name_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    second = Fake("b", "two", "three")
    second.left_out = [{"tool": "four", "why": "it has no schema"}]
    source = joined(Fake("a", "one", "two"), second)
    assert [spec.name for spec in source.tools.specs] == ["one", "two", "three"]
    assert (await call(source, "two")).text == "a ran two"
    assert (await call(source, "three")).text == "b ran three"
    why = "its name is that of a tool of the MCP server a; give the server a `prefix`"
    assert source.shown()["mcp"][1] == {
        "name": "b",
        "tools": [{"name": "three", "tool": "three"}],
        "left_out": [{"tool": "four", "why": "it has no schema"}, {"tool": "two", "why": why}],
    }
    assert caplog.text.count(why) == 1


async def test_a_change_makes_new_tools_and_tells_a_conflict_once(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Fake("a", "one"), Fake("b", "one")
    source = joined(first, second)
    before = source.tools
    assert source.tools is before
    second.offer("one", "two")
    assert source.tools is not before
    assert (before.names, source.tools.names) == ({"one"}, {"one", "two"})
    assert caplog.text.count("give the server a `prefix`") == 1
    first.offer()
    assert (await call(source, "one")).text == "b ran one"
    assert not source.shown()["mcp"][1]["left_out"]


async def test_a_name_that_nobody_has() -> None:
    states: list[Any] = []
    result = await call(joined(Fake("a")), "nothing", states)
    assert (result.text, result.failed) == ("Error: Unknown tool: nothing", True)
    assert states[-1].value == "EXECUTION_FAILED"


async def test_the_start_waits_for_servers_but_not_for_ever() -> None:
    slow = Fake("a", "one")
    slow.settled.clear()
    async with joined(slow).running() as source:
        assert source.tools.names == {"one"}
    patient = JoinedTools(None, [slow], 600.0)  # type: ignore[list-item]

    async def start() -> str:
        async with patient.running():
            return "started"

    starting = asyncio.create_task(start())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not starting.done()
    slow.settled.set()
    assert await starting == "started"


async def test_a_folder_and_real_servers(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "own.py").write_text(
        "TOOLS = [{'type': 'function', 'function': {'name': 'echo', 'description': 'Says it.'}}]\n"
        "def handle_tool_call(tool_name, tool_input):\n    return 'the folder'\n"
    )
    config = ToolsConfig(
        folder=str(tmp_path),
        watch_s=0.0,
        timeout_s=GUARD_S,
        mcp_wait_s=120.0,
        mcp=(settings(name="one", allow=("echo",)), settings(name="two", allow=("echo",), prefix="two_")),
    )
    source = source_of(config)
    assert source is not None
    async with source.running():
        assert [spec.name for spec in source.tools.specs] == ["echo", "two_echo"]
        assert (await call(source, "echo")).text == "the folder"
        assert (await call(source, "two_echo", text="a")).text == 'echo: {"text": "a"}'
        shown = source.shown()
    assert [module["module"] for module in shown["modules"]] == ["own"]
    assert [(server["name"], server["state"], len(server["tools"])) for server in shown["mcp"]] == [
        ("one", "up", 0),
        ("two", "up", 1),
    ]
    assert "tools folder" in shown["mcp"][0]["left_out"][0]["why"]
