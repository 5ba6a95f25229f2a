"""Citations in code, tests and pages lead somewhere: rules by their numbers, documents by their names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.cases import every

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requirements.md"
FOLDERS = ("proxy", "middlewares", "bench", "tests", "docs", "examples", "changes", "deploy")
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".md", ".json", ".yaml", ".sh", ".mjs", ".go"}
SKIPPED = {"build", "dist", "node_modules"}

NUMBER = r"(?:R\d+\.\d+[a-z]?|R(?:[2-9]|\d\d)|C\d+|SC-\d{3})"
CITATION = re.compile(rf"(?<![\w/.-])({NUMBER})(?:\s+to\s+({NUMBER}))?(?!\.\d|[\w-])")
"""A number, or a range of them. A bare R1 is a model of DeepSeek's."""

ENTRY = re.compile(r"^- \*\*(\S+)\*\* (.+)$", re.MULTILINE)
HEADING = re.compile(r"^## (R\d+|SC|C) ", re.MULTILINE)

ELSEWHERE = re.compile(
    r"(?<![\w/.-])(?:spec|design|captures)/[\w-]+|\.\./shared|\bclient-(?:invariants|strictness)\b"
    r"|\bthe (?:proposed |old )?architecture\b|\b[Tt]he requirements?\b|\b[Ii]ssue \d+"
)
"""Documents and folders that only those have who made this."""
HINTS = ("spec/", "design/", "captures/", "../shared", "client-", "architecture", "equirement", "ssue ")
"""A text without any of these names none, and is not searched: that takes a hundred times longer."""

DOCUMENT = re.compile(r"(?<![\w/.-])[\w./-]*\w\.md\b")
EXAMPLES = {"WHAT.KIND.md", "notes.md", "AGENTS.md", "SKILL.md"}
"""Names that are spoken of, as a file of somebody's, and not referred to."""


@cache
def files() -> list[Path]:
    """Every text of the repository but this one."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*.md"))
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES
        and path != Path(__file__)
        and path.is_file()
        and not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(ROOT).parts)
    )


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def order(number: str) -> tuple[str, int, int, str]:
    """Where a number stands among those of its kind."""
    kind, first, second, letter = re.fullmatch(r"(R|SC-|C)(\d+)(?:\.(\d+))?([a-z]?)", number).groups()
    return kind, int(first), int(second or 0), letter


def entries() -> list[str]:
    return [number for number, _ in ENTRY.findall(PAGE.read_text("utf-8"))]


def citations(text: str) -> Iterator[tuple[str, str]]:
    """The first and the last number of each citation; most often the same."""
    text = re.sub(r"\n[ \t]*(?:# ?)?", " ", text)
    for first, last in CITATION.findall(text):
        yield first, last or first


@cache
def cited_in(path: Path) -> set[str]:
    """The numbers that a text cites, and of what is in between those that there are."""
    numbers = set()
    for first, last in citations(text_of(path)):
        numbers |= {first, last}
        if first != last:
            numbers |= {number for number in entries() if order(first) <= order(number) <= order(last)}
    return numbers


def prose_of(path: Path) -> str:
    """What is said, without what is done: docstrings and comments of Python, Markdown without its fences."""
    text = text_of(path)
    if path.suffix == ".md":
        return re.sub(r"^(```+).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    if path.suffix != ".py":
        return text if path.suffix in (".pyx", ".pxi", ".pxd") else ""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said = [token.string for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.append(node.value.value)
    return "\n".join(said)


@every(
    ("text", "cited"),
    [
        ("exactly as R7.5 to R7.10 say (C18, SC-003)", [("R7.5", "R7.10"), ("C18", "C18"), ("SC-003", "SC-003")]),
        ("(R5.6a). (R12)", [("R5.6a", "R5.6a"), ("R12", "R12")]),
        ("# by R9.2\n    # to R9.4", [("R9.2", "R9.4")]),
        ("DeepSeek R1, deepseek-R2, 0xC2, R2-D2, R7.10.1", []),
    ],
)
def test_citations_are_seen(text, cited):
    assert list(citations(text)) == cited


def test_every_number_that_is_cited_has_its_entry():
    known = entries()
    sections = set(HEADING.findall(PAGE.read_text("utf-8")))
    missing = {
        str(path.relative_to(ROOT)): unknown
        for path in files()
        if (unknown := sorted(cited_in(path) - set(known) - sections))
    }
    assert missing == {}


def test_every_entry_is_cited():
    """Else it is to be taken out: a promise that nothing rests on is none."""
    known = entries()
    assert len(known) > 100
    cited = set().union(*(cited_in(path) for path in files() if path != PAGE))
    assert [number for number in known if number not in cited] == []


def test_entries_are_in_order():
    text = PAGE.read_text("utf-8")
    rows = ENTRY.findall(text)
    assert len(rows) == len(re.findall("^- ", text, re.MULTILINE))
    assert [number for number, said in rows if not said.endswith(".")] == []
    numbers = [number for number, _ in rows]
    assert len(set(numbers)) == len(numbers)
    for heading, body in zip(HEADING.findall(text), HEADING.split(text)[2::2], strict=True):
        inside = [number for number, _ in ENTRY.findall(body)]
        assert inside == sorted(inside, key=order), heading
        assert [number for number in inside if not re.match(rf"{heading}(?:\.|-|(?<=C)\d)", number)] == [], heading


def test_no_document_is_referred_to_that_a_reader_does_not_have():
    """Neither those that were at hand when this was written nor any that are gone."""
    names = {path.name for path in files()} | EXAMPLES

    def wrong(text):
        text = re.sub(r"https?://\S+", "", text)  # what is on the web, a reader has
        named = [match[0] for match in ELSEWHERE.finditer(text)] if any(hint in text for hint in HINTS) else []
        return named + [
            name for name in (DOCUMENT.findall(text) if ".md" in text else ()) if Path(name).name not in names
        ]

    # Most files name nothing of the kind anywhere; to tell what is said from what is done takes longer.
    suspects = [path for path in files() if wrong(text_of(path))]
    found = {str(path.relative_to(ROOT)): said for path in suspects if (said := wrong(prose_of(path)))}
    assert found == {}
