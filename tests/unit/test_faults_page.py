"""The page of faults names every fault of the table, with its result."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import every
from tests.e2e.test_fault_table import FAULTS, Fault
from toolwire.observability.telemetry import REFUSED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "faults.md").read_text("utf-8")
TABLE = re.findall(r"^\| (`[^|]+`) \| (.*) \|$", PAGE, re.MULTILINE)
ROWS = {name: results for names, results in TABLE for name in re.findall(r"`([^`]+)`", names)}


def test_every_fault_has_a_row_and_every_row_a_fault() -> None:
    assert sorted(ROWS) == sorted(FAULTS)


@every("name", FAULTS)
def test_a_row_says_what_is_tested(name: str) -> None:
    fault: Fault = FAULTS[name]
    early, _, late = ROWS[name].partition("|")
    if fault.early is None:
        assert "a good answer" in early
    else:
        assert early.startswith(f"{fault.early[0]} `{fault.early[1]}`")
    if fault.late is not None:
        assert late.strip().startswith(f"`{fault.late}`")


def test_every_cause_of_a_refusal_is_named() -> None:
    assert [cause for cause in REFUSED if f"(`{cause}`)" not in PAGE] == []
