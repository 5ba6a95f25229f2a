"""The registry: what names mean, and what is said when they mean nothing."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from toolwire.configuration.settings import load
from toolwire.registry import Registry, registries
from toolwire.support.conversion import ConfigError

GROUP = "toolwire.things"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def things(builtin: dict[str, str] | None = None, *points: EntryPoint) -> Registry[Any]:
    return Registry("thing", GROUP, builtin or {}, points)


def test_builtin_is_imported_only_when_it_is_looked_up() -> None:
    sys.modules.pop("this", None)
    registry = things({"decoder": "colorsys:rgb_to_hls", "zen": "this:nothing"})
    import colorsys

    assert registry.names() == ["decoder", "zen"]
    assert registry.get("decoder") is colorsys.rgb_to_hls
    assert "this" not in sys.modules


def test_entry_point_dotted_path_and_registered_value() -> None:
    registry = things({}, point("join", "os.path:join"))
    registry.register("mine", 5)
    assert registry.get("join") is os.path.join
    assert registry.get("os:path.join") is os.path.join
    assert registry.get("mine") == 5
    assert registry.names() == ["join", "mine"]


@every("taken", ["builtin", "plugin"])
def test_a_name_used_twice_is_an_error_at_startup(taken: str) -> None:
    with pytest.raises(ConfigError, match=f"two things are called '{taken}'"):
        things({"builtin": "os:path"}, point("plugin", "os:sep"), point(taken, "os:name"))


@every("taken", ["builtin", "mine"])
def test_a_taken_name_cannot_be_registered(taken: str) -> None:
    registry = things({"builtin": "os:path"})
    registry.register("mine", 1)
    with pytest.raises(ConfigError, match=f"two things are called '{taken}'"):
        registry.register(taken, 2)


def test_the_same_package_found_twice_is_no_conflict() -> None:
    assert things({}, point("sep", "os:sep"), point("sep", "os:sep")).names() == ["sep"]


@every(
    ("name", "said"),
    [
        ("sentinl", r"unknown thing 'sentinl', did you mean 'sentinel'\?"),
        ("xyz", r"unknown thing 'xyz'; known: gone, hermes, sentinel .*'toolwire.things'"),
        (
            "gone",
            r"cannot import thing 'gone' \(no_such_package.at_all:X\): No module named 'no_such_package'. Looked for no_such_package.py ",
        ),
        ("colorsys:rgb_to_hsl", r"cannot import thing 'colorsys:rgb_to_hsl': .*colorsys.py, did you mean"),
        ("os.absent:X", "cannot import thing 'os.absent:X': No module named 'os.absent'; 'os' is not a package$"),
    ],
)
def test_what_cannot_be_had_says_why(name: str, said: str) -> None:
    """A name that is not known, with the nearest or all; a path that cannot be imported."""
    registry = things({"hermes": "os:sep", "sentinel": "os:sep", "gone": "no_such_package.at_all:X"})
    with pytest.raises(ConfigError, match=said):
        registry.get(name)


def test_modules_beside_the_configuration_file_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R35.2. Whatever the working directory is. A link to the file adds its own folder and that of its target, and an
    installed module of the same name comes first."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    target, linked = tmp_path / "target", tmp_path / "linked"
    for folder in (target, linked):
        folder.mkdir()
        folder.joinpath(f"of_{folder.name}.py").write_text("X = 1")
    (target / "gateway.yaml").write_text("backends: {m: {kind: mock}}")
    (target / "colorsys.py").write_text("X = 1")
    (linked / "gateway.yaml").symlink_to(target / "gateway.yaml")
    registry = things()
    with pytest.raises(ConfigError) as before:
        registry.get("of_target:X")
    assert str(tmp_path) not in str(before.value)
    monkeypatch.chdir(linked)
    load("gateway.yaml", env={})
    load("gateway.yaml", env={})
    assert sys.path[-2:] == [str(linked), str(target)]
    monkeypatch.chdir("/")
    assert registry.get("of_target:X") == registry.get("of_linked:X") == 1
    with pytest.raises(ConfigError, match=r"no 'X' in .*lib.*colorsys.py"):
        registry.get("colorsys:X")
    with pytest.raises(ConfigError, match=f"Looked for absent.py and for a package absent in: .*{linked}, {target}$"):
        registry.get("absent:X")
    (linked / "later.py").write_text("X = 2")
    load(linked / "gateway.yaml", env={})  # a reload
    assert registry.get("later:X") == 2


def test_two_applications_share_no_registration() -> None:
    first, second = registries(), registries()
    first.middlewares.register("only_here", object())
    assert "only_here" in first.middlewares.names()
    assert "only_here" not in second.middlewares.names()
