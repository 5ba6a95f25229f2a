"""Requests to model servers, with tool servers that the gateway asks and with others."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.conftest import post, serving
from tests.e2e.responses_answers import of_whole, outline
from tests.e2e.test_responses_server import speaking
from tests.toolservers.scripted import URL, Seen, server
from toolwire.configuration.settings import load
from toolwire.model import ModelReply, ReplyChoice, Text
from toolwire.testing import Say, Upstream

CALL = {
    "type": "mcp_call", "id": "mcp_1", "server_label": "calc", "name": "add", "arguments": '{"a":1,"b":2}', "output": "3",
    "error": None,
}  # fmt: skip
INPUT = [{"role": "user", "content": "hi"}, CALL, {"role": "user", "content": "and?"}]


def config(url: str, kind: str, *permitted: str) -> Any:
    sections = {
        "backends": {"main": {"url": url, "kind": kind}},
        "defaults": {"mode": "native"},
        "tools": {"mcp_from_clients": list(permitted)},
        "store": {"kind": "memory"},
    }
    return load(None, env={}, overrides=sections)


async def asked(kind: str, permitted: bool) -> tuple[Any, Any]:
    tools = [server(authorization="a-secret-word")]
    reply = ModelReply("resp_0", "m", 1, (ReplyChoice((Text("ok"),)),))
    async with Upstream([speaking(reply) if kind == "openai_responses" else Say("ok")]) as upstream:
        async with serving(config(upstream.url, kind, *([URL] if permitted else []))) as gateway:
            got = await post(gateway, {"input": INPUT, "tools": tools}, path="/v1/responses")
        return of_whole(got), upstream.requests[0].json


async def test_a_chat_server_gets_functions_and_calls(seen: Seen) -> None:
    shown, sent = await asked("openai_chat", True)
    assert outline(shown) == [("listed", "calc"), ("text", "ok")]
    assert "calc__add" in [tool["function"]["name"] for tool in sent["tools"]]
    _, call, result, _ = sent["messages"]
    assert call["tool_calls"][0]["function"] == {"name": "calc__add", "arguments": '{"a":1,"b":2}'}
    assert (result["role"], result["content"]) == ("tool", "3")
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "a-secret-word" not in json.dumps(sent)


async def test_a_responses_server_gets_functions_and_calls(seen: Seen) -> None:
    shown, sent = await asked("openai_responses", True)
    assert outline(shown) == [("listed", "calc"), ("text", "ok")]
    assert {tool["type"] for tool in sent["tools"]} <= {"function", "namespace"}
    kinds = [item.get("type") for item in sent["input"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert "a-secret-word" not in json.dumps(sent)


async def test_a_responses_server_serves_them_itself_where_the_gateway_does_not(seen: Seen) -> None:
    shown, sent = await asked("openai_responses", False)
    assert outline(shown) == [("text", "ok")]
    (tool,) = sent["tools"]
    assert (tool["type"], tool["authorization"]) == ("mcp", "a-secret-word")
    assert [item.get("type") for item in sent["input"]][1] == "mcp_call"


async def test_a_request_without_servers_passes_as_it_is() -> None:
    """That clients may name some costs nobody else anything."""
    body = {"model": "m", "input": "hi", "store": False, "odd": {"kept": 1}}
    reply = ModelReply("resp_0", "m", 1, (ReplyChoice((Text("ok"),)),))
    async with Upstream([speaking(reply)]) as upstream:
        async with serving(config(upstream.url, "openai_responses", URL)) as gateway:
            got = await post(gateway, body, path="/v1/responses")
        assert got.status == 200
        assert upstream.requests[0].json == body
