"""What the comparison says of others has a source that stays what it was: a commit, a version, an issue; and a date."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import read

PAGE = Path("docs/explanation/comparison.md")
LINK = re.compile(r"\]\((https?://[^)\s]+)\)")
LASTING = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:blob/[0-9a-f]{40}/|issues/\d+$)")


def test_it_says_when_it_was_seen() -> None:
    assert re.search(r"read on\n?\s*20\d\d-\d\d-\d\d", read(PAGE))


def test_sources_are_pinned_or_stand_beside_a_version() -> None:
    loose = []
    for line in read(PAGE).splitlines():
        versioned = re.match(r"\| [\w -]+\(?[\w -]*\d+\.\d+\.\d+\)? \|", line)
        loose += [link for link in LINK.findall(line) if not LASTING.match(link) and not versioned]
    assert len(LINK.findall(read(PAGE))) >= 10
    assert loose == []
