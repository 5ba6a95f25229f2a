"""The tutorial is run as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolwire.configuration.settings import load

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-middleware.md"
BLOCK = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """A folder with the files of the tutorial."""
    for name, text in BLOCK.findall(TUTORIAL.read_text("utf-8")):
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_the_tutorials_tests_pass(tutorial: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(tutorial)],
        capture_output=True,
        text=True,
        cwd=tutorial,
        env={"PYTHONPATH": f"{ROOT}:{tutorial}", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_tutorials_configuration_loads(tutorial: Path) -> None:
    config = load(tutorial / "gateway.yaml", env={})
    assert "shouting:Shouting" in [entry.use for entry in config.chain]
