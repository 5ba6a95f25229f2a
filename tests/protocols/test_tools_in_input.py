"""Tools that stand in the input of a Responses request, and the client's own search for tools (R28.1)."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseToolSearchCall

from tests.e2e.conftest import read_config
from toolwire.errors import ClientFault
from toolwire.model import ModelRequest, Text, ToolResult, ToolUse
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.responses.request_writer import write_request
from toolwire.testing import ScriptedBackend, run_chain

HI = {"type": "message", "role": "user", "content": "hi"}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
RUN = {"type": "custom", "name": "run", "description": "Runs a script."}
MAIL = {
    "type": "namespace",
    "name": "mail",
    "description": "Mail.",
    "tools": [{"type": "function", "name": "send", "parameters": {"type": "object"}, "defer_loading": True}],
}
LATE = {"type": "function", "name": "late", "parameters": {}, "defer_loading": True}
CALLED = {
    "type": "tool_search_call",
    "id": "tsc_1",
    "call_id": "c1",
    "execution": "client",
    "arguments": {"query": "mail"},
    "status": "completed",
}
FOUND = {
    "type": "tool_search_output",
    "call_id": "c1",
    "execution": "client",
    "status": "completed",
    "tools": [MAIL],
}


def additional(*tools: Any) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def read(*items: Any, **more: Any) -> ModelRequest:
    body = {"model": "m", "input": [*items, HI], **more}
    return ResponsesProtocol().read_request(body, orjson.dumps(body))


def names(request: ModelRequest) -> list[tuple[str | None, str, str]]:
    return [(tool.namespace, tool.name, tool.kind) for tool in request.tools]


def test_they_stand_behind_those_of_the_request_and_the_last_word_counts() -> None:
    newer = {"type": "function", "name": "f", "description": "new", "parameters": {}}
    request = read(additional(newer), tools=[{"type": "function", "name": "f", "parameters": {}}, RUN])
    assert names(request) == [(None, "f", "function"), (None, "run", "custom")]
    assert request.tools[0].description == "new"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (additional({"name": "f"}), "input[0].tools[0].type"),
        (additional(RUN, {"type": "function"}), "input[0].tools[1].name"),
        ({**FOUND, "tools": [{"type": "namespace", "name": "n"}]}, "input[0].tools[0].tools"),
    ],
    ids=["no type", "no name", "no tools"],
)
def test_an_error_says_where_they_stand(item: Any, param: str) -> None:
    with pytest.raises(ClientFault) as caught:
        read(item)
    assert caught.value.param == param


def test_settings_of_the_input_are_in_force_until_the_next() -> None:
    first = {
        "type": "configuration_update",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_object"}},
    }
    later = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    request = read(
        first, HI, later, {**later, "reasoning": None, "text": {"format": None}}, reasoning={"effort": "medium"}
    )
    assert (request.sampling.reasoning_effort, request.response_format) == ("high", {"type": "json_object"})
    assert read(HI, reasoning={"effort": "medium"}).sampling.reasoning_effort == "medium"
    unset = {"type": "configuration_update", "reasoning": {"effort": None}}
    assert read(later, HI, unset, reasoning={"effort": "medium"}).sampling.reasoning_effort is None


def test_a_search_is_a_call_and_its_output_says_what_was_found() -> None:
    request = read(CALLED, FOUND, {**FOUND, "call_id": "c2", "tools": []}, tools=[SEARCH])
    parts = [part for message in request.messages for part in message.parts]
    use, result, nothing, _ = parts
    assert isinstance(use, ToolUse)
    assert (use.name, json.loads(use.arguments), use.call_id) == ("tool_search", {"query": "mail"}, "c1")
    assert isinstance(result, ToolResult)
    assert isinstance(nothing, ToolResult)
    assert result.parts == (Text("Found: mail__send. They can be called now."),)
    assert nothing.parts == (Text("No tool was found."),)


def test_a_server_gets_items_and_tools_as_they_were() -> None:
    written = write_request(read(CALLED, FOUND, additional(RUN), tools=[SEARCH]))
    assert written["tools"] == [SEARCH, RUN, MAIL]
    call, output, _ = written["input"]
    assert {key: call[key] for key in ("type", "call_id", "execution", "arguments")} == {
        key: CALLED[key] for key in ("type", "call_id", "execution", "arguments")
    }
    assert (output["type"], output["call_id"], output["tools"]) == ("tool_search_output", "c1", [])


def test_a_field_of_that_name_makes_no_search_of_another_result() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x", "execution": "fast"}
    assert write_request(read(call, output))["input"][1] == output


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"author": "/root/a", "content": [{"type": "input_text", "text": "done"}]}, "Message from /root/a:\ndone"),
        ({"content": "done"}, "done"),
        (
            {
                "author": "/root",
                "content": [
                    {"type": "input_text", "text": "Sender: /root\n"},
                    {"type": "encrypted_content", "encrypted_content": "Count them."},
                    {"type": "encrypted_content", "encrypted_content": f"gAAAA{'x' * 90}=="},
                ],
            },
            "Sender: /root\nCount them.",
        ),
    ],
    ids=["with its author", "bare", "a task"],
)
def test_what_another_agent_says_is_said_to_the_model(item: dict[str, Any], said: str) -> None:
    first, _ = read({"type": "agent_message", **item}).messages
    assert (first.role, first.text) == ("user", said)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
async def test_a_search_that_a_model_makes_is_an_item_of_its_own(native: bool, stream: bool) -> None:
    call = {"name": "tool_search", "arguments": {"query": "mail"}}
    text = f"<tool_call>{json.dumps(call)}</tool_call>"
    backend = ScriptedBackend([{"calls": [call]} if native else {"text": text}])
    config = read_config(
        {
            "backends": {"m": {"kind": "mock"}},
            "defaults": {"mode": "native" if native else "prompt", "format": "hermes"},
        }
    )
    body = {"model": "m", "input": [HI], "tools": [SEARCH, LATE], "stream": stream}
    answer = await run_chain(config, body, backend=backend, path="/v1/responses")
    if stream:
        events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: {")]
        kinds = [event["type"] for event in events]
        assert not any("arguments" in kind for kind in kinds)
        (begun,) = [event["item"] for event in events if event["type"] == "response.output_item.added"]
        assert (begun["type"], begun["arguments"], begun["status"]) == ("tool_search_call", {}, "in_progress")
        (item,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert item["id"] == begun["id"]
        assert events[-1]["response"]["output"] == [item]
    else:
        (item,) = json.loads(answer.body)["output"]
    made = ResponseToolSearchCall.model_validate(item, strict=True)
    assert (made.execution, made.arguments, made.status) == ("client", {"query": "mail"}, "completed")
    assert made.call_id
    assert item["id"].startswith("tsc_")


MANY = [
    {"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "send"}]},
    {"type": "namespace", "name": "chat", "tools": [{"type": "function", "name": "send"}, {"type": "function", "name": "read"}]},
    {"type": "function", "name": "look"},
    {"type": "function", "name": "chat__look"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("read", ("chat", "read")),
        ("chat__read", ("chat", "read")),
        ("chat.send", ("chat", "send")),
        ("send", (None, "send")),  # two tools are called so
        ("look", (None, "look")),
        ("chat__look", (None, "chat__look")),
        ("other", (None, "other")),
    ],
)
def test_a_call_without_its_namespace(name: str, meant: tuple[str | None, str]) -> None:
    """It is the call of the only tool that can be meant, for the model and for a Responses server (R28.8)."""
    call = {"type": "function_call", "call_id": "c1", "name": name, "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    request = read(call, output, tools=MANY)
    (use,) = [part for message in request.messages for part in message.parts if isinstance(part, ToolUse)]
    assert (use.namespace, use.name) == meant
    (written,) = [item for item in write_request(request)["input"] if item["type"] == "function_call"]
    assert (written.get("namespace"), written["name"]) == meant
    (result,) = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    assert result.name == meant[1]
