"""Marks and figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases import every
from toolwire.extras.tune.cases import Case, read_cases
from toolwire.extras.tune.scoring import CALLED, FITS, RIGHT_TOOL, SILENT, Answer, Figures, Made, Marks, added_up, mark

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME = {"name": "get_time"}


def case(*calls: dict[str, Any], **more: Any) -> Case:
    given = {"id": "c", "topic": "t", "ask": "Hi", "tools": [WEATHER, TIME], "calls": list(calls), **more}
    return read_cases({"cases": [given]}, "x")[0]


def made(name: str, arguments: Any) -> Made:
    return Made(name, arguments if isinstance(arguments, str) else json.dumps(arguments))


OSLO = {"name": "get_weather", "arguments": {"city": "Oslo"}}
ONE = case(OSLO)
TWO = case(OSLO, {"name": "get_time"})
EITHER = case({"name": ["get_time", "get_weather"]})
NONE = case()
SAYS = case(says={"$contains": "four"})


@every(
    ("asked", "answer", "marks"),
    [
        (ONE, Answer((made("get_weather", {"city": "oslo"}),)), Marks(True, True, True, True, True, points=1)),
        (ONE, Answer((made("get_weather", {"city": "Rome"}),)), Marks(True, True, True, True, points=CALLED + RIGHT_TOOL + FITS)),
        (ONE, Answer((made("get_weather", {"town": "Oslo"}),)), Marks(True, True, True, points=CALLED + RIGHT_TOOL)),
        (ONE, Answer((made("get_time", {}),)), Marks(True, True, fits=True, points=CALLED + FITS)),
        (ONE, Answer((made("get_weather", "not JSON"),)), Marks(True, True, True, points=CALLED + RIGHT_TOOL)),
        (ONE, Answer((made("rm", {}),)), Marks(True, True, points=CALLED)),
        (ONE, Answer((made("get_weather", {"city": "Oslo"}), made("get_time", {}))), Marks(True, True, fits=True, points=CALLED + FITS)),
        (ONE, Answer(text="Sunny."), Marks(True)),
        (ONE, Answer(text=json.dumps(OSLO)), Marks(True, printed=1)),
        (ONE, Answer(failed="malformed_tool_arguments"), Marks(True)),
        (TWO, Answer((made("get_time", {}), made("get_weather", {"city": "Oslo"}))), Marks(True, True, True, True, True, points=1)),
        (TWO, Answer((made("get_weather", {"city": "Oslo"}),)), Marks(True, True, fits=True, points=CALLED + FITS)),
        (EITHER, Answer((made("get_time", {}),)), Marks(True, True, True, True, True, points=1)),
        (NONE, Answer(text="Hello!"), Marks(False, right=True, points=1)),
        (NONE, Answer((made("get_time", {}),)), Marks(False, True, fits=True)),
        (NONE, Answer(failed="unknown_tool_call"), Marks(False)),
        (SAYS, Answer(text="It is four."), Marks(False, right=True, points=1)),
        (SAYS, Answer(text="It is five."), Marks(False, points=SILENT)),
    ],
)  # fmt: skip
def test_marks(asked: Case, answer: Answer, marks: Marks) -> None:
    assert mark(asked, answer) == marks
    assert marks.false_call == (marks.called and not marks.wanted)


def test_points_grow_with_how_far_an_answer_came() -> None:
    assert 0 < CALLED < CALLED + RIGHT_TOOL < CALLED + RIGHT_TOOL + FITS < 1
    assert 0 < SILENT < 1


def test_figures_count_faults_apart() -> None:
    right = Answer((made("get_weather", {"city": "Oslo"}),), output_tokens=10, input_tokens=100, seconds=2)
    results = [
        (right, mark(ONE, right)),
        (Answer(text=json.dumps(OSLO), output_tokens=20), mark(ONE, Answer(text=json.dumps(OSLO)))),
        (Answer((made("get_time", {}),)), mark(NONE, Answer((made("get_time", {}),)))),
        (Answer(fault="502 upstream_error: it burns"), None),
        (Answer(fault="502 upstream_error: it burns"), None),
    ]
    figures = added_up(results)
    assert (figures.asked, figures.faults, figures.answered) == (5, 2, 3)
    assert (figures.wanted, figures.called, figures.right_tool, figures.fits, figures.right) == (2, 1, 1, 1, 1)
    assert (figures.unwanted, figures.false_calls, figures.printed) == (1, 1, 1)
    assert (figures.output_tokens, figures.input_tokens, figures.seconds) == (30, 100, 2)
    assert figures.score == pytest.approx(1 / 3)
    assert figures.faults_said == ["502 upstream_error: it burns"]
    assert Figures().score is None
