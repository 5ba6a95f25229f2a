"""The table of clients has the versions that are tested, and each page lines that a test runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.clients.npm import HERE
from tests.clients.setup_pages import ADDRESS, PAGES
from tests.docs.pages import read
from toolwire.extras.demo.demo import client_lines

TABLE = Path("docs/how-to/clients.md")
ROW = re.compile(r"^\|.*\| `([^`]+)`( \(\w+\))? \| ([\d.a-z]+) \|", re.MULTILINE)
TWO_LANGUAGES = ("openai",)
"""Packages of which there is one for JavaScript and one for Python."""
UNNAMED = ("node", "ws", "zod", "mcp")
"""Packages that clients need."""
OF_THE_DEMO = {
    "Claude Code": "claude-code.md",
    "Codex": "codex.md",
    "OpenAI's SDKs": "openai.md",
    "Anthropic's SDKs": "anthropic.md",
}
"""The pages of the clients for which the demo prints lines."""


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


def test_the_demo_prints_what_the_pages_have() -> None:
    printed = dict(line.split(":", 1) for line in client_lines(f"{ADDRESS}/v1", "my-model").splitlines()[2:])
    assert set(printed) == set(OF_THE_DEMO)
    for name, line in printed.items():
        settings = re.findall(r"(\w+)=(\S+)", line)
        text = read(PAGES / OF_THE_DEMO[name])
        assert settings
        assert [name for name, value in settings if not re.search(rf'{name} ?= ?"?{re.escape(value)}', text)] == []
