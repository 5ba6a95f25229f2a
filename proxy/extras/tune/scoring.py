"""Gives points for answers, and adds up figures over many answers.

An answer to a case with expected calls gets points for calling at all, for the right tool, for arguments that fit the
schema, and full points only for the right values, so that weak models can still be compared. If no call is expected,
not calling is enough. Errors of the model server (`ClientAnswer.fault`) give no points and are counted separately.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ...schemas.schema import compile_schema
from .cases import Case, ExpectedCall
from .matching import fits, pairs_up
from .printed import printed

CALLED: Final = 0.1
RIGHT_TOOL: Final = 0.2
FITS: Final = 0.2
"""Points for a call, for the right tool, and for arguments that fit the schema; together half a point. Right values are
1 point."""

SILENT: Final = 0.5
"""Points for an answer that rightly makes no call, but lacks the expected text."""


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call that a client got. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """The answer that a client got. `fault`: the error of the model server, if it failed. `failed`: the error code, if
    the gateway rejected the model's answer."""

    calls: tuple[ClientCall, ...] = ()
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    fault: str | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one answer. `printed`: the number of valid calls that stayed text."""

    wanted: bool
    called: bool = False
    right_tool: bool = False
    fits: bool = False
    right: bool = False
    printed: int = 0
    points: float = 0.0

    @property
    def false_call(self) -> bool:
        """True for a call although none was expected."""
        return self.called and not self.wanted


def score_answer(case: Case, answer: ClientAnswer) -> Score:
    """Returns the score of an answer without a `fault`."""
    schemas = case.schemas
    called = bool(answer.calls)
    printed_calls = len(printed(answer.text, schemas))
    fitting = called and all(
        made.name in schemas and compile_schema(schemas[made.name]).check(made.arguments) is None
        for made in answer.calls
    )
    if not case.calls:
        has_text = case.says is None or fits(case.says, answer.text)
        right = not called and has_text and answer.failed is None
        points = 1.0 if right else 0.0 if called or answer.failed else SILENT
        return Score(wanted=False, called=called, fits=fitting, right=right, printed=printed_calls, points=points)
    tool = pairs_up(case.calls, answer.calls, lambda expected, made: made.name in expected.names)
    right = tool and fitting and pairs_up(case.calls, answer.calls, _as_expected)
    points = 1.0 if right else CALLED * called + RIGHT_TOOL * tool + FITS * fitting
    return Score(
        wanted=True, called=called, right_tool=tool, fits=fitting, right=right, printed=printed_calls, points=points
    )


def _as_expected(expected: ExpectedCall, made: ClientCall) -> bool:
    return made.name in expected.names and fits(expected.arguments, _object(made.arguments))


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(slots=True)
class Figures:
    """Sums over answers."""

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
    fault_texts: list[str] = field(default_factory=list)
    """The errors of the model server, each once."""

    def add(self, answer: ClientAnswer, marks: Score | None) -> None:
        """Adds an answer; `marks` is None for one with a fault."""
        self.asked += 1
        if marks is None:
            self.faults += 1
            if answer.fault is not None and answer.fault not in self.fault_texts:
                self.fault_texts.append(answer.fault)
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
        """The number of answers without a fault."""
        return self.asked - self.faults

    @property
    def score(self) -> float | None:
        """The mean points per answer; None without answers."""
        return share(self.points, self.answered)


def share(part: float, whole: int) -> float | None:
    """Returns `part` divided by `whole`; None if `whole` is 0."""
    return part / whole if whole else None


def added_up(results: Iterable[tuple[ClientAnswer, Score | None]]) -> Figures:
    """Returns the figures of these answers."""
    figures = Figures()
    for answer, marks in results:
        figures.add(answer, marks)
    return figures
