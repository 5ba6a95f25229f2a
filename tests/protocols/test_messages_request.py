"""Requests: what goes where, what is refused and in which words, and that nothing is lost between reading and
writing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.protocols.messages_wires import MESSAGES, captured_requests
from tests.protocols.published import SHARED
from tests.protocols.responses_wires import RESPONSES
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


def test_a_small_request() -> None:
    request = asked(system="Be brief.", stream=True)
    assert request.messages == (Message("system", (Text("Be brief."),)), Message("user", (Text("hi"),)))
    assert (request.model, request.stream, request.sampling.max_tokens) == ("m", True, 8)
    assert (request.tools, request.tool_choice, request.parallel_tool_calls) == ((), ToolChoice("none"), True)


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
    "a limit of nothing": ({"max_tokens": 0}, "max_tokens", "invalid_value"),
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


# --- nothing is lost ------------------------------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"type": "text", "text": "B."}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "Look:", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}, "transformations": {}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "f"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}, "title": "t", "citations": {"enabled": True}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
            {"type": "container_upload", "file_id": "f"},
        ]},
        {"role": "system", "content": "Mid."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "eA=="},
            {"type": "text", "text": "I see.", "citations": [{"type": "char_location", "cited_text": "D", "document_index": 0}]},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "url": "u"}]},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a", "n": [1, 2.5, None]}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "functions_2", "name": "list", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "text", "text": "ok", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]},
                {"type": "tool_reference", "tool_name": "f"},
            ], "cache_control": {"type": "ephemeral"}},
            {"type": "tool_result", "tool_use_id": "functions_2", "content": "no", "is_error": True},
            {"type": "text", "text": "Go on."},
        ]},
    ],
    "tools": [
        {**TOOL, "type": "custom", "description": "d", "strict": True, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True},
        {"name": "list", "input_schema": {"type": "object"}, "input_examples": [{}]},
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "bash_20250124", "name": "bash"},
    ],
    "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
    "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}],
    "container": {"skills": []},
    "service_tier": "auto",
    "stop_sequences": ["###"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 4,
    "stream": True,
    "min_p": 0.5,
}  # fmt: skip


def stripped(value: Any) -> Any:
    """Without what is null."""
    if isinstance(value, dict):
        return {key: stripped(item) for key, item in value.items() if item is not None}
    return [stripped(item) for item in value] if isinstance(value, list) else value


def one_text(content: Any) -> Any:
    if isinstance(content, list):
        content = [block for block in content if block.get("text") != "" or block.keys() - {"type", "text"}]
        if len(content) == 1 and content[0].keys() == {"type", "text"}:
            return content[0]["text"]
    return content


def one_form(asked: dict[str, Any]) -> dict[str, Any]:
    """A request in the form that the gateway writes: this is the whole list."""
    asked = stripped(copy.deepcopy(asked))
    asked.pop("thread", None)
    if asked.get("tool_choice") == {"type": "auto"}:
        del asked["tool_choice"]
    for key in ("stream", "tools"):
        if not asked.get(key):
            asked.pop(key, None)
    if "system" in asked:
        asked["system"] = one_text(asked["system"])
    for message in asked["messages"]:
        message["content"] = one_text(message["content"])
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                block["content"] = one_text(block.get("content"))
                if not block["content"]:
                    del block["content"]
                if block.get("is_error") is False:
                    del block["is_error"]
    return asked


def again(asked: dict[str, Any]) -> Any:
    return json.loads(json.dumps(MESSAGES.write_request(MESSAGES.read_request(asked, b""))))


def test_a_request_with_everything() -> None:
    assert one_form(again(EVERYTHING)) == one_form(EVERYTHING)


@pytest.mark.parametrize(
    "path", captured_requests() or [None], ids=lambda path: path and path.relative_to(SHARED).as_posix()
)
def test_recorded_requests(path: Path | None) -> None:
    if path is None:
        pytest.skip("no recorded requests; set TOOLWIRE_SHARED")
    asked = json.loads(path.read_bytes())
    asked.setdefault("max_tokens", 1)  # counting needs none
    if (asked.get("thread") or {}).get("type") == "continue":
        with pytest.raises(ClientFault, match="Send the whole conversation"):
            again(asked)
        return
    assert one_form(again(asked)) == one_form(asked)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The objects of a body in which there may be an unknown field."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


PLACES = list(places(EVERYTHING))
FIELD = "x_unknown"


def with_field(path: tuple[Any, ...]) -> dict[str, Any]:
    asked = copy.deepcopy(EVERYTHING)
    place: Any = asked
    for step in path:
        place = place[step]
    place[FIELD] = "mine"
    return asked


@given(st.sampled_from(PLACES))
def test_an_unknown_field_anywhere(path: tuple[Any, ...]) -> None:
    asked = with_field(path)
    assert one_form(again(asked)) == one_form(asked)


WHOLE = {"input", "input_schema", "format", "metadata"}
"""Values that mean something to others as a whole."""


@pytest.mark.parametrize("other", [CHAT, RESPONSES], ids=["chat", "responses"])
def test_no_field_reaches_another_protocol(other: Any) -> None:
    """But for parameters of the server, hosted tools, and blocks that are JSON in a result."""
    for path in PLACES:
        hosted = path[:2] in (("tools", 2), ("tools", 3))
        in_result = path[:4] == ("messages", 3, "content", 0) and path[4:5] == ("content",) and path[5] in (2, 3)
        if path and not hosted and not in_result and WHOLE.isdisjoint(path):
            written = json.dumps(other.write_request(MESSAGES.read_request(with_field(path), b"")))
            assert FIELD not in written, path


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
