"""The decision records: numbered without a gap, each complete, and every one that is named is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import every

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs" / "adr").iterdir())


def test_the_sequence_has_no_gap() -> None:
    assert [path.name[:5] for path in RECORDS] == [f"{number:04}-" for number in range(1, len(RECORDS) + 1)]


@every("path", RECORDS)
def test_a_record_is_complete(path: Path) -> None:
    """What was decided, why, and what it costs or what it was preferred to."""
    text = path.read_text("utf-8")
    number = int(path.name[:4])
    assert re.match(rf"# {number}\. \S.*\n\nStatus: (?:accepted|superseded|rejected), \d{{4}}-\d\d-\d\d", text)
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert titles[0] == "Context"
    assert "Decision" in titles
    assert {"Rejected", "Consequences"} & set(titles)
    for title, body in zip(titles, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True):
        assert body.strip(), title


def test_records_that_are_named_are_there() -> None:
    named = {}
    for folder in ("proxy", "middlewares", "toolwire", "bench", "docs", "tests", "examples", "changes"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".pyx", ".pxi", ".md"):
                text = path.read_text("utf-8")
                for number in re.findall(r"\badr/(\d{4})\b|\bADR (\d+)\b", text):
                    named[int("".join(number))] = path
    assert named
    assert {number: path for number, path in named.items() if not 1 <= number <= len(RECORDS)} == {}
