"""Vercel `ai`, which checks every body and every event against schemas of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.testing import Say, Upstream
from tests.clients.conftest import Node
from tests.clients.task import CALLS, FINAL, MODES, SAID, STEPS, script
from tests.e2e.conftest import Gateway, serving, upstream_config
from tests.e2e.reasoning_servers import SERVERS, Anthropic, Gemini, OpenAI, OpenRouter, Server, before
from tests.toolservers.scripted import configuration, turn
from tests.toolservers.serving import tool_server

UNSAID = (OpenRouter, Anthropic, OpenAI, Gemini)
"""Servers whose reasoning `@ai-sdk/openai-compatible` does not bring back: it knows no `reasoning_details`, and brings
back a signature of a call only under the name `google`."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["generate", "stream"])
@pytest.mark.parametrize("provider", ["chat", "compatible"])
async def test_chat(gateway: Gateway, node: Node, provider: str, way: str, mode: str) -> None:
    server = await gateway(script=script(mode), mode=mode)
    agrees(await node("vercel.mjs", server, provider, way, "{}"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["generate", "stream"])
@pytest.mark.parametrize("store", [True, False], ids=["kept", "not kept"])
async def test_responses(gateway: Gateway, node: Node, store: bool, way: str, mode: str) -> None:
    """The default of `@ai-sdk/openai`. It sends ids of what the gateway keeps, instead of the thing."""
    server = await gateway(script=script(mode), mode=mode)
    got = await node("vercel.mjs", server, "responses", way, json.dumps({"store": store}))
    agrees(got)
    assert ("item_reference" in got["sent"][-1]) is store


async def test_a_reference_brings_the_text(gateway: Gateway, node: Node) -> None:
    """What the client only names by its id, the model sees again."""
    async with Upstream([Say(turn["text"]) for turn in script("prompt")[:3]]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        agrees(await node("vercel.mjs", server, "responses", "stream", "{}"))
    for number, asked in enumerate(upstream.requests):
        transcript = json.dumps(asked.json["messages"])
        assert [transcript.count(said) for said in SAID[:2]] == [int(number > 0), int(number > 1)]


def agrees(got: dict[str, Any]) -> None:
    """The whole task was done, step by step, and every step had its reason and its usage."""
    assert (got["calls"], got["files"]) == (CALLS, FINAL)
    assert (got["said"], got["text"]) == (list(SAID), SAID[-1])
    assert got["reasons"] == ["tool-calls", "tool-calls", "stop"]
    assert got["usage"]


@pytest.mark.parametrize("way", ["generate", "stream"])
async def test_an_mcp_server_that_the_gateway_asks(gateway: Gateway, node: Node, way: str) -> None:
    """R26.2. It sends ids of what the gateway keeps, also of the request that it approves."""
    with tool_server() as at_work:
        script = [
            turn("prompt", "", ("calc__add", {"a": 1, "b": 2}), ("calc__write", {"text": "x"})),
            {"text": "Done."},
        ]
        backends = {"m": {"kind": "mock", "script": script}}
        server = await gateway(configuration(tools={"mcp_from_clients": [at_work.url]}, backends=backends))
        got = await node("vercel_mcp.mjs", server, way, at_work.url)
        assert at_work.calls == [("add", {"a": 1, "b": 2}), ("write", {"text": "x"})]
    assert got == {"text": "Done.", "asked": ["mcp.write"], "results": ["3", "written: x"]}


KEEPINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "kept": ("responses", {"store": True}),
    "encrypted": (
        "responses",
        {"store": False, "forceReasoning": True, "include": ["reasoning.encrypted_content"]},
    ),
    "summary": ("responses", {"store": False, "forceReasoning": True, "reasoningSummary": "auto"}),
    "Chat": ("compatible", {}),
}


@pytest.mark.parametrize(
    ("kind", "provider", "options", "way"),
    [
        # Each server with each way of keeping, and each of both whole and streamed: a client of its own takes long.
        pytest.param(kind, provider, options, ("generate", "stream")[(at + number) % 2], id=f"{kind.__name__}-{name}")
        for at, kind in enumerate(SERVERS)
        for number, (name, (provider, options)) in enumerate(KEEPINGS.items())
        if provider != "compatible" or kind not in UNSAID
    ],
)
async def test_reasoning_comes_back(
    node: Node, kind: type[Server], provider: str, options: dict[str, Any], way: str
) -> None:
    """R28.3: its servers refuse a history without what they gave."""
    model = kind()
    model.calls = [step for steps in STEPS for step in steps]
    async with Upstream([model]) as up, serving(before(model, up)) as server:
        got = await node("vercel.mjs", server, provider, way, json.dumps(options))
    assert (got["calls"], got["files"], model.faults) == (CALLS, FINAL, [])
