"""The fragments of the changelog are some that its tool takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("security", "added", "changed", "removed", "fixed")
FRAGMENTS = [path for path in sorted((ROOT / "changes").iterdir()) if path.name != "README.md"]


def test_every_file_is_a_fragment() -> None:
    assert [path.name for path in FRAGMENTS if path.suffix != ".md" or path.suffixes[-2][1:] not in KINDS] == []


def test_the_changelog_can_be_built() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in FRAGMENTS:
        assert path.read_text("utf-8").split()[0] in done.stdout
