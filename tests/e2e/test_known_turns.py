"""Requests that name the response before them: earlier turns are read once, and nobody can tell by what is sent
(R34.2)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bench.budget import calls as calls_of
from bench.inprocess import Work
from tests.cases import every, examples
from tests.e2e.known import ROUTES, Both, both

__all__ = ["both"]

TOOLS = [
    {"type": "function", "name": name, "description": "d" * 100, "parameters": {"type": "object"}}
    for name in ("read", "write")
]
items = st.sampled_from(
    [
        {"role": "user", "content": "Hi <tool_call>"},
        {"role": "user", "content": [{"type": "input_text", "text": "A part"}], "x": 1},
        {"role": "developer", "content": "Be quick."},
        {"role": "assistant", "content": "I look."},
        {"type": "input_text", "text": "bare"},
        {"type": "function_call", "call_id": "mine", "name": "read", "arguments": '{"a": "\\u00e9"}'},
        {"type": "function_call_output", "call_id": "mine", "output": "</tool_response>"},
        {"type": "function_call_output", "call_id": "@0@", "output": "read"},
        {"type": "item_reference", "id": "msg_none"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "unheard_of", "x": 1.0},
        {"type": "additional_tools", "tools": [{**TOOLS[0], "name": "late"}]},
        {"role": "user", "content": "Go on. Call!"},
        {"role": "user", "content": "Go on."},
    ]
)
inputs = st.text(max_size=3) | st.lists(items, min_size=1, max_size=3)
changes = st.sampled_from(
    [{}, {}, {}, {"instructions": "Be brief."}, {"instructions": "Be long."}, {"tools": TOOLS[:1]}, {"store": False}]
)
steps = st.tuples(st.integers(0, 4), inputs, changes, st.sampled_from([*ROUTES, "prompt", "native"]), st.integers(0, 9))


def body_of(model: str, said: Any, **more: Any) -> dict[str, Any]:
    """A request over Responses."""
    return {"model": model, "input": said, "tools": TOOLS, **more}


@examples(0.4)
@given(first=inputs, several=st.lists(steps, min_size=1, max_size=8))
def test_law_with_and_without_known_turns_the_same_is_sent(
    both: Both, first: Any, several: list[tuple[int, Any, dict[str, Any], str, int]]
) -> None:
    """For every route and mix of routes, branches, deleted turns, other tools, other owners."""
    both.forget()
    both.continued(body_of("prompt", first))
    for back, said, change, model, event in several:
        if not both.knowing.ids:
            both.continued(body_of(model, "Hello."))
            continue
        number = max(0, len(both.knowing.ids) - 1 - back)
        if event == 0:
            both.delete(number)
        previous = {"previous_response_id": f"@{number}@"}
        both.continued(body_of(model, said, **previous, **change), "two" if event == 1 else "one")


@every("model", ROUTES)
def test_a_conversation_that_goes_on(both: Both, model: str) -> None:
    """It has what was said, called and answered; a branch and a second try have it too."""
    both.forget()
    both.continued(body_of(model, f"Begin {model}."))
    for number in range(8):
        last = len(both.knowing.ids) - 1
        said = f"Go on {number}." + " Call!" * (number == 3)
        seen = both.continued(body_of(model, said, previous_response_id=f"@{last}@"))
        assert seen.status == b"200"
        assert seen.asked[0].count(b"Go on ") == number + 1
        assert seen.asked[0].count(b"Begin ") == 1
    for previous in (2, 2, last, last):
        seen = both.continued(body_of(model, "Again.", previous_response_id=f"@{previous}@"))
        assert seen.status == b"200"


def test_a_deleted_turn_ends_the_conversation(both: Both) -> None:
    both.forget()
    both.continued(body_of("prompt", "One."))
    for number in range(3):
        both.continued(body_of("prompt", "More.", previous_response_id=f"@{number}@"))
    assert both.delete(1) == b"200"
    for number, status in ((3, b"400"), (2, b"400"), (1, b"400"), (0, b"200")):
        seen = both.continued(body_of("prompt", "More.", previous_response_id=f"@{number}@"))
        assert seen.status == status
        assert ("continues a response that was deleted" in str(seen.answer)) == (number > 1)


def test_a_turn_costs_what_is_new() -> None:
    """Each earlier turn costs few calls of functions: whether the store still has it, and its messages."""
    few, many = (
        calls_of(Work(f"{turns}", 10, stream=True, frames=3, turns=turns, api="responses", by_id=True))
        for turns in (10, 50)
    )
    assert many < few + 2 * 40
