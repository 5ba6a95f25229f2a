"""Clients whose model goes round in circles (R15.11)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cases import every
from toolwire.configuration.settings import load
from toolwire.testing import WireAnswer, run_chain

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def history(*turns: Sequence[tuple[str, str]]) -> list[Any]:
    """A conversation in which the model made these calls, one list a turn."""
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    for number, calls in enumerate(turns):
        ids = [f"call_{number}_{index}" for index in range(len(calls))]
        made = [
            {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
            for ident, (name, arguments) in zip(ids, calls, strict=True)
        ]
        messages.append(
            {"role": "assistant", "content": None if made else "so", **({"tool_calls": made} if made else {})}
        )
        messages += [{"role": "tool", "tool_call_id": ident, "content": "a tree"} for ident in ids]
    return messages


async def ask(messages: list[Any], **sections: Any) -> WireAnswer:
    config = load(None, env={}, overrides={"backends": {"m": {"kind": "mock"}}, **sections})
    return await run_chain(config, {"messages": messages, "tools": [LOOK]}, replies=["fine"])


A, B = ("look", '{"x": 1, "y": 2}'), ("look", '{"y":2,"x":1}')
OTHER = ("look", '{"x": 3}')
LOOPS: dict[str, tuple[list[Any], bool]] = {
    "three times": ([[A], [A], [A]], True),
    "spelled otherwise": ([[A], [B], [A]], True),
    "beside others": ([[A, OTHER], [A], [OTHER, B]], True),
    "more than three times": ([[OTHER], [A], [A], [A]], True),
    "twice": ([[A], [A]], False),
    "with another one between": ([[A], [OTHER], [A], [A]], False),
    "with a text between": ([[A], [], [A], [A]], False),
    "other names": ([[A], [("lock", A[1])], [A]], False),
    "no JSON, but the same": ([[("look", "{")], [("look", "{")], [("look", "{")]], True),
    "nested too deep, but the same": ([[("look", "[" * 100_000)]] * 3, True),
    "no calls": ([[], [], []], False),
}


@every(("turns", "loops"), LOOPS.values())
async def test_what_a_loop_is(turns: list[Any], loops: bool) -> None:
    answer = await ask(history(*turns), defaults={"loop_detect": {"repeats": 3}})
    assert answer.status == 200
    shown = json.dumps([message.text for message in answer.requests[0].messages])
    assert ("3 times in a row" in shown) is loops
    if loops:
        assert answer.requests[0].messages[-1].role == "user"


async def test_a_loop_may_be_an_error() -> None:
    options = {"loop_detect": {"repeats": 2, "policy": "fail"}}
    answer = await ask(history([A], [A]), defaults=options)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "tool_loop_detected")
    assert answer.requests == ()
    assert (await ask(history([A], [OTHER]), defaults=options)).status == 200


async def test_it_is_off_by_default() -> None:
    answer = await ask(history(*[[A]] * 20))
    assert "in a row" not in json.dumps([message.text for message in answer.requests[0].messages])


@pytest.mark.parametrize(("most", "fine"), [(3, True), (2, False)])
async def test_a_cap_on_calls_in_a_conversation(most: int, fine: bool) -> None:
    answer = await ask(history([A, OTHER], [A]), limits={"calls_per_conversation": most})
    assert (answer.status == 200) is fine
    if not fine:
        assert answer.json()["error"]["code"] == "too_many_tool_calls"
