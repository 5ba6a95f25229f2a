"""Conclusions and reports of the benchmarks; nothing is measured here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import budget, callgrind, instructions
from bench.conftest import README
from bench.measuring import Table, published
from tests.cases import every
from toolwire.pipeline.exchange.heads import send_whole
from toolwire.protocols.chat.request import code_of


def test_up_to_a_tenth_more_is_allowed() -> None:
    assert not instructions.worse({"a": 110.0, "b": 50.0}, {"a": 100.0, "b": 100.0})


def test_more_than_a_tenth_is_worse_and_so_is_work_that_is_not_known() -> None:
    assert instructions.worse({"a": 110.2, "b": 1.0, "c": 100.0}, {"a": 100.0, "c": 100.0}) == {
        "a": "+10.2% against 100.0, more than 10%",
        "b": "nothing is kept for it",
    }


def test_something_is_kept_for_all_work() -> None:
    for counts in json.loads(instructions.KEPT.read_text("utf-8")).values():
        assert counts.keys() == instructions.WORK.keys()


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


def test_the_work_is_done_where_it_is_not_counted() -> None:
    command = [sys.executable, "-m", "bench.instructions", "--counted"]
    done = subprocess.run(command, cwd=callgrind.ROOT, capture_output=True, text=True, check=True)
    units = dict(zip(instructions.WORK, map(int, done.stdout.split()), strict=True))
    assert units["gate"] == units["frames"] == units["prose"] == instructions.DELTAS
    assert min(units.values()) > instructions.DELTAS // 2


# --- what a request costs --------------------------------------------------------------------------------------------


def test_something_is_kept_for_each_kind_of_request() -> None:
    kept = json.loads(budget.KEPT.read_text("utf-8"))
    assert kept.keys() == {"calls", "instructions"}
    for machines in kept.values():
        for counts in machines.values():
            assert counts.keys() == {work.title for work in budget.WORKS}


def test_a_coroutine_begins_once_and_a_comprehension_is_none() -> None:
    """Of functions of the gateway; what goes on is no call."""
    code = send_whole.__code__
    assert 0 <= budget.begin(code) < len(code.co_code) // 4
    assert budget.begin(code_of.__code__) >= 0
    assert budget.begin((lambda: 0).__code__) == -2
    assert budget.begin(json.loads.__code__) == -2


@pytest.fixture
def weigh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the command where each request takes `now`, and on this machine `before` is kept, if anything."""
    kept = tmp_path / "kept.json"

    def run(*arguments: str, now: float, before: float | None = 100.0, valgrind: bool = True) -> int:
        titles = [work.title for work in budget.WORKS]
        known = {} if before is None else {"this": dict.fromkeys(titles, before)}
        if before is not None or not kept.exists():
            kept.write_text(json.dumps({"calls": known, "instructions": known}))
        monkeypatch.setattr(budget, "KEPT", kept)
        monkeypatch.setattr(budget, "python", lambda: "this")
        monkeypatch.setattr(callgrind, "toolchain", lambda: "this")
        monkeypatch.setattr(callgrind, "installed", lambda: valgrind)
        monkeypatch.setattr(budget, "calls", lambda work: now)
        totals = [round(now * budget.requests_of(work)) for work in budget.WORKS]
        monkeypatch.setattr(callgrind, "count", lambda *arguments, times: (totals, ""))
        return budget.main(arguments)

    return run


@pytest.mark.parametrize("what", ["calls", "instructions"])
@pytest.mark.parametrize(("now", "status"), [(104.0, 0), (106.0, 1)])
def test_a_twentieth_more_is_allowed(
    weigh: Callable[..., int], now: float, status: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert weigh("--only", what, now=now) == status
    assert (f"{what} +6.0% against 100.0, more than 5%" in capsys.readouterr().err) is bool(status)


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


def test_without_valgrind_no_instructions_are_counted(
    weigh: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert weigh("--only", "instructions", now=200.0, valgrind=False) == 0
    assert capsys.readouterr().out == "instructions SKIPPED: valgrind is not installed\n"


# --- tables
# -------------------------------------------------------------------------------------------------------------


def test_a_table_shows_ratios_to_the_first_cell_of_a_row() -> None:
    table = Table("T", "ns")
    table.put("one", "a", 100.0)
    table.put("one", "b", 1250.0)
    table.put("two", "b", 4.25)
    table.put("two", "c", "text")
    assert table.text().splitlines() == [
        "| ns | a | b | c |",
        "| --- | ---: | ---: | ---: |",
        "| one | 100 (1) | 1,250 (12.5) |  |",
        "| two |  | 4.2 (1) | text |",
    ]


def test_a_table_takes_its_place_in_a_page_and_nothing_else_changes() -> None:
    table = Table("A | B", "x")
    table.put("row", "column", r"\1")
    page = "before\n<!-- table: A | B -->\nold\n<!-- end -->\nafter\n"
    once = published(page, [table])
    assert once == f"before\n<!-- table: A | B -->\n\n{table.text()}\n\n<!-- end -->\nafter\n"
    assert published(once, [table]) == once
    with pytest.raises(ValueError, match="no place for the table 'C'"):
        published(page, [Table("C")])


@every(
    "title",
    [
        *("Whole gateway: CPU", "Whole gateway: what clients see", "Memory", "Client", "Scanner", "Growth"),
        *("Adversarial input", "Whole text of 1 MB without an opener", "Framing", "Frames to events"),
        *("Events to frames", "Once per request or call"),
    ],
)
def test_every_table_has_its_place(title: str) -> None:
    assert published(README.read_text("utf-8"), [Table(title)])
