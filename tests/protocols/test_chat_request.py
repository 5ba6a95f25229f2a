"""Requests: every row of R2, both shapes of R3.1, recorded clients, and reading what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from tests.cases import every
from tests.protocols.wires import CHAT
from toolwire.errors import ClientFault
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Origin,
    Reasoning,
    Refusal,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.shared.request_schema import _compiled

USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **fields}


def read(value: dict[str, Any]) -> ModelRequest:
    return CHAT.read_request(value, b"raw")


def messages(*items: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [USER, *items]}


def called(calls: Any) -> dict[str, Any]:
    return messages({"role": "assistant", "tool_calls": calls})


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return messages({"role": "user", "content": content, **fields})


def result(message: dict[str, Any]) -> dict[str, Any]:
    return messages({"role": "tool", **message})


def nested(function: Any) -> dict[str, Any]:
    return body(tools=[{"type": "function", "function": function}])


def choosing(choice: Any) -> dict[str, Any]:
    return body(tools=[TOOL], tool_choice=choice)


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"
BAD_ID, BAD_CHOICE, BAD_TOOL = "invalid_tool_call_id", "invalid_tool_choice", "invalid_tool_schema"
CONTENT, CALLS = "messages[1].content", "messages[1].tool_calls"
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("R2.2 absent", {"messages": [USER]}, MISSING, "model"),
    ("R2.2 null", body(model=None), MISSING, "model"),
    ("R2.2 type", body(model=3), TYPE, "model"),
    ("R2.2 empty", body(model=""), VALUE, "model"),
    ("R2.3 absent", {"model": "m"}, MISSING, "messages"),
    ("R2.3 null", body(messages=None), MISSING, "messages"),
    ("R2.3 type", body(messages="hi"), TYPE, "messages"),
    ("R2.3 empty", body(messages=[]), VALUE, "messages"),
    ("R2.3 item", messages("hi"), TYPE, "messages[1]"),  # type: ignore[arg-type]  # wrong on purpose
    ("R2.4 absent", messages({"content": "x"}), MISSING, "messages[1].role"),
    ("R2.4 unknown", messages({"role": "boss", "content": "x"}), VALUE, "messages[1].role"),
    ("R2.4 type", messages({"role": 1, "content": "x"}), TYPE, "messages[1].role"),
    ("R2.5 user", messages({"role": "user"}), MISSING, CONTENT),
    ("R2.5 null", messages({"role": "system", "content": None}), MISSING, CONTENT),
    ("R2.5 assistant", messages({"role": "assistant", "content": None}), MISSING, CONTENT),
    ("R2.5 empty calls", called([]), MISSING, CONTENT),
    ("C15", result({"tool_call_id": "c", "content": None}), MISSING, CONTENT),
    ("R2.5 type", user(1), TYPE, CONTENT),
    ("R2.5 part", user(["x"]), TYPE, f"{CONTENT}[0]"),
    ("R2.5 part type", user([{}]), MISSING, f"{CONTENT}[0].type"),
    ("R2.5 text", user([{"type": "text"}]), MISSING, f"{CONTENT}[0].text"),
    ("R2.5 image", user([{"type": "image_url", "image_url": {"url": 1}}]), TYPE, f"{CONTENT}[0].image_url.url"),
    ("R2.6 role", user("x", tool_calls=[CALL]), VALUE, CALLS),
    ("R2.6 type", called({}), TYPE, CALLS),
    ("R2.6 call type", called([{**CALL, "type": "magic"}]), VALUE, f"{CALLS}[0].type"),
    ("R2.6 no call type", called([{"id": "c", "function": CALL["function"]}]), MISSING, f"{CALLS}[0].type"),
    ("R2.6 function", called([CALL, {"id": "c", "type": "function"}]), MISSING, f"{CALLS}[1].function"),
    ("R2.6 arguments", called([{**CALL, "function": {"name": "f", "arguments": {}}}]), TYPE, f"{CALLS}[0].function.arguments"),
    ("R2.7 absent", called([{"type": "function", "function": CALL["function"]}]), BAD_ID, f"{CALLS}[0].id"),
    ("R2.7 empty", called([{**CALL, "id": ""}]), BAD_ID, f"{CALLS}[0].id"),
    ("R2.8 absent", result({"content": "x"}), BAD_ID, "messages[1].tool_call_id"),
    ("R2.8 type", result({"tool_call_id": 1, "content": "x"}), BAD_ID, "messages[1].tool_call_id"),
    ("R2.8 elsewhere", user("x", tool_call_id="c"), BAD_ID, "messages[1].tool_call_id"),
    ("R2.10", user("x", name=1), TYPE, "messages[1].name"),
    ("R2.11", body(stream="yes"), TYPE, "stream"),
    ("R2.12 C16", body(stream_options={"include_usage": True}), VALUE, "stream_options"),
    ("R2.12 C16 false", body(stream=False, stream_options={}), VALUE, "stream_options"),
    ("R2.12 type", body(stream=True, stream_options=[]), TYPE, "stream_options"),
    ("R2.12 field", body(stream=True, stream_options={"include_usage": 1}), TYPE, "stream_options.include_usage"),
    ("R2.13", body(max_tokens=0), VALUE, "max_tokens"),
    ("R2.13 type", body(max_tokens="9"), TYPE, "max_tokens"),
    ("R2.13 new", body(max_completion_tokens=-1), VALUE, "max_completion_tokens"),
    ("R2.14 high", body(temperature=2.1), VALUE, "temperature"),
    ("R2.14 low", body(temperature=-0.1), VALUE, "temperature"),
    ("R2.14 type", body(temperature=True), TYPE, "temperature"),
    ("R2.15", body(top_p=1.5), VALUE, "top_p"),
    ("R2.16 many", body(stop=["a"] * 5), VALUE, "stop"),
    ("R2.16 none", body(stop=[]), VALUE, "stop"),
    ("R2.16 type", body(stop=[1]), TYPE, "stop[0]"),
    ("R2.17 type", body(tools={}), BAD_TOOL, "tools"),
    ("R2.17 item", body(tools=["f"]), BAD_TOOL, "tools[0]"),
    ("R3.1 no type", body(tools=[{"function": {"name": "f"}}]), BAD_TOOL, "tools[0].type"),
    ("R3.1 no name", nested({}), BAD_TOOL, "tools[0].function.name"),
    ("R3.1 flat no name", body(tools=[{"type": "function"}]), BAD_TOOL, "tools[0].name"),
    ("R3.2", body(tools=[TOOL, {"type": "function", "name": 1}]), BAD_TOOL, "tools[1].name"),
    ("R3.3", nested({"name": "f", "description": 1}), BAD_TOOL, "tools[0].function.description"),
    ("R3.4", nested({"name": "f", "parameters": []}), BAD_TOOL, "tools[0].function.parameters"),
    ("R3.5", nested({"name": "f", "strict": "yes"}), BAD_TOOL, "tools[0].function.strict"),
    ("R2.18 word", choosing("always"), BAD_CHOICE, "tool_choice"),
    ("R2.18 type", choosing(1), BAD_CHOICE, "tool_choice"),
    ("R2.18 form", choosing({"type": "function"}), BAD_CHOICE, "tool_choice"),
    ("R2.18 allowed", choosing(allowed("none")), BAD_CHOICE, "tool_choice"),
    ("R2.18 allowed item", choosing(allowed("auto", {})), BAD_CHOICE, "tool_choice"),
    ("R2.19", body(parallel_tool_calls="no"), TYPE, "parallel_tool_calls"),
    ("R2.20", body(reasoning_effort=3), TYPE, "reasoning_effort"),
    ("R2.21", body(n=0), VALUE, "n"),
    ("R2.22", body(response_format="json"), TYPE, "response_format"),
    ("R2.22 type", body(response_format={}), MISSING, "response_format.type"),
]  # fmt: skip


@every(("value", "code", "param"), [row[1:] for row in BAD])
def test_bad_requests(value: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ClientFault) as caught:
        read(value)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, code, param)
    assert error.type == "invalid_request_error"
    assert param.split(".")[0].split("[")[0] in error.message
    assert "data." not in error.message


def test_the_message_names_the_value_shortened_and_what_was_expected() -> None:
    with pytest.raises(ClientFault) as caught:
        read(body(temperature="x" * 5000))
    assert "expected a number or null" in caught.value.message
    assert "xxx" in caught.value.message
    assert len(caught.value.message) < 300
    with pytest.raises(ClientFault, match='one of "system", "developer"'):
        read(messages({"role": "boss", "content": "x"}))


def test_null_is_absent() -> None:
    nulls = (
        "stream stream_options max_tokens max_completion_tokens temperature top_p stop tools tool_choice n seed"
        " parallel_tool_calls reasoning_effort response_format logprobs functions function_call user"
    )
    assert read(body(**dict.fromkeys(nulls.split()))) == read(body())


def test_defaults() -> None:
    plain = read(body())
    assert plain.tool_choice == ToolChoice("none")
    assert read(body(tools=[])).tool_choice == ToolChoice("none")
    assert read(body(tools=[TOOL])).tool_choice == ToolChoice("auto")
    assert (plain.stream, plain.include_usage, plain.parallel_tool_calls) == (False, False, True)
    assert plain.sampling == Sampling()
    assert plain.origin == Origin("chat", b"raw")


def test_sampling() -> None:
    got = read(
        body(
            max_tokens=5, max_completion_tokens=7, temperature=2, top_p=0, stop="x", n=2, seed=1, reasoning_effort="any"
        )
    ).sampling
    assert got == Sampling(temperature=2, top_p=0, max_tokens=7, stop=("x",), n=2, seed=1, reasoning_effort="any")
    assert read(body(max_tokens=5.0)).sampling.max_tokens == 5


@pytest.mark.parametrize(
    "form", [{"type": kind, "schema": {"type": "object"}} for kind in ("json_object", "json_schema")]
)
def test_a_flat_schema_of_the_answer_is_one(form: dict[str, Any]) -> None:
    """As clients of llama.cpp and Together send it."""
    nested = {"name": "answer", "schema": {"type": "object"}}
    assert read(body(response_format=form)).response_format == {"type": "json_schema", "json_schema": nested}


@every(
    "tool",
    [
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}},
        {
            "type": "function",
            "name": "f",
            "strict": True,
            "description": None,
            "function": {"name": "g", "description": "d", "parameters": {"type": "object"}, "strict": False},
        },
    ],
)  # fmt: skip
def test_tool_shapes(tool: dict[str, Any]) -> None:
    (got,) = read(body(tools=[tool])).tools
    assert got == ToolSpec("f", "d", {"type": "object"}, True, extra={"chat": tool})


def test_other_tool_types_are_never_refused() -> None:
    hosted = {"type": "web_search", "name": 5, "parameters": "odd"}
    custom = {"type": "custom", "custom": {"name": "patch", "description": "d", "format": {"type": "text"}}}
    got = read(body(tools=[hosted, custom, {"type": "mcp", "server_label": "files"}]))
    assert [(tool.kind, tool.name) for tool in got.tools] == [
        ("hosted", "web_search"),
        ("custom", "patch"),
        ("hosted", "files"),
    ]
    assert CHAT.write_request(got)["tools"] == [hosted, custom, {"type": "mcp", "server_label": "files"}]


@every(
    ("wire", "choice"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f")),
        ({"type": "custom", "custom": {"name": "f"}}, ToolChoice("named", "f")),
        (allowed("required", TOOL, {"type": "function", "name": "g"}, {"type": "mcp"}), ToolChoice("required", allowed=("f", "g"))),
    ],
)  # fmt: skip
def test_tool_choice(wire: Any, choice: ToolChoice) -> None:
    assert read(choosing(wire)).tool_choice == choice


def test_content_parts() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "text", "text": ""},
        {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "x"}},
        {"type": "input_text", "text": "more"},
    ]
    got = read(messages({"role": "user", "content": parts})).messages[1].parts
    assert got == (Text("see"), Image("data:,x", "low"), OpaquePart("chat", parts[3]), Text("more"))
    assert read(messages({"role": "tool", "tool_call_id": "c", "content": ""})).messages[1].parts == (
        ToolResult("c", ()),
    )
    assert read(messages({"role": "assistant", "content": "", "tool_calls": []})).messages[1].parts == ()


def test_the_deprecated_form_is_translated() -> None:
    got = read(
        {
            "model": "m",
            "messages": [
                USER,
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "ok"},
            ],
            "functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
            "function_call": {"name": "f"},
        }
    )
    (use,), (result,) = got.messages[1].parts, got.messages[2].parts
    assert isinstance(use, ToolUse)
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name, result.parts) == (use.call_id, "f", (Text("ok"),))
    assert got.tools[0].name == "f"
    assert got.tool_choice == ToolChoice("named", "f")


# --- write then read ------------------------------------------------------------------------------------------------

OPAQUE = OpaquePart("chat", {"type": "input_audio", "input_audio": {"data": "x"}})
CONTENTS = (Text("a"), Text("b"), Image("u"), OPAQUE, Image("v", "low"))
SAID = (Reasoning("hm"), *CONTENTS[1:4], Refusal("no"), ToolUse("c1", "f", "{}"), ToolUse("c2", "p", "raw", "custom"))
"""All that an assistant may say, in the order in which it is read."""


def written_and_read(request: ModelRequest) -> ModelRequest:
    wire = json.loads(json.dumps(CHAT.write_request(request)))
    got = read(wire)
    assert [tool.received for tool in got.tools] == wire.get("tools", [])
    return replace(got, tools=tuple(replace(tool, extra={}) for tool in got.tools), origin=None)


@every("parts", [parts for size in range(len(SAID) + 1) for parts in combinations(SAID, size)])
def test_messages_are_read_as_they_were_written(parts: tuple[Any, ...]) -> None:
    """Any of the parts that an assistant may say, and contents of every length."""
    contents = CONTENTS[len(parts) % 6 :]
    others = [Message(role, contents, "me", {"chat": {"x_a": 1}}) for role in ("system", "developer", "user")]
    uses = [part for part in parts if isinstance(part, ToolUse)]
    results = [Message("tool", (ToolResult(use.call_id, contents, use.name, kind=use.kind),)) for use in uses]
    asked = ModelRequest("m", (*others, Message("assistant", parts), *results), tool_choice=ToolChoice("none"))
    assert written_and_read(asked) == asked


SAMPLING: dict[str, Any] = {
    "temperature": 1.5,
    "top_p": 0.5,
    "max_tokens": 7,
    "stop": ("a", "b"),
    "seed": -5,
    "n": 2,
    "top_k": -1,
    "presence_penalty": 1,
    "frequency_penalty": -1,
    "reasoning_effort": "any",
}
TOOLS = (ToolSpec("f"), ToolSpec("g", "", {"type": "object"}, True), ToolSpec("h", "d", {}, False))
CHOSEN = (*map(ToolChoice, ("auto", "none", "required")), ToolChoice("named", "g"), ToolChoice(allowed=()))


@every(
    "fields",
    [
        *({"sampling": Sampling(**{name: value})} for name, value in SAMPLING.items()),
        {"sampling": Sampling(**SAMPLING)},
        *({"tools": TOOLS, "tool_choice": choice} for choice in CHOSEN),
        {"tools": TOOLS, "tool_choice": ToolChoice("required", allowed=("f", "h")), "parallel_tool_calls": False},
        {"response_format": {"type": "json_object"}},
        *({"stream": True, "include_usage": flag, "extra": {"x_a": {"b": 1}}} for flag in (True, False)),
    ],
)
def test_a_request_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    asked = ModelRequest("m", (Message("user", (Text("hi"),)),), **{"tool_choice": ToolChoice("none"), **fields})
    assert written_and_read(asked) == asked


def test_results_of_other_protocols_become_tool_messages_first() -> None:
    message = Message(
        "user",
        (
            Text("and"),
            ToolResult("c", (OpaquePart("messages", {"a": [1, "ü"]}),)),
            ToolResult("d", (Text("x"), Text("y"))),
        ),
    )
    assert CHAT.write_request(ModelRequest("m", (message,)))["messages"] == [
        {"role": "tool", "tool_call_id": "c", "content": '{"a":[1,"ü"]}'},
        {
            "role": "tool",
            "tool_call_id": "d",
            "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
        },
        {"role": "user", "content": "and"},
    ]


def test_constructing_compiles_nothing() -> None:
    asked = _compiled.cache_info()
    protocol = ChatProtocol()
    assert _compiled.cache_info() == asked
    protocol.read_request(body(), b"")
    assert _compiled.cache_info() != asked
