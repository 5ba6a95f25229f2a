"""Tools that the client runs and sends by their types (R28.5), behind clients and before servers of each protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, gateway_before, mock_config, post, serving, upstream_config
from tests.e2e.meaning import MESSAGES as MESSAGES_PATH
from tests.e2e.meaning import RESPONSES as RESPONSES_PATH
from tests.e2e.meaning import says
from tests.protocols.messages_wires import accumulate as add_up
from tests.protocols.responses_wires import accumulate
from toolwire.model import Text, ToolUse
from toolwire.testing import Upstream, WireAnswer

both = every("stream", [False, True])
SHELL = {"type": "shell", "environment": {"type": "local"}}
OPENAI: list[dict[str, Any]] = [
    SHELL,
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "computer_use_preview", "display_width": 8, "display_height": 6, "environment": "linux"},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    {"type": "memory_20250818", "name": "memory"},
    {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}},
]
COMMANDS = '{"commands":["ls"]}'


SERVERS = ("openai_chat", "anthropic_messages", "openai_responses")


async def asked(kind: str, path: str, body: dict[str, Any], *parts: Any, **facts: Any) -> tuple[Any, WireAnswer]:
    """What a server was sent, and what came back to the client. Usage is estimated, so nothing passes unread."""
    async with Upstream([says(kind, *parts)]) as up:
        defaults = {"mode": "native", "usage": {"source": "estimate"}}
        config = upstream_config(up.url, backend={"kind": kind, **facts}, defaults=defaults)
        async with serving(config) as server:
            got = await post(server, body, path=path)
    assert got.status == 200, got.body
    return up.requests[0].json, got


def items_of(got: WireAnswer, stream: bool) -> list[Any]:
    """The output of a Responses answer; of a streamed one as its events say it, in whatever order."""
    if not stream:
        return list(json.loads(got.body)["output"])
    events = [json.loads(line[6:]) for line in got.body.split(b"\n") if line.startswith(b"data: {")]
    output = accumulate(events)
    assert events[-1]["response"]["output"] == output
    return output


def blocks_of(got: WireAnswer, stream: bool) -> list[Any]:
    """The content of a Messages answer."""
    return add_up(got.body)["content"] if stream else list(json.loads(got.body)["content"])


def names_sent(body: dict[str, Any]) -> dict[str, Any]:
    """The tools of a request by name, each with its parameters."""
    inner = [tool.get("function", tool) for tool in body["tools"]]
    return {tool["name"]: tool.get("parameters") or tool.get("input_schema") for tool in inner}


RUN = ToolUse("call_1", "shell", COMMANDS)
HISTORY = [
    {"type": "message", "role": "user", "content": "hi"},
    {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "c1",
        "action": {"commands": ["ls"], "timeout_ms": 9},
        "status": "completed",
    },
    {
        "type": "shell_call_output",
        "call_id": "c1",
        "output": [{"stdout": "a.txt", "stderr": "no", "outcome": {"type": "exit", "exit_code": 2}}],
    },
]


@both
@every("kind", SERVERS)
async def test_a_server_that_lacks_them_gets_functions(kind: str, stream: bool) -> None:
    body = {"input": HISTORY, "tools": OPENAI, "stream": stream, "tool_choice": {"type": "shell"}}
    sent, got = await asked(kind, RESPONSES_PATH, body, RUN)
    tools = names_sent(sent)
    assert set(tools) == {"shell", "local_shell", "apply_patch", "computer_use_preview"}
    assert tools["shell"]["required"] == ["commands"]
    said = json.dumps(sent)
    assert "shell_call" not in said
    assert all(word in said for word in ("a.txt", "stderr:", "exit code 2", "timeout_ms"))
    assert (
        sent["tool_choice"]
        == {
            "openai_chat": {"type": "function", "function": {"name": "shell"}},
            "openai_responses": {"type": "function", "name": "shell"},
            "anthropic_messages": {"type": "tool", "name": "shell"},
        }[kind]
    )
    (item,) = items_of(got, stream)
    assert (item["type"], item["action"]["commands"], item["status"]) == ("shell_call", ["ls"], "completed")


BASH = ToolUse("toolu_1", "bash", '{"command":"ls"}')
CLICKED: list[Any] = [
    *USER,
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "toolu_0", "name": "key", "toolset_name": "computer", "input": {"text": "a"}}
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": "pressed"}]},
]


@both
@every("kind", SERVERS)
async def test_messages_tools_are_functions_elsewhere(kind: str, stream: bool) -> None:
    body = {"max_tokens": 99, "messages": CLICKED, "tools": ANTHROPIC, "stream": stream}
    parts = (BASH, ToolUse("toolu_2", "computer__key", '{"text":"b"}'))
    sent, got = await asked(kind, MESSAGES_PATH, body, *parts)
    tools = names_sent(sent)
    assert {"bash", "str_replace_based_edit_tool", "memory", "computer__key"} <= set(tools)
    assert "computer__zoom" not in tools
    assert all(schema["type"] == "object" for schema in tools.values())
    assert "toolset" not in json.dumps(sent)
    assert '"name": "computer__key"' in json.dumps(sent)
    bash, key = blocks_of(got, stream)
    assert (bash["name"], bash["input"]) == ("bash", {"command": "ls"})
    assert (key["name"], key["toolset_name"], key["input"]) == ("key", "computer", {"text": "b"})


# --- hosted tools ---------------------------------------------------------------------------------------------------

HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation")
IN_CONTAINER = {"type": "shell", "environment": {"type": "container_auto"}}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": USER, "tools": [{"type": kind} for kind in HOSTED]},
    RESPONSES_PATH: {"input": "hi", "tools": [*[{"type": kind} for kind in HOSTED], IN_CONTAINER]},
    MESSAGES_PATH: {
        "max_tokens": 9,
        "messages": USER,
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "code_execution_20250825", "name": "code_execution"},
            {"type": "web_fetch_20250910", "name": "web_fetch"},
        ],
    },
}

HOSTED_CHOICES: list[tuple[str, Any]] = [
    *((CHAT, choice) for choice in ("auto", "required", "none")),
    *((RESPONSES_PATH, choice) for choice in ("auto", "required", {"type": "web_search"}, {"type": "shell"})),
    *((MESSAGES_PATH, choice) for choice in ({"type": "any"}, {"type": "tool", "name": "web_search"})),
]


@pytest.mark.parametrize("kind", SERVERS)
async def test_hosted_tools_end_no_request(kind: str) -> None:
    defaults = {"mode": "native"}
    async with gateway_before([says(kind, Text("ok"))], backend={"kind": kind}, defaults=defaults) as (server, up):
        for path, choice in HOSTED_CHOICES:
            got = await post(server, {**BODIES[path], "tool_choice": choice}, path=path)
            assert got.status == 200, (path, choice, got.body)
            assert ("tool_choice" in up.requests[-1].json) <= ("tools" in up.requests[-1].json), (path, choice)


@every("path, choice", HOSTED_CHOICES)
async def test_that_they_are_left_out_is_said_once(path: str, choice: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    async with serving(mock_config([{"text": "ok"}], mode="prompt")) as server:
        for _ in range(2):
            got = await post(server, {**BODIES[path], "tool_choice": choice}, path=path)
            assert (got.status, b"ok" in got.body) == (200, True), got.body
    assert sum("web_search" in record.getMessage() for record in caplog.records) == 1
