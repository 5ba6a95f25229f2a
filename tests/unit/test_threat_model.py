"""The threat model names tests that exist; every limit of the configuration says what happens beyond it."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

from toolwire.config import LimitsConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]*)`", PAGE)))
ROWS = re.findall(
    r"^- \*\*(.+)\*\*: (.+)$", PAGE.partition("## Threats")[2].partition("## Out of scope")[0], re.MULTILINE
)


def exists(named: str) -> bool:
    """Whether `tests/FILE.py::test_NAME` is a test."""
    file, _, function = named.partition("::")
    text = text_of(file) if (ROOT / file).is_file() else ""
    return re.search(rf"^(async )?def {function}\(", text, re.MULTILINE) is not None and function.startswith("test_")


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


def test_the_tests_exist() -> None:
    assert [named for named in NAMED if not exists(named)] == []


def test_every_defence_has_a_test():
    assert len(ROWS) > 90
    assert [threat for threat, defence in ROWS if not re.search(r"`tests/\S+::test_\w+`$", defence)] == []


def test_every_limit_says_what_happens_beyond_it():
    for field in dataclasses.fields(LimitsConfig):
        assert "beyond: " in field.metadata["doc"], field.name
