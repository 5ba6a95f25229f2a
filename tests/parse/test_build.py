"""`setup.py`: a package without a compiler, and a build that must not pass without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.twin]  # whichever scanner is in use


def build(where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the extension in a copy of the package, with a compiler that always fails."""
    scan = ROOT / "proxy" / "scan"
    sources = [*(ROOT / "proxy").glob("*.pyx"), *scan.glob("*.p[xy]*"), *scan.glob("*/*.p[xy]*")]
    for name in ("setup.py", "README.md", "proxy/__init__.py", "proxy/_version.py", *sources):
        copy = where / (ROOT / name).relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy)  # with its time: what was translated is not translated again
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOOLWIRE_")}
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=where,
        env={**clean, "CC": "false", **environment},
        capture_output=True,
        text=True,
    )


def test_without_a_compiler_the_build_goes_on_and_says_so_unless_it_must_not(tmp_path: Path) -> None:
    """In one folder, with what was translated before: translating the source to C is most of the time."""
    for translated in (ROOT / "build").glob("cython*"):
        shutil.copytree(translated, tmp_path / "build" / translated.name)
    result = build(tmp_path)
    assert result.returncode == 0
    assert 'building extension "toolwire._fastparse" failed' in result.stdout + result.stderr
    assert build(tmp_path, TOOLWIRE_REQUIRE_EXTENSIONS="1").returncode != 0


def test_where_it_is_turned_off_nothing_is_compiled(tmp_path: Path) -> None:
    result = build(tmp_path, TOOLWIRE_NO_EXTENSIONS="1")
    assert result.returncode == 0
    assert not (tmp_path / "build" / "cython").exists()


def test_turned_off_and_required_at_once_is_refused(tmp_path: Path) -> None:
    result = build(tmp_path, TOOLWIRE_NO_EXTENSIONS="1", TOOLWIRE_REQUIRE_EXTENSIONS="1")
    assert result.returncode != 0
    assert "contradict" in result.stderr
