"""A few lines of aliases of aliases stand for millions of values: every YAML file is refused that does so."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.cases import every
from toolwire.cli import main
from toolwire.configuration.positions import with_lines
from toolwire.extras.tune.cases import load_cases
from toolwire.ingress.auth import read_keys
from toolwire.support.plainyaml import MOST_ALIASED, SCALAR_CHARS, parse_yaml

LAUGHS: Final = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join(['*a' + str(n - 1)] * 9)}]\n" for n in range(1, 9)
)


def test_aliases_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"line \d+, column \d+: the aliases up to here stand for more than"):
        parse_yaml(LAUGHS)


def test_long_texts_count_as_what_they_are() -> None:
    text = "x" * (SCALAR_CHARS * 100)
    few, many = MOST_ALIASED // 101 - 1, MOST_ALIASED // 101 + 2
    assert len(parse_yaml(f"[&a {text}{', *a' * few}]")) == few + 1
    with pytest.raises(ValueError, match="aliases"):
        parse_yaml(f"[&a {text}{', *a' * many}]")


def test_without_aliases_nothing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.support.plainyaml.MOST_ALIASED", 100)
    assert len(parse_yaml(f"[{', '.join(['x'] * 200)}]")) == 200


def test_merged_mappings_are_aliases() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}")["b"] == {"x": 1, "y": 2}
    laughs = "a0: &a0 {k: 1}\n" + "".join(
        f"a{n}: &a{n} [{', '.join(['{<<: *a0, x: 1}'] * 3 + ['*a' + str(n - 1)] * 9)}]\n" for n in range(1, 9)
    )
    with pytest.raises(ValueError, match="aliases"):
        parse_yaml(laughs)


@every(
    ("text", "said"),
    [
        ("[" * 500, "nested too deeply"),
        (f"a: {'9' * 5000}", "line 1, column 4: a whole number"),
        ("a: &a [*a]\nb: *c", "c"),
    ],
)
def test_other_ways_to_be_unreadable(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_yaml(text)


def test_the_file_and_the_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(LAUGHS + "backends: *a8\n")
    for command in (["check", str(file)], ["serve", "--config", str(file)], ["doctor", "--no-probe", str(file)]):
        got = CliRunner().invoke(main, command)
        assert got.exit_code == 1
        assert "bomb.yaml" in got.output
        assert "the aliases up to here stand for more than" in got.output.replace("\n", " ")
    assert with_lines(["backends: wrong"], LAUGHS) == ["backends: wrong"]


def test_keys_and_cases_as_well(tmp_path: Path) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(LAUGHS)
    with pytest.raises(ValueError, match=r"bomb\.yaml: line \d+, column \d+: the aliases"):
        read_keys(file)
    with pytest.raises(Exception, match=r"bomb\.yaml: line \d+, column \d+: the aliases"):
        load_cases(file)
