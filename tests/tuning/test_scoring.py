"""Score and figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases import every
from toolwire.extras.tune.cases import Case, read_cases
from toolwire.extras.tune.scoring import (
    CALLED,
    FITS,
    RIGHT_TOOL,
    SILENT,
    ClientAnswer,
    ClientCall,
    Figures,
    Score,
    added_up,
    score_answer,
)

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


def made(name: str, arguments: Any) -> ClientCall:
    return ClientCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments))


OSLO = {"name": "get_weather", "arguments": {"city": "Oslo"}}
ONE = case(OSLO)
TWO = case(OSLO, {"name": "get_time"})
EITHER = case({"name": ["get_time", "get_weather"]})
NONE = case()
SAYS = case(says={"$contains": "four"})


@every(
    ("asked", "answer", "marks"),
    [
        (ONE, ClientAnswer((made("get_weather", {"city": "oslo"}),)), Score(True, True, True, True, True, points=1)),
        (ONE, ClientAnswer((made("get_weather", {"city": "Rome"}),)), Score(True, True, True, True, points=CALLED + RIGHT_TOOL + FITS)),
        (ONE, ClientAnswer((made("get_weather", {"town": "Oslo"}),)), Score(True, True, True, points=CALLED + RIGHT_TOOL)),
        (ONE, ClientAnswer((made("get_time", {}),)), Score(True, True, fits=True, points=CALLED + FITS)),
        (ONE, ClientAnswer((made("get_weather", "not JSON"),)), Score(True, True, True, points=CALLED + RIGHT_TOOL)),
        (ONE, ClientAnswer((made("rm", {}),)), Score(True, True, points=CALLED)),
        (ONE, ClientAnswer((made("get_weather", {"city": "Oslo"}), made("get_time", {}))), Score(True, True, fits=True, points=CALLED + FITS)),
        (ONE, ClientAnswer(text="Sunny."), Score(True)),
        (ONE, ClientAnswer(text=json.dumps(OSLO)), Score(True, printed=1)),
        (ONE, ClientAnswer(failed="malformed_tool_arguments"), Score(True)),
        (TWO, ClientAnswer((made("get_time", {}), made("get_weather", {"city": "Oslo"}))), Score(True, True, True, True, True, points=1)),
        (TWO, ClientAnswer((made("get_weather", {"city": "Oslo"}),)), Score(True, True, fits=True, points=CALLED + FITS)),
        (EITHER, ClientAnswer((made("get_time", {}),)), Score(True, True, True, True, True, points=1)),
        (NONE, ClientAnswer(text="Hello!"), Score(False, right=True, points=1)),
        (NONE, ClientAnswer((made("get_time", {}),)), Score(False, True, fits=True)),
        (NONE, ClientAnswer(failed="unknown_tool_call"), Score(False)),
        (SAYS, ClientAnswer(text="It is four."), Score(False, right=True, points=1)),
        (SAYS, ClientAnswer(text="It is five."), Score(False, points=SILENT)),
    ],
)  # fmt: skip
def test_marks(asked: Case, answer: ClientAnswer, marks: Score) -> None:
    assert score_answer(asked, answer) == marks
    assert marks.false_call == (marks.called and not marks.wanted)


def test_points_grow_with_how_far_an_answer_came() -> None:
    assert 0 < CALLED < CALLED + RIGHT_TOOL < CALLED + RIGHT_TOOL + FITS < 1
    assert 0 < SILENT < 1


def test_figures_count_faults_apart() -> None:
    right = ClientAnswer((made("get_weather", {"city": "Oslo"}),), output_tokens=10, input_tokens=100, seconds=2)
    results = [
        (right, score_answer(ONE, right)),
        (ClientAnswer(text=json.dumps(OSLO), output_tokens=20), score_answer(ONE, ClientAnswer(text=json.dumps(OSLO)))),
        (ClientAnswer((made("get_time", {}),)), score_answer(NONE, ClientAnswer((made("get_time", {}),)))),
        (ClientAnswer(fault="502 upstream_error: it burns"), None),
        (ClientAnswer(fault="502 upstream_error: it burns"), None),
    ]
    figures = added_up(results)
    assert (figures.asked, figures.faults, figures.answered) == (5, 2, 3)
    assert (figures.wanted, figures.called, figures.right_tool, figures.fits, figures.right) == (2, 1, 1, 1, 1)
    assert (figures.unwanted, figures.false_calls, figures.printed) == (1, 1, 1)
    assert (figures.output_tokens, figures.input_tokens, figures.seconds) == (30, 100, 2)
    assert figures.score == pytest.approx(1 / 3)
    assert figures.fault_texts == ["502 upstream_error: it burns"]
    assert Figures().score is None
