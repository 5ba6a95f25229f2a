"""The glossary: each word once, in order, and what it names is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from tests.cases import every

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "explanation"
TEXT = (PAGES / "glossary.md").read_text("utf-8")
TERMS = re.findall(r"^## (.+)$", TEXT, re.M)
NAMES = sorted(set(re.findall(r"`(toolwire\.[\w.]+)`", TEXT)))
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
ACTORS = {"glossary.md", "threat-model.md"}
"""Pages in whose bold letters stand no words of the house."""


def resolved(name: str) -> object:
    """The module, or what it defines, of that name. Raises `ImportError` or `AttributeError`."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        module, _, attribute = name.rpartition(".")
        if error.name != name or not module:
            raise
        return getattr(import_module(module), attribute)


def test_every_word_is_there_once_and_in_order() -> None:
    assert len(TERMS) == len(set(TERMS))
    assert sorted(TERMS) == TERMS


def test_a_word_has_a_meaning_and_a_place() -> None:
    for entry in re.split(r"^## ", TEXT, flags=re.M)[1:]:
        _, meaning, place = entry.rstrip().split("\n\n")
        assert meaning.endswith("."), entry
        assert re.fullmatch(r"(`[\w.]+`|\[[^\]]+\]\([^)]+\))(, (`[\w.]+`|\[[^\]]+\]\([^)]+\)))*", place), entry


def test_what_is_named_exists() -> None:
    for name in NAMES:
        resolved(name)


@every("page", sorted(p for p in PAGES.glob("*.md") if p.name not in ACTORS))
def test_words_that_a_page_introduces_are_in_the_glossary(page: Path) -> None:
    """In bold, in the middle of a sentence or at the beginning of a point."""
    introduced = set(re.findall(r"\*\*([a-z][^*]*?)\*\*", FENCE.sub("", page.read_text("utf-8"))))
    assert introduced <= set(TERMS)
