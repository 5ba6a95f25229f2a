"""`toolwire tools list`, and what `toolwire check` says of server-side tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.servertools.conftest import module, tool
from toolwire.cli import main

SCHEMA = {"type": "object", "properties": {"a": {}, "b": {"default": 7}, "c": {}}, "required": ["a"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "good.py").write_text(module(tool(parameters=SCHEMA)))
    (tmp_path / "gateway.yaml").write_text("backends: {m: {kind: mock}}\ntools: {folder: tools, load_timeout_s: 30}\n")
    return tmp_path


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def test_a_folder_with_good_modules(folder: Path) -> None:
    status, said = run("tools", "list", "--folder", folder / "tools")
    assert (status, said) == (0, "good.py: LOADED_WITH_TOOLS\n  one(a, b = 7, c?): Does one thing.\n")
    assert run("tools", "list", "--config", folder / "gateway.yaml") == (status, said)


def test_as_json(folder: Path) -> None:
    status, said = run("tools", "list", "--folder", folder / "tools", "--json")
    assert status == 0
    assert json.loads(said)[0]["tools"] == [{"name": "one", "description": "Does one thing.", "parameters": SCHEMA}]


def test_a_module_that_cannot_be_used(folder: Path) -> None:
    (folder / "tools" / "bad.py").write_text("TOOLS = 7")
    for words in (("tools", "list", "--folder", folder / "tools"), ("check", folder / "gateway.yaml")):
        status, said = run(*words)
        assert status == 1
        assert "bad.py: FAILED_VALIDATION\n  TypeError: TOOLS must be a list or None, not int.\n" in said
        assert "good.py: LOADED_WITH_TOOLS" in said


def test_a_configuration_with_tools(folder: Path) -> None:
    status, said = run("check", folder / "gateway.yaml")
    assert status == 0
    assert "conversation > validation > execution > output_format" in said
    assert "one(a, b = 7, c?)" in said


def test_an_empty_folder(tmp_path: Path) -> None:
    assert run("tools", "list", "--folder", tmp_path) == (0, f"no module in {tmp_path}\n")


def test_no_folder_at_all(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("backends: {m: {kind: mock}}\n")
    assert run("tools", "list")[0] == 2
    assert run("tools", "list", "--config", folder / "gateway.yaml")[0] == 2
