"""`python -m bench.models` against a model server by rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import bench.models
from bench.models import CHOICES, DEFAULT, Cell, main, with_section
from tests.tuning.conftest import ModelServer, Rule
from tests.tuning.test_command import CASES, only_pythonic
from toolwire.extras.tune.cases import own_cases

Start = Callable[[Rule], ModelServer]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Measure five cases; status and what was printed."""
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    monkeypatch.setattr(bench.models, "PAGE", tmp_path / "models.md")
    fixed = ["--cases", str(tmp_path / "cases.json"), "--journal", str(tmp_path / "kept.jsonl"), "--model", "m"]

    def measured(server: ModelServer, *more: str) -> tuple[int, str, str]:
        status = main(["--backend", server.url, *fixed, *more])
        return status, *capsys.readouterr()

    return measured


def test_every_format_and_choice_has_its_row(
    run: Callable[..., tuple[int, str, str]], model_server: Start, tmp_path: Path
) -> None:
    status, out, _ = run(
        model_server(only_pythonic), "--formats", "hermes,pythonic", "--publish", "--backend-key", "sesame"
    )
    assert status == 0
    assert re.findall(r"^### (.*)$", out, re.M) == [
        Cell(choice, 1).title.replace("a tool", "A tool").replace("`tool", "`tool") for choice in CHOICES
    ]
    rows = re.findall(r"^\| (\S+) +\| +(\d+) \| +(\d+) \| +(\d+) % ", out, re.M)
    assert rows == [
        (DEFAULT, "5", "20", "0"), ("hermes", "5", "20", "0"), ("pythonic", "5", "100", "100"),
        (DEFAULT, "4", "0", "0"), ("hermes", "4", "0", "0"), ("pythonic", "4", "100", "100"),
        (DEFAULT, "4", "0", "0"), ("hermes", "4", "0", "0"), ("pythonic", "4", "100", "100"),
    ]  # fmt: skip
    page = (tmp_path / "models.md").read_text("utf-8")
    assert page.endswith(out.rstrip() + "\n")
    assert "python -m bench.models --backend " in page
    assert "sesame" not in page
    assert str(tmp_path / "kept.jsonl") not in page


def test_what_was_answered_once_is_not_asked_again(
    run: Callable[..., tuple[int, str, str]], model_server: Start, tmp_path: Path
) -> None:
    server = model_server(only_pythonic)
    _, first, told = run(server, "--formats", "pythonic")
    asked = len(server.bodies)
    assert asked > 0
    assert told.rstrip().splitlines()[-1].startswith(f"{asked} answers of the model, ")
    journal = tmp_path / "kept.jsonl"
    journal.write_text(journal.read_text() + '{"key": "cut o')  # as an interruption leaves it
    _, second, _ = run(server, "--formats", "pythonic")
    assert len(server.bodies) == asked
    assert second == first
    run(server, "--formats", "pythonic,bare_json")
    assert len(server.bodies) > asked, "what is new is asked"


def test_a_page_has_a_section_for_each_model() -> None:
    page = with_section("", "a", "## a\n\none\n")
    page = with_section(page, "b", "## b\n\ntwo\n")
    page = with_section(page, "a", "## a\n\nthree\n\n### table\n")
    assert page == with_section(page, "b", "## b\n\ntwo\n")
    assert page.partition("## a")[2].split() == ["three", "###", "table", "##", "b", "two"]


def test_a_case_stands_where_it_can_be_judged() -> None:
    cases = {case.id: case for case in own_cases()}
    places = {
        name: [(choice, turn) for choice in CHOICES for turn in (1, 2) if Cell(choice, turn).takes(cases[name])]
        for name in ("weather-oslo", "two-cities", "greeting", "then-role", "answer-sum")
    }
    assert places == {
        "weather-oslo": [("auto", 1), ("required", 1), ("named", 1)],
        "two-cities": [("auto", 1), ("required", 1)],
        "greeting": [("auto", 1)],
        "then-role": [("auto", 2), ("required", 2), ("named", 2)],
        "answer-sum": [("auto", 2)],
    }
