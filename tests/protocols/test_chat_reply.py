"""Whole answers: the body of R7.1, what servers send, and reading what was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.protocols.published import validator
from tests.protocols.wires import CHAT, options
from tests.strategies import replies
from toolwire.errors import BackendFault, ClientFault, Unavailable
from toolwire.model import ModelReply, Reasoning, Refusal, ReplyChoice, Text, ToolUse, Usage


def reply(*parts: Any, reason: str = "stop", usage: Usage | None = None, **extra: Any) -> ModelReply:
    return ModelReply("chatcmpl-1", "backend-model", 9, (ReplyChoice(parts, reason),), usage, {"chat": extra})


def written(value: ModelReply) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(CHAT.write_reply(value, options()))
    return body


def answer(message: Any, **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": "x", "created": 5, "model": "b", "choices": [choice], **fields}).encode()


def test_the_whole_body() -> None:
    parts = (
        Reasoning("hm"),
        Text("Reading "),
        ToolUse("call_a", "f", '{"x": 1.0}'),
        Text("it."),
        ToolUse("call_b", "g", ""),
    )
    assert written(reply(*parts, usage=Usage(82, 17, 4, 2, 3), system_fingerprint="fp", timings={"a": 1})) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp",
        "timings": {"a": 1},
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Reading it.",
                    "refusal": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}},
                        {"id": "call_b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 82,
            "completion_tokens": 17,
            "total_tokens": 99,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }


def test_content_is_null_only_beside_calls() -> None:
    call = ToolUse("call_a", "f", "{}")
    contents = [(), (call,), (Text(" \n"), call), (Text(" \n"),), (Refusal("no"),)]
    got = [written(reply(*parts))["choices"][0]["message"] for parts in contents]
    assert [message["content"] for message in got] == ["", None, None, " \n", ""]
    assert ["tool_calls" in message for message in got] == [False, True, True, False, False]
    assert got[-1]["refusal"] == "no"


@examples(0.5)
@given(replies)
def test_every_body_is_valid_by_the_published_schema(value: ModelReply) -> None:
    validator("CreateChatCompletionResponse").validate(written(value))


def test_what_servers_send() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": "ü"}}},
            {"id": "", "function": {"name": "g"}},
            {"type": "custom", "id": "c", "custom": {"name": "patch", "input": "raw"}},
        ],
        "function_call": {"name": "h", "arguments": "{}"},
    }
    a, g, c, h = CHAT.read_reply(answer(message)).calls
    assert a == ToolUse("a", "f", '{"x":"ü"}')
    assert (g.name, g.arguments, g.call_id[:5]) == ("g", "{}", "call_")
    assert c == ToolUse("c", "patch", "raw", "custom")
    assert (h.name, h.arguments) == ("h", "{}")
    assert len({g.call_id, h.call_id}) == 2


@every(
    ("kind", "written", "made"), [("function", "", [""]), ("function", '{"a":', ['{"a":']), ("custom", "half a", [])]
)
def test_of_a_call_that_is_cut_nothing_looks_whole(kind: str, written: str, made: list[str]) -> None:
    """C18, R29.3: no `{}` instead of arguments that did not arrive, and half a text is none."""
    field = "input" if kind == "custom" else "arguments"
    message = {"content": "x", "tool_calls": [{"id": "a", "type": kind, kind: {"name": "f", field: written}}]}
    body = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    got = CHAT.read_reply(json.dumps(body).encode())
    assert ([use.arguments for use in got.calls], got.choices[0].reason) == (made, "length")


def test_error_bodies() -> None:
    for error in (ClientFault("bad", param="x"), Unavailable("full"), BackendFault("half \ud83d")):
        body = json.loads(CHAT.write_error(error, "req-1"))
        validator("ErrorResponse").validate(body)
        assert set(body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("calls", ["true", "7", '"x"', '{"a":1}'])
def test_calls_that_are_no_list_are_none(calls: str) -> None:
    body = f'{{"choices":[{{"message":{{"content":"hi","tool_calls":{calls}}}}}]}}'
    assert CHAT.read_reply(body.encode()).text == "hi"


@pytest.mark.parametrize(
    ("arguments", "made"), [([""], [""]), (['{"a":', "{}"], ["{}"]), (['{"a": 1}'], ['{"a": 1}']), (['{"a":'], None)]
)
def test_an_answer_that_does_not_say_how_it_ended(arguments: list[str], made: list[str] | None) -> None:
    """R29.2: half a call is none, and no arguments are not `{}`."""
    calls = [{"id": "a", "function": {"name": "f", "arguments": text}} for text in arguments]
    choice = {"index": 0, "message": {"content": None, "tool_calls": calls}, "finish_reason": None}
    body = json.dumps({"id": "x", "choices": [choice]}).encode()
    if made is None:
        with pytest.raises(BackendFault, match="ended inside a call"):
            CHAT.read_reply(body)
    else:
        assert [use.arguments for use in CHAT.read_reply(body).calls] == made
