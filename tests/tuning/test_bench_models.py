"""`python -m bench.models` against a model server by rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import bench.models
from bench.models import DEFAULT, main
from tests.tuning.conftest import ModelServer, Rule
from tests.tuning.test_command import CASES, only_pythonic

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
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("| ")]
    assert table[0] == ["format", "auto, one turn (5)", "required, one turn (4)", "named, one turn (4)", "printed"]
    assert table[2:] == [
        [DEFAULT, "0, 0, 0", "0, 0", "0, 0", "0"],
        ["hermes", "0, 0, 0", "0, 0", "0, 0", "0"],
        ["pythonic", "100, 100, 0", "100, 100", "100, 100", "0"],
    ]
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
