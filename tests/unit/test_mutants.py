"""The faults of `python -m tests.mutants` apply to the code as it is. That the tests see them is said there."""

from __future__ import annotations

from pathlib import Path

from tests.cases import every
from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]


@every("fault", FAULTS)
def test_a_fault_applies(fault: Fault) -> None:
    count = (ROOT / fault.path).read_text("utf-8").count(fault.old)
    assert count == 1, f"its old text stands {count} times in {fault.path}; say it anew in tests/mutants/faults.py"
    assert fault.old != fault.new
    assert fault.tests
    assert [test for test in fault.tests if not (ROOT / test).exists()] == []


def test_there_are_many_and_each_has_its_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
