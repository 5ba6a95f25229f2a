"""Requests: every captured one is read, every row of R8.1 to R8.4, every fault with its path, and read(write(r)) ==
r."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from tests.protocols.published import SHARED, captured_responses_requests, validator
from tests.protocols.responses_wires import RESPONSES, input_items, request
from toolwire.errors import ClientFault
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
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
from toolwire.protocols.responses.item_writer import write_items
from toolwire.protocols.responses.items import read_items

CAPTURED = captured_responses_requests()


def of(items: Any, **body: Any) -> tuple[Message, ...]:
    return request({"model": "m", "input": items, **body}).messages


def fault(**body: Any) -> ClientFault:
    with pytest.raises(ClientFault) as raised:
        request({"model": "m", "input": "hi", **body})
    assert raised.value.status == 400
    return raised.value


# --- what real clients send -----------------------------------------------------------------------------------------


def test_there_are_captures() -> None:
    if not SHARED.exists():
        pytest.skip(f"no captures at {SHARED}; set TOOLWIRE_SHARED")
    assert len(CAPTURED) >= 30


@every("path", CAPTURED)
def test_captured_requests_are_read_and_can_be_written(path: Path) -> None:
    value = json.loads(path.read_bytes())
    body = value.get("body", value)
    got = request(body)
    assert got.extra == {}
    results = [part for message in got.messages for part in message.parts if isinstance(part, ToolResult)]
    outputs = [] if isinstance(body["input"], str) else [i for i in body["input"] if "output" in i]
    assert [result.call_id for result in results] == [item["call_id"] for item in outputs]
    listed = input_items(body, "resp_1")
    assert read_items(listed) == tuple(with_ids(got.messages, listed, "instructions" in body))
    for item in listed:
        validator("ItemResource").validate(item)


def with_ids(messages: tuple[Message, ...], listed: Any, instructed: bool) -> Any:
    """The messages with the ids that calls without one get in the list."""
    ids = {item["call_id"]: item["id"] for item in listed if item["type"] in ("function_call", "custom_tool_call")}
    for message in messages[1:] if instructed else messages:
        parts = tuple(replace(p, item_id=ids[p.call_id]) if isinstance(p, ToolUse) else p for p in message.parts)
        yield replace(message, parts=parts)


def comparable(got: ModelRequest) -> ModelRequest:
    return replace(got, origin=None, tools=tuple(replace(t, extra={}) if t.kind != "hosted" else t for t in got.tools))


# --- input ----------------------------------------------------------------------------------------------------------


@every(
    ("items", "wanted"),
    [
        ("hi", [Message("user", (Text("hi"),))]),
        ("", [Message("user", ())]),
        ([{"role": "user", "content": "hi"}], [Message("user", (Text("hi"),))]),
        ([{"type": None, "role": "user", "content": "hi"}], [Message("user", (Text("hi"),))]),
        ([{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}], [Message("system", (Text("a"),)), Message("developer", (Text("b"),))]),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}], [Message("user", (Text("a"), Image("data:x")))]),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"},
                                       {"type": "input_image", "image_url": "https://x/y", "detail": "low"}]}],
         [Message("user", (Text("a"), Image("https://x/y", "low")))]),
        ([{"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "final_answer",
           "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                       {"type": "refusal", "refusal": "b"}]}],
         [Message("assistant", (Text("a", {"responses": {"item": {"phase": "final_answer"}}}), Refusal("b")))]),
        ([{"role": "user", "content": "hi", "cache": True, "name": None}], [Message("user", (Text("hi"),), extra={"responses": {"cache": True}})]),
        ([{"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None}], []),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}],
         [Message("assistant", (Reasoning("a\n\nb", {"responses": {"summary": True}}),))]),
        ([{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
           "encrypted_content": "xyz", "status": "completed"}],
         [Message("assistant", (Reasoning("hm", {"responses": {"id": "rs_1", "encrypted_content": "xyz"}}),))]),
        ([{"type": "item_reference", "id": "msg_1"}], [Message("assistant", (OpaquePart("responses", {"type": "item_reference", "id": "msg_1"}),))]),
        ([{"type": "brand_new", "x": 1}], [Message("assistant", (OpaquePart("responses", {"type": "brand_new", "x": 1}),))]),
        ([{"type": "", "call_id": "a"}], [Message("assistant", (OpaquePart("responses", {"type": "", "call_id": "a"}),))]),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}], [Message("user", (OpaquePart("responses", {"type": "input_file", "file_id": "f"}),))]),
    ],
)  # fmt: skip
def test_input_items(items: Any, wanted: list[Message]) -> None:
    assert of(items) == tuple(wanted)


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        ("text", (Text("text"),)),
        ("", ()),
        ([], ()),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}], (Text("a"), Image("data:x"))),
        ([{"type": "output_text", "text": "a"}, {"type": "text", "text": "b"}], (Text("a"), Text("b"))),
        ([{"type": "input_file", "file_id": "f"}], (OpaquePart("responses", {"type": "input_file", "file_id": "f"}),)),
        ({"ok": True, "n": 1.50}, (Text('{"ok":true,"n":1.5}'),)),
        ([1, {"a": "b"}], (Text('[1,{"a":"b"}]'),)),
        (3, (Text("3"),)),
        (False, (Text("false"),)),
    ],
)  # fmt: skip
def test_outputs(output: Any, parts: tuple[Part, ...]) -> None:
    (message,) = of([{"type": "function_call_output", "call_id": "a", "output": output}])
    assert message == Message("tool", (ToolResult("a", parts),))


def test_input_may_be_left_out_only_after_another_response() -> None:
    assert request({"model": "m", "previous_response_id": "resp_1"}).messages == ()
    assert request({"model": "m", "previous_response_id": "resp_1", "input": []}).messages == ()
    for body in ({"model": "m"}, {"model": "m", "input": None}, {"model": "m", "input": []}):
        with pytest.raises(ClientFault) as raised:
            request(body)
        assert (raised.value.code, raised.value.param) == ("missing_required_parameter", "input")


# --- tools ----------------------------------------------------------------------------------------------------------


def test_tools_of_a_namespace_are_tools_of_their_own() -> None:
    inner = [{"type": "function", "name": "stop"}, {"type": "custom", "name": "say"}, {"type": "web_search"}]
    tools = [{"type": "namespace", "name": name, "description": "d", "tools": inner} for name in ("a", "b")]
    got = request({"model": "m", "input": "hi", "tools": [*tools, {"type": "function", "name": "stop"}]}).tools
    assert [(tool.namespace, tool.name, tool.kind) for tool in got] == [
        ("a", "stop", "function"),
        ("a", "say", "custom"),
        ("b", "stop", "function"),
        ("b", "say", "custom"),
        (None, "stop", "function"),
    ]
    assert got[0].received is inner[0]


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ({"type": "function", "name": "stop", "namespace": "b"}, ["b.stop", "b.say", "a.say"]),
        ({"type": "function", "name": "stop"}, ["a.stop", "b.stop", "b.say", "a.say"]),
        ({"type": "function", "name": "stop", "namespace": ["b"]}, ["a.stop", "b.stop", "b.say", "a.say"]),
        ({"type": "function", "name": "stop", "namespace": "c"}, ["a.stop", "b.stop", "b.say", "a.say"]),
        ({"type": "namespace", "name": "a"}, ["a.stop", "a.say"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "b"}]}, ["b.stop", "b.say"]),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "say", "namespace": "a"}]},
            ["a.stop", "b.stop", "a.say"],
        ),
    ],
)
def test_a_choice_means_the_tool_of_its_namespace(choice: Any, left: list[str]) -> None:
    def group(name: str, *inner: str) -> dict[str, Any]:
        return {"type": "namespace", "name": name, "tools": [{"type": "function", "name": one} for one in inner]}

    offer = [group("a", "stop"), group("b", "stop", "say"), group("a", "say")]
    got = request({"model": "m", "input": "hi", "tools": offer, "tool_choice": choice})
    assert [f"{tool.namespace}.{tool.name}" for tool in got.tools] == sorted(
        left, key=["a.stop", "b.stop", "b.say", "a.say"].index
    )


@pytest.mark.parametrize(
    "kind",
    ["web_search", "file_search", "mcp", "computer_use", "tool_search", "image_generation", "new"],
)
def test_hosted_tools_never_fail_and_are_kept(kind: str) -> None:
    tool = {"type": kind, "server_label": "label", "anything": [1]}
    got = request({"model": "m", "input": "hi", "tools": [tool]})
    assert (got.tools[0].kind, got.callable_tools) == ("hosted", ())
    assert RESPONSES.write_request(got)["tools"] == [tool]


CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice("auto")),
    ("auto", ToolChoice("auto")),
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    ({"type": "function", "name": "f"}, ToolChoice("named", "f")),
    ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f")),
    ({"type": "custom", "name": "p"}, ToolChoice("named", "p")),
    ({"type": "web_search"}, ToolChoice("named", "web_search")),
    ({"type": "mcp", "server_label": "s", "name": "x"}, ToolChoice("named", "s")),
    (
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}, {"type": "web_search"}],
        },
        ToolChoice("auto", allowed=("f", "p")),
    ),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        ToolChoice("required", allowed=("f",)),
    ),
    (
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "namespace", "name": "n"}, {"type": "custom", "name": "p"}],
        },
        ToolChoice("auto", allowed=("g", "h", "p")),
    ),
    ({"type": "namespace", "name": "n"}, ToolChoice("required", allowed=("g", "h"))),
]
OFFER = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "p"},
    {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}, {"type": "custom", "name": "h"}]},
    {"type": "web_search"},
    {"type": "mcp", "server_label": "s"},
]


@pytest.mark.parametrize(("choice", "wanted"), CHOICES)
def test_choices(choice: Any, wanted: ToolChoice) -> None:
    got = request({"model": "m", "input": "hi", "tools": OFFER, "tool_choice": choice})
    assert got.tool_choice == wanted
    written = RESPONSES.write_request(got)
    assert request(written).tool_choice == wanted
    if wanted.mode == "named":
        assert written["tool_choice"]["type"] == choice["type"]


@pytest.mark.parametrize(
    "choice",
    [
        "always",
        {},
        {"type": "function"},
        {"type": "function", "name": 3},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "mode": "sometimes", "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": ["f"]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
    ],
)
def test_bad_choices(choice: Any) -> None:
    error = fault(tools=OFFER, tool_choice=choice)
    assert (error.code, error.param) == ("invalid_tool_choice", "tool_choice")


# --- faults ---------------------------------------------------------------------------------------------------------

CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
USER = {"role": "user", "content": "hi"}


def without(item: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in item.items() if k != key}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"model": ""}, "invalid_value", "model"),
    ({"model": None}, "missing_required_parameter", "model"),
    ({"input": 3}, "invalid_type", "input"),
    ({"input": ["hi"]}, "invalid_type", "input[0]"),
    ({"input": [USER, {"content": "x"}]}, "missing_required_parameter", "input[1].role"),
    ({"input": [{"role": "tool", "content": "x"}]}, "invalid_value", "input[0].role"),
    ({"input": [{"role": "user"}]}, "missing_required_parameter", "input[0].content"),
    ({"input": [{"role": "user", "content": None}]}, "missing_required_parameter", "input[0].content"),
    ({"input": [{"role": "user", "content": [{}]}]}, "missing_required_parameter", "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "missing_required_parameter", "input[0].content[0].text"),
    ({"input": [{"type": "input_text", "text": 3}]}, "invalid_type", "input[0].text"),
    ({"input": [without(CALL, "call_id")]}, "missing_required_parameter", "input[0].call_id"),
    ({"input": [USER, USER, USER, {**CALL, "call_id": ""}]}, "invalid_tool_call_id", "input[3].call_id"),
    ({"input": [{**CALL, "call_id": "x" * 257}]}, "invalid_tool_call_id", "input[0].call_id"),
    ({"input": [{**CALL, "call_id": 3}]}, "invalid_tool_call_id", "input[0].call_id"),
    ({"input": [without(CALL, "name")]}, "missing_required_parameter", "input[0].name"),
    ({"input": [without(CALL, "arguments")]}, "missing_required_parameter", "input[0].arguments"),
    ({"input": [{**CALL, "arguments": {}}]}, "invalid_type", "input[0].arguments"),
    ({"input": [{"type": "custom_tool_call", "call_id": "a", "name": "p"}]}, "missing_required_parameter", "input[0].input"),
    ({"input": [CALL, without(OUTPUT, "call_id")]}, "missing_required_parameter", "input[1].call_id"),
    ({"input": [CALL, without(OUTPUT, "output")]}, "missing_required_parameter", "input[1].output"),
    ({"input": [CALL, {**OUTPUT, "output": None}]}, "missing_required_parameter", "input[1].output"),
    ({"input": [CALL, {**OUTPUT, "call_id": None}]}, "missing_required_parameter", "input[1].call_id"),
    ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "input[0].id"),
    ({"input": [{"type": "configuration_update", "reasoning": {"effort": 3}}]},
     "invalid_type", "input[0].reasoning.effort"),
    ({"input": [USER, {"type": "configuration_update", "text": 5}]}, "invalid_type", "input[1].text"),
    ({"input": [{"type": "configuration_update", "text": {"format": {"type": "json_schema", "name": "n"}}}]},
     "missing_required_parameter", "input[0].text.format.schema"),
    ({"background": True, "store": False}, "invalid_value", "background"),
    ({"stream_options": {}}, "invalid_value", "stream_options"),
    ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "invalid_value", "conversation"),
    ({"conversation": {}}, "missing_required_parameter", "conversation.id"),
    ({"conversation": 1}, "invalid_type", "conversation"),
    ({"previous_response_id": 3}, "invalid_type", "previous_response_id"),
    ({"instructions": []}, "invalid_type", "instructions"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"temperature": 2.5}, "invalid_value", "temperature"),
    ({"top_p": -1}, "invalid_value", "top_p"),
    ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata"),
    ({"metadata": {"a": "x" * 513}}, "invalid_value", "metadata.a"),
    ({"truncation": "some"}, "invalid_value", "truncation"),
    ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "missing_required_parameter", "text.format.schema"),
    ({"reasoning": "high"}, "invalid_type", "reasoning"),
    ({"tools": {}}, "invalid_tool_schema", "tools"),
    ({"tools": [{}]}, "invalid_tool_schema", "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "invalid_tool_schema", "tools[0].name"),
    ({"tools": [{"type": "function", "name": 3}]}, "invalid_tool_schema", "tools[0].name"),
    ({"tools": [{"type": "function", "function": {"description": "d"}}]}, "invalid_tool_schema", "tools[0].function.name"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "invalid_tool_schema", "tools[0].parameters"),
    ({"tools": [{"type": "namespace", "tools": []}]}, "invalid_tool_schema", "tools[0].name"),
    ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "function"}]}]}, "invalid_tool_schema", "tools[0].tools[0].name"),
]  # fmt: skip
"""What is added to a good request, the code of the fault, and where it is."""


@every(("body", "code", "param"), BAD)
def test_faults(body: dict[str, Any], code: str, param: str) -> None:
    error = fault(**body)
    assert (error.code, error.param) == (code, param)
    assert param.split("[")[0].split(".")[0] in error.message


def test_long_values_are_shortened() -> None:
    assert len(fault(input=[{"role": "x" * 9999, "content": ""}]).message) < 400


# --- as they are listed ---------------------------------------------------------------------------------------------


def test_listed_items_have_ids_that_do_not_change() -> None:
    items = [
        {"type": "input_text", "text": "a"},
        {"role": "assistant", "content": "b", "status": None},
        {"type": "reasoning", "content": []},
        CALL,
        {**OUTPUT, "output": {"a": 1}},
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "x", "id": "ctc_mine"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "y"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y"}]},
    ]
    listed = input_items({"input": items}, "resp_1")
    assert listed == input_items({"input": items}, "resp_1")
    assert listed == input_items({"input": list(listed)}, "resp_1")
    assert [item["id"].split("_")[0] for item in listed] == ["msg", "msg", "rs", "fc", "fco", "ctc", "ctco", "msg"]
    assert listed[5]["id"] == "ctc_mine"
    assert len({item["id"] for item in listed}) == len(listed)
    assert listed[0]["content"] == [{"type": "input_text", "text": "a"}]
    assert listed[1]["content"][0]["type"] == "output_text"
    assert listed[4]["output"] == '{"a":1}'
    other = input_items({"input": items}, "resp_2")
    assert {item["id"] for item in other} & {item["id"] for item in listed} == {"ctc_mine"}
    for item in listed:
        validator("ItemResource").validate(item)
    assert input_items({"input": "hi"}, "resp_1")[0]["role"] == "user"
    assert input_items({}, "resp_1") == ()


# --- what is written is read again ----------------------------------------------------------------------------------

FILE = OpaquePart("responses", {"type": "input_file", "file_id": "f"})
CONTENTS = (Text("a"), Image("u"), FILE, Image("v", "low"))
SAID: list[Part] = [
    Text("a"),
    Refusal("no"),
    Reasoning("hm"),
    Reasoning("sum", {"responses": {"summary": True}}),
    Reasoning("sealed", {"responses": {"encrypted_content": "x", "id": "rs_1"}}),
    ToolUse("c1", "f", "{}"),
    ToolUse("c1", "f", '{"a":1}', item_id="fc_1"),
    ToolUse("c1", "g", "{}", namespace="ns"),
    ToolUse("c1", "p", "raw\n", "custom", "ns"),
    OpaquePart("responses", {"type": "web_search_call", "id": "ws_1"}),
]
"""All that an assistant may say, in any order."""


def written_and_read(asked: ModelRequest) -> ModelRequest:
    wire = RESPONSES.write_request(asked)
    again = request(json.loads(json.dumps(wire)))
    encrypted = '"encrypted_content"' in json.dumps(wire["input"])
    if asked.sampling.reasoning_effort is not None or encrypted:  # else it would not come back (R28.3)
        assert wire.pop("include") == ["reasoning.encrypted_content"]
        again = request(json.loads(json.dumps(wire)))
    assert wire["store"] is False
    own = again.messages[1:] if "instructions" in wire else again.messages
    assert write_items(own) == wire["input"]
    return comparable(again)


@every(("first", "second"), product(SAID, repeat=2))
def test_messages_are_read_as_they_were_written(first: Part, second: Part) -> None:
    """Every part of an assistant behind each other one, and a result behind them."""
    if isinstance(second, ToolUse):
        second = replace(second, call_id="c2")
    parts = (first, second, Text("b"))
    uses = [part for part in parts if isinstance(part, ToolUse)]
    results = [Message("tool", (ToolResult(use.call_id, CONTENTS, use.name, kind=use.kind),)) for use in uses]
    others = [Message(role, CONTENTS, None, {"responses": {"cache": True}}) for role in ("developer", "user")]
    said = (Message("system", (Text("s"),)), *others, Message("assistant", parts), *results)
    asked = ModelRequest("m", said, tool_choice=ToolChoice("none"))
    assert written_and_read(asked) == asked


GROUPS = [
    ToolSpec("f", None, {"type": "object", "properties": {}}, False),
    ToolSpec("g", "d", {"a": 1}, True, namespace="ns", namespace_description="About."),
    ToolSpec("p", "d", kind="custom"),
    ToolSpec("p", kind="custom", namespace="ns", namespace_description="About."),
]


@every(
    "fields",
    [
        *({"tools": (*GROUPS,), "tool_choice": ToolChoice(mode)} for mode in ("auto", "none", "required")),
        {"tools": (*GROUPS,), "tool_choice": ToolChoice("named", "g"), "parallel_tool_calls": False},
        {"tools": (*GROUPS,), "tool_choice": ToolChoice("required", allowed=("f",))},
        {"tools": (replace(GROUPS[1], namespace_description=None),), "tool_choice": ToolChoice()},
        {"sampling": Sampling(0.5, 0.25, 16, reasoning_effort="low")},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        {"stream": True, "include_usage": True, "extra": {"min_p": 0.5}},
    ],
)
def test_a_request_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    asked = ModelRequest("m", (Message("user", (Text("hi"),)),), **{"tool_choice": ToolChoice("none"), **fields})
    assert written_and_read(asked) == asked


def test_a_tool_of_another_protocol_that_says_nothing_of_it_is_not_strict() -> None:
    asked = ModelRequest("m", (), (ToolSpec("f"), ToolSpec("g", namespace="ns")))
    tool, group = RESPONSES.write_request(asked)["tools"]
    assert (tool["strict"], tool["parameters"]) == (False, {"type": "object", "properties": {}})
    assert group["description"] == "ns"


def test_foreign_parts() -> None:
    result = ToolResult("a", (OpaquePart("chat", {"type": "audio"}),))
    asked = [Message("user", (Text("x"), OpaquePart("chat", {"type": "audio"}))), Message("tool", (result,))]
    user, output = write_items(asked)
    assert user["content"] == "x"
    assert output["output"] == '{"type":"audio"}'


def test_grammars_and_formats_between_chat_and_responses() -> None:
    """Each API has its own form of a custom tool's grammar, and Responses demands the name of a schema."""
    grammar = {"syntax": "lark", "definition": "start: A"}
    nested = {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": grammar}}}
    flat = {"type": "custom", "name": "p", "format": {"type": "grammar", **grammar}}
    form = {"type": "json_schema", "json_schema": {"schema": {}}}
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [nested], "response_format": form}
    written = RESPONSES.write_request(ChatProtocol().read_request(asked, b""))
    assert written["tools"] == [flat]
    assert written["text"]["format"] == {"type": "json_schema", "name": "answer", "schema": {}}
    assert ChatProtocol().write_request(request({"model": "m", "input": "hi", "tools": [flat]}))["tools"] == [nested]
