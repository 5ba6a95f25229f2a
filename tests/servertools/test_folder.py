"""Where tools come from, and how they change while requests are served (R15.1, R15.2)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.servertools.conftest import (
    HANDLER,
    ONE,
    Start,
    call,
    module,
    tool,
)
from tests.waiting import until
from toolwire.servertools.folder import ToolFolder


def states(tools: ToolFolder) -> dict[str, str]:
    return {entry["file"]: entry["state"] for entry in tools.shown()["modules"]}


SHAPES = {
    "functions": module(ONE),
    "a coroutine function": module(ONE, handler=HANDLER.replace("def handle", "async def handle")),
    "a method": f"TOOLS = {[ONE]!r}\nclass PromptGenerator:\n    def handle_tool_call(self, n, i): return repr((n, i))\n",
    "an asynchronous method": (
        f"TOOLS = {[ONE]!r}\nclass PromptGenerator:\n    async def handle_tool_call(self, n, i): return repr((n, i))\n"
    ),
    "all in the class": (
        f"class PromptGenerator:\n    TOOLS = {[ONE]!r}\n    def handle_tool_call(self, n, i): return repr((n, i))\n"
    ),
    "get_tools": f"TOOLS = 7\ndef get_tools(): return {[ONE]!r}\n{HANDLER}",
    "an asynchronous get_tools": f"async def get_tools(): return {[ONE]!r}\n{HANDLER}",
    "a method get_tools": f"class PromptGenerator:\n    def get_tools(self): return {[ONE]!r}\n{HANDLER}",
    "an object that is called": (
        f"TOOLS = {[ONE]!r}\nclass H:\n    async def __call__(self, n, i): return repr((n, i))\nhandle_tool_call = H()\n"
    ),
    "a dataclass with postponed annotations": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    a: int = 1\n"
        + module(ONE)
    ),
}


async def test_shapes_of_modules(start: Start) -> None:
    files = {f"m{n}.py": text.replace("'one'", f"'one{n}'") for n, text in enumerate(SHAPES.values())}
    tools = await start(files)
    assert states(tools) == dict.fromkeys(files, "LOADED_WITH_TOOLS")
    for n in range(len(SHAPES)):
        assert await call(tools, f"one{n}") == f"('one{n}', {{}})"


async def test_modules_without_tools(start: Start) -> None:
    texts = ["", "TOOLS = None", "TOOLS = []", "def get_tools(): return None"]
    tools = await start({f"m{n}.py": text for n, text in enumerate(texts)})
    assert states(tools) == {f"m{n}.py": "LOADED_NO_TOOLS" for n in range(len(texts))}
    assert tools.tools.specs == ()


async def test_a_generator_is_made_once(start: Start) -> None:
    text = (
        f"TOOLS = {[ONE]!r}\nclass PromptGenerator:\n    made = 0\n    def __init__(self): PromptGenerator.made += 1\n"
        "    def handle_tool_call(self, n, i): return str(self.made)\n"
    )
    tools = await start({"a.py": text})
    assert [await call(tools) for _ in range(3)] == ["1"] * 3


async def test_what_is_no_module(start: Start, tmp_path: Path) -> None:
    (tmp_path / "c.py").mkdir()
    tools = await start(
        {"_a.py": "raise OSError", "__init__.py": "raise OSError", ".b.py": "raise OSError", "d.txt": "x"}
    )
    assert states(tools) == {"c.py": "FAILED_VALIDATION"}


async def test_names_are_unique_in_the_folder(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": module(ONE), "b.py": module(tool("two"), ONE)})
    assert states(tools) == {"a.py": "LOADED_WITH_TOOLS", "b.py": "FAILED_VALIDATION"}
    assert tools.shown()["modules"][1]["error"]["kind"] == "DuplicateName"
    assert [tool.name for tool in tools.tools.specs] == ["one"]
    (tmp_path / "a.py").unlink()
    assert await tools.refresh()
    assert states(tools) == {"b.py": "LOADED_WITH_TOOLS"}
    assert [tool.name for tool in tools.tools.specs] == ["two", "one"]


async def test_a_change_is_noticed_and_swapped(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": module(ONE)}, watch_s=0.01)
    before = tools.tools
    (tmp_path / "a.py").write_text(module(tool("two")))
    await until(lambda: "two" in tools.tools.names)
    assert [tool.name for tool in tools.tools.specs] == ["two"]
    assert [tool.name for tool in before.specs] == ["one"]


async def test_a_broken_version_leaves_the_tools_of_the_one_before(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = await start({"a.py": module(ONE)})
    (tmp_path / "a.py").write_text("TOOLS = 7")
    with caplog.at_level(logging.ERROR, "toolwire.tools"):
        assert await tools.refresh()
        assert not await tools.refresh()
    (shown,) = tools.shown()["modules"]
    assert (shown["state"], shown["error"]["kind"], shown["stale"]) == ("FAILED_VALIDATION", "TypeError", True)
    assert await call(tools) == "('one', {})"
    assert [record.getMessage() for record in caplog.records] == [
        "tool module a.py: TypeError: TOOLS must be a list or None, not int.; the previous version stays in use"
    ]
    (tmp_path / "a.py").write_text(module(tool("two")))
    assert await tools.refresh()
    assert states(tools) == {"a.py": "LOADED_WITH_TOOLS"}
    assert [tool.name for tool in tools.tools.specs] == ["two"]


async def test_a_folder_that_cannot_be_read_changes_nothing(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    tools = await start({"tools/a.py": module(ONE)})
    tools.folder = folder
    assert await tools.refresh()
    (folder / "a.py").rename(tmp_path / "elsewhere")
    folder.rmdir()
    assert not await tools.refresh()
    assert await call(tools) == "('one', {})"
