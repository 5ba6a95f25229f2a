"""Conversations that come again are known, and nobody can tell by what is sent (R34.2)."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.budget import calls as calls_of
from bench.inprocess import Work
from tests.cases import every, examples, first_and_in_turn
from tests.e2e.known import PATHS, ROUTES, Both, body_of, both
from tests.protocols.published import SHARED

__all__ = ["both"]

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d" * 100, "parameters": {"type": "object"}}}
    for name in ("read", "write")
]
CALL_IDS = ["a", "b", "call_1", "call_1--2", ""]
texts = st.sampled_from(
    ["", "Hi", "<tool_call>", "\\<tool_call>", '{"name":"read"}', "é\U0001f600", "</think>", "[function_call", "a\\", "x" * 300]
)  # fmt: skip
arguments = st.sampled_from(["{}", '{"a":1}', "", "no JSON", '{"a":"</tool_call>\\u003c"}', "[1]", '{"a":1e400}'])
calls = st.builds(
    lambda ident, name, args: {"id": ident, "type": "function", "function": {"name": name, "arguments": args}},
    st.sampled_from(CALL_IDS),
    st.sampled_from(["read", "write", "gone"]),
    arguments,
)
parts = st.sampled_from(
    [
        {"type": "text", "text": "A part"},
        {"type": "text", "text": "", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}},
        {"type": "unheard_of", "x": 1},
    ]
)
contents = texts | st.lists(parts, max_size=3)
extras = st.sampled_from([{}, {}, {}, {"x": 1}, {"x": 1.0}, {"x": True}, {"name": "bob"}, {"reasoning_content": "Hm"}])
messages = st.one_of(
    st.builds(lambda role, text, more: {"role": role, "content": text, **more}, st.sampled_from(["user", "system", "developer", "assistant"]), contents, extras),
    st.builds(lambda text, uses, more: {"role": "assistant", "content": text, "tool_calls": uses, **more}, texts, st.lists(calls, min_size=1, max_size=3), extras),
    st.builds(lambda ident, text, more: {"role": "tool", "tool_call_id": ident, "content": text, **more}, st.sampled_from(CALL_IDS), contents, extras),
    st.sampled_from([{"role": "nobody", "content": "x"}, {"role": "user"}, "no message", {"role": "function", "name": "read", "content": "1"}]),
)  # fmt: skip
good = st.integers(0, 40).map(
    lambda n: [
        {"role": "assistant", "content": f"I look {n}.", "tool_calls": [{"id": f"id{n}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"a": n})}}]},
        {"role": "tool", "tool_call_id": f"id{n}", "content": f"line {n}\n<tool_response>"},
        {"role": "user", "content": f"Go on {n}"},
    ]
)  # fmt: skip
tails = st.lists(good | messages.map(lambda one: [one]), min_size=1, max_size=3).map(
    lambda turns: list(chain.from_iterable(turns))
)
steps = st.tuples(st.integers(0, 12), tails, st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from(["one", "one", "two"]))


@every("model, api", first_and_in_turn(["prompt", "bracket", "kimi", "qwen", "native", "to_messages_native"], PATHS))
def test_a_result_that_comes_late_goes_to_its_call(both: Both, api: str, model: str) -> None:
    """Its call was written in the request before, without it."""
    call, result = good_turn(7)
    said = [{"role": "user", "content": f"Late {model}."}, call, {"role": "user", "content": "Wait."}]
    for more in ([], [{"role": "user", "content": "Still there?"}], [result], [{"role": "user", "content": "So?"}]):
        said += more
        both.same(api, body_of(api, model, said, TOOLS))


@examples(0.5)
@given(
    api=st.sampled_from(["chat", "messages", "responses"]),
    model=st.sampled_from(list(ROUTES)),
    other=st.sampled_from(list(ROUTES)),
    first=tails,
    several=st.lists(steps, min_size=1, max_size=5),
)
def test_law_with_and_without_what_is_known_the_same_is_sent(
    both: Both, api: str, model: str, other: str, first: list[Any], several: list[tuple[int, list[Any], int, str]]
) -> None:
    """For every cut, for edited histories, late results, other tools, other owners, other routes."""
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look."}, *first]
    both.same(api, body_of(api, model, said, TOOLS))
    for number, (back, tail, change, key) in enumerate(several):
        said = [*said[: max(0, len(said) - back)], *tail]
        both.same(api, body_of(api, other if change == 1 else model, said, TOOLS[:change], number), key)


@every("model, api", first_and_in_turn(ROUTES, PATHS))
def test_a_conversation_that_goes_on_is_known(both: Both, api: str, model: str) -> None:
    """Also with its instructions only, or with blanks in other places."""
    said: list[Any] = [{"role": "system", "content": f"Be {model}."}, {"role": "user", "content": "Look."}]
    for number in range(4):
        seen = both.same(api, body_of(api, model, said, TOOLS, number))
        assert seen.asked, seen
        said += good_turn(number)
    both.same(api, body_of(api, model, said[:2], TOOLS))
    both.same(api, json.dumps(json.loads(body_of(api, model, said, TOOLS)), indent=1).encode())


@every("api, mode", [("messages", "native"), ("responses", "prompt")])
def test_a_turn_costs_what_is_new(api: Any, mode: str) -> None:
    """R34.1, R34.4: as many functions of the gateway are called for the 60th message as for the 30th. `bench.budget`
    counts more kinds of them."""
    few, many = (
        calls_of(Work(f"{turns}", 10, stream=True, frames=3, turns=turns, api=api, mode=mode, store=False))
        for turns in (30, 60)
    )
    assert many < 1.02 * few


def good_turn(number: int) -> list[Any]:
    """An assistant that calls, and the result."""
    use = {"id": f"id{number}", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}
    return [
        {"role": "assistant", "content": "So:", "tool_calls": [use]},
        {"role": "tool", "tool_call_id": use["id"], "content": f"{number} <tool_call>"},
    ]


RECORDED = {
    "chat": ["opencode", "continue", "agents_py", "openai_py", "llm", "vercel_ai", "aider"],
    "messages": ["claude", "claude/thinking", "claude/two_calls", "anthropic_py"],
    "responses": ["codex", "codex/two_calls", "codex_default"],
}


@pytest.mark.parametrize(("api", "folder"), [(api, folder) for api, folders in RECORDED.items() for folder in folders])
def test_law_of_recorded_conversations_with_every_cut(both: Both, api: str, folder: str) -> None:
    """Every beginning of every request, before and after the whole."""
    field = "input" if api == "responses" else "messages"
    bodies = [json.loads(path.read_bytes()) for path in sorted((SHARED / "captures" / folder).glob("request-*.json"))]
    bodies = [body for body in bodies if isinstance(body.get(field), list)]
    if not bodies:
        pytest.skip(f"no such captures at {SHARED}; set TOOLWIRE_SHARED")
    for number, recorded in enumerate(bodies):
        body = {**recorded, "model": ("prompt", "native")[number % 2], "stream": False}
        body.pop("stream_options", None)
        for cut in (*range(1, len(body[field]) + 1), 1):
            part = {**body, field: body[field][:cut]}
            both.same(api, json.dumps(part, ensure_ascii=False).encode())
