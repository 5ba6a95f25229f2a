"""A test waits as long as any other (`tests/waiting.py`): a limit of its own is one that a slow machine reaches."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
OWN = re.compile(
    r"asyncio\.timeout\([\d.]+\)|\bwait_for\(.*, [\d.]+\)(?!,)|\b(?:communicate|run|urlopen)\(.*timeout=[\d.]+"
)


def test_no_wait_has_a_limit_of_its_own() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{number} {line.strip()}"
        for file in sorted(TESTS.rglob("*.py"))
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if OWN.search(line)
    ]
    assert found == []
