"""The findings of the doctor, and their output as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal

from ...support.legible import visible

Level = Literal["ok", "advice", "warning", "problem"]

_WIDTH: Final = len("problem  ")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `area` groups findings (`backend main`; empty until `in_area` sets it), `what` is the
    finding, `why` its importance, `todo` the action to take; the last two are empty if all is well, and advice has no
    `why`."""

    area: str
    level: Level
    what: str
    why: str = ""
    todo: str = ""


def ok(what: str) -> Finding:
    """Returns a finding for a check that passed."""
    return Finding("", "ok", what)


def advice(what: str, todo: str) -> Finding:
    """Returns a finding for something that works, and could be faster or more exact."""
    return Finding("", "advice", what, todo=todo)


def warning(what: str, why: str, todo: str) -> Finding:
    """Returns a finding for something that works, but less well or less safely than it could."""
    return Finding("", "warning", what, why, todo)


def problem(what: str, why: str, todo: str) -> Finding:
    """Returns a finding for something that does not work."""
    return Finding("", "problem", what, why, todo)


def in_area(area: str, findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings with this area."""
    return [replace(finding, area=area) for finding in findings]


def as_text(findings: Sequence[Finding]) -> Iterator[str]:
    """Yields the findings as lines for people, grouped by area, then their numbers. Consecutive findings with the same
    reason and action show these once, after the last one."""
    indent = " " * (2 + _WIDTH)
    for area, group in groupby(findings, lambda finding: finding.area):
        yield area
        for (why, todo), alike in groupby(group, lambda finding: (finding.why, finding.todo)):
            for finding in alike:
                yield f"  {finding.level:{_WIDTH}}{finding.what}"
            if why:
                yield f"{indent}Why it matters: {why}"
            if todo:
                yield f"{indent}What to do: {todo}"
    yield ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for word, n in count(findings).items())


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns the findings as JSON: the numbers of problems and warnings, and the list."""
    return {**{f"{word}s": n for word, n in count(findings).items()}, "findings": [asdict(one) for one in findings]}


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """Returns the numbers of problems and warnings, by level."""
    levels = [finding.level for finding in findings]
    return {"problem": levels.count("problem"), "warning": levels.count("warning")}


def clean_findings(findings: Iterable[Finding], clean: Callable[[str], str]) -> list[Finding]:
    """Returns the findings with `clean` applied to each text, and each text as one printable line."""

    def line(text: str) -> str:
        return visible(clean(text))

    return [Finding(line(one.area), one.level, line(one.what), line(one.why), line(one.todo)) for one in findings]
