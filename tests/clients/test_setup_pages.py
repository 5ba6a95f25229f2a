"""The table of clients has the versions that are tested, and each page lines that a test runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.clients.npm import HERE
from tests.docs.pages import read

TABLE = Path("docs/how-to/clients.md")
ROW = re.compile(r"^\|.*\| `([^`]+)`( \(\w+\))? \| ([\d.a-z]+) \|", re.MULTILINE)
TWO_LANGUAGES = ("openai",)
"""Packages of which there is one for JavaScript and one for Python."""
UNNAMED = ("node", "ws", "zod", "mcp")
"""Packages that clients need."""


def installed() -> dict[tuple[str, str], str]:
    """The versions that tests install, by package and language, if that is said."""
    found = {}
    for file in HERE.glob("*/package.json"):
        for name, number in json.loads(file.read_text())["dependencies"].items():
            found[name, " (npm)" if name in TWO_LANGUAGES else ""] = number
    for file in HERE.glob("*/requirements.txt"):
        for line in file.read_text().split():
            name, _, number = line.partition("==")
            found[name.partition("[")[0], ""] = number
    return {key: number for key, number in found.items() if key[0] not in UNNAMED}


def test_the_table_has_what_is_tested() -> None:
    """But for what the extra `dev` brings, which is the newest of its day."""
    shown = {(name, language): number for name, language, number in ROW.findall(read(TABLE))}
    assert {key: number for key, number in shown.items() if key[1] != " (Python)"} == installed()
