"""Which store a configuration means, and where its file stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolwire.config import StoreConfig
from toolwire.store.factory import make_store, state_folder
from toolwire.store.memory import MemoryStore
from toolwire.store.sqlite import SqliteStore


def test_each_kind(tmp_path: Path) -> None:
    assert make_store(StoreConfig(kind="none")) is None
    assert isinstance(make_store(StoreConfig(kind="memory")), MemoryStore)
    assert isinstance(make_store(StoreConfig(path=str(tmp_path / "r"))), SqliteStore)
    with pytest.raises(ValueError, match=r"store\.url"):
        make_store(StoreConfig(kind="redis"))


def test_making_a_store_opens_nothing(tmp_path: Path) -> None:
    make_store(StoreConfig(path=str(tmp_path / "folder" / "r")))
    assert list(tmp_path.iterdir()) == []


def test_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/one:{tmp_path}/two")
    assert state_folder() == tmp_path / "one"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "toolwire"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "toolwire"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert state_folder().name.startswith("toolwire-")
