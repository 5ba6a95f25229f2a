"""The middleware `prompt_guard`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.options import route_options
from toolwire.config import MiddlewareConfig
from toolwire.extras.middlewares.prompt_guard import PromptGuardOptions
from toolwire.testing import WireAnswer, run_chain

TOOL = {"type": "function", "name": "look", "description": "x" * 500}


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


async def guarded(body: dict[str, Any], path: str = "/v1/chat/completions", **options: Any) -> WireAnswer:
    guard = MiddlewareConfig(use="prompt_guard", options=options)
    chain = ["conversation", "validation", guard, "transformation", "injection"]
    # An encoding that nobody has, so that tokens are four bytes each wherever the test runs.
    return await run_chain(chain, body, path=path, replies=["ok"], options=route_options(encoding="none"))


def refusal(answer: WireAnswer) -> tuple[int, str, str]:
    error = answer.json()["error"]
    assert answer.requests == ()
    return answer.status, error["code"], error["param"]


@pytest.mark.parametrize(
    ("limit", "fits", "beyond"),
    [
        ({"messages": 2}, said("a", "b"), said("a", "b", "c")),
        ({"characters": 14}, said("x" * 10), said("x" * 11)),  # the role is read as well
        (
            {"tokens": 16},
            said("x" * 35),
            said("x" * 36),
        ),  # 3 for each message and the answer; user, a line break, 35 in fours
    ],
    ids=str,
)
async def test_up_to_the_limit_and_no_further(limit, fits, beyond):
    assert (await guarded(fits, **limit)).status == 200
    for stream in (False, True):
        answer = await guarded({**beyond, "stream": stream}, **limit)
        assert refusal(answer) == (400, "context_length_exceeded", "messages")


async def test_tools_are_part_of_the_prompt():
    answer = await guarded({**said("a"), "tools": [TOOL]}, characters=300)
    assert refusal(answer) == (400, "context_length_exceeded", "messages")


async def test_of_responses_the_input_is_to_blame():
    answer = await guarded({"input": "x" * 200}, "/v1/responses", characters=100)
    assert refusal(answer) == (400, "context_length_exceeded", "input")
    assert "at most 100" in answer.json()["error"]["message"]
    assert "maximum context length" in answer.json()["error"]["message"]


@pytest.mark.parametrize("options", [{}, {"tokens": 0}, {"messages": -1, "characters": 5}])
def test_limits_that_make_no_sense(options):
    with pytest.raises(ValueError, match="at least"):
        PromptGuardOptions(**options)
