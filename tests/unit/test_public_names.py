"""The public names: one object under each, in `proxy` and in `toolwire`, and the classes that middlewares really
get."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import toolwire
import toolwire.events
import toolwire.model
import toolwire.openai_types
from tests.cases import every
from toolwire import Delta, Event, Exchange, Kind, Message, Middleware, ModelRequest, ToolChoice, run_chain

ROOT = Path(__file__).parents[2]


def test_both_packages_give_the_same_objects() -> None:
    assert toolwire.__all__ == toolwire.__all__
    for name in toolwire.__all__:
        assert getattr(toolwire, name) is getattr(toolwire, name)
    assert dir(toolwire) == dir(toolwire)
    for name in toolwire.openai_types.__all__:
        assert getattr(toolwire.openai_types, name) is getattr(toolwire.openai_types, name)


@pytest.mark.parametrize("package", [toolwire, toolwire])
def test_other_names_are_refused(package: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ToolCallAccumulator'"):
        package.ToolCallAccumulator  # type: ignore[attr-defined]  # noqa: B018


@every("name", [name for name in toolwire.__all__ if hasattr(toolwire.events, name)])
def test_events_are_those_of_the_event_algebra(name: str) -> None:
    assert getattr(toolwire, name) is getattr(toolwire.events, name)


@pytest.mark.parametrize("name", ["Message", "Usage", "ToolChoice", "ToolResult", "ModelRequest"])
def test_values_are_those_of_the_model(name: str) -> None:
    assert getattr(toolwire, name) is getattr(toolwire.model, name)


class Seeing(Middleware):
    """Notes what it gets."""

    wants = Kind.ALL
    got: list[object]

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        self.got = [request.tool_choice, *request.messages]
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        self.got.append(event)
        return event


async def test_what_a_middleware_gets_is_what_it_imports() -> None:
    seeing = Seeing()
    await run_chain([seeing], {"messages": [{"role": "user", "content": "hi"}], "stream": True}, replies=["hello"])
    assert any(isinstance(value, Delta) and value.text for value in seeing.got)
    assert any(isinstance(value, Message) for value in seeing.got)
    assert any(isinstance(value, ToolChoice) for value in seeing.got)


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = "import sys, toolwire; print(sorted(n for n in sys.modules if n.split('.')[0] in ('proxy', 'toolwire', 'aiohttp')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "['proxy', 'toolwire._version', 'toolwire']"


def test_the_wheel_holds_every_package(tmp_path: Path) -> None:
    """Without the extension, whose build has tests of its own."""
    for name in ("proxy", "middlewares", "toolwire"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    build = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    environment = {"TOOLWIRE_NO_EXTENSIONS": "1", "PATH": ""}
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, env=environment, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for name in ("proxy", "middlewares", "toolwire")
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".py", ".typed", ".json", ".yaml") and "__pycache__" not in path.parts
    }
    assert wanted <= held, wanted - held
    assert "toolwire/py.typed" in held
