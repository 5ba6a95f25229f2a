"""Calls that a model wrote nearly right, through the whole gateway: found where they stand (R6.1), of the right types
(R23.3)."""

from __future__ import annotations

import json
import logging
from typing import Any

import aiohttp
import pytest

from tests.cases import every
from tests.e2e.conftest import USER, Gateway, function, post, read_config
from tests.e2e.responses_answers import of_stream
from toolwire.config import GatewayConfig

RESPONSES = "/v1/responses"
ADD = function("add", a="integer", b="integer", note="string")
FLAT_ADD = {"type": "function", "strict": False, **ADD["function"]}
PATCH = {"type": "custom", "name": "apply_patch"}
WANTED = {"a": 1, "b": 2, "note": "3"}

Call = tuple[str, str]


def config(text: str, **options: Any) -> GatewayConfig:
    script = [{"text": text, "chunk": 3, "finish": "stop"}]
    return read_config({"backends": {"b": {"kind": "mock", "script": script}}, "defaults": options})


async def asked(gateway: Gateway, tools: list[Any], text: str, **options: Any) -> list[Call]:
    """What the call is over both APIs, streamed and not: the same everywhere."""
    server = await gateway(config(text, **options))
    found: list[Call] = []
    body: dict[str, Any] = {"input": "hi", "tools": tools}
    for item in (await post(server, body, path=RESPONSES)).json()["output"]:
        found.append((item["name"], item.get("arguments", item.get("input"))))
    streamed = of_stream(await post(server, {**body, "stream": True}, path=RESPONSES)).resource["output"]
    assert [(item["name"], item.get("arguments", item.get("input"))) for item in streamed] == found
    if tools == [FLAT_ADD]:
        chat: dict[str, Any] = {"messages": USER, "tools": [ADD]}
        message = (await post(server, chat)).json()["choices"][0]["message"]
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
        *chunks, _ = (await post(server, {**chat, "stream": True})).frames()
        deltas = [call["function"] for c in chunks for call in c["choices"][0]["delta"].get("tool_calls", ())]
        assert ("add", "".join(delta["arguments"] for delta in deltas)) == calls[0]
        assert calls == found
    return found


@every(
    "written",
    [
        {"tool": "add", "args": WANTED},
        {"type": "function", "function": {"name": "add", "arguments": json.dumps(WANTED)}},
        {"name": "add", **WANTED},
        {"name": "add", "arguments": {"a": "1", "b": 2, "note": 3}},
        {"name": "add", "a": "1", "b": "2", "note": 3},
    ],
)
@every("options", [{}, {"format": "hermes"}])
async def test_the_call_that_was_meant(gateway: Gateway, written: Any, options: Any) -> None:
    text = f"<tool_call>{json.dumps(written)}</tool_call>"
    ((name, arguments),) = await asked(gateway, [FLAT_ADD], text, **options)
    assert (name, json.loads(arguments)) == ("add", WANTED)


async def test_free_text_is_a_custom_tools_input(gateway: Gateway) -> None:
    patch = "*** Begin Patch\n*** End Patch\n"
    text = f"<tool_call>{json.dumps({'name': 'apply_patch', 'arguments': patch})}</tool_call>"
    assert await asked(gateway, [PATCH], text) == [("apply_patch", patch)]


async def test_it_is_counted(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    server = await gateway(config('<tool_call>{"name":"add","arguments":{"a":"1","b":2,"note":"x"}}</tool_call>'))
    await post(server, {"messages": USER, "tools": [ADD]})
    (line,) = [record.fields for record in caplog.records if record.name == "toolwire.access"]  # type: ignore[attr-defined]
    assert (line["calls"], line["coerced"]) == (1, 1)
    async with aiohttp.ClientSession() as session, session.get(server.make_url("/metrics")) as answer:
        page = await answer.text()
    assert 'toolwire_tool_call_coercions_total{kind="number"} 1.0\n' in page


async def test_arguments_that_are_streamed_are_mended(gateway: Gateway) -> None:
    """R6.13: nothing that was sent is taken back, so a value that may be converted waits for the end."""
    text = '<tool_call>{"name":"add","arguments":"{\\"a\\":\\"1\\",\\"b\\":2,\\"note\\":\\"x\\"}"}</tool_call>'
    server = await gateway(config(text, argument_streaming=0))
    body = {"messages": USER, "tools": [ADD]}
    *chunks, _ = (await post(server, {**body, "stream": True})).frames()
    deltas = [call["function"] for c in chunks for call in c["choices"][0]["delta"].get("tool_calls", ())]
    *early, last = [delta["arguments"] for delta in deltas]
    assert ("".join(early), last) == ('{"a":', '1,"b":2,"note":"x"}')
    message = (await post(server, body)).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a":1,"b":2,"note":"x"}'
