"""What the doctor has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final, Literal

from toolwire.support.legible import visible

Level = Literal["ok", "warning", "problem"]

_WIDTH: Final = len("problem  ")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `area` is what it belongs to (`backend main`), `what` was found, `why` it matters,
    `todo` is what to do about it; the last two are empty where all is well."""

    area: str
    level: Level
    what: str
    why: str = ""
    todo: str = ""


def ok(area: str, what: str) -> Finding:
    """All is well."""
    return Finding(area, "ok", what)


def warning(area: str, what: str, why: str, todo: str) -> Finding:
    """It works, but not as well or as safely as it could."""
    return Finding(area, "warning", what, why, todo)


def problem(area: str, what: str, why: str, todo: str) -> Finding:
    """It does not work."""
    return Finding(area, "problem", what, why, todo)


def as_text(findings: Sequence[Finding]) -> Iterator[str]:
    """For people: by area, and at the end how many there are. What several in a row have in common, why they matter
    and what to do, stands once behind them."""
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
    """For programs."""
    return {**{f"{word}s": n for word, n in count(findings).items()}, "findings": [asdict(one) for one in findings]}


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many problems and warnings there are."""
    levels = [finding.level for finding in findings]
    return {"problem": levels.count("problem"), "warning": levels.count("warning")}


def cleaned(findings: Iterable[Finding], clean: Callable[[str], str]) -> list[Finding]:
    """The same with `clean` texts, each in one printable line."""

    def line(text: str) -> str:
        return visible(clean(text))

    return [Finding(line(one.area), one.level, line(one.what), line(one.why), line(one.todo)) for one in findings]
