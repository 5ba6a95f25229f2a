"""Imports of tool modules: files beside a module, and nothing in the place of another module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.servertools.conftest import ONE, PATIENT, Start, call, module, tool
from toolwire.config import ToolsConfig
from toolwire.servertools.folder import ToolFolder
from toolwire.servertools.worker import sources

IMPORTS = [
    ("import helper\nanswer = helper.NAME", "helper"),
    ("import _helper\nanswer = _helper.NAME", "_helper"),
    ("from helper import NAME as answer", "helper"),
    ("import pack\nanswer = pack.NAME", "pack"),
    ("import pack.inner\nanswer = pack.inner.NAME", "pack.inner"),
    ("import pack.inner as other\nanswer = other.NAME", "pack.inner"),
    ("from pack import inner\nanswer = inner.NAME", "pack.inner"),
    ("from helper import *\nanswer = NAME", "helper"),
    ("from . import helper\nanswer = helper.NAME", "helper"),
    ("from .pack.inner import NAME as answer", "pack.inner"),
    ("import other\nanswer = other.TOOLS[0]['function']['name']", "another"),
    ("import asks\nanswer = asks.NAME", "helper and pack_helper"),
    ("import orjson\nanswer = orjson.dumps('orjson').decode()", '"orjson"'),
    ("import plain.part\nanswer = plain.part.NAME", "plain.part"),
    ("import pack, pkgutil\nanswer = pkgutil.get_data(pack.__name__, 'some.txt').decode()", "some"),
    ("import pathlib\nanswer = pathlib.Path(__file__).with_name('data.txt').read_text()", "data"),
]
"""Code of a module, and what `answer` is then."""
BESIDE = {
    "helper.py": "NAME = 'helper'\n",
    "_helper.py": "NAME = '_helper'\n",
    "asks.py": "from pack import inner\nimport helper\nNAME = helper.NAME + ' and ' + inner.up()\n",
    "pack/__init__.py": "NAME = 'pack'\n",
    "pack/inner.py": "from . import NAME as UP\nNAME = 'pack.inner'\ndef up():\n    import _helper\n    return UP + _helper.NAME\n",
    "other.py": module(tool("another")),
    "data.txt": "data",
    "pack/some.txt": "some",
    "plain/part.py": "NAME = 'plain.part'\n",
    # Never found in the place of these:
    "calendar.py": "NAME = 'mine'\n",
    "json.py": "raise OSError('nobody means this one')\n",
}


def saying(name: str, code: str) -> str:
    """A module with a tool of this name, which says what `answer` is."""
    return f"{code}\nTOOLS = [{tool(name)!r}]\ndef handle_tool_call(name, values):\n    return answer\n"


async def test_what_stands_beside_a_module(start: Start, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "plain").mkdir()
    files = {f"m_{number}.py": saying(f"t{number}", code) for number, (code, _) in enumerate(IMPORTS)}
    before = set(sys.modules)
    tools = await start({**BESIDE, **files})
    for number, (code, said) in enumerate(IMPORTS):
        assert await call(tools, f"t{number}") == said, code
    assert not {"helper", "_helper", "pack", "asks", "other", "plain"} & (set(sys.modules) - before)
    written = {path.parents[1].name for path in tmp_path.rglob("*.pyc")}  # noqa: ASYNC240
    assert written <= {"plain"}  # which is not read, but left to Python


async def test_the_standard_library_stays_what_it_is(start: Start) -> None:
    text = "import calendar, json\ndef handle_tool_call(name, values):\n    return json.dumps(calendar.isleap(2028))\n"
    mine = module(tool("mine"), handler="def handle_tool_call(name, values):\n    return 'mine'\n")
    tools = await start(
        {"a.py": f"TOOLS = [{ONE!r}]\n{text}", "calendar.py": mine, "json.py": mine.replace("mine", "m")}
    )
    assert await call(tools) == "true"
    assert await call(tools, "mine") == "mine"


async def test_what_is_imported_late_is_what_was_read(start: Start, tmp_path: Path) -> None:
    text = "def handle_tool_call(name, values):\n    import helper\n    return helper.NAME\n"
    tools = await start({"a.py": module(ONE, handler=text), "helper.py": "NAME = 'old'"})
    before = tools.tools
    (tmp_path / "helper.py").write_text("NAME = 'new'")
    assert await call(tools) == "old"
    assert await tools.refresh()
    assert await call(tools) == "new"
    assert before is not tools.tools


async def test_a_helper_that_breaks_leaves_the_tools_of_before(start: Start, tmp_path: Path) -> None:
    """With the helper of before, while another module has the one of now."""
    needs = "from helper import NAME\ndef handle_tool_call(name, values):\n    return NAME\n"
    takes = "import helper\ndef handle_tool_call(name, values):\n    return str(getattr(helper, 'NAME', None))\n"
    tools = await start(
        {"a.py": module(ONE, handler=needs), "b.py": module(tool("two"), handler=takes), "helper.py": "NAME = 'old'"}
    )
    (tmp_path / "helper.py").write_text("OTHER = 'new'")
    assert await tools.refresh()
    states = [(entry["state"], entry["stale"]) for entry in tools.shown()["modules"]]
    assert states == [("FAILED_VALIDATION", True), ("LOADED_WITH_TOOLS", False), ("LOADED_NO_TOOLS", False)]
    assert [await call(tools), await call(tools, "two"), await call(tools)] == ["old", "None", "old"]
    (tmp_path / "helper.py").write_text("NAME = 'newer'")
    assert await tools.refresh()
    assert [await call(tools), await call(tools, "two")] == ["newer", "newer"]


async def test_two_folders_do_not_meet(tmp_path: Path) -> None:
    text = module(ONE, handler="import helper\ndef handle_tool_call(name, values):\n    return helper.NAME\n")
    said = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text)
        (tmp_path / name / "helper.py").write_text(f"NAME = {name!r}")
    configs = [ToolsConfig(folder=str(tmp_path / name), **PATIENT) for name in ("x", "y")]
    before = set(sys.modules), list(sys.meta_path), list(sys.path)
    async with ToolFolder(configs[0]).running() as x, ToolFolder(configs[1]).running() as y:
        said += [await call(x), await call(y), await call(x)]
    assert said == ["x", "y", "x"]
    assert not [name for name in set(sys.modules) - before[0] if name.startswith("toolwire_tools")]
    assert (sys.meta_path, sys.path) == before[1:]


async def test_a_folder_with_too_many_files(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 2)
    tools = await start({f"m{n}.py": module(tool(f"t{n}")) for n in range(4)})
    assert len(tools.tools.names) == 4  # tool modules are read in any case
    assert [record.getMessage() for record in caplog.records if "changes of the rest" in record.getMessage()]
