"""Conclusions and reports of the benchmarks; nothing is measured here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import bench
from bench import budget, callgrind, instructions
from bench.inprocess import Work
from bench.measuring import Table, published


def test_more_than_a_tenth_is_worse_and_so_is_work_that_is_not_known() -> None:
    assert instructions.worse({"a": 110.2, "b": 1.0, "c": 110.0}, {"a": 100.0, "c": 100.0}) == {
        "a": "+10.2% against 100.0, more than 10%",
        "b": "nothing is kept for it",
    }


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the command where valgrind says `now` for everything, and `before` is kept for one machine."""

    def run(*arguments: str, now: float, before: float, machine: str = "this", valgrind: bool = True) -> int:
        kept = tmp_path / "kept.json"
        kept.write_text(json.dumps({machine: dict.fromkeys(instructions.WORK, before)}))
        monkeypatch.setattr(instructions, "KEPT", kept)
        monkeypatch.setattr(callgrind, "toolchain", lambda: "this")
        monkeypatch.setattr(instructions, "count", lambda: dict.fromkeys(instructions.WORK, now))
        monkeypatch.setattr(callgrind, "installed", lambda: valgrind)
        return instructions.main(arguments)

    return run


def test_the_command_fails_for_what_is_worse(counted: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(now=100.0, before=100.0) == 0
    assert counted(now=120.0, before=100.0) == 1
    assert "gate: +20.0% against 100.0" in capsys.readouterr().err


def test_the_command_says_that_it_counts_nothing(
    counted: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert counted(now=120.0, before=100.0, machine="other") == 0
    assert capsys.readouterr().out.startswith("SKIPPED: nothing is kept for this")
    assert counted(now=120.0, before=100.0, valgrind=False) == 0
    assert capsys.readouterr().out == "SKIPPED: valgrind is not installed\n"


def test_the_command_keeps_what_it_counts_beside_that_of_other_machines(counted: Callable[..., int]) -> None:
    assert counted("--update", now=120.0, before=100.0, machine="other") == 0
    kept = json.loads(instructions.KEPT.read_text())
    assert kept["this"]["prose"] == 120.0
    assert kept["other"]["prose"] == 100.0


# --- what a request costs --------------------------------------------------------------------------------------------


@pytest.fixture
def asked() -> list[int]:
    """How many kinds of request valgrind counts the instructions of, each time."""
    return []


@pytest.fixture
def weigh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[int]) -> Callable[..., int]:
    """Runs the command where each request takes `now`, and on this machine `before` is kept, if anything."""
    kept = tmp_path / "kept.json"

    def run(*arguments: str, now: float, before: float | None = 100.0, first: dict[str, float] | None = None) -> int:
        """`first`: what kinds of request cost at the first count."""
        unseen = dict(first or {})

        def calls(work: Work) -> float:
            return unseen.pop(work.title, now)

        def count(module: str, option: str, *, times: int) -> tuple[list[int], str]:
            asked.append(times)
            return [round(calls(work) * budget.requests_of(work)) for work in budget.WORKS], ""

        titles = [work.title for work in budget.WORKS]
        known = {} if before is None else {"this": dict.fromkeys(titles, before)}
        if before is not None or not kept.exists():
            kept.write_text(json.dumps({"calls": known, "instructions": known}))
        monkeypatch.setattr(budget, "KEPT", kept)
        monkeypatch.setattr(budget, "python", lambda: "this")
        monkeypatch.setattr(callgrind, "toolchain", lambda: "this")
        monkeypatch.setattr(callgrind, "installed", lambda: True)
        monkeypatch.setattr(budget, "calls", calls)
        monkeypatch.setattr(callgrind, "count", count)
        return budget.main(arguments)

    return run


@pytest.mark.parametrize("what", ["calls", "instructions"])
@pytest.mark.parametrize(("now", "status"), [(104.0, 0), (106.0, 1)])
def test_a_twentieth_more_is_allowed(
    weigh: Callable[..., int], now: float, status: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert weigh("--only", what, now=now) == status
    assert (f"{what} +6.0% against 100.0, more than 5%" in capsys.readouterr().err) is bool(status)


@pytest.mark.parametrize("what", ["calls", "instructions"])
def test_what_seems_to_cost_more_is_counted_again(weigh: Callable[..., int], asked: list[int], what: str) -> None:
    """Among all kinds, as it is kept: alone it takes less."""
    assert weigh("--only", what, now=100.0, first={budget.WORKS[3].title: 106.0}) == 0
    assert asked == ([len(budget.WORKS)] * 2 if what == "instructions" else [])


def test_the_budget_of_another_machine_is_not_this_ones(
    weigh: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert weigh(now=1000.0, before=None) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in said] == [
        "calls SKIPPED: nothing is kept for this",
        "instructions SKIPPED: nothing is kept for this",
    ]
    assert weigh("--update", now=100.0, before=None) == 0
    assert weigh(now=106.0, before=None) == 1


def test_a_table_takes_its_place_in_a_page_and_nothing_else_changes() -> None:
    table = Table("A | B", "x")
    table.put("row", "column", r"\1")
    page = "before\n<!-- table: A | B -->\nold\n<!-- end -->\nafter\n"
    once = published(page, [table])
    assert once == f"before\n<!-- table: A | B -->\n\n{table.text()}\n\n<!-- end -->\nafter\n"
    assert published(once, [table]) == once
    assert published(page, [Table("C")]) == page


def test_each_place_for_a_table_is_that_of_a_benchmark() -> None:
    folder = Path(bench.__file__).parent
    titles = re.findall(r"^<!-- table: (.+) -->$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    source = "".join(path.read_text("utf-8") for path in folder.glob("test_*.py"))
    assert titles
    assert [title for title in titles if f'measure.table("{title}"' not in source] == []
