"""The decision records: each number once, each record complete, and every one that is named is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import every

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs" / "adr").iterdir())
NUMBERS = [int(path.name[:4]) for path in RECORDS]


def test_a_missing_number_is_named_by_the_record_that_replaces_it() -> None:
    replaced = []
    for path in RECORDS:
        if found := re.search(r"^Status: .*\. Replaces ([\d, and]+)\.$", path.read_text("utf-8"), re.MULTILINE):
            replaced += [int(number) for number in re.findall(r"\d+", found[1])]
    assert sorted([*NUMBERS, *replaced]) == list(range(1, max(NUMBERS) + 1))


@every("path", RECORDS)
def test_a_record_is_complete(path: Path) -> None:
    """What was decided, why, and what it costs or what it was preferred to."""
    text = path.read_text("utf-8")
    number = int(path.name[:4])
    assert re.match(rf"# {number}\. \S.*\n\nStatus: (?:accepted|rejected), \d{{4}}-\d\d-\d\d", text)
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert titles[0] == "Context"
    assert "Decision" in titles
    assert {"Rejected", "Consequences"} & set(titles)
    for title, body in zip(titles, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True):
        assert body.strip(), title


def test_records_that_are_named_are_there() -> None:
    named = {}
    folders = ("proxy", "middlewares", "toolwire", "bench", "docs", "tests", "examples", "changes")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in (*inside, ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml"):
        if path.suffix in (".py", ".pyx", ".pxi", ".md", ".toml"):
            for number in re.findall(r"\badr/(\d{4})\b|\bADR\s+(\d+)\b", path.read_text("utf-8")):
                named[int("".join(number))] = path
    assert named
    assert {number: path for number, path in named.items() if number not in NUMBERS} == {}
