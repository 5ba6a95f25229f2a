"""Requests: what goes where, what is refused and in which words. That nothing is lost: `test_nothing_is_lost.py`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.cases import every
from tests.protocols.messages_wires import MESSAGES
from tests.protocols.wires import CHAT
from toolwire.errors import ClientFault
from toolwire.known.past import Past
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Reasoning,
    Refusal,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
)
from toolwire.protocols.messages.ids import signature_of
from toolwire.protocols.messages.request_writer import write_messages

TOOL = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
USER: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 8, "messages": USER, **fields}


def asked(**fields: Any) -> ModelRequest:
    return MESSAGES.read_request(body(**fields), b"{}")


# --- read -----------------------------------------------------------------------------------------------------------


def test_what_an_agent_sends() -> None:
    """System in the middle, thoughts with a signature, calls beside them, results with images and text behind them."""
    request = asked(
        system=[{"type": "text", "text": "A.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": ""}]},
            {"role": "system", "content": "Agents: none."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "eA=="},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "ü"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "cache_control": {"type": "ephemeral"}},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [
                        {"type": "text", "text": "no"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        {"type": "search_result", "title": "t", "source": "s", "content": []},
                    ]},
                    {"type": "text", "text": "Go on."},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_3"}]},
        ],
    )  # fmt: skip
    system, user, middle, said, results, last = request.messages
    assert [message.role for message in request.messages] == ["system", "user", "system", "assistant", "user", "tool"]
    assert system.parts == (Text("A.", {"messages": {"cache_control": {"type": "ephemeral"}}}), Text("B."))
    assert (user.parts, middle.text) == ((Text("hi"),), "Agents: none.")
    assert said.parts == (
        Reasoning("hm", {"messages": {"signature": "c2ln"}}),
        Reasoning("", {"messages": {"data": "eA=="}}),
        ToolUse("toolu_1", "read", '{"path":"ü"}'),
        ToolUse("toolu_2", "list", "{}"),
    )
    assert results.parts == (
        ToolResult("toolu_1", (Text("ok"),), "read", extra={"messages": {"cache_control": {"type": "ephemeral"}}}),
        ToolResult(
            "toolu_2",
            (
                Text("no"),
                Image("data:image/png;base64,AA=="),
                OpaquePart("messages", {"type": "search_result", "title": "t", "source": "s", "content": []}),
            ),
            "list",
            is_error=True,
        ),
        Text("Go on."),
    )
    assert last.parts == (ToolResult("toolu_3", ()),)


def test_a_result_in_the_assistants_message_is_one() -> None:
    use, result = {"type": "tool_use", "id": "t1", "name": "read"}, {"type": "tool_result", "tool_use_id": "t1"}
    said = asked(messages=[*USER, {"role": "assistant", "content": [use, result]}]).messages[1:]
    assert [(message.role, len(message.parts)) for message in said] == [("assistant", 1), ("tool", 1)]


def test_a_document_of_text_is_text_for_everybody() -> None:
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Read."}, "title": "T"}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}
    request = asked(messages=[{"role": "user", "content": [block, pdf]}])
    (message,) = request.messages
    assert message.text == "Read."
    assert message.parts[1] == OpaquePart("messages", pdf)
    assert MESSAGES.write_request(request)["messages"][0]["content"] == [block, pdf]
    assert CHAT.write_request(request)["messages"][0]["content"] == "Read."


@pytest.mark.parametrize(
    ("choice", "mode", "name", "parallel"),
    [
        (None, "auto", None, True),
        ({"type": "auto"}, "auto", None, True),
        ({"type": "any"}, "required", None, True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", None, False),
        ({"type": "tool", "name": "read"}, "named", "read", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", None, False),
        ({"type": "none"}, "none", None, True),
    ],
)
def test_choices(choice: Any, mode: str, name: str | None, parallel: bool) -> None:
    request = asked(tools=[TOOL], tool_choice=choice)
    found = (request.tool_choice.mode, request.tool_choice.name, request.parallel_tool_calls)
    assert found == (mode, name, parallel)


def test_tools() -> None:
    """A missing type is `custom`; whatever else is the server's own business (R3.8)."""
    search = {"type": "web_search_20260209", "name": "web_search", "max_uses": 3}
    strict = {**TOOL, "type": "custom", "description": "Reads.", "strict": True}
    first, second, hosted = asked(tools=[TOOL, strict, search]).tools
    assert (first.name, first.kind, first.parameters, first.strict) == ("read", "function", TOOL["input_schema"], None)
    assert (second.description, second.strict) == ("Reads.", True)
    assert (hosted.name, hosted.kind, hosted.received) == ("web_search", "hosted", search)
    inner = {"name": "read", "parameters": TOOL["input_schema"]}
    assert (
        asked(tools=[{"type": "function", **inner}]).tools
        == asked(tools=[{"type": "function", "function": inner}]).tools
    )
    assert asked(tools=[{"type": "function", **inner}]).tools[0].kind == "function"


def test_sampling() -> None:
    request = asked(
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        stop_sequences=["###"],
        thinking={"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        metadata={"user_id": "u"},
        context_management={"edits": []},
        min_p=0.1,
    )
    expected = Sampling(0.5, 0.9, 8, ("###",), reasoning_effort="high", top_k=4, reasoning_budget=1024)
    assert request.sampling == expected
    form = request.response_format
    assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    assert fields_of(request.protocol_fields, "messages") == {
        "thinking": {"type": "enabled", "display": "summarized"},
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
    }
    assert request.extra == {"min_p": 0.1}
    assert asked(thinking={"type": "disabled"}).sampling.reasoning_budget == 0
    assert asked(thinking={"type": "adaptive"}).sampling.reasoning_budget is None


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no limit": ({"max_tokens": None}, "max_tokens", "missing_required_parameter"),
    "a limit below nothing": ({"max_tokens": -1}, "max_tokens", "invalid_value"),
    "messages": ({"messages": []}, "messages", "invalid_value"),
    "a text": ({"messages": "hi"}, "messages", "invalid_type"),
    "role": ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role", "invalid_value"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    "block": ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type", "missing_required_parameter"),
    "text": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "missing_required_parameter"),
    "call": ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}]}]}, "messages[0].content[0].id", "invalid_tool_call_id"),
    "input": ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}]}, "messages[0].content[0].input", "invalid_type"),
    "result": ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "messages[0].content[0].tool_use_id", "missing_required_parameter"),
    "temperature": ({"temperature": 1.5}, "temperature", "invalid_value"),
    "stop": ({"stop_sequences": "###"}, "stop_sequences", "invalid_type"),
    "tools": ({"tools": [{"input_schema": {}}]}, "tools[0].name", "invalid_tool_schema"),
    "schema": ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema", "invalid_tool_schema"),
    "choice": ({"tools": [TOOL], "tool_choice": {"type": "required"}}, "tool_choice", "invalid_tool_choice"),
    "a choice of OpenAI's": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice", "invalid_tool_choice"),
    "thinking": ({"thinking": {"budget_tokens": 3}}, "thinking.type", "missing_required_parameter"),
    "system": ({"system": [{"type": "image"}]}, "system[0].text", "missing_required_parameter"),
    "thread": ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread.previous_message_id", "previous_response_not_found"),
}  # fmt: skip


@every("case", FAULTS)
def test_what_is_refused(case: str) -> None:
    fields, param, code = FAULTS[case]
    with pytest.raises(ClientFault) as caught:
        MESSAGES.read_request({key: value for key, value in body(**fields).items() if value is not None}, b"")
    assert (caught.value.param, caught.value.code) == (param, code)


# --- what servers demand --------------------------------------------------------------------------------------------


def written(*messages: Message, **fields: Any) -> dict[str, Any]:
    return MESSAGES.write_request(ModelRequest("m", messages, **fields))


def test_what_another_protocol_leaves_out() -> None:
    """A limit, a user who speaks first, an object as schema, temperatures up to 1."""
    asked = written(
        Message("system", (Text("A"),)),
        Message("developer", (Text("B"),)),
        Message("assistant", (Text("Hello."), Text(" "))),
        tools=(ToolSpec("f"), ToolSpec("g", parameters={"properties": {}})),
        sampling=Sampling(temperature=1.7, seed=3, presence_penalty=1),
    )
    assert asked == {
        "model": "m",
        "max_tokens": 4096,
        "temperature": 1,
        "system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
        "messages": [{"role": "user", "content": "Continue."}, {"role": "assistant", "content": "Hello."}],
        "tools": [
            {"name": "f", "input_schema": {"type": "object", "properties": {}}},
            {"name": "g", "input_schema": {"type": "object", "properties": {}}},
        ],
    }
    assert written()["messages"] == [{"role": "user", "content": "Continue."}]


def test_a_format_of_openai_has_nothing_that_servers_refuse() -> None:
    form = {"name": "n", "strict": True, "description": "D.", "schema": {"type": "object"}}
    asked = written(response_format={"type": "json_schema", "json_schema": form})
    schema = {"description": "D.", "type": "object"}
    assert asked["output_config"]["format"] == {"type": "json_schema", "schema": schema}


def test_results_of_one_turn_are_one_message_and_come_first() -> None:
    def result(call_id: str) -> ToolResult:
        return ToolResult(call_id, (Text("r"),))

    asked = written(
        Message("user", (Text("hi"),)),
        Message("assistant", (ToolUse("functions.f:0", "f", "{}"), ToolUse("call_b", "f", " "))),
        Message("tool", (result("functions.f:0"),)),
        Message("tool", (result("call_b"),)),
        Message("user", (Text("And now?"), result("call_c"))),
    )
    _, said, results, last = asked["messages"]
    first, second = (block["id"] for block in said["content"])
    assert second == "call_b"
    assert [block["tool_use_id"] for block in results["content"]] == [first, "call_b"]
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    assert said["content"][1]["input"] == {}


def test_calls_stand_behind_what_is_said() -> None:
    """Servers want results right behind the calls."""
    use = ToolUse("toolu_a", "f", "{}")
    foreign = OpaquePart("messages", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    said = Message("assistant", (use, Text("Both."), foreign, Text("See."), ToolUse("toolu_b", "f", "{}")))
    blocks = written(Message("user", (Text("hi"),)), said)["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "server_tool_use", "text", "tool_use", "tool_use"]
    assert [block["id"] for block in blocks[3:]] == ["toolu_a", "toolu_b"]


def test_thoughts_that_no_server_signed_are_shown_to_none() -> None:
    own = Reasoning("ours", {"messages": {"signature": signature_of("ours")}})
    theirs = Reasoning("theirs", {"messages": {"signature": "c2ln"}})
    said = Message("assistant", (Reasoning("nobody's"), own, theirs, Refusal("No.")))
    asked = written(Message("user", (Text("hi"),)), said, Message("user", (Text("Why?"),)))
    assert asked["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "theirs", "signature": "c2ln"},
        {"type": "text", "text": "No."},
    ]
    only = written(Message("user", (Text("hi"),)), Message("assistant", (own,)))
    assert len(only["messages"]) == 1


def test_choices_of_others() -> None:
    tools = (ToolSpec("f"), ToolSpec("g"))
    narrowed = written(tools=tools, tool_choice=ToolChoice("required", allowed=("g",)), parallel_tool_calls=False)
    assert [tool["name"] for tool in narrowed["tools"]] == ["g"]
    assert narrowed["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert written(tools=tools, tool_choice=ToolChoice("none"))["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in written(tools=tools)


def test_what_of_another_protocol_has_no_place() -> None:
    item = OpaquePart("responses", {"type": "computer_call"})
    asked = written(Message("user", (Text("hi"), item)), Message("tool", (ToolResult("c", (item,)),)))
    assert asked["messages"][0]["content"] == "hi"
    assert asked["messages"][1]["content"][0]["content"] == '{"type":"computer_call"}'


def test_results_that_come_one_request_later_join_their_message() -> None:
    """Also where what was written for the request before is known: it is not changed, and written again."""
    calls = tuple(ToolUse(name, "read", "{}") for name in ("a", "b"))
    said = [Message("user", (Text("Look."),)), Message("assistant", calls)]
    said += [Message("tool", (ToolResult(call.call_id, (Text("1"),)),)) for call in calls]
    before = Past(0)
    first = write_messages(said[:3], before)
    shown = copy.deepcopy(first)
    assert write_messages(said, Past(0, before)) == write_messages(said)
    assert first == shown
