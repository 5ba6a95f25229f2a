"""The pages keep their promises: links lead somewhere, commands parse, configurations load, code runs as printed.

What a fenced block is for stands behind its language:

- `python run`: executed; the blocks of a page share one namespace, in order. A `text output` block right behind one is
  what it prints.
- `yaml config`: a configuration file; it loads, and every name in it is found.
- `LANGUAGE file=NAME`: a file of the page's example; the tests among them are run with pytest.
- `sh`: every `toolwire` command in it parses.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from docs.generate import middleware_fields
from proxy.backends.presets import CONSTRAINTS
from proxy.cli import main
from proxy.config import LimitsConfig
from proxy.configuration.settings import load
from proxy.observability.telemetry import Metrics
from proxy.registry import registries
from proxy.startup.names import check_names

ROOT = Path(__file__).parents[2]
BACKENDS = Path("docs/how-to/backends.md")
CONFIGURATION = Path("docs/reference/configuration.md")
SKIPPED = {"build", "dist", "node_modules"}
FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<title>.+?) *$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
COMMAND = re.compile(r"`(?P<line>toolwire [^`\n]+)`")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)\}")


class Block(NamedTuple):
    """A fenced block: the words behind its fence, its text, and the line where it starts."""

    info: list[str]
    text: str
    line: int


def _pages() -> list[Path]:
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(p for p in found if not any(part in SKIPPED or part.startswith(".") for part in p.parts))


PAGES = _pages()


def _text(page: Path) -> str:
    return (ROOT / page).read_text("utf-8")


def _blocks(page: Path) -> list[Block]:
    text = _text(page)
    return [Block(m["info"].split(), m["text"], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def _with(*words: str) -> list[Path]:
    """The pages that have a block with these words."""
    return [page for page in PAGES if any(block.info[: len(words)] == list(words) for block in _blocks(page))]


def _slug(title: str) -> str:
    """The anchor of a heading, as the usual renderers make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def test_there_are_pages() -> None:
    assert Path("README.md") in PAGES
    assert Path("docs/README.md") in PAGES


# --- links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.finditer(FENCE.sub("", _text(page))):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (ROOT / page).parent / target if target else ROOT / page
        if not place.exists():
            broken.append(link["target"])
        elif anchor:
            text = FENCE.sub("", place.read_text("utf-8"))
            if anchor not in (*map(_slug, HEADING.findall(text)), *ANCHOR.findall(text)):
                broken.append(link["target"])
    assert not broken


def test_the_index_names_every_page() -> None:
    """Each by itself, or its folder."""
    targets = {m["target"].partition("#")[0] for m in LINK.finditer(_text(Path("docs/README.md")))}
    listed = {(ROOT / "docs" / target).resolve() for target in targets}
    pages = [ROOT / page for page in PAGES if page.parts[0] == "docs" and page.name != "README.md"]
    assert not [page for page in pages if page not in listed and page.parent not in listed]


# --- commands -------------------------------------------------------------------------------------------------------


def _commands(page: Path) -> Iterator[str]:
    for block in _blocks(page):
        if block.info[:1] == ["sh"]:
            yield from (line for line in block.text.replace("\\\n", " ").splitlines() if "toolwire " in line)
    yield from (match["line"] for match in COMMAND.finditer(FENCE.sub("", _text(page))))


def _arguments(line: str) -> list[str] | None:
    """What stands behind `toolwire` in a command line; None if it is no command of ours."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words = list(lexer)
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        words = words[1:]
    if "|" in words and words[0] != "toolwire":
        words = words[words.index("|") + 1 :]
    if words[:1] != ["toolwire"]:
        return None
    end = next((i for i, word in enumerate(words) if set(word) <= set("|;&<>")), len(words))
    return words[1:end]


def _parse(arguments: list[str]) -> None:
    """Raises `click.UsageError`. A command without anything behind it is taken for its name."""
    with contextlib.suppress(click.exceptions.Exit), contextlib.redirect_stdout(io.StringIO()):
        context = main.make_context("toolwire", list(arguments))
        name, command, rest = main.resolve_command(context, arguments)
        assert command is not None
        with command.make_context(name, rest, parent=context, resilient_parsing=not rest):
            pass


@pytest.mark.parametrize("page", [page for page in PAGES if any(_commands(page))], ids=str)
def test_commands_parse(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in _commands(page):
        arguments = _arguments(line)
        if not arguments or re.search(r"COMMAND|\.\.\.|\[", line):
            continue
        for word in arguments[1:]:
            if arguments[0] in ("replay", "inspect") and not word.startswith("-"):
                Path(word).touch()  # these commands open their file while they read the command line
        try:
            _parse(arguments)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


# --- configurations and code ----------------------------------------------------------------------------------------


def _write_files(page: Path, folder: Path) -> None:
    for block in _blocks(page):
        if len(block.info) > 1 and block.info[1].startswith("file="):
            (folder / block.info[1].removeprefix("file=")).write_text(block.text, "utf-8")


@pytest.mark.parametrize("page", _with("yaml", "config"), ids=str)
def test_configurations_load(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_files(page, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        for block in _blocks(page):
            if block.info[:2] == ["yaml", "config"]:
                file = tmp_path / f"line{block.line}.yaml"
                file.write_text(block.text, "utf-8")
                config = load(file, env=dict.fromkeys(VARIABLE.findall(block.text), "x"), warn=pytest.fail)
                check_names(config, registries())
    finally:
        for name in set(sys.modules) - before:
            if (tmp_path / f"{name}.py").exists():
                del sys.modules[name]


@pytest.mark.parametrize("page", _with("python", "run"), ids=str)
def test_code_runs_and_prints_what_it_says(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "page"}
    blocks = _blocks(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.info[:2] != ["python", "run"]:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
        if following is not None and following.info[:2] == ["text", "output"]:
            assert printed.getvalue() == following.text


EXAMPLES = [page for page in _with("python") if page.parent.name == "how-to" and "file=test_" in _text(page)]


@pytest.mark.parametrize("page", EXAMPLES, ids=str)
def test_examples_pass_their_own_tests(page: Path, tmp_path: Path) -> None:
    _write_files(page, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = sum(len(re.findall(r"^(?:async )?def test_", block.text, re.MULTILINE)) for block in _blocks(page))
    assert f"{tests} passed" in done.stdout


def test_there_are_examples() -> None:
    assert Path("docs/how-to/write-a-middleware.md") in EXAMPLES


# --- names ----------------------------------------------------------------------------------------------------------


def _metrics() -> set[str]:
    metrics = Metrics()
    metrics.declare(middleware_fields().values())
    return {family.name for family in metrics.families}


def test_every_metric_is_described_and_no_other() -> None:
    real = _metrics()
    assert set(re.findall(r"`(toolwire_[a-z_]+)`", _text(Path("docs/reference/telemetry.md")))) == real


def test_alerts_are_about_metrics_that_exist() -> None:
    real = _metrics()
    named = set(re.findall(r"\b(toolwire_[a-z_]+?)(?:_bucket)?\b(?!-)", _text(Path("docs/how-to/observe.md"))))
    assert named
    assert named <= real


def test_every_feature_for_constrained_decoding_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \| [^|]*\| (?:all|most|`bare_json`|) ?\|", _text(BACKENDS), re.MULTILINE))
    assert described == CONSTRAINTS
    (row,) = (line for line in _text(CONFIGURATION).splitlines() if line.startswith("| `constrain` | text or null"))
    assert set(re.findall(r"`(\w+)`", row)) - {"constrain", "null"} == CONSTRAINTS


def test_the_limits_in_the_table_are_the_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) (KiB|MiB)?", _text(Path("docs/reference/tools.md")), re.MULTILINE)
    assert rows
    defaults = LimitsConfig()
    for key, number, unit in rows:
        assert getattr(defaults, key) == int(number) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit], key
