"""A whole gateway in front of the scripted server: what no part can show alone (R1.6, R10.7, R10.8, R7.9)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer

from proxy.app import create_app
from proxy.config import BackendConfig, GatewayConfig, MiddlewareConfig
from proxy.testing import Answer, Raw, Refuse, Say, Upstream, chunk, frame, read_frames
from tests.waiting import GUARD_S

PATH = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def gateway(server: Upstream) -> AsyncIterator[TestClient[Any, Any]]:
    config = GatewayConfig(backends={"up": BackendConfig(url=server.url)}, chain=(MiddlewareConfig(use="forwarding"),))
    async with TestClient(TestServer(create_app(config))) as client:
        yield client


@pytest.mark.parametrize("stream", [True, False])
async def test_without_tools_bytes_pass_unchanged(
    server: Upstream, gateway: TestClient[Any, Any], stream: bool
) -> None:
    frames = [frame(chunk({"content": "a"})), b'data: {"strange":  1.0, "choices":[]}\n\n', b"data: [DONE]\n\n"]
    whole = b'{ "choices" : [ ], "odd": 1.0 }'
    server.script = [
        Answer(frames, headers={"Content-Type": "text/event-stream"})
        if stream
        else Answer([whole], headers={"Content-Type": "application/json"}, framing="length")
    ]
    raw = b'{ "model":"m", "messages":[{"role":"user","content":"hi"}], "stream":%s, "top_k":1.0 }'
    raw %= b"true" if stream else b"false"
    async with gateway.post(PATH, data=raw, headers={"Content-Type": "application/json"}) as response:
        assert response.status == 200
        assert await response.read() == (b"".join(frames) if stream else whole)
    assert server.requests[0].body == raw


async def test_large_bodies_arrive_whole(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    server.script = [Say("ok")]
    raw = orjson.dumps({**ASK, "messages": [{"role": "user", "content": "x\n" * 1_500_000}]})
    async with gateway.post(PATH, data=io.BytesIO(raw), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 200
        await response.read()
    assert server.requests[0].body == raw


async def test_the_request_id_reaches_the_backend(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    server.script = [Say("ok")]
    async with gateway.post(PATH, json=ASK, headers={"X-Request-Id": "abc.1"}) as response:
        assert response.headers["X-Request-Id"] == "abc.1"
    assert server.requests[0].headers["x-request-id"] == "abc.1"


async def test_a_pause_is_passed_on(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    server.script = [Refuse(429, "slow down", headers={"Retry-After": "7"})]
    async with gateway.post(PATH, json={**ASK, "stream": True}) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["error"] == {
            "message": "slow down",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }


async def test_a_first_frame_that_is_an_error_becomes_a_status(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    error = frame({"error": {"message": "no memory", "type": "server_error", "code": None}})
    server.script = [Answer([error], headers={"Content-Type": "text/event-stream"})]
    async with gateway.post(PATH, json={**ASK, "stream": True}) as response:
        assert response.status == 502
        assert "no memory" in (await response.json())["error"]["message"]


async def test_a_cut_stream_ends_with_an_error_frame(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    server.script = [Say("Hel", cut=True)]
    async with gateway.post(PATH, json={**ASK, "stream": True}) as response:
        assert response.status == 200
        *_, error, done = read_frames(await response.read())
    assert (error["error"]["code"], done) == ("upstream_disconnected", "[DONE]")


@pytest.mark.parametrize("turn", [Raw(hang=True), Say("a", hang=True)], ids=["before", "during"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_takes_the_backends_work_along(
    server: Upstream, gateway: TestClient[Any, Any], turn: Any, stream: bool
) -> None:
    server.script = [turn]
    session = aiohttp.ClientSession()
    asking = asyncio.create_task(session.post(gateway.make_url(PATH), json={**ASK, "stream": stream}))
    asked = await server.next_request()
    if stream and not isinstance(turn, Answer):
        response = await asking
        await response.content.readany()
        response.close()
    asking.cancel()
    await session.close()
    async with asyncio.timeout(GUARD_S):
        await asked.dropped.wait()
    await asyncio.gather(asking, return_exceptions=True)
