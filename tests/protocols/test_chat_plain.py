"""What is plain fits the schema: the law of `proxy.protocols.chat.plain`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import PlainMessages
from proxy.protocols.chat.plain import is_plain, plain_messages
from proxy.protocols.chat.request import code_of, read_request
from proxy.protocols.chat.request_writer import write_messages
from proxy.protocols.request_schema import RequestSchema

SHAPE = RequestSchema("chat_request", code_of)
USER = {"role": "user", "content": "hi"}

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.floats(-3, 3),
    st.sampled_from(["", "a", "text", "function", "user"]),
)
VALUES = st.recursive(
    ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "id", "function", "name", "arguments", "include_usage"]), inner, max_size=4
        ),
    ),
    max_leaves=8,
)
CALLS = st.fixed_dictionaries(
    {"id": st.sampled_from(["", "c", "x" * 257, 1]), "type": st.sampled_from(["function", "custom", 1])},
    optional={"function": st.one_of(st.just({"name": "f", "arguments": "{}"}), VALUES)},
)
PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "refusal"])}, optional={"text": ODD})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "function", "robot", 1])},
    optional={
        "content": st.one_of(st.just("hi"), st.lists(PARTS, max_size=2), VALUES),
        "tool_calls": st.one_of(st.lists(CALLS, max_size=2), VALUES),
        "name": ODD,
        "refusal": ODD,
        "tool_call_id": ODD,
        "function_call": VALUES,
        "unknown": VALUES,
    },
)
FIELDS = [name for name in SHAPE.properties if name not in ("model", "messages", "tools")]
BODIES = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "", 1]), "messages": st.one_of(st.lists(MESSAGES, max_size=2), ODD)},
    optional=dict.fromkeys([*FIELDS, "unknown"], VALUES),
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "developer", "user", "assistant"]), "content": st.text(max_size=3)}
        )
        | MESSAGES
        | ODD,
        max_size=3,
    )
    | VALUES
)
def test_plain_messages_fit_and_are_read_and_written_as_all_are(messages: Any) -> None:
    read = plain_messages(messages)
    if read is None:
        return
    SHAPE.check({"model": "m", "messages": messages})
    named = [*messages, {**USER, "name": "n"}]  # so that they are read one by one
    assert plain_messages(named) is None
    several = read_request({"model": "m", "messages": named}, b"", SHAPE).messages
    assert type(read_request({"model": "m", "messages": messages}, b"", SHAPE).messages) is PlainMessages
    assert several[:-1] == read
    assert write_messages(read) == write_messages(several)[:-1]


def test_most_messages_are_plain() -> None:
    assert plain_messages([USER, {"role": "system", "content": ""}]) is not None
    assert plain_messages([]) is None
    for odd in (
        {"role": "tool", "content": "a"},
        {"role": ["user"], "content": "a"},
        {"role": "user"},
        ["role", "content"],
    ):
        assert plain_messages([USER, odd]) is None


@given(BODIES)
def test_what_is_plain_fits(body: dict[str, Any]) -> None:
    if is_plain(body):
        SHAPE.check(body)


@given(st.sampled_from(FIELDS), VALUES)
def test_each_field_alone(name: str, value: Any) -> None:
    body = {"model": "m", "messages": [USER], name: value}
    if is_plain(body):
        SHAPE.check(body)


@given(MESSAGES)
def test_each_message_alone(message: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [message]}
    if is_plain(body):
        SHAPE.check(body)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.7, "top_p": 1, "max_tokens": 100, "stop": "x", "seed": 0, "stream": False, "n": None},
        {"stream": True, "stream_options": {"include_usage": True}, "user": "u", "metadata": {"a": 1}, "tools": "any"},
        {"response_format": {"type": "json_object"}, "tool_choice": "auto", "parallel_tool_calls": False},
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "a"}]},
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ]
        },
    ],
)
def test_ordinary_requests_are_plain(more: dict[str, Any]) -> None:
    assert is_plain({"model": "m", "messages": [USER], **more})
