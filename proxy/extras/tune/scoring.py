"""How far an answer came, and what many answers come to.

An answer to a case that wants calls gets points for calling at all, for the right tool, for arguments that fit the
schema, and all of them only for the right values, so that models that never get so far can still be told apart. Where
no call is wanted, not calling is all there is to do. What a model server did wrong (`Answer.fault`) is nobody's points:
it is counted apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from toolwire.extras.tune.cases import Case, Expected
from toolwire.extras.tune.matching import fits, pairs_up
from toolwire.extras.tune.printed import printed
from toolwire.schemas.schema import compile_schema

CALLED: Final = 0.1
RIGHT_TOOL: Final = 0.2
FITS: Final = 0.2
"""Points; together half of those for the right values, which are 1."""

SILENT: Final = 0.5
"""Points for an answer that rightly makes no call, but does not say what it should."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that a client got. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got. `fault`: why it got nothing, where the model server is to blame. `failed`: why the gateway let
    nothing through, where the model is."""

    calls: tuple[Made, ...] = ()
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    fault: str | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """What is to be said of one answer. `printed`: valid calls that stayed text."""

    wanted: bool
    called: bool = False
    right_tool: bool = False
    fits: bool = False
    right: bool = False
    printed: int = 0
    points: float = 0.0

    @property
    def false_call(self) -> bool:
        """A call where none was wanted."""
        return self.called and not self.wanted


def mark(case: Case, answer: Answer) -> Marks:
    """CallPolicy an answer that has no `fault`."""
    schemas = case.schemas
    called = bool(answer.calls)
    found = len(printed(answer.text, schemas))
    fitting = called and all(
        made.name in schemas and compile_schema(schemas[made.name]).check(made.arguments) is None
        for made in answer.calls
    )
    if not case.calls:
        said = case.says is None or fits(case.says, answer.text)
        right = not called and said and answer.failed is None
        points = 1.0 if right else 0.0 if called or answer.failed else SILENT
        return Marks(wanted=False, called=called, fits=fitting, right=right, printed=found, points=points)
    tool = pairs_up(case.calls, answer.calls, lambda expected, made: made.name in expected.names)
    right = tool and fitting and pairs_up(case.calls, answer.calls, _as_expected)
    points = 1.0 if right else CALLED * called + RIGHT_TOOL * tool + FITS * fitting
    return Marks(wanted=True, called=called, right_tool=tool, fits=fitting, right=right, printed=found, points=points)


def _as_expected(expected: Expected, made: Made) -> bool:
    return made.name in expected.names and fits(expected.arguments, _object(made.arguments))


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(slots=True)
class Figures:
    """Sums over answers. Rates are between 0 and 1, and None where there was nothing to count."""

    asked: int = 0
    faults: int = 0
    failed: int = 0
    wanted: int = 0
    called: int = 0
    right_tool: int = 0
    fits: int = 0
    right: int = 0
    unwanted: int = 0
    false_calls: int = 0
    printed: int = 0
    points: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    faults_said: list[str] = field(default_factory=list)
    """What was wrong, each once."""

    def add(self, answer: Answer, marks: Marks | None) -> None:
        """One more answer; without marks it is one with a fault."""
        self.asked += 1
        if marks is None:
            self.faults += 1
            if answer.fault is not None and answer.fault not in self.faults_said:
                self.faults_said.append(answer.fault)
            return
        self.failed += answer.failed is not None
        if marks.wanted:
            self.wanted += 1
            self.called += marks.called
            self.right_tool += marks.right_tool
            self.fits += marks.fits
            self.right += marks.right
        else:
            self.unwanted += 1
            self.false_calls += marks.false_call
        self.printed += marks.printed > 0
        self.points += marks.points
        self.input_tokens += answer.input_tokens
        self.output_tokens += answer.output_tokens
        self.seconds += answer.seconds

    @property
    def answered(self) -> int:
        """Answers without a fault."""
        return self.asked - self.faults

    @property
    def score(self) -> float | None:
        """Points an answer."""
        return share(self.points, self.answered)


def share(part: float, whole: int) -> float | None:
    """`part` of `whole`; None of nothing."""
    return part / whole if whole else None


def added_up(results: Iterable[tuple[Answer, Marks | None]]) -> Figures:
    """The figures of these answers."""
    figures = Figures()
    for answer, marks in results:
        figures.add(answer, marks)
    return figures
