"""Metrics by route and model: what the operator or a server named, and nothing that a client made up."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from tests.cases import every
from tests.e2e.conftest import USER, Gateway, function, get, post, read_config
from tests.e2e.speaking import JSON
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.observability.metrics import NONE, OTHER
from toolwire.pipeline.exchange.routing import ROUTER
from toolwire.testing import Answer, Refuse, Say, Upstream

LISTED = Answer([orjson.dumps({"object": "list", "data": [{"id": "served-a"}, {"id": "served-b"}]})], headers=JSON)


def config(url: str, **more: Any) -> Any:
    routes = [
        {"model": "exact", "aliases": ["nickname", "qwen*"], "upstream_model": "served-a"},
        {"model": "*", "backend": "up"},
    ]
    return read_config({"backends": {"up": {"url": url}}, "routes": routes, **more})


async def samples(server: TestServer) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name: labels and number."""
    page = (await get(server, "/metrics")).body.decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def whose(found: list[tuple[dict[str, str], float]]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = {}
    for labels, number in found:
        key = (labels["route"], labels["model"])
        counts[key] = counts.get(key, 0) + number
    return counts


@every("stream", [False, True])
async def test_what_is_known_has_its_name(gateway: Gateway, stream: bool) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say("fine", usage=(30, 4))]) as upstream:
        upstream.pages["/v1/models"] = LISTED
        server = await gateway(config(upstream.url))
        asked = ["exact", "nickname", "qwen-made-up", "served-a", "served-b", "made-up", "gpt-4", ""]
        for model in asked:
            await post(server, {"messages": USER, "model": model, "stream": stream})
        found = await samples(server)
    wanted = {
        ("exact", "exact"): 1.0,
        ("exact", "nickname"): 1.0,
        ("exact", OTHER): 1.0,
        ("*", "served-a"): 1.0,
        ("*", "served-b"): 1.0,
        ("*", OTHER): 2.0,
    }
    assert whose(found["toolwire_requests_total"]) == {**wanted, (NONE, NONE): 1.0}
    assert whose(found["toolwire_request_duration_seconds_count"]) == {**wanted, (NONE, NONE): 1.0}
    first = found.get("toolwire_time_to_first_token_seconds_count", [])
    assert whose(first) == (wanted if stream else {})
    assert sum(number for _, number in found["toolwire_overhead_seconds_count"]) == len(asked)


@every(
    "text, counter",
    [
        ('<tool_call>{"name": "f", "arguments": {"x": "1"}}</tool_call>', "tool_calls_total"),
        ("<tool_call>{broken</tool_call>", "tool_call_parse_failures_total"),
    ],
)
async def test_calls_and_tokens_have_them_too(gateway: Gateway, text: str, counter: str) -> None:
    options = {"format": "hermes", "bad_answers": {"reask": 0}}
    backends = {"m": {"kind": "mock", "script": [text]}}
    server = await gateway(read_config({"backends": backends, "defaults": options, "routes": [{"model": "m"}]}))
    await post(server, {"messages": USER, "tools": [function("f", x="string")]})
    found = await samples(server)
    assert whose(found[f"toolwire_{counter}"]) == {("m", "m"): 1.0}
    assert whose(found["toolwire_tokens_total"]).keys() == {("m", "m")}


async def test_a_route_that_a_key_may_not_use_is_counted_and_its_model_not_looked_at(gateway: Gateway) -> None:
    keys = {"auth": {"keys": [{"key": "k", "routes": ["exact"]}]}}
    async with Upstream([Refuse(500)]) as upstream:
        server = await gateway(config(upstream.url, **keys))
        key = {"Authorization": "Bearer k"}
        assert (await post(server, {"messages": USER, "model": "served-a"}, headers=key)).status == 403
        page = (await get(server, "/metrics", headers=key)).body.decode()
    assert 'toolwire_requests_total{endpoint="chat",model="none",route="*",status="403",stream="false"} 1.0' in page


async def test_ten_thousand_names_that_nobody_knows_are_one(gateway: Gateway) -> None:
    """Neither the page nor what the gateway remembers grows with what clients make up."""
    async with asyncio.timeout(GUARD_S), Upstream([Say("fine")]) as upstream:
        upstream.pages["/v1/models"] = LISTED
        server = await gateway(config(upstream.url))

        async def ask(numbers: range) -> int:
            for number in numbers:
                await post(server, {"messages": USER, "model": f"made-up-{number}"})
            return len((await samples(server))["toolwire_request_duration_seconds_bucket"])

        before = await ask(range(1))
        assert await ask(range(1, 20)) == before
        found = await samples(server)
        assert whose(found["toolwire_requests_total"]) == {("*", OTHER): 20.0}
    router = create_app(config("http://127.0.0.1:9"))[ROUTER]
    names = [f"made-up-{number}" for number in range(10_000)]
    assert {router.find(name).label(name) for name in names} == {OTHER}
