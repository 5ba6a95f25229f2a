"""A whole gateway in front of the scripted server: what no part can show alone (R1.6, R10.7, R10.8, R7.9)."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer

from toolwire.app import create_app
from toolwire.config import BackendConfig, GatewayConfig, MiddlewareConfig
from toolwire.testing import Answer, Refuse, Say, Upstream, chunk, frame

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


async def test_a_pause_is_passed_on(server: Upstream, gateway: TestClient[Any, Any]) -> None:
    """And the id of the request reaches the server."""
    server.script = [Refuse(429, "slow down", headers={"Retry-After": "7"})]
    async with gateway.post(PATH, json={**ASK, "stream": True}, headers={"X-Request-Id": "abc.1"}) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert response.headers["X-Request-Id"] == "abc.1"
        said = {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
        assert (await response.json())["error"] == said
    assert server.requests[0].headers["x-request-id"] == "abc.1"
