"""The typed tool API (R4): every value survives encode and decode; what is wrong is named with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.protocols.published import validator
from tests.strategies import arguments, call_ids, json_objects, names, some_text, texts
from toolwire.model import ToolUse
from toolwire.openai_types import (
    ChatRequest,
    ChatResponse,
    Choice,
    DecodeError,
    Delta,
    FunctionDefinition,
    Message,
    ToolCall,
    ToolCallAccumulator,
    ToolCallDelta,
    ToolCallFunction,
    ToolCallFunctionDelta,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolResultContent,
    Usage,
    decode,
    encode,
)
from toolwire.protocols.chat.protocol import ChatProtocol

maybe_text = st.none() | texts
functions = st.builds(FunctionDefinition, names, maybe_text, st.none() | json_objects, st.none() | st.booleans())
definitions = st.builds(ToolDefinition, functions)
choices_of_tool = st.sampled_from(["auto", "none", "required"]).map(ToolChoice) | names.map(ToolChoice.function)
call_functions = st.builds(ToolCallFunction, names, arguments | json_objects)
calls = st.builds(ToolCall, call_ids, call_functions)
json_values = json_objects | st.lists(st.integers(0, 9)) | st.none() | st.booleans() | st.integers(-9, 9) | texts
contents = texts.map(ToolResultContent.text) | json_values.map(ToolResultContent.json)
results = st.builds(ToolResult, call_ids, contents)
part_lists = st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), min_size=1, max_size=2).map(tuple)
messages = st.builds(
    Message,
    st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    st.none() | texts | part_lists,
    st.none() | names,
    st.lists(calls, max_size=2).map(tuple),
    st.none() | call_ids,
    maybe_text,
)
usages = st.builds(Usage, st.integers(0, 99), st.integers(0, 99))
numbers = st.none() | st.floats(0, 1)
extras = st.dictionaries(names.map(lambda name: f"x_{name}"), json_objects, max_size=2)
chat_requests = st.builds(
    ChatRequest,
    names,
    st.lists(messages, max_size=3).map(tuple),
    st.lists(definitions, max_size=2).map(tuple),
    st.none() | choices_of_tool,
    st.none() | st.booleans(),
    st.none() | st.booleans(),
    numbers,
    numbers,
    st.none() | st.integers(1, 99),
    extras,
)
reasons = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
function_deltas = st.builds(ToolCallFunctionDelta, st.none() | names, maybe_text)
call_deltas = st.builds(
    ToolCallDelta,
    st.none() | st.integers(0, 3),
    st.none() | call_ids,
    st.none() | st.just("function"),
    st.none() | function_deltas,
)
deltas = st.builds(
    Delta, st.none() | st.just("assistant"), maybe_text, st.lists(call_deltas, max_size=2).map(tuple), maybe_text
)
answers = st.builds(
    Message, st.just("assistant"), maybe_text, tool_calls=st.lists(calls, max_size=2).map(tuple), refusal=maybe_text
)
whole_choices = st.builds(Choice, st.integers(0, 2), message=answers, finish_reason=reasons)
delta_choices = st.builds(Choice, st.integers(0, 2), delta=deltas, finish_reason=st.none() | reasons)
responses = st.builds(
    ChatResponse,
    some_text,
    names,
    st.integers(0, 2**31),
    st.lists(whole_choices, min_size=1, max_size=2).map(tuple),
    st.none() | usages,
)
VALUES = st.one_of(
    functions, definitions, choices_of_tool, call_functions, calls, contents, results, messages, usages, chat_requests,
    function_deltas, call_deltas, deltas, whole_choices, delta_choices, responses,
)  # fmt: skip


@given(VALUES)
def test_decode_after_encode_is_identity(value: Any) -> None:
    wire = encode(value)
    assert decode(type(value), json.loads(json.dumps(wire))) == value
    assert type(value).decode(json.dumps(wire).encode()) == value
    if not isinstance(value, ToolResultContent):  # a str is itself a text result
        assert type(value).decode(json.dumps(wire)) == value


@examples(0.5)
@given(responses)
def test_answers_are_valid_by_the_published_schema(value: ChatResponse) -> None:
    validator("CreateChatCompletionResponse").validate(value.encode())


@pytest.mark.parametrize(
    "wire", ["auto", "none", "required", '"auto"', b'"none"', {"type": "function", "function": {"name": "f"}}]
)
def test_tool_choice_forms(wire: Any) -> None:
    choice = ToolChoice.decode(wire)
    assert ToolChoice.decode(choice.encode()) == choice


@every(
    "wire",
    [
        "always",
        "AUTO",
        "",
        None,
        1,
        [],
        {},
        {"type": "function"},
        {"type": "function", "name": "f"},
        {"type": "auto"},
        {"type": "function", "function": {"name": "f", "x": 1}},
        {"type": "function", "function": {"name": "f"}, "x": 1},
    ],
)
def test_tool_choice_refuses_all_else(wire: Any) -> None:
    with pytest.raises(ValueError, match="ToolChoice: expected"):
        ToolChoice.decode(wire)


def test_a_tool_choice_has_a_name_only_for_a_function() -> None:
    with pytest.raises(ValueError, match="name"):
        ToolChoice("function")
    with pytest.raises(ValueError, match="name"):
        ToolChoice("auto", "f")


def test_arguments() -> None:
    raw = ToolCallFunction("f", '{"x": 1.50}')
    assert raw.arguments == '{"x": 1.50}'
    assert raw.arguments_json() == {"x": 1.5}
    assert raw.arguments_json() is raw.arguments_json()
    assert ToolCallFunction("f", {"x": ["ü"]}).arguments == '{"x":["ü"]}'
    assert ToolCallFunction("f", [1]).arguments == "[1]"
    with pytest.raises(ValueError):
        ToolCallFunction("f", "{oops").arguments_json()


def test_results() -> None:
    text, value = ToolResultContent.text('{"a":1}'), ToolResultContent.json({"a": [1, "ü"]})
    assert (encode(text), encode(value)) == ('{"a":1}', {"a": [1, "ü"]})
    assert (text.chat_text, value.chat_text) == ('{"a":1}', '{"a":[1,"ü"]}')
    assert ToolResult("c", value).message().encode() == {
        "role": "tool",
        "content": '{"a":[1,"ü"]}',
        "tool_call_id": "c",
    }
    with pytest.raises(ValueError):
        ToolResultContent("json", "x")


@every(
    ("cls", "wire", "path"),
    [
        (ToolDefinition, {"type": "function", "function": {"name": 1}}, "ToolDefinition.function.name"),
        (ToolDefinition, {"type": "magic"}, "ToolDefinition.type"),
        (ToolCall, {"id": "c", "type": "function"}, "ToolCall.function"),
        (ToolCall, "{oops", "ToolCall"),
        (Message, {"role": "boss"}, "Message.role"),
        (Message, {"role": "user", "content": 1}, "Message.content"),
        (ChatRequest, {"model": "m"}, "ChatRequest.messages"),
        (ChatRequest, {"model": "m", "messages": [{"role": "user"}], "temperature": True}, "ChatRequest.temperature"),
        (ChatRequest, {"model": "m", "messages": [{"role": "user"}, 3]}, "ChatRequest.messages[1]"),
        (ChatResponse, {"id": "x", "model": "m", "created": 1, "choices": [{"index": 0}]}, "ChatResponse.choices[0]"),
        (ToolResult, {"tool_call_id": "c"}, "ToolResult.content"),
        (Usage, [], "Usage"),
    ],
)
def test_errors_name_the_path(cls: Any, wire: Any, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(cls, wire)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: expected ")


def test_a_choice_is_whole_or_streamed() -> None:
    with pytest.raises(ValueError):
        Choice(0)


@given(calls)
def test_a_call_in_the_model_and_back(call: ToolCall) -> None:
    assert ToolCall.from_model(call.to_model()) == call


def test_custom_calls_have_no_arguments() -> None:
    with pytest.raises(ValueError, match="custom"):
        ToolCall.from_model(ToolUse("c", "patch", "raw", "custom"))


@examples(0.5)
@given(chat_requests)
def test_the_gateway_reads_what_this_api_writes(request: ChatRequest) -> None:
    """Where a request is valid at all: one user message in front, answers with something in them."""
    wire = ChatRequest(request.model, (Message("user", "hi"),), request.tools, extra=request.extra).encode()
    got = ChatProtocol().read_request(wire, b"")
    assert [tool.name for tool in got.tools] == [tool.function.name for tool in request.tools]
    assert got.extra == request.extra


# --- accumulator ----------------------------------------------------------------------------------------------------


def delta(
    index: int | None, call_id: str | None = None, name: str | None = None, text: str | None = None
) -> ToolCallDelta:
    return ToolCallDelta(index, call_id, None, ToolCallFunctionDelta(name, text))


def accumulate(*chunks: list[ToolCallDelta]) -> list[tuple[str, str, str]]:
    accumulator = ToolCallAccumulator()
    for chunk in chunks:
        accumulator.add(chunk)
    return [(call.id, call.function.name, call.function.arguments) for call in accumulator.calls()]


def test_fragments_in_index_order() -> None:
    assert accumulate([delta(1, "b", "g")], [delta(0, "a", "f", '{"x"')], [delta(0, None, None, ":1}")]) == [
        ("a", "f", '{"x":1}'),
        ("b", "g", "{}"),
    ]
