"""The test kit itself: a chain in-process (R16.5), and the scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiohttp
import pytest
from aiohttp import web

from tests.waiting import GUARD_S
from toolwire.config import BackendConfig, GatewayConfig, MiddlewareConfig, RouteOptions
from toolwire.events import Delta, Event, Kind
from toolwire.pipeline.chain.middleware import Handler, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.testing import Answer, Raw, Refuse, Say, ScriptedBackend, Upstream, run_chain

ASK = {"messages": [{"role": "user", "content": "hi"}]}


class Loud(Middleware):
    """Writes all text in capitals."""

    wants = Kind.TEXT

    def on_event(self, exchange: Exchange, event: Event) -> Event | Iterable[Event] | None:
        return Delta(event.block, event.text.upper()) if isinstance(event, Delta) else event


@web.middleware
async def stamp(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    response.headers["X-Stamp"] = "seen"
    return response


async def test_a_chain_of_objects() -> None:
    answer = await run_chain([stamp, Loud], ASK, replies=["Hello"])
    assert (answer.status, answer.headers["X-Stamp"]) == (200, "seen")
    assert answer.json()["choices"][0]["message"]["content"] == "HELLO"
    assert [m.text for m in answer.requests[0].messages] == ["hi"]


async def test_a_streamed_answer() -> None:
    answer = await run_chain([Loud], {**ASK, "stream": True}, replies=[{"chunk": ["Hel", "lo"]}])
    frames = answer.frames()
    assert frames[-1] == "[DONE]"
    texts = [f["choices"][0]["delta"].get("content") for f in frames[:-1] if f["choices"]]
    assert "".join(t for t in texts if t) == "HELLO"


async def test_a_configuration() -> None:
    config = GatewayConfig(
        backends={"mine": BackendConfig(url="http://model.invalid")},
        chain=(MiddlewareConfig(use="forwarding"),),
        defaults=RouteOptions(mode="native"),
    )
    backend = ScriptedBackend([{"calls": [{"name": "f", "arguments": {"x": 1}}]}])
    tools = [{"type": "function", "function": {"name": "f"}}]
    answer = await run_chain(config, {**ASK, "tools": tools}, backend=backend)
    [choice] = answer.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert backend.requests[0].tools[0].name == "f"


async def test_an_error_is_an_answer_too() -> None:
    answer = await run_chain([], ASK, replies=[{"error": {"status": 429, "message": "slow down"}}])
    assert (answer.status, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (await run_chain([], b"not json")).status == 400


async def test_the_servers_turns() -> None:
    gate = asyncio.Event()
    async with (
        Upstream([Refuse(503), Say("a", gate, "b"), Answer([b"x"], framing="length"), Raw(b"")]) as server,
        aiohttp.ClientSession() as client,
    ):
        url = f"{server.url}/v1/chat/completions"
        async with client.post(url, json={"stream": True}) as response:
            assert response.status == 503
        async with client.post(url, json={"stream": True}) as response:
            first = b""
            while b'"a"' not in first:
                first += await response.content.readany()
            assert b'"b"' not in first
            gate.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        async with client.post(url, json={}) as response:
            assert await response.read() == b"x"
        with pytest.raises(aiohttp.ClientError):
            await client.post(url, json={})
        assert [asked.json for asked in server.requests[:2]] == [{"stream": True}] * 2
        assert not any(asked.dropped.is_set() for asked in server.requests)


async def test_the_server_sees_a_client_go() -> None:
    async with Upstream([Say("a", hang=True)]) as server, aiohttp.ClientSession() as client:
        response = await client.post(server.url, json={"stream": True})
        asked = await server.next_request()
        response.close()
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
