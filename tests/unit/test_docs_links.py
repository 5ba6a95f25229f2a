"""The pages keep their promises: links lead somewhere, commands parse, configurations load, code runs as printed.

What a fenced block is for stands behind its language, see `tests/docs/pages.py`. Every block of every language is
looked at in `tests/docs`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from docs.generate import middleware_fields
from tests.docs.pages import FENCE, PAGES, ROOT, blocks, pages_with, read, write_files
from tests.docs.shell import parsed, simple_commands
from toolwire.configuration.mistakes import Mistakes
from toolwire.configuration.settings import load
from toolwire.observability.telemetry import Metrics
from toolwire.registry import registries
from toolwire.startup.chains import ineffective_chains
from toolwire.startup.names import check_names
from toolwire.upstream.servers.presets import CONSTRAINTS, PRESETS

BACKENDS = Path("docs/how-to/backends.md")
CONFIGURATION = Path("docs/reference/configuration.md")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<title>.+?) *$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
COMMAND = re.compile(r"`(?P<line>toolwire [^`\n]+)`")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)\}")


def _slug(title: str) -> str:
    """The anchor of a heading, as the usual renderers make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


# --- links ----------------------------------------------------------------------------------------------------------


@cache
def _anchors(place: Path) -> set[str]:
    text = FENCE.sub("", place.read_text("utf-8"))
    return {*map(_slug, HEADING.findall(text)), *ANCHOR.findall(text)}


def test_links_lead_somewhere() -> None:
    broken = []
    assert {Path("README.md"), Path("docs/README.md")} <= set(PAGES)
    for page in PAGES:
        for link in LINK.finditer(FENCE.sub("", read(page))):
            target, _, anchor = link["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            place = (ROOT / page).parent / target if target else ROOT / page
            if not place.exists() or (anchor and anchor not in _anchors(place)):
                broken.append(f"{page}: {link['target']}")
    assert not broken


def test_files_that_pages_name_are_there() -> None:
    """Without those of `CONTRIBUTING.md` that stand for any file."""
    named = re.compile(r"`((?:bench|deploy|docs|examples|middlewares|proxy|tests)/[\w./*-]+)`")
    examples = {"proxy/a/b.py", "middlewares/c.py"}
    missing = [
        f"{page}: {name}"
        for page in PAGES
        for name in named.findall(read(page))
        if "NAME" not in name and name not in examples and not any(ROOT.glob(name.rstrip("/")))
    ]
    assert not missing


def test_rows_stand_in_tables() -> None:
    """A row behind an empty line is a paragraph with bars."""
    loose = re.compile(r"\n\n(\|.*\|)\n(?!\|[ :|-]+\|\n)")
    assert not [(page, row) for page in PAGES for row in loose.findall(FENCE.sub("", read(page)))]


# --- commands -------------------------------------------------------------------------------------------------------


def _commands(page: Path) -> Iterator[str]:
    yield from (match["line"] for match in COMMAND.finditer(FENCE.sub("", read(page))))


@pytest.mark.parametrize("page", [page for page in PAGES if any(_commands(page))], ids=str)
def test_commands_parse(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in _commands(page):
        if re.search(r"COMMAND|\.\.\.|\[", line):
            continue
        for command in simple_commands(line):
            if command.words[0] == "toolwire" and command.words[1:]:
                assert parsed(command.words[1:]) is None, line


# --- configurations and code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("yaml", "config"), ids=str)
def test_configurations_load(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        for block in blocks(page):
            if block.info[:2] == ["yaml", "config"]:
                file = tmp_path / f"line{block.line}.yaml"
                file.write_text(block.text, "utf-8")
                rest = {} if "backends:" in block.text else {"backends": {"main": {"kind": "mock"}}}  # a part of one
                env = dict.fromkeys(VARIABLE.findall(block.text), "x")
                config = load(file, env=env, overrides=rest)
                check_names(config, registries())
                assert list(ineffective_chains(config, registries(), Mistakes())) == [], f"{page}:{block.line}"
    finally:
        for name in set(sys.modules) - before:
            if (tmp_path / f"{name}.py").exists():
                del sys.modules[name]


@pytest.mark.parametrize("page", pages_with("python", "run"), ids=str)
def test_code_runs_and_prints_what_it_says(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where dataclasses look for their names
    of_page = blocks(page)
    for block, following in zip(of_page, [*of_page[1:], None], strict=True):
        if block.info[:2] != ["python", "run"]:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), vars(module))
        if following is not None and following.info[:2] == ["text", "output"]:
            assert printed.getvalue() == following.text


EXAMPLES = [page for page in pages_with("python") if page.parent.name == "how-to" and "file=test_" in read(page)]


def test_examples_pass_their_own_tests(tmp_path: Path) -> None:
    assert Path("docs/how-to/write-a-middleware.md") in EXAMPLES
    tests = 0
    for page in EXAMPLES:
        folder = tmp_path / page.stem
        folder.mkdir()
        write_files(page, folder)
        tests += sum(len(re.findall(r"^(?:async )?def test_", block.text, re.MULTILINE)) for block in blocks(page))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *tmp_path.iterdir()))), "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


# --- names ----------------------------------------------------------------------------------------------------------


def _metrics() -> set[str]:
    metrics = Metrics()
    metrics.declare(middleware_fields().values())
    return {family.name for family in metrics.families}


def test_every_metric_is_described_and_no_other() -> None:
    real = _metrics()
    assert set(re.findall(r"`(toolwire_[a-z_]+)`", read(Path("docs/reference/telemetry.md")))) == real


def test_alerts_are_about_metrics_that_exist() -> None:
    real = _metrics()
    named = set(re.findall(r"\b(toolwire_[a-z_]+?)(?:_bucket)?\b(?!-)", read(Path("docs/how-to/observe.md"))))
    assert named
    assert named <= real


def test_every_preset_is_named() -> None:
    rows = re.findall(r"^\|.*\| `(\w+)` \|[^|]*\|$", read(BACKENDS).partition("\n## ")[0], re.MULTILINE)
    (key,) = re.findall(r"^- `preset` \(.*", read(CONFIGURATION), re.MULTILINE)
    (option,) = re.findall(
        r"^- `--preset` `NAME`: .* sent to it: (.*?)\.", read(Path("docs/reference/cli.md")), re.MULTILINE
    )
    assert {*rows} == {*re.findall(r"`(\w+)`", key)} - {"preset", "auto"} == {*option.split(", ")} == {*PRESETS}


def test_every_feature_for_constrained_decoding_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \| [^|]*\| (?:all|most|`bare_json`|) ?\|", read(BACKENDS), re.MULTILINE))
    assert described == CONSTRAINTS
    (row,) = (line for line in read(CONFIGURATION).splitlines() if line.startswith("- `constrain` (text): "))
    assert set(re.findall(r"`(\w+)`", row)) - {"constrain", "null"} == CONSTRAINTS
