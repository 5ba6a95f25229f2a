"""Limits through the whole gateway, on a clock that stands still unless the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import (
    CHAT,
    USER,
    Gateway,
    function,
    gateway_before,
    get,
    post,
    read_config,
    serving,
    upstream_config,
)
from tests.ratelimit.conftest import Clock
from tests.waiting import GUARD_S, until
from toolwire.config import GatewayConfig
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.sending.delivery import ALIVE, READY
from toolwire.ratelimit.admission import ADMISSION, ANONYMOUS
from toolwire.ratelimit.base import Bound, MemoryLedger
from toolwire.registry import registries
from toolwire.testing import Refuse, Say, Upstream, WireAnswer

RESPONSES = "/v1/responses"
ENDPOINTS: tuple[tuple[str, Mapping[str, Any]], ...] = ((CHAT, {"messages": USER}), (RESPONSES, {"input": "hi"}))
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PROTOCOLS = pytest.mark.parametrize(("path", "body"), ENDPOINTS, ids=["chat", "responses"])
MINUTE = {"requests_per_min": 60, "tokens_per_min": 6000}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Moved by hand."""
    clock = Clock()
    monkeypatch.setattr("toolwire.ratelimit.factory.MemoryLedger", lambda: MemoryLedger(now=clock))
    return clock


def limited(*script: Any, **sections: Any) -> GatewayConfig:
    """A mock with these turns, and limits in the other sections."""
    mock = {"kind": "mock", **({"script": list(script)} if script else {})}
    return read_config({"backends": {"m": mock}, **sections})


def told(answer: WireAnswer) -> list[str | None]:
    """The six headers: limit, remaining and reset of requests, then of tokens."""
    return [
        answer.headers.get(f"x-ratelimit-{part}-{kind}")
        for kind in ("requests", "tokens")
        for part in ("limit", "remaining", "reset")
    ]


async def used(server: TestServer, kind: Literal["tokens", "concurrent"]) -> float:
    """What clients without a key hold now."""
    bound = Bound("key", kind, f"key:{ANONYMOUS}", 1_000_000)
    ledger = server.app[ADMISSION].ledger
    verdict = await ledger.book([bound], 0, "probe")
    await ledger.settle([(bound, 0)], "probe")
    return verdict.used[0] - (kind == "concurrent")


async def settled(server: TestServer, tokens: float) -> None:
    """Wait until so many tokens are booked and no slot is held."""
    async with asyncio.timeout(GUARD_S):
        while (await used(server, "tokens"), await used(server, "concurrent")) != (tokens, 0):  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0.01)


async def asked(upstream: Upstream) -> None:
    """Wait until the model server has got a request."""
    await until(lambda: upstream.requests)


@WAYS
@PROTOCOLS
async def test_every_limited_answer_says_what_is_left(
    gateway: Gateway, path: str, body: Mapping[str, Any], stream: bool
) -> None:
    limits = {"per_key": {**MINUTE, "requests_per_min": 2}, "expected_output_tokens": 1}
    server = await gateway(limited({"text": "hello", "usage": {"input": 70, "output": 30}}, rate_limits=limits))
    first = await post(server, {**body, "stream": stream}, path=path)
    assert first.status == 200
    booked = 6000 - int(first.headers["x-ratelimit-remaining-tokens"])
    assert told(first)[:5] == ["2", "1", "30s", "6000", str(6000 - booked)]
    second = await post(server, {**body, "stream": stream}, path=path)
    assert told(second)[:5] == ["2", "0", "1m0s", "6000", str(6000 - booked - 100)]
    third = await post(server, {**body, "stream": stream}, path=path)
    assert third.status == 429
    assert third.headers["Content-Type"].startswith("application/json")
    assert (third.headers["Retry-After"], third.headers["retry-after-ms"]) == ("30", "30000")
    assert told(third) == ["2", "0", "1m0s", "6000", "5800", "2s"]
    assert set(third.json()["error"]) == {"message", "type", "param", "code"}
    assert third.json()["error"]["code"] == "rate_limit_exceeded"


async def test_errors_have_the_headers_too(gateway: Gateway) -> None:
    server = await gateway(limited({"error": {"status": 500}}, rate_limits={"per_key": MINUTE}))
    for number, (body, status) in enumerate(
        [
            ({"messages": USER}, 502),
            ({"messages": USER, "tool_choice": "required"}, 400),
            ({"messages": USER, "stream": True}, 502),
        ],
        1,
    ):
        answer = await post(server, body)
        assert answer.status == status
        assert answer.headers["x-ratelimit-remaining-requests"] == str(60 - number)
        assert await used(server, "tokens") == 0  # the model wrote nothing


async def test_what_does_not_count(gateway: Gateway) -> None:
    server = await gateway(limited(auth={"keys": [{"key": "k", "requests_per_min": 1}]}, routes=[{"model": "m"}]))
    key = {"Authorization": "Bearer k"}
    for path in (*ALIVE, *READY, "/v1/models", "/metrics"):
        assert "x-ratelimit-limit-requests" not in (await get(server, path, headers=key)).headers
    assert (await post(server, b"", path="/v1/responses/resp_1/cancel", headers=key)).status == 404
    for body, headers, status in (
        ({"messages": USER}, {}, 401),
        ({"messages": USER}, {"Authorization": "Bearer wrong"}, 401),
        (b"{", key, 400),
        ({"messages": USER, "model": "other"}, key, 404),
    ):
        answer = await post(server, body, headers=headers)  # type: ignore[arg-type]
        assert (answer.status, told(answer)) == (status, [None] * 6)
    assert (await post(server, {"messages": USER}, headers=key)).status == 200
    assert (await post(server, {"messages": USER}, headers=key)).status == 429
    assert (await post(server, {"messages": USER})).status == 401


@WAYS
@pytest.mark.parametrize("tools", [[], [function("f", x="string")]], ids=["plain", "tools"])
async def test_tokens_are_those_of_the_backend_else_an_estimate(stream: bool, tools: list[Any]) -> None:
    limited = {"per_key": MINUTE}
    body = {"messages": USER, "stream": stream, **({"tools": tools} if tools else {})}
    async with gateway_before(
        [Say("hel", "lo", usage=(1000, 50)), Say("hello " * 40)],
        rate_limits=limited,
        defaults={"usage": {"source": "backend"}},
    ) as (server, _):
        options = {"stream_options": {"include_usage": True}} if stream else {}
        assert (await post(server, {**body, **options})).status == 200
        await settled(server, 1050)
        answer = await post(server, body)
        estimate = await used(server, "tokens") - 1050
        prompt = -(-len(orjson.dumps({"model": "m", **body})) // 4)
        assert estimate == prompt + 60
        assert answer.status == 200


@WAYS
@PROTOCOLS
async def test_whoever_goes_away_has_used_what_was_written(path: str, body: Mapping[str, Any], stream: bool) -> None:
    stop = asyncio.Event()
    turn = Say("word " * 20, stop) if stream else Say("hi", hang=True)
    async with gateway_before([turn], rate_limits={"per_key": {**MINUTE, "concurrent": 1}}) as (server, upstream):
        raw = orjson.dumps({"model": "m", **body, "stream": stream})
        async with aiohttp.ClientSession() as session:
            asking = asyncio.ensure_future(
                session.post(server.make_url(path), data=raw, headers={"Content-Type": "application/json"})
            )
            if stream:
                response = await asyncio.wait_for(asking, GUARD_S)
                read = b""
                while b"word" not in read:
                    read += await response.content.readany()
                response.close()
            else:
                await asked(upstream)
                asking.cancel()
        await settled(server, -(-len(raw) // 4) + (25 if stream else 0))
        stop.set()


async def test_a_stream_that_broke_off_has_used_what_was_written() -> None:
    body = {"model": "m", "messages": USER, "stream": True}
    async with gateway_before([Say("word " * 20, cut=True)], rate_limits={"per_key": MINUTE}) as (server, _):
        assert b"upstream_disconnected" in (await post(server, body)).body
        await settled(server, -(-len(orjson.dumps(body)) // 4) + 25)


@WAYS
async def test_a_slot_is_free_before_the_client_has_read_the_end(stream: bool) -> None:
    turns = [Say("hi"), Say("hi", cut=True), Refuse(500), Say("hi"), Refuse(429), Say("hi")]
    async with gateway_before(turns, rate_limits={"per_key": {"concurrent": 1}}) as (server, _):
        for _ in turns:  # one after the other, never refused by the gateway
            answer = await post(server, {"messages": USER, "stream": stream})
            assert b"concurrent" not in answer.body
        await settled(server, 0)


async def test_streams_hold_their_slots() -> None:
    stop = asyncio.Event()
    async with Upstream([Say("a", stop), Say("a", stop), Say("b")]) as upstream:
        config = upstream_config(upstream.url, rate_limits={"per_key": {"concurrent": 2}})
        async with serving(config) as server, aiohttp.ClientSession() as session:
            raw = orjson.dumps({"model": "m", "messages": USER, "stream": True})
            headers = {"Content-Type": "application/json"}
            open_ = [await session.post(server.make_url(CHAT), data=raw, headers=headers) for _ in range(2)]
            refused = await post(server, {"messages": USER})
            assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
            assert "retry-after-ms" not in refused.headers, "when another one ends nobody knows"
            stop.set()
            for response in open_:
                assert (await response.read()).endswith(b"data: [DONE]\n\n")
            assert (await post(server, {"messages": USER})).status == 200


async def test_keys_and_routes_have_limits_of_their_own(gateway: Gateway, clock: Clock) -> None:
    keys = [{"key": "a", "requests_per_min": 4, "name": "alice"}, {"key": "b", "routes": ["small"]}]
    small = {"model": "small", "rate_limit": {"requests_per_min": 3}}
    large = {"model": "large", "rate_limit_per_key": {"requests_per_min": 2}}
    limits = {"per_key": {"requests_per_min": 100}}
    server = await gateway(limited(auth={"keys": keys}, rate_limits=limits, routes=[small, large]))

    async def ask(key: str, model: str) -> WireAnswer:
        return await post(server, {"messages": USER, "model": model}, headers={"Authorization": f"Bearer {key}"})

    answers = [(key, model, await ask(key, model)) for key, model in (("a", "small"), ("b", "small"), ("b", "small"))]
    assert [(answer.status, told(answer)[:2]) for _, _, answer in answers] == [
        (200, ["3", "2"]),
        (200, ["3", "1"]),
        (200, ["3", "0"]),
    ]
    refused = await ask("a", "small")
    assert refused.status == 429
    assert 'the model "small"' in refused.json()["error"]["message"]
    assert [(await ask("a", "large")).status for _ in range(3)] == [200, 200, 429]  # the refusals cost alice nothing:
    clock.now += 30
    assert (await ask("a", "large")).headers["x-ratelimit-remaining-requests"] == "0"
    forbidden = await ask("b", "large")
    assert (forbidden.status, forbidden.json()["error"]["code"]) == (403, "model_not_allowed")
    assert told(forbidden) == [None] * 6
    for key, names in (("a", ["small", "large"]), ("b", ["small"])):
        models = await get(server, "/v1/models", headers={"Authorization": f"Bearer {key}"})
        assert [model["id"] for model in models.json()["data"]] == names
    assert (await get(server, "/v1/models/large", headers={"x-api-key": "b"})).status == 404
    page = (await get(server, "/metrics", headers={"x-api-key": "b"})).body.decode()
    assert 'toolwire_rate_limited_total{limit="route_requests"} 1.0' in page
    assert 'toolwire_rate_limited_total{limit="key_route_requests"} 1.0' in page
    assert "\ntoolwire_limit_store_up " not in page  # nothing is shared


class Stop(Middleware):
    async def on_request(self, exchange: Any, request: Any) -> Any:
        return web.json_response({"cached": True})


async def test_an_answer_of_another_middleware_uses_no_tokens() -> None:
    plugins = registries()
    plugins.middlewares.register("stop", Stop)
    config = upstream_config(
        "http://127.0.0.1:1", chain=["stop", "forwarding"], rate_limits={"per_key": {**MINUTE, "concurrent": 1}}
    )
    async with serving(config, plugins) as server:
        for left in ("59", "58"):
            answer = await post(server, {"messages": USER})
            assert answer.json() == {"cached": True}
            assert answer.headers["x-ratelimit-remaining-requests"] == left
        await settled(server, 0)
