"""`python -m bench.models` against a model server by rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import bench.models
from bench.models import CHOICES, DEFAULT, Cell, chosen_formats, main, with_section
from tests.tuning.conftest import ModelServer, Rule
from tests.tuning.test_command import CASES, only_pythonic
from toolwire.extras.tune.cases import own_cases
from toolwire.registry import registries
from toolwire.support.conversion import ConfigError

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


def test_faults_are_told_and_asked_again(run: Callable[..., tuple[int, str, str]], model_server: Start) -> None:
    burning = True
    server = model_server(lambda body: 500 if burning else only_pythonic(body))
    status, _, told = run(server, "--formats", "pythonic", "--choices", "auto", "-n", "1")
    assert status == 1
    assert "fault of the model server: 502 upstream_error" in told
    burning = False
    assert run(server, "--formats", "pythonic", "--choices", "auto", "-n", "1")[0] == 0


def test_a_page_has_a_section_for_each_model() -> None:
    page = with_section("", "a", "## a\n\none\n")
    page = with_section(page, "b", "## b\n\ntwo\n")
    page = with_section(page, "a", "## a\n\nthree\n\n### table\n")
    assert page == with_section(page, "b", "## b\n\ntwo\n")
    assert page.partition("## a")[2].split() == ["three", "###", "table", "##", "b", "two"]


def test_formats_by_word() -> None:
    plugins = registries()
    every = chosen_formats(["all"], "m", plugins)
    assert every[0] == DEFAULT
    assert {"sentinel", "hermes", "auto", "kimi_k3"} <= set(every)
    assert "qwen_xml" not in every, "another name of one that is there"
    assert "dots" not in every, "a plug-in"
    assert chosen_formats(["default"], "m", plugins) == [DEFAULT]
    assert chosen_formats(["usual"], "gemma-4-9b", plugins)[:2] == [DEFAULT, "gemma4"]
    with pytest.raises(ConfigError, match="hermse"):
        chosen_formats(["hermse"], "m", plugins)


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


@pytest.mark.parametrize("arguments", [["--choices", "none"], ["--turns", "3"]])
def test_wrong_use_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert "is not one of" in capsys.readouterr().err
